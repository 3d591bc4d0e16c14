import math
from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.profiler import ProfilerActivity, profile

import learners.learner
from learners import packing
from learners.learner import Learner, equal_parts
from learners.packing import row_of
from tests.learning import VOCABULARY, batch, largest_difference, random_samples, tiny_model, weights

HIDDEN = tiny_model().config.hidden_size
ESTIMATORS = ["gae", "grpo"]


def probability(learner: Learner, prompt, completion) -> float:
    row = row_of([[*prompt, *completion]])
    with torch.no_grad():
        return learner.policy.score(row, row.positions_N >= len(prompt), 1.0).logprobs_P.sum().exp().item()


def tokens_through(learner: Learner) -> list[int]:
    """Returns a list that gets the number of tokens of each pass through the policy's model."""
    passes: list[int] = []
    embeddings = learner.policy.model.get_input_embeddings()
    embeddings.register_forward_pre_hook(lambda _, tokens: passes.append(tokens[0].numel()))
    return passes


# ---------------------------------------------------------------------- scores
def test_the_entropy_is_that_of_the_models_logits(make_learner):
    learner = make_learner()
    pick = torch.tensor([False, True, False, True, False, True])
    with torch.no_grad():
        scores = learner.policy.score(row_of([[3, 9, 4, 7], [5, 6]]), pick, temperature=0.7)
        first, second = (
            (learner.policy.model(torch.tensor([tokens])).logits[0] / 0.7).log_softmax(-1)
            for tokens in ([3, 9, 4, 7], [5, 6])
        )
    entropy = [-(row.exp() * row).sum().item() for row in (first[0], first[2], second[0])]
    assert scores.entropy_P.tolist() == pytest.approx(entropy, abs=1e-5)


# ---------------------------------------------------------------------- which tokens learn
@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"lora": {"rank": 4}},
        {"gradient_checkpointing": True},
        {"microbatch_tokens": 128},
        {"estimator": {"kind": "gae", "critic": "model"}},
        {"kl": {"kind": "loss", "coefficient": 0.1}},
    ],
    ids=str,
)
def test_a_prompt_that_is_computed_once_teaches_what_it_teaches_in_each_attempt(
    make_learner, monkeypatch, settings
):
    prompts = [[3 + n % 7 for n in range(24)], [3 + n % 5 for n in range(20)]]
    samples = [
        replace(sample, tokens=(*prompts[n % 2], *sample.tokens), **{
            name: (*[0] * len(prompts[n % 2]), *getattr(sample, name)) for name in ("sampled", "trained", "logprobs")
        })
        for n, sample in enumerate(random_samples(1, 6, advantages="estimator" not in settings))
    ]  # fmt: skip
    once, each = make_learner(**settings), make_learner(**settings)
    computed = {learner: tokens_through(learner) for learner in (once, each)}
    shared = once.step(batch(*samples))
    monkeypatch.setattr(packing, "LEAST_SHARED", 10**9)
    apart = each.step(batch(*samples))
    assert sum(computed[once]) < 0.7 * sum(computed[each])
    assert shared["gradient_norm"] == pytest.approx(apart["gradient_norm"], rel=1e-4)
    assert largest_difference(weights(once), weights(each)) < 1e-5


@pytest.mark.parametrize("objective", ["ppo", "gspo", "cispo"])
def test_the_only_update_of_a_batch_needs_no_pass_before_it(make_learner, monkeypatch, objective):
    samples = random_samples(2, 6)
    settings = {"importance_cap": 2.0, "objective": objective, "kl": {"kind": "none"}}

    def learned() -> tuple[Learner, dict[str, float], int]:
        learner = make_learner(**settings, loss_normaliser="sequence")
        passes = tokens_through(learner)
        return learner, learner.step(batch(*samples)), len(passes)

    without, metrics, passes = learned()
    monkeypatch.setattr(learners.learner, "needs_first_pass", lambda *_: True)
    with_one, expected, more = learned()
    assert (passes, more) == (1, 2)
    assert largest_difference(weights(without), weights(with_one)) < 1e-6
    for key in ("gradient_norm", "policy_loss", "approximate_kl", "clip_fraction", "mismatch_mean"):
        assert metrics[key] == pytest.approx(expected[key], rel=1e-4, abs=1e-7)


