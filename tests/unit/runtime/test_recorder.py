"""What a run leaves behind, and what of it a run that goes on takes over."""

import io
import json
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from configs.schema import Config
from learners import mirror
from learners.checkpoints import CheckpointError, CheckpointStore, read_checkpoint
from sparring.core.evaluation import Scores
from sparring.curriculum.curriculum import Assignment, Phase
from sparring.runtime import plan
from sparring.runtime.recorder import Recorder
from sparring.tracking.clock import Clock
from sparring.tracking.progress import Display
from tests.learning import Tokenizer
from tests.unit.runtime.makers import start_at

ROLES = ("generator", "discriminator")
CONFIG = Config.model_validate({"checkpoint": {"every": 2, "keep": 1}})


@dataclass
class Learner:
    directory: Path
    version: int = 0

    def step(self, batch: Any) -> Any:
        raise AssertionError

    @contextmanager
    def save(self) -> Iterator[Path]:
        self.directory.mkdir(parents=True, exist_ok=True)
        (self.directory / "model.safetensors").write_text(str(self.version))
        yield self.directory


class Run:
    """Steps of a run that writes into `directory`."""

    def __init__(
        self,
        directory: Path,
        checkpoint: Path | None = None,
        mirror: str | None = None,
        best_by: str | None = None,
        settings: Mapping[str, Any] | None = None,
    ) -> None:
        config = CONFIG.model_copy(
            update={
                "checkpoint": CONFIG.checkpoint.model_copy(update={"mirror": mirror, **(settings or {})}),
                "evaluation": CONFIG.evaluation.model_copy(update={"best_by": best_by}),
            }
        )
        state = read_checkpoint(checkpoint) if checkpoint is not None else None
        start = start_at(directory, models=dict.fromkeys(ROLES, ""), checkpoint=checkpoint, state=state)
        self.said = io.StringIO()
        show, ticks = Display(Console(file=self.said, width=1000)), iter(range(10_000))
        self.directory, self._hurried = directory, 0.0
        self.clock = Clock(now=lambda: next(ticks) + self._hurried, began=0.0)
        self.recorder = Recorder(
            config, start, dict.fromkeys(ROLES, Tokenizer()), ("score",), show, self.clock
        )
        self.learners = {role: Learner(directory / "now" / role) for role in ROLES}
        self.stateful = {"recorder": self.recorder, "clock": self.clock}
        for name, part in self.stateful.items() if state is not None else ():
            part.load_state_dict(state["parts"][name])
        self.recorder.open()

    def hurry(self, seconds: float) -> None:
        """So much time passes."""
        self._hurried += seconds
        self.clock.lap("rollout")

    def step(
        self, step: int, score: float | None = None, last: bool = False, **learned: dict[str, float]
    ) -> None:
        assignment = Assignment(
            step=step, stage=1, phase=Phase.GENERATOR, learning=("generator",), problem_ids=(), attempts={}
        )
        scores = Scores({"score": score}, score) if score is not None else None
        row: dict[str, Any] = {"step": step, "stage": 1, **learned}
        self.recorder.step(assignment, row, [], scores, last)
        self.recorder.save(step, row, scores, self.learners, self.stateful)
        self.recorder.wait()

    def results(self) -> dict[str, Any]:
        self.recorder.finish()
        return json.loads((self.directory / "training_results.json").read_text())


def steps_in(folder: Path) -> list[int]:
    return sorted(int(p.name.removeprefix("step_")) for p in folder.glob("step_*"))


def checkpoints(run: Path) -> list[int]:
    return steps_in(run / "checkpoints")


def best(run: Path) -> str:
    return (run / "checkpoints" / "best").resolve().name


def test_the_last_the_best_and_those_at_the_end_of_a_stage_are_kept(tmp_path: Path) -> None:
    run = Run(tmp_path)
    run.step(1, score=0.2)
    run.step(2, score=0.9)
    run.step(3, last=True)
    for step in (4, 5):
        run.step(step)
    assert checkpoints(tmp_path) == [2, 3, 5]
    assert best(tmp_path) == "step_000002"


