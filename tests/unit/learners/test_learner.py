import math
from dataclasses import replace

import pytest
import torch

from core.batch import Batch
from learners.learner import Learner
from learners.models import score_tokens
from learners.settings import LearnerSettings

ESTIMATORS = ["gae", "grpo"]


def weights(learner: Learner) -> dict[str, torch.Tensor]:
    return {name: p.detach().clone() for name, p in learner.model.named_parameters()}


def largest_difference(first, second) -> float:
    return max((first[name] - second[name]).abs().max().item() for name in first)


def probability(learner: Learner, prompt, completion) -> float:
    tokens = torch.tensor([[*prompt, *completion]])
    pick = torch.zeros_like(tokens, dtype=torch.bool)
    pick[:, len(prompt) :] = True
    with torch.no_grad():
        return score_tokens(learner.model, tokens, pick, 1.0).logprobs_N.sum().exp().item()


def batch(*samples, step: int = 1, temperature: float = 1.0) -> Batch:
    return Batch(step=step, samples=samples, temperature=temperature, seed=5)


# ---------------------------------------------------------------------- scores
def test_scores_are_the_log_softmax_of_the_models_logits(make_learner):
    learner = make_learner()
    tokens = torch.tensor([[3, 9, 4, 7], [5, 6, 0, 0]])
    pick = torch.tensor([[False, True, False, True], [False, True, False, False]])
    with torch.no_grad():
        scores = score_tokens(learner.model, tokens, pick, temperature=0.7)
        expected = (learner.model(tokens).logits / 0.7).log_softmax(-1)
    assert scores.logprobs_N.tolist() == pytest.approx(
        [expected[0, 0, 9].item(), expected[0, 2, 7].item(), expected[1, 0, 6].item()], abs=1e-5
    )
    entropy = -(expected.exp() * expected).sum(-1)
    assert scores.entropy_N.tolist() == pytest.approx(
        [entropy[0, 0].item(), entropy[0, 2].item(), entropy[1, 0].item()], abs=1e-5
    )


# ---------------------------------------------------------------------- which tokens learn
def test_prompt_tokens_carry_no_loss(make_learner, sample_of):
    """With the behaviour log-probability of prompt positions doctored, nothing changes."""
    first, second = make_learner(), make_learner()
    plain = sample_of(first, [3, 4, 5], [6, 7])
    doctored = replace(plain, logprobs=(-9.0, -9.0, -9.0, *plain.logprobs[3:]))
    first.step(batch(plain))
    second.step(batch(doctored))
    assert largest_difference(weights(first), weights(second)) == 0


def test_the_loss_is_that_of_the_completion_given_the_prompt(make_learner, sample_of):
    learner = make_learner(learning_rate=1e-3, gradient_clip=1e9)
    sample = sample_of(learner, [3, 4, 5], [6, 7], advantage=1.0)
    logits = learner.model(torch.tensor([sample.tokens])).logits[0].log_softmax(-1)
    expected_loss = -(logits[2, 6] + logits[3, 7]) / 2  # at ratio 1 the surrogate's gradient is the score's
    expected_loss.backward()
    gradients = [p.grad.clone() for p in learner.model.parameters()]
    expected_norm = torch.stack([g.norm() for g in gradients]).norm().item()
    metrics = learner.step(batch(sample))
    assert metrics["gradient_norm"] == pytest.approx(expected_norm, rel=1e-4)
    assert metrics["trained_tokens"] == 2


@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_padding_changes_nothing(make_learner, sample_of, estimator):
    """A short sample beside a long one whose tokens are not trained: the update of the short one alone."""
    short_alone = make_learner(estimator=estimator, value_learning_rate=1e-9)
    beside_long = make_learner(estimator=estimator, value_learning_rate=1e-9)
    short = sample_of(short_alone, [3, 4], [6, 7, 8])
    long = sample_of(short_alone, [9] * 20, [1, 2, 3, 4], trained=[False] * 4)
    short_alone.step(batch(short))
    metrics = beside_long.step(batch(short, long))
    assert metrics["samples"] == 1
    assert largest_difference(weights(short_alone), weights(beside_long)) < 1e-6


def test_only_the_stage_under_training_carries_loss(make_learner, sample_of):
    """Tokens outside the mask may have any behaviour log-probability; those inside decide the update."""
    first, second, third = make_learner(), make_learner(), make_learner()
    sample = sample_of(first, [3, 4], [6, 7, 8, 9], trained=[False, True, True, False])
    logprobs = list(sample.logprobs)
    logprobs[2], logprobs[5] = -20.0, -20.0
    outside = replace(sample, logprobs=tuple(logprobs))
    all_trained = replace(sample, trained=sample.sampled)
    assert first.step(batch(sample))["trained_tokens"] == 2
    second.step(batch(outside))
    third.step(batch(all_trained))
    assert largest_difference(weights(first), weights(second)) == 0
    assert largest_difference(weights(first), weights(third)) > 1e-4


