"""Measurements: each script prints its figures and writes them with --json; --quick takes under a minute."""
