"""Builds the parts of a run, either on Ray or all in one process. The driver uses the same interface in both cases."""
