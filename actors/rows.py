"""The rows of episodes.jsonl: one per attempt that was played for training, with what it was asked and all that its reward
came from.

Made where it was played: nobody else needs all that was said.
"""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from typing import Any

from core.episode import Episode, Outcome, Trajectory

PROMPT_CHARACTERS = 4000
"""Of a longer one, beginning and end are kept."""


def episode_rows(
    begins: Mapping[str, Any],
    episode: Episode,
    policies: Mapping[str, str],
    decode: Mapping[str, Callable[[Sequence[int]], str]],
) -> bytes:
    """Lines of JSON.

    Args:
        begins: what each row begins with.
        policies: whose policy each player is.
        decode: by policy: all of the tokens as text.
    """

    @cache  # attempts are asked the same
    def text(policy: str, tokens: tuple[int, ...]) -> str:
        return _shortened(decode[policy](list(tokens)))

    lines = []
    for attempt in episode.trajectories:
        policy = policies[attempt.player]
        prompts = [text(policy, tokens) for tokens in _asked(attempt)]
        row = {**begins, "problem": episode.problem_id, "policy": policy, **_attempt(attempt, prompts)}
        lines.append(json.dumps(row) + "\n")
    return "".join(lines).encode()


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


def _attempt(attempt: Trajectory, prompts: Sequence[str]) -> dict[str, Any]:
    texts = [turn.text for turn in attempt.turns]
    stages = [turn.stage for turn in attempt.turns]
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
        "texts": texts if texts != [attempt.artifact] else None,
        "stages": stages if any(stages) else None,
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