@pytest.mark.parametrize("settings", [{"epochs": 2}, {"minibatch_samples": 3}])
def test_where_a_batch_is_several_updates_ratios_are_against_the_first_pass(make_learner, settings):
    learner = make_learner(importance_cap=2.0, **settings)
    metrics = learner.step(batch(*random_samples(2, 6)))
    assert metrics["approximate_kl"] > 1e-6, "the second update's ratios are not 1"


def gradient_norm(learner: Learner, *samples) -> float:
    return learner.step(batch(*samples))["gradient_norm"]


@pytest.mark.parametrize(
    ("settings", "scale"),
    [
        ({}, lambda short, long: (1 / 4, 1 / 4)),  # 1 + 3 tokens
        ({"loss_normaliser": "sequence"}, lambda short, long: (1 / 2, 1 / 6)),
        ({"loss_normaliser": "constant", "max_loss_tokens": 8}, lambda short, long: (1 / 16, 1 / 16)),
    ],
)
def test_loss_normalisers_weigh_tokens_as_defined(make_learner, sample_of, settings, scale):
    """Two samples, of one token and of three: the gradient is the weighted sum of their tokens' gradients."""
    learner = make_learner(gradient_clip=1e9, **settings)
    samples = sample_of(learner, [3, 4], [6]), sample_of(learner, [5], [7, 8, 9], advantage=-0.5)
    expected = torch.zeros(())
    for sample, weight in zip(samples, scale(1, 3), strict=True):
        logits = learner.policy.model(torch.tensor([sample.tokens])).logits[0].log_softmax(-1)
        start = sample.sampled.index(True)
        for position in range(start, len(sample.tokens)):
            expected = expected - weight * sample.advantage * logits[position - 1, sample.tokens[position]]
    gradients = torch.autograd.grad(expected, list(learner.policy.model.parameters()))
    norm = torch.stack([g.norm() for g in gradients]).norm().item()
    assert gradient_norm(learner, *samples) == pytest.approx(norm, rel=1e-4)


def test_decoupled_ppo_weighs_by_the_learners_ratio_to_the_engine(make_learner, sample_of):
    """The engine's probability was half the learner's: weight 2, truncated at the cap; the ratio starts at 1."""
    plain, capped, whole = (
        make_learner(gradient_clip=1e9, **s) for s in ({}, {"importance_cap": 1.5}, {"importance_cap": 4.0})
    )
    sample = sample_of(plain, [3, 4], [6, 7])
    stale = replace(sample, logprobs=(0.0, 0.0, *(p - math.log(2) for p in sample.logprobs[2:])))
    base = gradient_norm(plain, sample)
    assert gradient_norm(capped, stale) == pytest.approx(1.5 * base, rel=1e-4)
    assert gradient_norm(whole, stale) == pytest.approx(2 * base, rel=1e-4)


def test_kl_in_the_reward_lowers_the_returns_by_the_penalties(make_learner, sample_of):
    learner = make_learner(
        estimator={"kind": "gae"}, kl={"kind": "reward", "coefficient": 0.5, "estimator": "k1"}
    )
    with torch.no_grad():  # away from the reference
        next(learner.policy.model.parameters()).mul_(1.1)
    sample = sample_of(learner, [3, 4], [6, 7], reward=1.0)
    reference = learner.policy.score_reference(
        row_of([sample.tokens]), torch.tensor(sample.sampled, dtype=torch.bool), 1.0
    ).logprobs_P
    penalties = [0.5 * (p - r) for p, r in zip(sample.logprobs[2:], reference.tolist(), strict=True)]
    targets = learner._targets(batch(sample), [0], {})
    expected = [1.0 - sum(penalties), 1.0 - penalties[1]]  # gamma = lambda = 1: the reward to go
    assert targets[0].returns_S.tolist() == pytest.approx(expected, abs=1e-5)


