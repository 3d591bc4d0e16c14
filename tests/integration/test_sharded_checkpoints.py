"""What two workers save by FSDP, three continue, then one, to the bit; and no worker holds much more for a save."""

from itertools import product
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import distributed
from torch.distributed.tensor import DTensor

from learners import files, state
from learners.learner import Learner
from learners.parallel import whole
from learners.settings import LearnerSettings
from learners.state import load_learner, save_learner
from sparring.core.batch import Batch
from tests.learning import one_torch_thread, peak_of, random_samples, run_workers, small_chunks, tiny_model

SHAPE = {"hidden_size": 256, "intermediate_size": 1022, "num_hidden_layers": 8}
"""8M parameters; 1022 is not a multiple of 3."""
FILE_BYTES = 4 << 20
SETTINGS: dict[str, Any] = {"estimator": {"kind": "grpo"}, "kl": {"kind": "none"}}
TUNINGS: dict[str, dict[str, Any]] = {"full": {}, "lora": {"lora": {"rank": 8}}}


def learner(model: Path, tuning: str, workers: int, start: Path | None = None) -> Learner:
    spread: dict[str, Any] = {"sharding": "fsdp", "workers": workers} if workers > 1 else {}
    settings = LearnerSettings(**SETTINGS, **TUNINGS[tuning], **spread)
    made = Learner(settings, 1e-3, start or model, model, seed=3)
    if start is not None:
        load_learner(made, start)
    return made


def batch(step: int) -> Batch:
    return Batch(step=step, samples=random_samples(step, 6), temperature=1.0, seed=step)


def everything(of: Learner) -> dict[str, torch.Tensor]:
    """In one piece, and the counters."""
    kept = of.policy.kept() | state._tensors(of)
    found = dict(of.policy.merged()) | {name: whole(tensor) for name, tensor in kept.items()}
    counters: dict[str, int] = state._counters(of)["updated"]["policy"]
    assert counters.keys() == of.policy.trainable().keys() and of.version == of.updates
    found |= {f"step.{name}": torch.tensor(count) for name, count in counters.items()}
    return {name: tensor.clone() for name, tensor in found.items()} | {"version": torch.tensor(of.version)}


def own_bytes(of: Learner) -> int:
    """Weights and moments that this worker keeps."""
    tensors = [*of.policy.trainable().values(), *state._tensors(of).values()]
    return sum((t.to_local() if isinstance(t, DTensor) else t).nbytes for t in tensors)


def work(rank: int, directory: Path, model: Path) -> None:
    torch.set_num_threads(1)
    small_chunks()
    files.FILE_BYTES = FILE_BYTES
    for tuning, workers in product(TUNINGS, (2, 3)):
        if rank >= workers:
            continue
        rendezvous = f"file://{directory}/rendezvous_{tuning}_{workers}"
        distributed.init_process_group("gloo", init_method=rendezvous, rank=rank, world_size=workers)
        made = learner(model, tuning, workers, directory / f"{tuning}_by_2" if workers == 3 else None)
        if workers == 2:
            for step in (1, 2):
                made.step(batch(step))
        found = everything(made)
        if workers == 2:
            save_learner(made, directory / "warm_up" / tuning)  # imports
            peak = peak_of(lambda: save_learner(made, directory / f"{tuning}_by_2"))  # noqa: B023
            torch.save({"peak": peak, "own": own_bytes(made)}, directory / f"{tuning}_memory_{rank}.pt")
        else:
            save_learner(made, directory / f"{tuning}_by_3")
        if rank == 0:
            torch.save(found, directory / f"{tuning}_{workers}.pt")
        distributed.barrier()
        distributed.destroy_process_group()


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("sharded")
    tiny_model(**SHAPE).save_pretrained(directory / "model")
    run_workers(work, directory, directory / "model", count=3)
    return directory


@pytest.mark.slow
@pytest.mark.parametrize("tuning", TUNINGS)
def test_two_three_and_one_have_the_same_bits(done: Path, tuning: str) -> None:
    two, three = (torch.load(done / f"{tuning}_{workers}.pt") for workers in (2, 3))
    with one_torch_thread():
        of_three, of_two = (
            everything(learner(done / "model", tuning, 1, done / f"{tuning}_by_{n}")) for n in (3, 2)
        )
    assert sum(t.numel() for t in two.values()) > 8_000_000 and two["version"] == 2
    for other in (three, of_three, of_two):
        assert other.keys() == two.keys()
        assert all(torch.equal(other[name], tensor) for name, tensor in two.items())


@pytest.mark.slow
def test_a_save_takes_little_more_memory_than_a_workers_share(done: Path) -> None:
    for rank in (0, 1):
        memory = torch.load(done / f"full_memory_{rank}.pt")
        assert memory["own"] > 40e6
        assert memory["peak"] <= 1.1 * memory["own"]
