import errno
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pydantic import ValidationError

from configs.schema import Config
from sparring.core.commands import plain_endings
from sparring.core.episode import Episode, Trajectory
from sparring.core.errors import OutOfMemory, RunFailed, SparringError
from sparring.core.evaluation import Scores
from sparring.core.interfaces import EngineFailure
from sparring.core.play import PlayResult
from sparring.curriculum.curriculum import Curriculum
from sparring.runtime import session
from sparring.tracking.report import _state
from sparring.tracking.run_log import run_log
from tests.unit.runtime.makers import start_at


@pytest.mark.parametrize(
    ("ends", "said"),
    [(EngineFailure("vLLM ended: out of memory"), EngineFailure), (KeyboardInterrupt(), KeyboardInterrupt)],
)
def test_what_ends_a_run_says_how_to_go_on_with_this_one(
    tmp_path: Path, ends: BaseException, said: type[BaseException]
) -> None:
    """Without a config.yaml --resume would take another run, or none."""

    def words() -> str:
        with pytest.raises(said) as failed, session._told_how_to_go_on(start_at(tmp_path)):
            raise ends
        return f"{failed.value} {getattr(failed.value, '__notes__', '')}"

    assert "nothing to resume" in words() and "--resume" not in words()
    (tmp_path / "config.yaml").touch()
    assert f"--resume --run-name {tmp_path.name} --output-dir {tmp_path.parent}" in words()


def test_what_ran_out_of_memory_is_not_to_be_resumed_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "config.yaml").touch()
    notes = []
    for kind in (OutOfMemory, RunFailed):
        with pytest.raises(kind) as raised, session._told_how_to_go_on(start_at(tmp_path)):
            raise kind("a learner")
        notes.append(raised.value.__notes__[0])
    assert all("--resume" in note for note in notes) and notes[0] != notes[1]


def test_an_interrupted_run_is_filed_as_interrupted(tmp_path: Path) -> None:
    """As the session and the driver end it."""
    with pytest.raises(SystemExit) as ended, plain_endings(), run_log() as log:
        log.open(tmp_path)
        with session._told_how_to_go_on(start_at(tmp_path)):
            raise KeyboardInterrupt
    assert ended.value.code == 130
    assert _state(tmp_path)[0] == "interrupted"


def test_a_run_has_one_driver_at_a_time(tmp_path: Path) -> None:
    """Of two that resume it, each would go on where the other had been."""
    file = tmp_path / "run.log"
    refused = pytest.raises(SparringError, match="another driver is at this run")
    with session._alone_at(file), refused, session._alone_at(file):
        pass
    killed = (
        f"import fcntl, os; fcntl.flock(open({str(file)!r}, 'a'), fcntl.LOCK_EX); os.kill(os.getpid(), 9)"
    )
    subprocess.run([sys.executable, "-c", killed], check=False)
    with session._alone_at(file):
        pass


def test_a_file_system_without_locks_stops_no_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(session.fcntl, "flock", refuse)
    with session._alone_at(tmp_path / "run.log"), session._alone_at(tmp_path / "nowhere" / "run.log"):
        pass


def played(**rewards: tuple[float | None, ...]) -> PlayResult:
    """By problem: the rewards of the generator's attempts."""

    def attempt(number: int, reward: float | None) -> Trajectory:
        return Trajectory(player="generator", attempt=number, turns=[], reward=reward)

    return PlayResult(
        episodes=[
            Episode(problem_id=problem, trajectories=[attempt(n, r) for n, r in enumerate(of_one)])
            for problem, of_one in rewards.items()
        ],
        sandbox={"jobs": len(rewards)},
        spans=[("generate", 0.0, 1.0)],
        played_again=1,
    )


