"""Reads and writes files of JSON rows, each with its step, and files that are replaced as a whole."""

import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any


def append_row(file: Path, row: Mapping[str, Any]) -> None:
    with file.open("a", encoding="utf-8") as handle:
        handle.write(json.dumps(row) + "\n")


def read_rows(file: Path) -> Iterator[dict[str, Any]]:
    """Yields the rows of a file. A line that a crash cut off is skipped; a missing file has no rows."""
    return (row for _, row in _lines(file))


def keep_steps(file: Path, last: int) -> None:
    """Removes the rows of steps after `last`."""
    draft = _draft(file)
    with draft.open("w") as handle:
        handle.writelines(line for line, row in _lines(file) if row["step"] <= last)
    os.replace(draft, file)


def read_json(file: Path) -> dict[str, Any]:
    """Returns the file's content; empty if there is no such file or if it is not JSON."""
    try:
        return json.loads(file.read_text("utf-8"))
    except (OSError, ValueError):
        return {}


def write_json(path: Path, value: Any) -> None:
    write_text(path, json.dumps(value, indent=1, default=str))


def write_text(path: Path, text: str) -> None:
    """Writes a file atomically: a process that is killed meanwhile leaves the file as it was."""
    _draft(path).write_text(text, "utf-8")
    os.replace(_draft(path), path)


def _lines(file: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    if not file.is_file():
        return
    with file.open(encoding="utf-8") as lines:
        for line in lines:
            try:
                yield line, json.loads(line)
            except ValueError:
                continue


def _draft(path: Path) -> Path:
    return path.with_name(f".{path.name}.draft")
