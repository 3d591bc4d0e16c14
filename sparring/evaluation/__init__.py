"""Measures the policies on problems that are not in training."""
