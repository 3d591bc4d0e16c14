"""One recorded episode, replayed line by line: how it goes changes deliberately or not at all.

SPARRING_UPDATE_GOLDEN=1 writes it anew.
"""

import json
import os
from collections.abc import Iterator
from pathlib import Path

from core.episode import Episode
from core.verdict import Status

RECORD = Path(__file__).parents[2] / "golden" / "multistage_episode.jsonl"

PROGRAMS = [
    "```python\ndef f(n): return n + n\n```",
    "def f(n): return 7 if n == 3 else n * 2",
    "def f(n): return n * 2 if n >= 0 else 0",
    "def f(n) return",
]
SUITES = [
    "assert f(1) == 2\nassert f(-1) == -2\nassert f( 1 ) == 2\nassert f(2) == 5",
    "# edge cases\nassert f(3) == 6\nassert f(x) == 2\nassert f('a') == 'aa'\nassert f(10**9) == 2",
    "let me think",
]


def lines_of(episode: Episode) -> Iterator[str]:
    for trajectory in episode.trajectories:
        for turn in trajectory.turns:
            yield json.dumps(
                {
                    "player": trajectory.player,
                    "attempt": trajectory.attempt,
                    "stage": turn.stage,
                    "prompt": "".join(map(chr, turn.prompt_tokens)),
                    "text": turn.text,
                    "tokens": len(turn.completion.tokens),
                    "finish_reason": turn.completion.finish_reason,
                }
            )
        yield json.dumps(
            {
                "player": trajectory.player,
                "attempt": trajectory.attempt,
                "reward": trajectory.reward,
                "components": trajectory.components,
                "artifact": trajectory.artifact,
            }
        )
    yield json.dumps({"problem_id": episode.problem_id, "info": episode.info})


def test_the_recorded_episode_is_replayed_line_by_line(table):
    table.sandbox.statuses = {(PROGRAMS[1], "assert f(-1) == -2"): Status.TIME_LIMIT}
    replayed = list(lines_of(table.play(PROGRAMS, SUITES)))
    if os.environ.get("SPARRING_UPDATE_GOLDEN") == "1":
        RECORD.parent.mkdir(exist_ok=True)
        RECORD.write_text("\n".join(replayed) + "\n")
    recorded = RECORD.read_text().splitlines()
    for number, (was, now) in enumerate(zip(recorded, replayed, strict=True), 1):
        assert json.loads(now) == json.loads(was), f"line {number} of {RECORD.name}"
