"""Benchmarks: each script prints its figures and, with --json, writes them to a file; with --quick it takes under a
minute."""
