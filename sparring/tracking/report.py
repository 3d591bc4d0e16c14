"""Renders a run as one HTML page: gathers what the run has written so far, and inserts it into the template in report_page.

The page loads nothing. The figures are one block of JSON; the attempts of each step are a separate block (JSON, gzip,
base64), which is decoded when the user opens the step. Texts of programs enter the page as data only: the page's
content security policy names the hashes of its own scripts, and the browser runs no others. If a run did not store some
data, the page says so.
"""

import base64
import gzip
import hashlib
import html
import json
import math
import os
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count, groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from configs.layers import leaves
from sparring.core.evaluation import mean
from sparring.core.stages import REASONING_STAGES
from sparring.tracking.kills import KillMatrix
from sparring.tracking.rows import read_json, read_rows
from sparring.tracking.run_log import FAILED, FINISHED, INTERRUPTED, LOG
from sparring.tracking.runs import BECAME, Row, is_suite, played, players_of, rules_of, why

if TYPE_CHECKING:
    from sparring.games.rules import Rules

_PAGE = Path(__file__).with_name("report_page")
_BINS = 40
"""Maximum number of rows and columns of the kill matrix."""
_TAIL = 64 << 10
"""Number of bytes at the end of run.log that are read."""
_STEP = re.compile(r"step \d+/(\d+) ")


@dataclass(frozen=True, kw_only=True, slots=True)
class ReportData:
    """The data of one run. summary: plain JSON without the attempts. steps: the packed attempts of each step."""

    summary: dict[str, Any]
    steps: dict[int, str]


@dataclass(kw_only=True, slots=True)
class _Attempts:
    index: list[dict[str, Any]] = field(default_factory=list)
    packed: dict[int, str] = field(default_factory=dict)
    kills: KillMatrix = field(default_factory=KillMatrix)


def gather(run: Path, name: str) -> ReportData:
    """Gathers all that the run has written so far. name: the run's name on the page."""
    rules, config = rules_of(run), {k: str(v) for k, v in leaves(_config(run))}
    rows = list(read_rows(run / "metrics.jsonl"))
    attempts = _attempts(run, rules)
    state, total = _state(run)
    stored = [entry["step"] for entry in attempts.index]
    bins = _bins(stored)
    return ReportData(
        summary={
            "name": name,
            "path": str(run),
            "game": config.get("game.kind", "unknown"),
            "state": state,
            "total": total,
            "versions": read_json(run / "versions.json"),
            "seconds": read_json(run / "training_results.json").get("wall_time_s", {})
            if state == "finished"
            else {},
            "config": config,
            "columns": _columns(rows),
            "phases": [[row["step"], row.get("stage"), row.get("phase")] for row in rows if row["step"]],
            "policies": list(dict.fromkeys(k for row in rows for k, v in row.items() if _learned(v))),
            "players": players_of(rows),
            "checkpoints": _checkpoints(run),
            "index": attempts.index,
            "kills": {
                "bins": [[steps[0], steps[-1]] for steps in bins],
                "cells": attempts.kills.cells(bins),
            },
            "league": read_json(run / "league.json"),
            "tasks": _tasks(run),
            "stages": {stage.number: stage.name for stage in REASONING_STAGES}
            if rules is not None and "stages" in rules.uses
            else {},
        },
        steps=attempts.packed,
    )


def page(runs: Sequence[ReportData], live: bool) -> str:
    """Returns the HTML page. live: whether the page will be written again, so that an open page checks for a newer version."""
    style, script = ((_PAGE / name).read_text("utf-8") for name in ("report.css", "report.js"))
    data = {
        "live": live,
        "written": time.time(),
        "became": BECAME,
        "runs": [run.summary for run in runs],
    }
    blocks = [_block("data", _dump(data))]
    for number, run in enumerate(runs):
        blocks += [_block(f"run-{number}-step-{step}", packed) for step, packed in run.steps.items()]
    parts = {
        "title": html.escape(" · ".join(run.summary["name"] for run in runs)),
        "style_hash": _hash(style),
        "script_hash": _hash(script),
        "style": style,
        "data": "\n".join(blocks),
        "script": script,
    }
    whole = (_PAGE / "report.html").read_text("utf-8")
    return re.sub(r"\{\{(\w+)\}\}", lambda found: parts[found[1]], whole)


def names_of(runs: Sequence[Path]) -> list[str]:
    """Returns the shortest distinct names of the runs: the last parts of their paths. No run may be given twice."""
    whole = [run.resolve().parts for run in runs]
    by_length = (["/".join(parts[-length:]) for parts in whole] for length in count(1))
    return next(names for names in by_length if len(set(names)) == len(names))


# ---------------------------------------------------------------------- attempts
def _attempts(run: Path, rules: "Rules | None") -> _Attempts:
    found = _Attempts()
    for step, rows in groupby(played(run), key=lambda row: row["step"]):
        of_step = [_attempt(row, rules) for row in rows]
        for row in of_step:
            found.kills.add(row)
        episodes = list(_episodes(of_step))
        found.index.append(
            {"step": step, "attempts": len(of_step), "problems": [_entry(episode) for episode in episodes]}
        )
        found.packed[step] = _pack(episodes)
    return found


