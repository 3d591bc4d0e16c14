"""A row per attempt: what it holds, when a new file is begun, what a resumed run forgets, what a full disk does."""

import errno
import json
from pathlib import Path

import pytest

from actors.rows import PROMPT_CHARACTERS
from sparring.core.episode import Completion, Episode, FinishReason, Outcome, Trajectory, Turn
from sparring.tracking.episodes import OLDER_FILES, EpisodeLog, episode_files
from sparring.tracking.rows import read_rows
from sparring.tracking.run_record import RunRecord
from tests.recorded import lines


def turn(stage: int, tokens: int, reason: FinishReason = FinishReason.STOP) -> Turn:
    said = Completion(tokens=(7,) * tokens, logprobs=(0.0,) * tokens, version=stage + 2, finish_reason=reason)
    return Turn(stage=stage, prompt_tokens=(1,), completion=said, text="x")


def rows_of(*attempts: Trajectory) -> list[dict]:
    episode = Episode(problem_id="p7", trajectories=list(attempts))
    written = lines(12, [episode], {"generator": "generator", "author": "generator"}, stage=1)
    return [json.loads(line) for line in b"".join(written).splitlines()]


def test_a_row_holds_what_each_turn_was_asked_and_what_came_since() -> None:
    def asked(prompt: str, stage: int = 1) -> Turn:
        said = Completion(
            tokens=(97, 98, 99), logprobs=(0.0,) * 3, version=0, finish_reason=FinishReason.STOP
        )
        return Turn(stage=stage, prompt_tokens=tuple(map(ord, prompt)), completion=said, text="abc")

    turns = ([asked("Return x."), asked("Return x.abcAnd now?", 2)], [asked("a" + "-" * 9000 + "z")])
    rows = rows_of(*(Trajectory(player="generator", attempt=i, turns=t) for i, t in enumerate(turns)))
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
    attempt = Trajectory(
        player="generator",
        attempt=2,
        turns=[turn(1, 3), turn(5, 4, FinishReason.LENGTH)],
        reward=0.5,
        components={"pass_rate": 0.5},
        artifact="def f(): ...",
        outcomes=outcomes,
    )
    (row,) = rows_of(attempt)
    first, second = row.pop("outcomes")
    assert first.pop("owner") == "problem" and first.pop("error") == "2 s"
    assert first == {"test": "assert f(1) == 2", "status": "TIME_LIMIT", "counts": False}
    assert second == {"test": "assert f(2) == 3", "status": "valid", "kills": [0, 3]}
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
    record = RunRecord(tmp_path)
    record.start({})
    for name in ("episodes.jsonl", "metrics.jsonl"):
        (tmp_path / name).unlink(missing_ok=True)
        (tmp_path / name).symlink_to("/dev/full")
    for write in (lambda: record.add_episodes([line(1)]), lambda: record.add({"step": 1})):
        with pytest.raises(OSError) as found:
            write()
        assert found.value.errno == errno.ENOSPC