@pytest.mark.parametrize(
    ("rewards", "spare", "asked"),
    [
        ({"a": (0.0, 1.0), "b": (0.5, 0.4)}, ("x", "y"), ()),
        ({"a": (0.0, 0.0), "b": (0.5, 0.4)}, ("x", "y"), ("x",)),
        ({"a": (0.0, 0.0), "b": (0.5, None)}, ("x", "y", "z"), ("x", "y")),
        ({"a": (0.0, 0.0), "b": (1.0, 1.0)}, ("x",), ("x",)),
        ({"a": (0.0, 0.0)}, (), ()),
    ],
)
def test_problems_without_signal_are_replaced_as_far_as_there_are_some_to_spare(
    rewards: dict[str, tuple[float | None, ...]], spare: tuple[str, ...], asked: tuple[str, ...]
) -> None:
    config = Config.model_validate({})
    assignment: Any = replace(
        Curriculum(config.curriculum, ["a", "b"], 1).next(), learning=("generator",), spare=spare
    )
    begun: list[tuple[str, ...]] = []

    def begin(problems: tuple[str, ...]) -> Any:
        begun.append(problems)
        return lambda: played(**dict.fromkeys(problems, (1.0, 1.0)))

    fake: Any = SimpleNamespace(
        config=config,
        parts=SimpleNamespace(rollouts=SimpleNamespace(begin=begin)),
        play_request=lambda assignment: assignment.problem_ids,
    )
    result = session.Session._played(fake, assignment, lambda: played(**rewards))
    assert begun == ([asked] if asked else []), "once: those that are flat again stay so"
    assert [e.problem_id for e in result.episodes] == [*rewards, *asked]
    assert result.replaced == len(asked)
    assert (result.played_again, len(result.spans)) == ((2, 2) if asked else (1, 1))


@pytest.mark.parametrize(
    ("local", "opponents", "beside"), [(False, False, True), (True, False, False), (False, True, False)]
)
def test_the_next_steps_are_played_beside_an_evaluation_where_they_can_be(
    local: bool, opponents: bool, beside: bool
) -> None:
    done: list[str] = []

    def evaluate(step: int, last_of_stage: bool) -> Any:
        done.append("evaluation begun")
        return lambda: done.append("scores")

    fake: Any = SimpleNamespace(
        config=SimpleNamespace(local=local),
        opponents=SimpleNamespace(on=opponents),
        evaluations=SimpleNamespace(begin=evaluate),
        _begin_steps=lambda: done.append("steps begun"),
    )
    session.Session._evaluated(fake, 3, True)
    assert done == ["evaluation begun", *["steps begun"] * beside, "scores"]


@pytest.mark.parametrize("estimator", [{"kind": "reinforce_pp"}, {"kind": "gae", "center_rewards": False}])
def test_dynamic_sampling_is_refused_where_flat_groups_are_learnt_from(estimator: dict[str, Any]) -> None:
    sections = {"curriculum": {"dynamic_sampling": 4}}
    Config.model_validate(sections)
    with pytest.raises(
        ValidationError, match=r"dynamic_sampling has no effect with generator\.learner\.estimator"
    ):
        Config.model_validate(sections | {"generator": {"learner": {"estimator": estimator}}})


@pytest.mark.parametrize(
    ("form", "held_out", "is_mbpp"),
    [
        ("mbpp", {}, True),
        ("problems", {"format": "mbpp"}, True),
        ("mbpp", {"format": "humaneval"}, False),
        ("problems", {}, False),
    ],
)
def test_scores_are_named_after_mbpp_only_if_mbpp_is_held_out(
    form: str, held_out: dict, is_mbpp: bool
) -> None:
    aside = {"kind": "file", "file": "b.jsonl", **held_out}
    config = Config.model_validate({"problems": {"file": "a.jsonl", "format": form, "held_out": aside}})
    fake: Any = SimpleNamespace(config=config)
    told = session.Session._held_out(fake, Scores({"generator_pass_rate": 0.5}, 0.5, {}))
    assert any(name.startswith("mbpp_eval") for name in told) == is_mbpp
