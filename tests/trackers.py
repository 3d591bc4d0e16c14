"""Makes runs for trackers, and reads what the trackers have stored."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from sparring.tracking.writers import TrackedRun

_BLOCK, _HEADER = 32 * 1024, 7


def tracked(directory: Path, **other: Any) -> TrackedRun:
    told: dict[str, Any] = {"name": "mine", "project": None, "done": -1}
    return TrackedRun(directory=directory, **{**told, "settings": {}, "environment": {}, **other})


def wandb_records(directory: Path) -> Iterator[Any]:
    """Yields W&B's own records, in the order of an offline run's file. The format is LevelDB's log format after a
    header of the same length as a record's. The library itself has no reader in Python."""
    from wandb.proto import wandb_internal_pb2

    (file,) = directory.glob("run-*.wandb")
    data, place, whole = file.read_bytes(), _HEADER, b""
    while place + _HEADER <= len(data):
        left = _BLOCK - place % _BLOCK
        if left < _HEADER:
            place += left
            continue
        length, kind = int.from_bytes(data[place + 4 : place + 6], "little"), data[place + 6]
        whole += data[place + _HEADER : place + _HEADER + length]
        place += _HEADER + length
        if kind in (1, 4):  # a whole record, or its last part
            record = wandb_internal_pb2.Record()
            record.ParseFromString(whole)
            yield record
            whole = b""


def wandb_history(directory: Path) -> list[dict[str, Any]]:
    """Returns one row for each call of log."""
    return [
        {(item.key or "/".join(item.nested_key)): json.loads(item.value_json) for item in record.history.item}
        for record in wandb_records(directory)
        if record.WhichOneof("record_type") == "history"
    ]


def wandb_config(directory: Path) -> dict[str, Any]:
    """Returns the config that was given at the start."""
    found: dict[str, Any] = {}
    for record in wandb_records(directory):
        if record.WhichOneof("record_type") == "run":
            found |= {
                item.key or "/".join(item.nested_key): json.loads(item.value_json)
                for item in record.run.config.update
            }
    return found
