"""Writes trace.json: a timeline of a run with a row per part, for ui.perfetto.dev or chrome://tracing.

The events are in an array that is never closed, as the format allows: a run that is killed leaves a readable file.
"""

import json
import os
import zlib
from collections.abc import Iterable
from pathlib import Path

from sparring.core.tracing import Span


class Trace:
    def __init__(self, file: Path) -> None:
        """Continues an existing file, without a line that a crash cut off."""
        self._file = file
        self._named: set[str] = set()
        if file.exists():
            os.truncate(file, file.read_bytes().rfind(b"\n") + 1)
        if not file.exists() or not file.stat().st_size:
            file.write_text("[\n", "utf-8")

    def add(self, spans: Iterable[Span]) -> None:
        events = []
        for row, began, ended in spans:
            place = {"pid": 1, "tid": zlib.crc32(row.encode()) >> 1}  # the same id after a resume
            if row not in self._named:
                self._named.add(row)
                events.append({"name": "thread_name", "ph": "M", "args": {"name": row}} | place)
            times = {"ts": round(began * 1e6), "dur": round((ended - began) * 1e6)}
            events.append({"name": row, "ph": "X"} | place | times)
        with self._file.open("a") as handle:
            handle.write("".join(json.dumps(event) + ",\n" for event in events))
