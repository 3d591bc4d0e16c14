"""The rows of episodes.jsonl: one per attempt that was played for training, with its prompts and everything that determined
its reward.

The process that plays an attempt makes its row: no other process needs the full texts.
"""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from typing import Any

from sparring.core.episode import Episode, Outcome, Trajectory

PROMPT_CHARACTERS = 4000
"""Length of a prompt above which only its beginning and its end are kept."""


def episode_rows(
    begins: Mapping[str, Any],
    episode: Episode,
    policies: Mapping[str, str],
    decode: Mapping[str, Callable[[Sequence[int]], str]],
) -> bytes:
    """Returns the rows of an episode as lines of JSON.

    Args:
        begins: the first entries of each row.
        policies: the policy of each player.
        decode: by policy: decodes all tokens, special ones included.
    """

    @cache  # attempts share their prompts
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
    """Yields the prompt tokens of each turn; from the second turn on, only those that were added since the turn before."""
    known = 0
    for turn in attempt.turns:
        yield tuple(turn.prompt_tokens[known:])
        known = len(turn.prompt_tokens) + len(turn.completion.tokens)


def _shortened(prompt: str) -> str:
    """Cuts out the middle of a long prompt: its beginning has the instructions, its end the latest message."""
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
    """Returns the outcome as a row, without fields that have their default value."""
    row: dict[str, Any] = {"test": outcome.test, "status": outcome.status}
    row |= {key: value for key in ("owner", "error", "kills") if (value := getattr(outcome, key))}
    return row if outcome.counts else row | {"counts": False}
