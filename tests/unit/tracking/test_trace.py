"""Where the time went, as a file that a viewer reads."""

import asyncio
import itertools
import json
from pathlib import Path
from typing import Any

import pytest

from sparring.core.tracing import BusyTimer
from sparring.tracking.clock import Clock
from sparring.tracking.trace import Trace


def events(file: Path) -> list[dict[str, Any]]:
    """As a viewer reads an array that nobody closed."""
    return json.loads(file.read_text().rstrip().rstrip(",") + "]")


def test_a_row_per_part_that_goes_on_after_a_kill(tmp_path: Path) -> None:
    file, now = tmp_path / "trace.json", iter([2.0, 5.0, 6.0])
    clock = Clock(now=lambda: next(now), began=1.0)
    clock.listener = Trace(file).add
    clock.lap("startup")
    clock.split({"sandbox": 1.0}, "rollout", [("rollout 0: generate", 2.5, 4.0)])
    again = Trace(file)  # a run that goes on
    clock.listener = again.add
    clock.lap("rollout")
    rows = {e["tid"]: e["args"]["name"] for e in events(file) if e["ph"] == "M"}
    assert set(rows.values()) == {"startup", "rollout", "rollout 0: generate"}
    spans = [(e["name"], e["ts"], e["dur"]) for e in events(file) if e["ph"] == "X"]
    assert spans == [
        ("startup", 1_000_000, 1_000_000),
        ("rollout", 2_000_000, 3_000_000),
        ("rollout 0: generate", 2_500_000, 1_500_000),
        ("rollout", 5_000_000, 1_000_000),
    ]


@pytest.mark.parametrize("torn", ['{"pid": 1, "na', ""])
def test_a_line_that_a_crash_cut_off_is_left_out(tmp_path: Path, torn: str) -> None:
    file = tmp_path / "trace.json"
    Trace(file).add([("rollout", 1.0, 2.0)])
    with file.open("a") as handle:
        handle.write(torn)
    Trace(file).add([("learn", 2.0, 3.0)])
    assert [e["name"] for e in events(file) if e["ph"] == "X"] == ["rollout", "learn"]


def test_spans_are_told_apart() -> None:
    occupancy = BusyTimer("generate", "sandbox")

    async def work(kind: str) -> None:
        with occupancy.working(kind):
            await asyncio.sleep(0.01)

    async def play() -> None:
        await asyncio.gather(*(work("generate") for _ in range(3)), work("sandbox"))
        await work("sandbox")

    asyncio.run(play())
    spans = occupancy.spans()
    assert all(before[2] <= after[1] for before, after in itertools.pairwise(spans))
    assert next(name for name, *_ in spans) == "generate" and len(spans) < 8