@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_a_batch_in_which_nothing_is_trained_only_counts(make_learner, sample_of, estimator):
    learner = make_learner(estimator=estimator)
    before = weights(learner)
    metrics = learner.step(batch(sample_of(learner, [3], [4], trained=[False])))
    assert learner.version == 1 and metrics["samples"] == 0
    assert largest_difference(before, weights(learner)) == 0
    assert learner.step(batch(step=2))["samples"] == 0


# ---------------------------------------------------------------------- the update
@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_the_size_of_micro_batches_does_not_change_the_update(make_learner, random_batch, estimator):
    learners = [make_learner(1e-3, estimator=estimator, microbatch_tokens=tokens) for tokens in (64, 16384)]
    for step in (1, 2):
        played = random_batch(learners[1], step, count=16)
        metrics = [learner.step(played) for learner in learners]
    assert largest_difference(*map(weights, learners)) < 1e-5
    for name in ("policy_loss", "entropy", "gradient_norm", "trained_tokens"):
        assert metrics[0][name] == pytest.approx(metrics[1][name], rel=1e-3, abs=1e-5)


@pytest.mark.parametrize("estimator", ESTIMATORS)
@pytest.mark.parametrize("temperature", [1.0, 0.6])
def test_the_first_update_on_own_samples_starts_at_ratio_1(
    make_learner, random_batch, estimator, temperature
):
    learner = make_learner(estimator=estimator, minibatch_samples=64)
    metrics = learner.step(random_batch(learner, temperature=temperature))
    assert metrics["clip_fraction"] == 0
    assert abs(metrics["approximate_kl"]) < 1e-6
    assert metrics["mismatch_max"] < 1e-4
    assert abs(metrics["kl_to_warm_start"]) < 1e-6


def test_a_mismatch_between_engine_and_learner_is_reported(make_learner, sample_of):
    learner = make_learner()
    sample = sample_of(learner, [3], [4, 5])
    wrong = replace(sample, logprobs=(0.0, sample.logprobs[1] + 0.5, sample.logprobs[2]))
    metrics = learner.step(batch(wrong))
    assert metrics["mismatch_max"] == pytest.approx(0.5, abs=1e-4)
    assert metrics["mismatch_mean"] == pytest.approx(0.25, abs=1e-4)


@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_what_was_rewarded_becomes_likelier(make_learner, sample_of, estimator):
    learner = make_learner(1e-2, estimator=estimator)
    prompt, good, bad = [3, 4], [6, 7, 8], [9, 10, 11]
    before = probability(learner, prompt, good), probability(learner, prompt, bad)
    for step in range(1, 6):
        samples = (
            sample_of(learner, prompt, good, reward=1.0, advantage=1.0),
            sample_of(learner, prompt, bad, reward=0.0, advantage=-1.0),
        )
        learner.step(batch(*samples, step=step))
    assert probability(learner, prompt, good) > 1.5 * before[0]
    assert probability(learner, prompt, bad) < before[1]


def test_no_advantage_no_change(make_learner, sample_of):
    learner = make_learner()
    before = weights(learner)
    learner.step(batch(sample_of(learner, [3], [4, 5], advantage=0.0)))
    assert largest_difference(before, weights(learner)) == 0


@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_a_learning_rate_near_zero_leaves_the_weights(make_learner, random_batch, estimator):
    learner = make_learner(1e-12, estimator=estimator)
    before = weights(learner)
    learner.step(random_batch(learner))
    assert largest_difference(before, weights(learner)) < 1e-9


def test_the_kl_term_pulls_back_to_the_warm_start(make_learner, sample_of):
    drifted = []
    for coefficient in (0.0, 5.0):
        learner = make_learner(1e-2, kl_coefficient=coefficient)
        for step in range(1, 9):
            metrics = learner.step(batch(sample_of(learner, [3, 4], [6, 7, 8]), step=step))
        drifted.append(metrics["kl_to_warm_start"])
    assert drifted[0] > 2 * drifted[1] > 0


def test_the_learning_rate_rises_over_the_warm_up(make_learner, sample_of):
    learner = make_learner(1e-2, warmup_updates=4)
    rates = [
        learner.step(batch(sample_of(learner, [3], [4]), step=step))["learning_rate"] for step in range(1, 7)
    ]
    assert rates == pytest.approx([0.0025, 0.005, 0.0075, 0.01, 0.01, 0.01])