@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_padding_changes_nothing(make_learner, sample_of, estimator):
    """A short sample beside a long one whose tokens are not trained: the update of the short one alone."""
    frozen_value = {"value_learning_rate": 1e-9} if estimator == "gae" else {}
    short_alone = make_learner(estimator={"kind": estimator, **frozen_value})
    beside_long = make_learner(estimator={"kind": estimator, **frozen_value})
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
    inside = sample.logprobs[3:5]
    outside = replace(
        sample, logprobs=(-9.0, -9.0, -20.0, *inside, -20.0)
    )  # the prompt's two are outside, too
    all_trained = replace(sample, trained=sample.sampled)
    assert first.step(batch(sample))["trained_tokens"] == 2
    second.step(batch(outside))
    third.step(batch(all_trained))
    assert largest_difference(weights(first), weights(second)) == 0
    assert largest_difference(weights(first), weights(third)) > 1e-4


@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_the_head_multiplies_what_is_trained_only(make_learner, sample_of, estimator):
    """By the profiler: rows of its matrix products. The critic learns from all that was sampled, without logits."""
    learner = make_learner(estimator={"kind": estimator})
    sample = sample_of(learner, [3, 4], [6, 7, 8, 9], trained=[False, True, True, False])
    targets = learner._targets(batch(sample), [0], {})
    with profile(activities=[ProfilerActivity.CPU], record_shapes=True) as seen:
        updated = learner._accumulate(batch(sample), [0], targets)[0]
    products = [event.input_shapes for event in seen.events() if event.name == "aten::mm"]
    of_head = [sizes for sizes in products if any(VOCABULARY in size for size in sizes)]
    rows = [min({n for size in sizes for n in size} - {VOCABULARY, HIDDEN}) for sizes in of_head]
    assert rows == [2, 2, 2, 2], "the policy's, the watched reference's; the gradient's by hidden and weight"
    assert updated["sampled_tokens"] == 4 and ("value_loss" in updated) == (estimator == "gae")


@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_a_batch_in_which_nothing_is_trained_only_counts(make_learner, sample_of, estimator):
    learner = make_learner(estimator={"kind": estimator})
    before = weights(learner)
    metrics = learner.step(batch(sample_of(learner, [3], [4], trained=[False])))
    assert learner.version == 1 and metrics["samples"] == 0
    assert largest_difference(before, weights(learner)) == 0
    assert learner.step(batch(step=2))["samples"] == 0


# ---------------------------------------------------------------------- the update
@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_the_size_of_micro_batches_does_not_change_the_update(make_learner, random_batch, estimator):
    learners = [
        make_learner(1e-3, estimator={"kind": estimator}, microbatch_tokens=tokens) for tokens in (64, 16384)
    ]
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
    learner = make_learner(estimator={"kind": estimator}, minibatch_samples=64)
    metrics = learner.step(random_batch(learner, temperature=temperature))
    assert metrics["clip_fraction"] == 0
    assert abs(metrics["approximate_kl"]) < 1e-6
    assert metrics["mismatch_max"] < 1e-4
    assert abs(metrics["kl_to_initial"]) < 1e-6


def test_a_mismatch_between_engine_and_learner_is_reported(make_learner, sample_of):
    learner = make_learner()
    sample = sample_of(learner, [3], [4, 5])
    wrong = replace(sample, logprobs=(0.0, sample.logprobs[1] + 0.5, sample.logprobs[2]))
    metrics = learner.step(batch(wrong))
    assert metrics["mismatch_max"] == pytest.approx(0.5, abs=1e-4)
    assert metrics["mismatch_mean"] == pytest.approx(0.25, abs=1e-4)


@pytest.mark.parametrize(
    "settings",
    [
        {"estimator": {"kind": "gae"}},
        {"objective": "ppo"},
        {"objective": "gspo", "loss_normaliser": "sequence"},
        {"objective": "cispo"},
    ],
    ids=str,
)
def test_what_was_rewarded_becomes_likelier(make_learner, sample_of, settings):
    learner = make_learner(1e-2, **settings)
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


def test_without_kl_there_is_no_reference(make_learner, sample_of) -> None:
    learner = make_learner(1e-2, kl={"kind": "none"})
    assert learner.policy.reference is None
    metrics = learner.step(batch(sample_of(learner, [3, 4], [6, 7, 8])))
    assert "kl_to_initial" not in metrics and metrics["gradient_norm"] > 0


