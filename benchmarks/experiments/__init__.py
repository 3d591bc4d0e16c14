"""Experiments: several whole runs compared at equal generator steps, by seed."""