def test_epochs_and_minibatches_multiply_the_updates(make_learner, random_batch):
    learner = make_learner(epochs=2, minibatch_samples=4)
    learner.step(random_batch(learner, count=10))
    assert learner.updates == 2 * 3


def test_gradient_checkpointing_gives_the_same_update(make_learner, random_batch):
    plain, checkpointed = make_learner(1e-3), make_learner(1e-3, gradient_checkpointing=True)
    played = random_batch(plain)
    plain.step(played)
    checkpointed.step(played)
    assert largest_difference(weights(plain), weights(checkpointed)) < 1e-6


def test_the_value_head_learns_the_return(make_learner, sample_of):
    learner = make_learner(1e-9, estimator="gae", value_learning_rate=3e-2)
    losses = []
    for step in range(1, 40):
        samples = (
            sample_of(learner, [3, 4], [6, 7], reward=1.0),
            sample_of(learner, [9, 10], [11, 12], reward=0.0),
        )
        losses.append(learner.step(batch(*samples, step=step))["value_loss"])
    assert losses[0] == pytest.approx(0.5)  # the head starts at 0: half the tokens have return 1
    assert losses[-1] < 0.05


def test_the_value_loss_does_not_reach_the_policy(make_learner, sample_of):
    """One sample has one advantage after normalisation: zero; only the value head may move."""
    learner = make_learner(1e-2, estimator="gae")
    before = weights(learner)
    learner.step(batch(sample_of(learner, [3], [4], reward=1.0)))
    assert largest_difference(before, weights(learner)) == 0
    assert learner.value_head.layers[2].bias.item() != 0


# ---------------------------------------------------------------------- faults
@pytest.mark.parametrize("broken", [math.nan, math.inf])
def test_a_loss_that_is_not_finite_stops_the_step(make_learner, sample_of, broken):
    learner = make_learner()
    before = weights(learner)
    with pytest.raises(FloatingPointError, match="lower the learning rate"):
        learner.step(batch(sample_of(learner, [3], [4], advantage=broken)))
    assert learner.version == 0
    assert largest_difference(before, weights(learner)) == 0


def test_grpo_needs_advantages(make_learner, sample_of):
    learner = make_learner()
    with pytest.raises(ValueError, match="advantage"):
        learner.step(batch(sample_of(learner, [3], [4], advantage=None)))


def test_batches_come_in_order(make_learner):
    with pytest.raises(AssertionError, match="batch 2 after version 0"):
        make_learner().step(batch(step=2))


# ---------------------------------------------------------------------- state
@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_a_resumed_learner_continues_to_the_bit(make_learner, random_batch, model_path, tmp_path, estimator):
    settings = {"estimator": estimator, "warmup_updates": 5, "minibatch_samples": 4}
    whole, first_half = make_learner(1e-2, **settings), make_learner(1e-2, **settings)
    batches = [random_batch(whole, step) for step in range(1, 5)]
    for played in batches[:2]:
        whole.step(played)
        first_half.step(played)
    first_half.save(tmp_path)
    resumed = Learner(LearnerSettings(**settings), 1e-2, tmp_path, model_path, seed=99)
    resumed.load_state(tmp_path)
    assert (resumed.version, resumed.updates) == (whole.version, whole.updates)
    for played in batches[2:]:
        assert resumed.step(played) == whole.step(played)
    assert largest_difference(weights(whole), weights(resumed)) == 0
    assert resumed.export().digest == whole.export().digest


@pytest.mark.parametrize(("saved", "now"), [("gae", "grpo"), ("grpo", "gae")])
def test_a_checkpoint_of_another_estimator_is_refused(make_learner, tmp_path, saved, now):
    make_learner(estimator=saved).save(tmp_path)
    with pytest.raises(ValueError, match=f"saved with estimator {saved}, this run uses {now}"):
        make_learner(estimator=now).load_state(tmp_path)


def test_the_reference_does_not_move(make_learner, random_batch):
    learner = make_learner()
    before = {n: p.clone() for n, p in learner.reference.named_parameters()}
    learner.step(random_batch(learner))
    assert all(torch.equal(p, before[n]) for n, p in learner.reference.named_parameters())
    assert not any(p.requires_grad for p in learner.reference.parameters())


def test_building_a_learner_does_not_touch_the_global_generator(make_learner):
    torch.manual_seed(1)
    expected = torch.rand(3)
    torch.manual_seed(1)
    make_learner(estimator="gae")
    assert torch.equal(torch.rand(3), expected)
