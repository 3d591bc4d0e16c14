"""Under FSDP one worker runs out of memory, wherever: both find a way that fits, or both say the same."""

import faulthandler
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
import torch
from torch import distributed
from torch.distributed.tensor import DTensor

from learners.learner import Learner
from learners.memory import OutOfMemory
from learners.settings import LearnerSettings
from learners.state import load_learner, save_learner
from learners.tuning import decoder_layers
from sparring.core.batch import Batch
from tests.learning import (
    largest_difference,
    one_torch_thread,
    random_samples,
    run_workers,
    save_tiny_model,
    weights,
)

GRPO: dict[str, Any] = {"estimator": {"kind": "grpo"}}
CUBLAS = RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`")


class Fails:
    """A function that runs out of memory at its nth call."""

    def __init__(self, function: Callable[..., Any], at: int, error: Exception | None = None) -> None:
        self.function, self.at, self.calls = function, at, 0
        self.error = error or torch.OutOfMemoryError("scripted")

    def __call__(self, *arguments: Any, **options: Any) -> Any:
        self.calls += 1
        if self.calls == self.at:
            raise self.error
        return self.function(*arguments, **options)


@contextmanager
def forward(learner: Learner, at: int, error: Exception | None = None) -> Iterator[None]:
    layer = decoder_layers(learner.policy.model)[1]
    with mock.patch.object(layer.mlp, "forward", Fails(layer.mlp.forward, at, error)) as fails:
        yield
    assert fails.calls > at


@contextmanager
def backward(learner: Learner, at: int) -> Iterator[None]:
    fails = Fails(lambda gradient: None, at)

    def watch(module: Any, inputs: Any, output: torch.Tensor) -> None:
        if output.requires_grad:
            output.register_hook(fails)

    handle = decoder_layers(learner.policy.model)[0].mlp.register_forward_hook(watch)
    yield
    handle.remove()
    assert fails.calls > at


@contextmanager
def reference(learner: Learner, at: int) -> Iterator[None]:
    layer = decoder_layers(learner.policy.reference)[0]  # pyright: ignore[reportAttributeAccessIssue]
    with mock.patch.object(layer.mlp, "forward", Fails(layer.mlp.forward, at)) as fails:
        yield
    assert fails.calls > at


@contextmanager
def moments(learner: Learner, at: int) -> Iterator[None]:
    with mock.patch.object(torch, "zeros_like", Fails(torch.zeros_like, at)) as fails:
        yield
    assert fails.calls > at


@contextmanager
def gathering(learner: Learner, at: int) -> Iterator[None]:
    fails = Fails(DTensor.full_tensor, at)
    with mock.patch.object(DTensor, "full_tensor", lambda tensor: fails(tensor)):
        yield
    assert fails.calls > at


CASES: dict[str, tuple[dict[str, Any], Callable[[Learner], Any], int]] = {
    "forward, first": (GRPO, lambda of: forward(of, 1), 1),
    "forward, later": (GRPO, lambda of: forward(of, 2), 1),
    "cublas": (GRPO, lambda of: forward(of, 1, CUBLAS), 1),
    "checkpointed": (GRPO | {"gradient_checkpointing": True}, lambda of: forward(of, 2), 1),
    "backward, first": (GRPO, lambda of: backward(of, 1), 1),
    "backward, later": (GRPO, lambda of: backward(of, 2), 1),
    "first pass": ({"estimator": {"kind": "gae"}}, lambda of: forward(of, 2), 1),
    "reference": (GRPO | {"kl": {"kind": "loss", "coefficient": 0.1}}, lambda of: reference(of, 2), 1),
    "adapter forward": (GRPO | {"lora": {"rank": 4}}, lambda of: forward(of, 2), 1),
    "adapter backward": (GRPO | {"lora": {"rank": 4}}, lambda of: backward(of, 2), 1),
    "step": (GRPO, lambda of: moments(of, 3), 0),
}
"""(settings, what fails in the second worker's first step, how often micro-batches were halved)"""


def learner_of(settings: dict[str, Any], model: Path, workers: int) -> Learner:
    spread: dict[str, Any] = {"sharding": "fsdp", "workers": 2} if workers == 2 else {}
    keys = settings | spread | {"microbatch_tokens": 64, "schedule": {"warmup_updates": 0}}
    return Learner(LearnerSettings.model_validate(keys), 1e-2, model, model, seed=3)


def batch(settings: dict[str, Any], step: int) -> Batch:
    samples = random_samples(step, 13, advantages=settings["estimator"]["kind"] != "gae")
    return Batch(step=step, samples=samples, temperature=1.0, seed=step)


def join(rank: int, directory: Path) -> None:
    faulthandler.enable()  # once, on a forge, one aborted: "malloc(): unaligned tcache chunk detected"
    torch.set_num_threads(1)
    rendezvous, patience = f"file://{directory}/rendezvous", timedelta(seconds=60)
    distributed.init_process_group("gloo", rendezvous, patience, 2, rank)


def survive(rank: int, directory: Path, model: Path) -> None:
    join(rank, directory)
    for case, (settings, failing, halvings) in CASES.items():
        learner = learner_of(settings, model, 2)
        if rank == 1:
            with failing(learner):
                learner.step(batch(settings, 1))
        else:
            learner.step(batch(settings, 1))
        assert learner.health.halvings == halvings, case
        learner.step(batch(settings, 2))
        found = weights(learner)
        if rank == 0:
            torch.save(found, directory / f"{case}.pt")
    learner = learner_of(GRPO, model, 2)
    learner.step(batch(GRPO, 1))
    for name, act in {
        "exported": learner.export,
        "saved": lambda: save_learner(learner, directory / "saved"),
    }.items():
        if rank == 1:
            with gathering(learner, 3):
                made = act()
        else:
            made = act()
        if rank == 0 and name == "exported":
            torch.save({n: torch.from_numpy(a) for n, a in made.tensors.items()}, directory / "exported.pt")
    distributed.destroy_process_group()


def give_up(rank: int, directory: Path, model: Path) -> None:
    """There is never room for one worker's moments; what each says."""
    join(rank, directory)
    learner = learner_of(GRPO, model, 2)
    no_room = mock.Mock(side_effect=torch.OutOfMemoryError("scripted"))
    with mock.patch.object(torch, "zeros_like", no_room if rank == 1 else torch.zeros_like):
        try:
            learner.step(batch(GRPO, 1))
        except OutOfMemory as error:
            (directory / f"said_{rank}").write_text(str(error))
    distributed.destroy_process_group()


@pytest.fixture(scope="module")
def survived(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    directory = tmp_path_factory.mktemp("out_of_memory")
    model = save_tiny_model(directory / "model")
    run_workers(survive, directory, model, count=2)
    return directory, model


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("case", CASES)
def test_the_update_is_made_all_the_same(survived: tuple[Path, Path], case: str) -> None:
    directory, model = survived
    settings = CASES[case][0]
    with one_torch_thread():
        alone = learner_of(settings, model, 1)
        for step in (1, 2):
            alone.step(batch(settings, step))
    assert largest_difference(torch.load(directory / f"{case}.pt"), weights(alone)) < 2e-4


@pytest.mark.slow
def test_what_is_exported_and_saved_is_whole(survived: tuple[Path, Path]) -> None:
    directory, model = survived
    exported = torch.load(directory / "exported.pt")
    saved = Learner(LearnerSettings.model_validate(GRPO), 1e-2, directory / "saved", model)
    load_learner(saved, directory / "saved")
    assert saved.version == 1 and largest_difference(weights(saved), exported) == 0
    alone = learner_of(GRPO, model, 1)
    alone.step(batch(GRPO, 1))
    assert largest_difference(exported, weights(alone)) < 2e-4


@pytest.mark.slow
@pytest.mark.timeout(120)
def test_both_say_the_same_where_there_is_no_way(tmp_path: Path) -> None:
    model = save_tiny_model(tmp_path / "model")
    run_workers(give_up, tmp_path, model, count=2)
    said = {(tmp_path / f"said_{rank}").read_text() for rank in (0, 1)}
    assert len(said) == 1 and "in the optimizer's step (scripted): take learner.lora" in said.pop()
