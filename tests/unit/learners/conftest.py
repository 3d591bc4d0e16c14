"""A model of a few thousand parameters, and batches for it."""

from collections.abc import Callable, Sequence
from pathlib import Path
from random import Random

import pytest
import torch
from transformers import Qwen2Config, Qwen2ForCausalLM

from core.batch import Batch, Sample
from learners.learner import Learner
from learners.models import score_tokens
from learners.settings import LearnerSettings

VOCABULARY = 48


@pytest.fixture(autouse=True)
def one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="session")
def model_path(tmp_path_factory) -> Path:
    config = Qwen2Config(
        vocab_size=VOCABULARY,
        hidden_size=16,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=1,
        intermediate_size=32,
        max_position_embeddings=128,
        tie_word_embeddings=True,
        initializer_range=0.3,
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = Qwen2ForCausalLM(config)
    directory = tmp_path_factory.mktemp("tiny")
    model.save_pretrained(directory)
    return directory


@pytest.fixture
def make_learner(model_path) -> Callable[..., Learner]:
    def make(learning_rate: float = 1e-2, **settings) -> Learner:
        settings = {"warmup_updates": 0, "estimator": "grpo"} | settings
        return Learner(LearnerSettings(**settings), learning_rate, model_path, model_path, seed=3)

    return make


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
        pick = torch.tensor([sampled])
        with torch.no_grad():
            scores = score_tokens(learner.model, torch.tensor([tokens]), pick, temperature)
        return Sample(
            tokens=tokens,
            sampled=sampled,
            trained=sampled if trained is None else (*[False] * len(prompt), *trained),
            logprobs=(*[0.0] * len(prompt), *scores.logprobs_N.tolist()),
            reward=reward,
            advantage=advantage if learner.settings.estimator == "grpo" else None,
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
            samples.append(
                sample_of(
                    learner,
                    prompt,
                    completion,
                    reward=rng.random(),
                    advantage=rng.gauss(0, 1),
                    temperature=temperature,
                )
            )
        return Batch(step=step, samples=tuple(samples), temperature=temperature, seed=step)

    return make
