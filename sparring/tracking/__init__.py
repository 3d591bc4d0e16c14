"""Writes a run's files, shows its progress, and sends its metrics to trackers."""
