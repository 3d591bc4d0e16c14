"""Properties of the code golf requirements (R3) that are the learner's, by their numbers. 7, 8 and 46 are in
tests/unit/learners, 12 in test_reward_properties, 13 in test_advantage_properties, 24 in tests/integration/test_resume."""

from collections.abc import Iterable
from copy import deepcopy
from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from lab.model import build_tokenizer
from learners.learner import Learner
from learners.losses import policy_loss
from learners.packing import row_of
from learners.settings import LearnerSettings
from learners.state import load_learner, save_learner
from sparring.core.batch import Sample
from tests.learning import (
    batch,
    largest_difference,
    one_torch_thread,
    random_samples,
    save_tiny_model,
    weights,
)

examples = settings(max_examples=100, deadline=None)
MARKERS = ("<pad>", "<end>")


@pytest.fixture(scope="module")
def model_path(tmp_path_factory):
    with one_torch_thread():
        yield save_tiny_model(tmp_path_factory.mktemp("tiny"))


@pytest.fixture(scope="module")
def tokenizer():
    return build_tokenizer(["def f(x):\n    return x + 1\n"] * 20, MARKERS, *MARKERS)


@examples
@given(st.text(max_size=200).filter(lambda text: not any(marker in text for marker in MARKERS)))
def test_6_encoding_then_decoding_gives_the_text_back(tokenizer, text):
    import unicodedata

    text = unicodedata.normalize("NFC", text.encode("utf-8", "ignore").decode())  # as Qwen2's tokenizer does
    assert tokenizer.decode(tokenizer(text).input_ids, clean_up_tokenization_spaces=False) == text


@pytest.fixture(scope="module")
def learners(model_path):
    return {
        name: Learner(
            LearnerSettings(**{"schedule": {"warmup_updates": 0}, "minibatch_samples": 4} | keys),
            1e-2,
            model_path,
            model_path,
        )
        for name, keys in {
            "gae": {"estimator": {"kind": "gae"}},
            "grpo": {"estimator": {"kind": "grpo"}},
            "clipped": {"estimator": {"kind": "grpo"}, "gradient_clip": 0.05},
            "clipped with a critic": {"estimator": {"kind": "gae"}, "gradient_clip": 0.05},
        }.items()
    }


def stepped(
    learner: Learner, seed: int, count: int, logprob: float = -3.5, on_policy: bool = False
) -> tuple[Learner, dict[str, float]]:
    """(a copy that has learned, its metrics): what one example taught decides no other's outcome.

    on_policy: the behaviour's log-probabilities are the learner's own, so that no ratio starts beyond its bounds.
    """
    learner = deepcopy(learner)
    advantages = learner.settings.estimator.kind != "gae"
    samples = random_samples(seed, count, advantages=advantages, logprob=logprob)
    if on_policy:
        samples = tuple(replace(sample, logprobs=own_logprobs(learner, sample)) for sample in samples)
    return learner, learner.step(batch(*samples))


def own_logprobs(learner: Learner, sample: Sample) -> tuple[float, ...]:
    picked = torch.tensor(sample.sampled, dtype=torch.bool)
    found = torch.zeros(len(picked))
    with torch.no_grad():
        found[picked] = learner.policy.score(row_of([sample.tokens]), picked, 1.0).logprobs_P
    return tuple(found.tolist())


@settings(examples, max_examples=100)
@given(st.integers(0, 10**6), st.integers(1, 6), st.sampled_from(["gae", "grpo"]))
def test_9_and_23_a_checkpoint_brings_back_every_parameter_and_all_that_goes_on(
    learners, model_path, tmp_path_factory, seed, count, name
):
    learner, _ = stepped(learners[name], seed, count)
    directory = tmp_path_factory.mktemp("checkpoint")
    save_learner(learner, directory)
    again = Learner(learner.settings, 1e-2, directory, model_path, seed=77)
    load_learner(again, directory)
    assert largest_difference(weights(learner), weights(again)) == 0
    assert (again.version, again.updates) == (learner.version, learner.updates)
    if learner.critic:
        ours, theirs = learner.critic.state_dict(), again.critic.state_dict()
        assert all(torch.equal(ours[key], theirs[key]) for key in ours)
    for mine, other in zip(
        learner.policy.trainable().values(), again.policy.trainable().values(), strict=True
    ):
        for key, value in learner.optimizer.state[mine].items():
            assert torch.equal(value, again.optimizer.state[other][key])


@examples
@given(
    # Advantages far below float32's smallest have gradients that round to nothing.
    st.lists(
        st.tuples(
            st.floats(-6, 0), st.floats(-6, 0), st.floats(-3, 3).filter(lambda a: a == 0 or abs(a) > 1e-9)
        ),
        min_size=1,
        max_size=30,
    ),
    st.floats(0.01, 0.9),
    st.floats(0.01, 2.0),
)
def test_10_beyond_the_bounds_a_ratio_neither_earns_nor_pulls(tokens, low, high):
    logprobs, old, advantages = (
        torch.tensor(column, dtype=torch.float64) for column in zip(*tokens, strict=True)
    )
    logprobs.requires_grad_(True)
    loss = policy_loss(
        logprobs, old, advantages, torch.zeros(len(tokens), dtype=torch.long), clip_low=low, clip_high=high
    ).loss_N
    loss.sum().backward()
    gain, ratio = -loss.detach(), (logprobs.detach() - old).exp()
    assert (gain <= torch.where(advantages > 0, (1 + high) * advantages, (1 - low) * advantages) + 1e-9).all()
    outside = ((ratio > 1 + high) & (advantages > 0)) | ((ratio < 1 - low) & (advantages < 0))
    assert (logprobs.grad[outside] == 0).all()
    inside = (ratio > 1 - low) & (ratio < 1 + high) & (advantages != 0)
    assert (logprobs.grad[inside] != 0).all()


@examples
@given(st.integers(0, 10**6), st.integers(2, 6))
def test_14_and_42_policy_and_critic_move_and_the_norm_is_told(learners, seed, count):
    """With every token beyond its bounds the policy has no gradient, and rightly: hence samples of its own."""
    before = learners["gae"]
    learner, metrics = stepped(before, seed, count, on_policy=True)
    assert largest_difference(weights(before), weights(learner)) > 0
    critic = before.critic.state_dict()
    assert any(not torch.equal(value, critic[name]) for name, value in learner.critic.state_dict().items())
    assert metrics["gradient_norm"] > 0


@examples
@given(
    st.integers(0, 10**6),
    st.integers(1, 4),
    st.floats(-8, -1),
    st.sampled_from(["clipped", "clipped with a critic"]),
)
def test_47_no_update_is_made_with_more_than_the_clipped_gradient(learners, seed, count, logprob, name):
    learner, _ = stepped(learners[name], seed, count, logprob)
    assert gradient_norm(learner.policy.trainable().values()) <= 0.05 * (1 + 1e-4)
    if learner.critic:
        assert 0 < gradient_norm(learner.critic.parameters()) <= 0.05 * (1 + 1e-4)


def gradient_norm(parameters: Iterable[torch.nn.Parameter]) -> float:
    return torch.stack([p.grad.norm() for p in parameters if p.grad is not None]).norm().item()