def test_the_kl_term_pulls_back_to_the_initial_model(make_learner, sample_of):
    drifted = []
    for kl in ({"kind": "watched"}, {"kind": "loss", "coefficient": 5.0}):
        learner = make_learner(1e-2, kl=kl)
        for step in range(1, 9):
            metrics = learner.step(batch(sample_of(learner, [3, 4], [6, 7, 8]), step=step))
        drifted.append(metrics["kl_to_initial"])
    assert drifted[0] > 2 * drifted[1] > 0


def test_epochs_and_equal_minibatches_multiply_the_updates(make_learner, random_batch, monkeypatch):
    learner = make_learner(epochs=2, minibatch_samples=4)
    sizes: list[int] = []
    update = learner._update
    monkeypatch.setattr(
        learner, "_update", lambda b, chosen, *rest: (sizes.append(len(chosen)), update(b, chosen, *rest))
    )
    learner.step(random_batch(learner, count=9))
    assert sizes == 2 * [3, 3, 3] and learner.updates == 6


@given(st.integers(0, 300), st.integers(1, 80))
def test_minibatches_are_as_few_and_as_equal_as_can_be(count, most):
    parts = equal_parts(range(count), most)
    assert [i for part in parts for i in part] == list(range(count))
    assert len(parts) == math.ceil(count / most)
    assert not parts or max(map(len, parts)) - min(map(len, parts)) <= 1


@pytest.mark.parametrize("kind", ["gae", "reinforce_pp"])
def test_advantages_are_normalised_among_one_players_tokens(make_learner, sample_of, kind):
    """What a role earns by being that role (+5, -5) is nothing that its tokens have done."""
    learner = make_learner(estimator={"kind": kind})
    samples = tuple(
        replace(sample_of(learner, [3], [4] * length, reward=r, advantage=r), player=player)
        for player, base in (("first", 5.0), ("second", -5.0))
        for length, r in ((1, base + 1), (4, base - 1))
    )
    targets = learner._targets(batch(*samples), range(4), {})
    for own in ((0, 1), (2, 3)):
        pooled = torch.cat([targets[i].advantages_S for i in own])
        assert pooled.mean().item() == pytest.approx(0, abs=1e-5)
        assert pooled.std().item() == pytest.approx(1, abs=1e-4)
        # 1 token of +1, 4 of -1: mean -.6, std .8944
        assert pooled[0].item() == pytest.approx(1.6 / 0.8**0.5, abs=1e-4)


@pytest.mark.parametrize("critic", ["head", "model"])
def test_a_critic_starts_at_zero_learns_the_return_and_leaves_the_policy_alone(
    make_learner, sample_of, critic
):
    estimator = {"kind": "gae", "critic": critic, "value_learning_rate": 3e-2}
    learner = make_learner(1e-9, estimator=estimator)
    policy, before = weights(learner), {n: p.clone() for n, p in learner.critic.named_parameters()}
    losses = []
    for step in range(1, 40):
        samples = (
            sample_of(learner, [3, 4], [6, 7], reward=1.0),
            sample_of(learner, [9, 10], [11, 12], reward=0.0),
        )
        losses.append(learner.step(batch(*samples, step=step))["value_loss"])
    assert losses[0] == pytest.approx(0.5), "half of the tokens have return 1"
    assert losses[-1] < 0.05
    assert largest_difference(policy, weights(learner)) < 1e-6
    moved = {name.split(".")[0] for name, p in learner.critic.named_parameters() if not p.equal(before[name])}
    assert moved == ({"head", "trunk"} if critic == "model" else {"head"})


def test_the_value_loss_does_not_reach_the_policy(make_learner, sample_of):
    """One sample has one advantage after normalisation: zero; only the value head may move."""
    learner = make_learner(1e-2, estimator={"kind": "gae"})
    before = weights(learner)
    learner.step(batch(sample_of(learner, [3], [4], reward=1.0)))
    assert largest_difference(before, weights(learner)) == 0
    assert learner.critic.head.layers[2].bias.item() != 0
