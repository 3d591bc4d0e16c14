"""Trains a policy's weights on batches. Knows batches, but no games."""
