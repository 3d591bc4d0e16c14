"""A model of a few thousand parameters, and batches for it."""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from random import Random

import pytest
import torch
from torch import distributed

from learners.learner import Learner
from learners.packing import row_of
from learners.settings import LearnerSettings
from learners.state import load_learner
from sparring.core.batch import Batch, Sample
from tests.learning import VOCABULARY, one_torch_thread, save_tiny_model


@pytest.fixture(autouse=True)
def one_thread():
    with one_torch_thread():
        yield


@pytest.fixture
def alone(tmp_path: Path) -> Iterator[None]:
    """A process group of one."""
    distributed.init_process_group("gloo", init_method=f"file://{tmp_path}/rendezvous", rank=0, world_size=1)
    yield
    distributed.destroy_process_group()


@pytest.fixture(scope="session")
def model_path(tmp_path_factory) -> Path:
    return save_tiny_model(tmp_path_factory.mktemp("tiny"))


@pytest.fixture
def make_learner(model_path) -> Callable[..., Learner]:
    """make_learner(learning_rate, path, **settings): GRPO without warm-up, if no setting says otherwise."""

    def make(learning_rate: float = 1e-2, path: Path = model_path, **settings) -> Learner:
        settings = {"schedule": {"warmup_updates": 0}, "estimator": {"kind": "grpo"}} | settings
        return Learner(LearnerSettings(**settings), learning_rate, path, path, seed=3)

    return make


@pytest.fixture
def resumed(model_path) -> Callable[..., Learner]:
    """resumed(learner, folder): another learner that goes on from what was saved there."""

    def resume(saved: Learner, folder: Path, **other_settings) -> Learner:
        settings = LearnerSettings(**saved.settings.model_dump() | other_settings)
        learner = Learner(settings, 1e-2, folder, model_path, seed=99)
        load_learner(learner, folder)
        return learner

    return resume


@pytest.fixture
def sample_of() -> Callable[..., Sample]:
    """sample_of(learner, prompt, completion, ...): behaviour log-probabilities are the learner's own."""

    def make(
        learner: Learner,
        prompt: Sequence[int],
        completion: Sequence[int],
        *,
        trained: Sequence[bool] | None = None,
        reward: float = 1.0,
        advantage: float | None = 1.0,
        temperature: float = 1.0,
    ) -> Sample:
        tokens = (*prompt, *completion)
        sampled = (*[False] * len(prompt), *[True] * len(completion))
        with torch.no_grad():
            scores = learner.policy.score(row_of([tokens]), torch.tensor(sampled), temperature)
        return Sample(
            tokens=tokens,
            sampled=sampled,
            trained=sampled if trained is None else (*[False] * len(prompt), *trained),
            logprobs=(*[0.0] * len(prompt), *scores.logprobs_P.tolist()),
            reward=reward,
            advantage=None if learner.settings.estimator.kind == "gae" else advantage,
        )

    return make


@pytest.fixture
def random_batch(sample_of) -> Callable[..., Batch]:
    def make(learner: Learner, step: int = 1, count: int = 10, temperature: float = 1.0) -> Batch:
        rng = Random(step)
        samples = []
        for _ in range(count):
            prompt = [rng.randrange(VOCABULARY) for _ in range(rng.randint(1, 6))]
            completion = [rng.randrange(VOCABULARY) for _ in range(rng.randint(1, 12))]
            earned = {"reward": rng.random(), "advantage": rng.gauss(0, 1)}
            samples.append(sample_of(learner, prompt, completion, **earned, temperature=temperature))
        return Batch(step=step, samples=tuple(samples), temperature=temperature, seed=step)

    return make
