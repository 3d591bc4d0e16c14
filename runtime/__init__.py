"""Puts the rooms together for a run: on Ray, or all in one process. The driver sees one set of parts either way."""
