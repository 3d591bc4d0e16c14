"""One of two workers has no room for an optimizer's step: it is made all the same, or both say why not."""

import faulthandler
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
import torch
from torch import distributed

from learners.learner import Learner
from learners.settings import LearnerSettings
from sparring.core.batch import Batch
from sparring.core.errors import OutOfMemory
from tests.learning import (
    largest_difference,
    one_torch_thread,
    random_samples,
    run_workers,
    save_tiny_model,
    weights,
)


class Fails:
    """A function that runs out of memory at its nth call."""

    def __init__(self, function: Callable[..., Any], at: int) -> None:
        self.function, self.at, self.calls = function, at, 0

    def __call__(self, *arguments: Any, **options: Any) -> Any:
        self.calls += 1
        if self.calls == self.at:
            raise torch.OutOfMemoryError("scripted")
        return self.function(*arguments, **options)


def learner_of(model: Path, workers: int) -> Learner:
    keys: dict[str, Any] = {"sharding": "fsdp", "workers": 2} if workers == 2 else {}
    keys |= {"estimator": {"kind": "grpo"}, "schedule": {"warmup_updates": 0}}
    return Learner(LearnerSettings.model_validate(keys), 1e-2, model, model, seed=3)


def batch(step: int) -> Batch:
    return Batch(step=step, samples=random_samples(step, 13, advantages=True), temperature=1.0, seed=step)


def work(rank: int, directory: Path, model: Path) -> None:
    faulthandler.enable()
    torch.set_num_threads(1)
    rendezvous, patience = f"file://{directory}/rendezvous", timedelta(seconds=60)
    distributed.init_process_group("gloo", rendezvous, patience, 2, rank)
    learner = learner_of(model, 2)
    fails = Fails(torch.zeros_like, at=3)
    with mock.patch.object(torch, "zeros_like", fails if rank else torch.zeros_like):
        learner.step(batch(1))
    assert not rank or fails.calls > 3
    learner.step(batch(2))
    found = weights(learner)
    if rank == 0:
        torch.save(found, directory / "found.pt")
    never = mock.Mock(side_effect=torch.OutOfMemoryError("scripted"))
    with mock.patch.object(torch, "zeros_like", never if rank else torch.zeros_like):
        try:
            learner_of(model, 2).step(batch(1))
        except OutOfMemory as error:
            (directory / f"said_{rank}").write_text(str(error))
    distributed.destroy_process_group()


@pytest.mark.slow
@pytest.mark.timeout(180)
def test_a_step_is_tried_once_more_and_both_say_the_same_if_there_is_no_way(tmp_path: Path) -> None:
    model = save_tiny_model(tmp_path / "model")
    run_workers(work, tmp_path, model, count=2)
    with one_torch_thread():
        alone = learner_of(model, 1)
        for step in (1, 2):
            alone.step(batch(step))
    assert largest_difference(torch.load(tmp_path / "found.pt"), weights(alone)) < 2e-4
    said = {(tmp_path / f"said_{rank}").read_text() for rank in (0, 1)}
    assert len(said) == 1 and "in the optimizer's step (scripted): take learner.lora" in said.pop()