def test_an_evaluation_without_its_measure_makes_no_best_checkpoint(tmp_path: Path) -> None:
    run = Run(tmp_path)
    for step, combined in ((1, None), (2, 0.1), (3, None)):
        run.recorder.save(step, {"step": step}, Scores({}, combined), run.learners, run.stateful)
        run.recorder.wait()
    assert best(tmp_path) == "step_000002"


class Slow(Learner):
    """Writes when it may."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self.may = threading.Event()

    @contextmanager
    def save(self) -> Iterator[Path]:
        assert self.may.wait(30)
        with super().save() as directory:
            yield directory


def test_a_checkpoint_is_written_while_the_run_goes_on(tmp_path: Path) -> None:
    """It has the state of its step, and is there when the next one begins."""
    run = Run(tmp_path)
    slow = {role: Slow(tmp_path / "now" / role) for role in ROLES}
    run.recorder.save(1, {"step": 1}, Scores({"score": 0.2}, 0.2), slow, run.stateful)
    run.recorder.first_scores(Scores({"score": 0.1}, 0.1))
    assert checkpoints(tmp_path) == []
    for learner in slow.values():
        learner.may.set()
    run.recorder.save(2, {"step": 2}, None, slow, run.stateful)
    assert 1 in checkpoints(tmp_path)
    run.recorder.close()
    first, second = (
        read_checkpoint(tmp_path / "checkpoints" / f"step_00000{n}")["parts"]["recorder"] for n in (1, 2)
    )
    assert first["before"] == {} and second["before"] == {"score": 0.1}


@pytest.mark.parametrize("then", ["save", "finish", "latest", "close"])
def test_a_checkpoint_that_fails_is_told_of_at_the_next_occasion(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, then: str
) -> None:
    def full(*_: Any) -> None:
        raise CheckpointError("no space")

    run = Run(tmp_path)
    monkeypatch.setattr(CheckpointStore, "save", full)
    run.recorder.save(1, {"step": 1}, None, run.learners, run.stateful)
    if then == "close":  # a run that ends by another error tells that one
        run.recorder.close()
        assert "the checkpoint that was being written is lost: no space" in run.said.getvalue()
        return
    with pytest.raises(CheckpointError, match="no space"):
        match then:
            case "save":
                run.step(2)
            case "finish":
                run.recorder.finish()
            case "latest":
                _ = run.recorder.latest


def test_curves_that_cannot_be_drawn_end_no_run_and_are_told_of_once(tmp_path: Path, caplog) -> None:
    run = Run(tmp_path)
    (tmp_path / "learning_curves.png").mkdir()
    run.step(1, score=0.2)
    run.step(2, score=0.9)
    assert run.results()["best"]["step"] == 2
    (said,) = [message for message in caplog.messages if "learning_curves.png" in message]
    assert said.startswith("learning_curves.png: IsADirectoryError")


def test_a_mirror_has_what_is_kept_here(tmp_path: Path) -> None:
    run = Run(tmp_path / "a", mirror=f"file://{tmp_path / 'mirror'}")
    for step in (1, 2, 3):
        run.step(step, last=step == 1)
    there = tmp_path / "mirror" / "a"
    assert steps_in(there) == checkpoints(tmp_path / "a")
    assert read_checkpoint(there / "step_000003")["step"] == 3


def test_a_mirror_that_fails_is_said_and_the_run_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mirror, "RETRY_PAUSES_S", ())
    run = Run(tmp_path / "a", mirror=f"file://{tmp_path / 'mirror'}")
    (tmp_path / "mirror").write_text("a file where the directory should be")
    run.step(1)
    assert checkpoints(tmp_path / "a") == [1]
    assert "step 1: not mirrored: " in run.said.getvalue() and "step_000001 only" in run.said.getvalue()


def test_what_a_failing_mirror_missed_is_made_up_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mirror, "RETRY_PAUSES_S", ())
    run, there = Run(tmp_path / "a", mirror=f"file://{tmp_path / 'mirror'}"), tmp_path / "mirror" / "a"
    run.step(1)
    run.step(2)
    with monkeypatch.context() as broken:
        broken.setattr(mirror.Mirror, "_send", lambda *_: (_ for _ in ()).throw(OSError("no network")))
        run.step(3, last=True)  # neither sent, nor is what was pruned forgotten
    run.step(4)
    assert checkpoints(tmp_path / "a") == [3, 4]
    assert steps_in(there) == checkpoints(tmp_path / "a")
    assert read_checkpoint(there / "step_000003")["step"] == 3


def test_a_run_that_goes_on_has_its_scores_stages_best_and_seconds(tmp_path: Path) -> None:
    first = Run(tmp_path)
    first.recorder.first_scores(Scores({"score": 0.1}, 0.1))
    first.step(1, score=0.9, last=True)
    with (tmp_path / "metrics.jsonl").open("a") as rows:
        rows.write('{"step": 2}\n')  # after the checkpoint: it will be done again
    second = Run(tmp_path, tmp_path / "checkpoints" / "step_000001")
    assert second.clock.total >= first.clock.total - 2  # ticks since its state was taken
    second.step(2, score=0.5, last=True)
    results = second.results()
    assert results["held_out"] == {"before": {"score": 0.1}, "after": {"score": 0.5}}
    assert [stage["step"] for stage in results["stages"]] == [1, 2] and results["best"]["step"] == 1
    assert best(tmp_path) == "step_000001"
    assert [row["step"] for row in map(json.loads, (tmp_path / "metrics.jsonl").open())] == [0, 1, 2]
    assert sum(stage["seconds"]["total"] for stage in results["stages"]) <= results["wall_time_s"]["total"]


def test_the_best_by_another_score_is_not_this_scores(tmp_path: Path) -> None:
    Run(tmp_path).step(1, score=0.9)
    run = Run(tmp_path, tmp_path / "checkpoints" / "step_000001", best_by="score")
    run.step(2, score=0.5)
    assert best(tmp_path) == "step_000002"


def test_the_best_of_another_run_is_not_this_ones(tmp_path: Path) -> None:
    Run(tmp_path / "a").step(1, score=0.9)
    checkpoint = tmp_path / "a" / "checkpoints" / "step_000001"
    run = Run(tmp_path / "b", checkpoint)
    assert (tmp_path / "b" / "started_from.txt").read_text() == str(checkpoint)
    run.step(2, score=0.5)
    assert best(tmp_path / "b") == "step_000002"


@pytest.mark.parametrize("broken", [{"skipped_updates": 1.0}, {"reloaded": 1.0}])
def test_weights_that_may_be_broken_push_out_no_others(tmp_path: Path, broken: dict[str, float]) -> None:
    recorder = Run(tmp_path / "due").recorder
    assert recorder.save_is_due(2, {"generator": {"skipped_updates": 0.0, "overflows": 1.0}})
    assert not recorder.save_is_due(3, {"generator": {}})
    assert not recorder.save_is_due(2, {"generator": {}, "discriminator": broken})
    run = Run(tmp_path, settings={"every": 1})
    run.step(1, score=0.9)
    run.step(2, score=0.95)
    for step in (3, 4):
        run.step(step, score=0.99, generator=broken)  # an evaluation is saved in any case
    assert checkpoints(tmp_path) == [2, 3, 4]
    resumed = Run(tmp_path, tmp_path / "checkpoints/step_000004", settings={"every": 1})
    resumed.step(5, generator=broken)
    assert 2 in checkpoints(tmp_path)
    resumed.step(6)
    assert 2 not in checkpoints(tmp_path)


def test_large_checkpoints_are_written_when_the_last_is_old_and_those_of_stages_go(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(plan, "_LARGE", 0)
    monkeypatch.setattr(plan, "shapes_of", lambda config: {})
    run = Run(tmp_path, settings={"every": None, "keep": None})
    for step in (2, 4):
        assert not run.recorder.save_is_due(step - 1, {})
        run.hurry(plan.SAVE_S)
        assert run.recorder.save_is_due(step, {})
        assert not run.recorder.save_is_due(step, {"generator": {"reloaded": 1.0}})
        run.step(step, last=step == 2)
    run.step(5)
    assert checkpoints(tmp_path) == [4, 5]


def test_small_checkpoints_are_written_after_every_step(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(plan, "shapes_of", lambda config: {})
    run = Run(tmp_path, settings={"every": None, "keep": None})
    assert all(run.recorder.save_is_due(step, {}) for step in (1, 2, 3))
    run.step(1, last=True)
    for step in (2, 3, 4):
        run.step(step)
    assert checkpoints(tmp_path) == [1, 3, 4]