def _attempt(row: Row, rules: "Rules | None") -> dict[str, Any]:
    return {**row, "why": why(row, rules), "suite": is_suite(row["outcomes"])}


def _episodes(rows: Sequence[Row]) -> Iterator[list[Row]]:
    """Splits the rows of a step into episodes. All attempts of an episode are at one problem, and each (player, attempt)
    occurs once."""
    episode: list[Row] = []
    seen: set[tuple[str, int]] = set()
    for row in rows:
        key = row["player"], row["attempt"]
        if episode and (row["problem"] != episode[0]["problem"] or key in seen):
            yield episode
            episode, seen = [], set()
        episode.append(row)
        seen.add(key)
    if episode:
        yield episode


def _entry(episode: Sequence[Row]) -> dict[str, Any]:
    players = dict.fromkeys(row["player"] for row in episode)
    rewards = {
        player: mean([r["reward"] for r in episode if r["player"] == player and r["reward"] is not None])
        for player in players
    }
    return {"problem": episode[0]["problem"], "attempts": len(episode), "rewards": rewards}


def _pack(episodes: Sequence[Sequence[Row]]) -> str:
    return base64.b64encode(gzip.compress(_dump(episodes).encode(), 6, mtime=0)).decode()


# ---------------------------------------------------------------------- figures
def _columns(rows: Sequence[Row]) -> dict[str, list[float | None]]:
    """Returns every figure of the rows by its path, such as held_out.kill_rate; None for rows that lack it."""
    columns: dict[str, list[float | None]] = {}
    for number, row in enumerate(rows):
        for path, value in leaves(row):
            if (figure := _figure(value)) is not None:
                columns.setdefault(path, [None] * len(rows))[number] = figure
    return columns


def _figure(value: Any) -> float | None:
    """Rounds a number to five digits, which is more than a curve shows. Returns None if the value is no finite number."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        return None
    return value if isinstance(value, int) else float(f"{value:.5g}")


def _learned(value: Any) -> bool:
    """Whether a row's entry is a learner's metrics."""
    return isinstance(value, Mapping) and "trained_tokens" in value


def _bins(steps: Sequence[int]) -> list[Sequence[int]]:
    size = max(1, math.ceil(len(steps) / _BINS))
    return [steps[i : i + size] for i in range(0, len(steps), size)]


def _tasks(run: Path) -> dict[str, Any]:
    """Returns the score of each held-out problem at each evaluation."""
    rows = list(read_rows(run / "task_history.jsonl"))
    problems = dict.fromkeys(problem for row in rows for problem in row["tasks"])
    return {
        "steps": [row["step"] for row in rows],
        "problems": {problem: [_figure(row["tasks"].get(problem)) for row in rows] for problem in problems},
    }


# ---------------------------------------------------------------------- a run's other files
def _config(run: Path) -> dict[str, Any]:
    try:
        config = yaml.safe_load((run / "config.yaml").read_text("utf-8"))
    except (OSError, yaml.YAMLError):
        return {}
    return config if isinstance(config, dict) else {}


def _checkpoints(run: Path) -> dict[str, Any]:
    """Returns the steps of the existing checkpoints, and the step of the best one."""
    folder = run / "checkpoints"
    steps = sorted(int(p.name[5:]) for p in folder.glob("step_*") if p.name[5:].isdigit())
    best = os.readlink(folder / "best") if (folder / "best").is_symlink() else ""
    found = re.search(r"step_(\d+)", best)
    return {"steps": steps, "best": int(found[1]) if found else None}


def is_over(run: Path) -> bool:
    """Returns whether the run's files show that it has ended. If its process was killed by SIGKILL, they do not, and
    the run counts as still going on."""
    return _state(run)[0] != "going on"


def _state(run: Path) -> tuple[str, int | None]:
    """Returns the state ("finished", "failed", "interrupted" or "going on") and the number of planned steps."""
    log = run / LOG
    if not log.is_file() and (run / "training_results.json").is_file():  # a copy without its log
        return "finished", None
    text = ""
    if log.is_file():
        with log.open("rb") as handle:
            handle.seek(max(0, log.stat().st_size - _TAIL))
            text = handle.read().decode(errors="replace")
    totals = _STEP.findall(text)
    total = int(totals[-1]) if totals else None
    said = re.findall(r"^\d{4}-\d\d-\d\d \d\d:\d\d:\d\d (.*)$", text, re.MULTILINE)
    states = {FINISHED: "finished", INTERRUPTED: "interrupted", FAILED: "failed"}
    return states.get(said[-1] if said else "", "going on"), total


# ---------------------------------------------------------------------- encoding for the page
def _dump(value: Any) -> str:
    """Returns compact JSON. Numbers that are not finite become null, since JSON cannot represent them."""
    try:
        return json.dumps(value, separators=(",", ":"), allow_nan=False)
    except ValueError:
        return json.dumps(_finite(value), separators=(",", ":"))


def _finite(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {key: _finite(of) for key, of in value.items()}
    return [_finite(of) for of in value] if isinstance(value, list | tuple) else value


def _block(name: str, text: str) -> str:
    """Returns a script element that no browser executes. `text` is escaped so that it cannot close the element."""
    safe = text.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e")
    return f'<script type="application/json" id="{name}">{safe}</script>'


def _hash(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
