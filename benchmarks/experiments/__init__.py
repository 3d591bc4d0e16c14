"""Experiments: several whole runs, compared by seed at equal numbers of generator steps."""
