"""A row per attempt: what it holds, when a new file is begun, what a resumed run forgets, what a full disk does."""

import errno
import json
from collections.abc import Iterable
from pathlib import Path

import pytest

from actors.rows import PROMPT_CHARACTERS
from sparring.core.episode import Completion, Episode, FinishReason, Outcome, Trajectory, Turn
from sparring.tracking.episodes import OLDER_FILES, EpisodeLog, episode_files
from sparring.tracking.rows import read_rows
from sparring.tracking.run_record import RunRecord
from tests.recorded import lines


def turn(stage: int, tokens: int, reason: FinishReason = FinishReason.STOP) -> Turn:
    completion = Completion(
        tokens=(7,) * tokens, logprobs=(0.0,) * tokens, version=stage + 2, finish_reason=reason
    )
    return Turn(stage=stage, prompt_tokens=(1,), completion=completion, text="x")


def attempt(**more) -> Trajectory:
    turns = [turn(1, 3), turn(5, 4, FinishReason.LENGTH)]
    return Trajectory(player="generator", attempt=2, turns=turns, reward=0.5, **more)


def rows_of(*attempts: Trajectory, step: int = 12) -> list[dict]:
    episode = Episode(problem_id="p7", trajectories=list(attempts))
    policies = {"generator": "generator", "author": "generator"}
    return rows_of_lines(lines(step, [episode], policies, stage=1))


def rows_of_lines(lines: Iterable[bytes]) -> list[dict]:
    return [json.loads(line) for line in b"".join(lines).splitlines()]


def test_a_row_holds_what_each_turn_was_asked_and_what_came_since() -> None:
    def letters(text: str) -> tuple[int, ...]:
        return tuple(map(ord, text))

    said = Completion(tokens=letters("abc"), logprobs=(0.0,) * 3, version=0, finish_reason=FinishReason.STOP)
    first = Turn(stage=1, prompt_tokens=letters("Return x."), completion=said, text="abc")
    second = Turn(stage=2, prompt_tokens=letters("Return x.abcAnd now?"), completion=said, text="abc")
    long = Turn(stage=1, prompt_tokens=letters("a" + "-" * 9000 + "z"), completion=said, text="abc")
    attempts = [Trajectory(player="generator", attempt=i, turns=turns) for i, turns in enumerate(([first, second], [long]))]  # fmt: skip
    episode = Episode(problem_id="p7", trajectories=attempts)
    rows = rows_of_lines(lines(1, [episode], {"generator": "of mine"}))
    assert rows[0]["prompts"] == ["Return x.", "And now?"]
    (shortened,) = rows[1]["prompts"]
    assert len(shortened) == PROMPT_CHARACTERS + 3 and shortened[0] == "a" and shortened[-1] == "z"


def line(step: int, text: str = "") -> bytes:
    return json.dumps({"step": step, "text": text}).encode() + b"\n"


def steps(directory: Path) -> list[list[int]]:
    return [[row["step"] for row in read_rows(file)] for file in episode_files(directory)]


def test_a_row_holds_what_the_reward_came_from() -> None:
    outcomes = (
        Outcome(test="assert f(1) == 2", owner="problem", status="TIME_LIMIT", error="2 s", counts=False),
        Outcome(test="assert f(2) == 3", status="valid", kills=(0, 3)),
    )
    (row,) = rows_of(attempt(components={"pass_rate": 0.5}, artifact="def f(): ...", outcomes=outcomes))
    assert row == {
        "step": 12,
        "stage": 1,
        "phase": "alternating",
        "problem": "p7",
        "policy": "generator",
        "player": "generator",
        "attempt": 2,
        "version": 3,
        "reward": 0.5,
        "components": {"pass_rate": 0.5},
        "prompts": ["\x01", ""],
        "artifact": "def f(): ...",
        "texts": ["x", "x"],
        "stages": [1, 5],
        "tokens": [3, 4],
        "finish": ["stop", "length"],
        "outcomes": [
            {
                "test": "assert f(1) == 2",
                "status": "TIME_LIMIT",
                "owner": "problem",
                "error": "2 s",
                "counts": False,
            },
            {"test": "assert f(2) == 3", "status": "valid", "kills": [0, 3]},
        ],
    }


def test_an_artifact_that_is_all_that_was_said_is_kept_once() -> None:
    (row,) = rows_of(Trajectory(player="author", attempt=0, turns=[turn(0, 1)], artifact="x"))
    assert row["artifact"] == "x" and not {"texts", "stages"} & row.keys()


def test_an_attempt_without_reward_says_so_and_a_place_is_kept() -> None:
    branching = Trajectory(player="author", attempt=0, turns=[turn(0, 1)], place=(1, 3), group="4")
    (row,) = rows_of(branching)
    assert row["reward"] is None
    assert (row["place"], row["group"], row["policy"]) == ([1, 3], "4", "generator")


def test_a_full_file_becomes_an_older_one_and_this_is_said_once(tmp_path: Path) -> None:
    log = EpisodeLog(tmp_path, file_bytes=100)
    told = [log.add([line(step, "x" * 100)]) for step in range(1, OLDER_FILES + 4)]
    assert told[0] is not None and f"the last {OLDER_FILES} are kept" in told[0]
    assert told[1:] == [None] * (len(told) - 1)
    assert steps(tmp_path) == [[step] for step in range(4, OLDER_FILES + 4)], "the oldest are dropped"
    assert log.add([line(99)]) is None
    assert [file.name for file in episode_files(tmp_path)][-2:] == ["episodes.1.jsonl", "episodes.jsonl"]
    assert steps(tmp_path)[-1] == [99]


def test_a_resumed_run_forgets_later_rows_in_every_file(tmp_path: Path) -> None:
    record = RunRecord(tmp_path)
    record.start({})
    (tmp_path / "episodes.1.jsonl").write_text('{"step": 1}\n{"step": 2}\n{"step": 3}\n')
    record.add_episodes([line(3) + line(4)])
    with (tmp_path / "episodes.jsonl").open("a") as handle:
        handle.write('{"step": 5, "probl')
    record.continue_from(2, {})
    assert steps(tmp_path) == [[1, 2], []]
    record.add_episodes([line(3)])
    assert steps(tmp_path) == [[1, 2], [3]]


def test_a_full_disk_is_told_like_that_of_the_metrics(tmp_path: Path) -> None:
    """The session makes one clear line of it."""
    record = RunRecord(tmp_path)
    record.start({})
    for name in ("episodes.jsonl", "metrics.jsonl"):
        (tmp_path / name).unlink(missing_ok=True)
        (tmp_path / name).symlink_to("/dev/full")
    for write in (lambda: record.add_episodes([line(1)]), lambda: record.add({"step": 1})):
        with pytest.raises(OSError) as found:
            write()
        assert found.value.errno == errno.ENOSPC
