"""The parts of a run in one process."""

import asyncio
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from configs.load import load_run
from sparring.core.play import PlayProgress
from sparring.core.project_files import EXAMPLES
from sparring.runtime import local
from tests.learning import one_torch_thread, save_tiny_model, spec_of
from tests.unit.runtime.makers import start_at


@pytest.mark.parametrize(("asked", "threads"), [(1, 1), (2, 2), (9, 2)])
def test_the_process_has_no_more_threads_than_its_learners_may(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, asked: int, threads: int
) -> None:
    async def close() -> None: ...

    monkeypatch.setattr(local, "build_runner", lambda *_: SimpleNamespace(close=close))
    monkeypatch.setattr(local, "_build", lambda group: {})
    arguments = ["--config", "spiral_kuhn", "--local", "--device", "cpu"]
    config = load_run([*arguments, "--generator.learner.threads", str(asked)])[0].to_config()
    models = dict.fromkeys(config.policies, str(EXAMPLES / "toy/generator"))
    with one_torch_thread():  # what there was is restored
        torch.set_num_threads(2)
        with local.local_parts(config, [], start_at(tmp_path, models=models)):
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


@pytest.mark.parametrize(("dtype", "size"), [("float32", 4), ("bfloat16", 2), ("float16", 2)])
def test_weights_are_published_in_the_engines_precision(tmp_path: Path, dtype: str, size: int) -> None:
    spec = replace(spec_of(save_tiny_model(tmp_path)), engine_dtype=dtype, probe=(5, 4, 3))
    update = local.LocalLearner(spec.build(), spec, tmp_path).current_weights().update
    assert update.probe == (5, 4, 3) and len(update.probe_logprobs) == 2
    assert {array.itemsize for array in update.tensors.values()} == {size}
