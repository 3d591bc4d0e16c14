"""episodes.jsonl: a row per attempt that was played for training, with what it was asked and all that its reward came from.

Not here: held-out attempts.
"""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from core.episode import Episode, Outcome, Trajectory
from tracking.rows import keep_steps

FILE_BYTES = 64 << 20
OLDER_FILES = 4
PROMPT_CHARACTERS = 4000
"""Of a longer one, beginning and end are kept."""


class EpisodeLog:
    """The newest rows are in episodes.jsonl, older ones in episodes.1.jsonl, episodes.2.jsonl …"""

    def __init__(self, directory: Path, file_bytes: int = FILE_BYTES) -> None:
        """file_bytes: after so many a new file is begun."""
        self._directory, self._file_bytes = directory, file_bytes
        self._said = False

    def clear(self) -> None:
        for file in episode_files(self._directory):
            file.unlink()

    def forget_after(self, step: int) -> None:
        for file in episode_files(self._directory):
            keep_steps(file, step)

    def add(self, rows: Iterable[Mapping[str, Any]]) -> str | None:
        """Returns, once, what people should know: that rows went to an older file."""
        file = self._directory / "episodes.jsonl"
        with file.open("a") as handle:
            handle.write("".join(json.dumps(row) + "\n" for row in rows))
            full = handle.tell() >= self._file_bytes
        if not full:
            return None
        for number in range(OLDER_FILES, 0, -1):
            newer = self._file(number - 1)
            if newer.exists():
                newer.replace(self._file(number))
        if self._said:
            return None
        self._said = True
        return (
            f"{file} has {self._file_bytes >> 20} MiB and goes on in a new file; the last {OLDER_FILES} are kept "
            "(episodes.1.jsonl is the newest), older rows are dropped"
        )

    def _file(self, number: int) -> Path:
        return self._directory / (f"episodes.{number}.jsonl" if number else "episodes.jsonl")


def episode_files(directory: Path) -> list[Path]:
    """Those that are there, the oldest rows first."""
    older = [directory / f"episodes.{number}.jsonl" for number in range(OLDER_FILES, 0, -1)]
    return [file for file in (*older, directory / "episodes.jsonl") if file.is_file()]


def episode_rows(
    step: int,
    stage: int | None,
    phase: str,
    episodes: Sequence[Episode],
    policies: Mapping[str, str],
    tokenizers: Mapping[str, Any] | None = None,
) -> Iterator[dict[str, Any]]:
    """policies: whose policy each player is. tokenizers: by policy; without them the rows have no prompts."""

    @cache  # attempts at one problem are asked the same
    def text(policy: str, tokens: tuple[int, ...]) -> str:
        return _shortened(tokenizers[policy].decode(list(tokens))) if tokenizers else ""

    for episode in episodes:
        for attempt in episode.trajectories:
            policy = policies[attempt.player]
            played = {"step": step, "stage": stage, "phase": phase, "problem": episode.problem_id}
            prompts = [text(policy, tokens) for tokens in _asked(attempt)] if tokenizers else None
            yield played | {"policy": policy} | _attempt(attempt, prompts)


def _asked(attempt: Trajectory) -> Iterator[tuple[int, ...]]:
    """The tokens put to it before each of its turns: of a later one those that came since the one before."""
    known = 0
    for turn in attempt.turns:
        yield tuple(turn.prompt_tokens[known:])
        known = len(turn.prompt_tokens) + len(turn.completion.tokens)


def _shortened(prompt: str) -> str:
    """In its middle: its beginning says what to do, and its end what came last."""
    half = PROMPT_CHARACTERS // 2
    return prompt if len(prompt) <= 2 * half else f"{prompt[:half]}\n…\n{prompt[-half:]}"


def _attempt(attempt: Trajectory, prompts: Sequence[str] | None) -> dict[str, Any]:
    texts = [turn.text for turn in attempt.turns]
    more = texts != [attempt.artifact]
    row = {
        "player": attempt.player,
        "attempt": attempt.attempt,
        "number": attempt.number if attempt.number > 1 else None,
        "group": attempt.group,
        "place": attempt.place,
        "version": attempt.version,
        "reward": attempt.reward,
        "components": attempt.components,
        "prompts": prompts,
        "artifact": attempt.artifact,
        "texts": texts if more else None,
        "stages": [turn.stage for turn in attempt.turns] if more else None,
        "tokens": [len(turn.completion.tokens) for turn in attempt.turns],
        "finish": [turn.completion.finish_reason for turn in attempt.turns],
        "outcomes": [_outcome(outcome) for outcome in attempt.outcomes],
    }
    return {key: value for key, value in row.items() if value not in ("", None) or key == "reward"}


def _outcome(outcome: Outcome) -> dict[str, Any]:
    """Without what is as usual."""
    row: dict[str, Any] = {"test": outcome.test, "status": outcome.status}
    row |= {key: value for key in ("owner", "error", "kills") if (value := getattr(outcome, key))}
    return row if outcome.counts else row | {"counts": False}
