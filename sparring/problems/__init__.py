"""Reads, checks and splits problem files."""
