"""The parts of a run in one process."""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from configs.load import load_run
from learners.settings import LearnerSettings
from learners.train_spec import LearnerSpec
from sparring.core.play import PlayProgress
from sparring.core.project_files import EXAMPLES
from sparring.runtime import local
from sparring.runtime.parts import Start
from tests.learning import save_tiny_model


@pytest.fixture
def two_threads() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


@pytest.mark.parametrize(("asked", "threads"), [(1, 1), (2, 2), (9, 2)])
def test_the_process_has_no_more_threads_than_its_learners_may(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, two_threads: None, asked: int, threads: int
) -> None:
    async def close() -> None: ...

    runner: Any = SimpleNamespace(close=close)
    monkeypatch.setattr(local, "build_runner", lambda *_: runner)
    monkeypatch.setattr(local, "_build", lambda group: {})
    arguments = ["--config", "spiral_kuhn", "--local", "--device", "cpu"]
    config = load_run([*arguments, "--generator.learner.threads", str(asked)])[0].to_config()
    models = dict.fromkeys(config.policies, str(EXAMPLES / "toy/generator"))
    start = Start(run_directory=tmp_path, models=models, checkpoint=None, versions={}, state=None)
    with local.local_parts(config, [], start):
        assert torch.get_num_threads() == threads


def test_who_listens_hears_of_play_while_it_goes_on() -> None:
    async def play(request: Any, on_progress: Any) -> tuple[Any, list[Any]]:
        on_progress(PlayProgress(done=1, expected=2))
        assert told == [PlayProgress(done=1, expected=2)]
        return SimpleNamespace(episodes=[]), []

    runner: Any = SimpleNamespace(play=play)
    told: list[PlayProgress] = []
    with asyncio.Runner() as loop:
        rollouts = local.LocalRollouts(loop, runner)
        rollouts.on_progress = told.append
        request: Any = None
        assert rollouts.begin(request)().episodes == []
    assert len(told) == 1


def test_weights_are_published_in_the_engines_precision(tmp_path: Path) -> None:
    model = str(save_tiny_model(tmp_path))
    settings = LearnerSettings(estimator={"kind": "grpo"}, threads=1)
    for dtype, size in (("float32", 4), ("bfloat16", 2), ("float16", 2)):
        spec = LearnerSpec(
            settings=settings,
            learning_rate=1e-3,
            model_path=model,
            reference_path=model,
            state_path=None,
            device="cpu",
            seed=0,
            engine_dtype=dtype,
            probe=(5, 4, 3),
        )
        update = local.LocalLearner(spec.build(), spec, tmp_path).current_weights().update
        assert update.probe == (5, 4, 3) and len(update.probe_logprobs) == 2
        assert {array.itemsize for array in update.tensors.values()} == {size}
