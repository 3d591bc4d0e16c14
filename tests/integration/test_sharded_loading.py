"""Under FSDP a worker never holds all of a model that it has a part of, and has of it what one that loads it whole has."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import distributed

from learners.learner import Learner
from learners.models import load_model
from learners.settings import LearnerSettings
from learners.tuning import HALVES
from tests.learning import Live, peak_of, run_workers, small_chunks, tiny_model

WORKERS = 3
SHAPE = {"hidden_size": 256, "intermediate_size": 1022, "num_hidden_layers": 16, "vocab_size": 4096}
"""17 to 18M parameters; 1022 is not a multiple of 3."""
LORA = {"lora": {"rank": 4}}
CASES: dict[str, tuple[bool, dict[str, Any]]] = {
    "tied": (True, {}),
    "untied": (False, {}),
    "lora": (True, LORA),
    "lora in bf16": (False, LORA | {"precision": "bf16"}),
}
"""(whether the embeddings are tied, settings)"""
FIRST_OF_A_KIND = ("tied", "lora")
"""Cases before which something is imported."""


def settings_of(case: str) -> LearnerSettings:
    spread: dict[str, Any] = {"sharding": "fsdp", "workers": WORKERS, "kl": {"kind": "none"}}
    return LearnerSettings.model_validate({"estimator": {"kind": "grpo"}} | spread | CASES[case][1])


@contextmanager
def worker(rank: int, directory: Path) -> Iterator[None]:
    torch.set_num_threads(1)
    small_chunks()
    rendezvous = f"file://{directory}/rendezvous"
    distributed.init_process_group("gloo", init_method=rendezvous, rank=rank, world_size=WORKERS)
    yield
    distributed.barrier()
    distributed.destroy_process_group()


def work(rank: int, directory: Path) -> None:
    with worker(rank, directory):
        for case in CASES:
            model, settings, made = directory / case, settings_of(case), []

            def build() -> None:
                made.append(Learner(settings, 1e-3, model, model, seed=3))  # noqa: B023

            if case in FIRST_OF_A_KIND:
                build()  # imports
                made.clear()
            with Live() as live:
                peak = peak_of(build)
            weights = {name: t.clone() for name, t in made[0].policy.merged()}
            torch.save({"live": live.most, "peak": peak, "weights": weights}, directory / f"{case}_{rank}.pt")


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("loading")
    for case, (tied, _) in CASES.items():
        tiny_model(**SHAPE, tie_word_embeddings=tied).save_pretrained(directory / case)
    run_workers(work, directory, count=WORKERS)
    return directory


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES)
def test_each_worker_reads_its_part(done: Path, case: str) -> None:
    settings = settings_of(case)
    dtype = HALVES.get(settings.precision or "", torch.float32) if settings.lora else torch.float32
    whole = load_model(done / case, dtype=dtype)
    size = sum(p.nbytes for p in whole.parameters())
    for rank in range(WORKERS):
        found = torch.load(done / f"{case}_{rank}.pt")
        assert found["live"] < 0.7 * size, "a third, two layers, embeddings and head"
        # the process's memory: in bf16 (34 MiB in all) the allocator's own pages made .73 to .77 of it
        assert found["peak"] < 0.75 * size + (2 << 20)
        expected = {name: p.detach().float() for name, p in whole.named_parameters()}
        assert found["weights"].keys() == expected.keys()
        assert all(torch.equal(found["weights"][name], tensor) for name, tensor in expected.items())
