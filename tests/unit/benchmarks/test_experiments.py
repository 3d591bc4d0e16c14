"""The experiments that need no run of the whole: small, by hand or against what is known."""

from dataclasses import replace

import numpy as np
import pytest

from benchmarks.experiments import kuhn as experiment
from benchmarks.experiments.stage_credit import (
    RIGHT,
    STAGES,
    Chain,
    broadcast,
    learn,
    nested,
    shares,
    trees,
    uniform,
)
from sparring.evaluation.intervals import interval
from sparring.games.boards import kuhn

SHORT = experiment.KuhnSettings(episodes=10_000)


def test_intervals():
    result = interval([1.0, 2.0, 3.0])
    assert result.mean == 2 and result.half_width == pytest.approx(4.303 / 3**0.5)
    assert str(result) == "2.000 ±2.484"
    assert interval([1.0]).half_width == float("inf")
    assert interval([0.0, 1.0] * 50).half_width == pytest.approx(1.984 * 0.5025 / 10, rel=1e-2)


def test_episodes_of_tables_are_worth_what_the_rules_say():
    rng = np.random.default_rng(1)
    logits = [rng.normal(size=(3, 2, 2)) for _ in range(2)]
    policies = {
        name: p
        for role in (0, 1)
        for name, p in zip(
            kuhn.information_sets(role), experiment.probabilities(logits[role])[..., 1].ravel(), strict=True
        )
    }
    first, second = experiment.play(rng, logits, 40_000)
    assert first.payoffs_N.mean() == pytest.approx(kuhn.value(policies), abs=0.03)
    assert (first.payoffs_N == -second.payoffs_N).all()
    assert experiment.nash_conv([experiment.probabilities(table) for table in logits]) == pytest.approx(
        kuhn.nash_conv(policies)
    )


def test_the_gradient_is_that_of_the_objective():
    """By finite differences of mean advantage x log-probability + entropy x that of each visited decision."""
    rng = np.random.default_rng(2)
    logits = [rng.normal(size=(3, 2, 2)) for _ in range(2)]
    played, _ = experiment.play(rng, logits, 50)
    advantages = rng.normal(size=50)

    def objective(table: np.ndarray) -> float:
        log_pi = np.log(experiment.probabilities(table))
        entropy = -(np.exp(log_pi) * log_pi).sum(-1)
        return sum(
            (advantages[e] * log_pi[c, s, a] + 0.3 * entropy[c, s]).sum() for e, c, s, a in played.turns
        ) / len(advantages)

    found = experiment.gradient(logits[0], played, advantages, 0.3)
    for index in np.ndindex(found.shape):
        step = np.zeros_like(found)
        step[index] = 1e-5
        slope = (objective(logits[0] + step) - objective(logits[0] - step)) / 2e-5
        assert found[index] == pytest.approx(slope, abs=1e-7)


@pytest.mark.parametrize("opponents", ["self", "history", "pfsp"])
def test_play_approaches_equilibrium_and_repeats(opponents):
    settings = replace(SHORT, opponents=opponents, entropy=0.05)
    found = experiment.KuhnTrainer(settings, 1).train()
    assert found == experiment.KuhnTrainer(settings, 1).train()
    assert 0 < found["last"] < 0.6 and 0 < found["mean"] < 0.7


def test_a_bonus_per_role_is_nothing_to_rae():
    """Once a baseline knows the bonus; the first batch is judged by 0."""
    plain, shifted = (experiment.KuhnTrainer(replace(SHORT, bonus=b), 1) for b in (0.0, 5.0))
    payoffs = [np.array([1.0, -1.0, 2.0]), np.array([-1.0, 1.0, -2.0])]
    first = shifted._advantages(payoffs)
    assert first[0] == pytest.approx(payoffs[0] + 5) and first[1] == pytest.approx(payoffs[1] - 5)
    plain._advantages(payoffs)
    for ours, theirs in zip(shifted._advantages(payoffs), plain._advantages(payoffs), strict=True):
        assert ours == pytest.approx(theirs)
    shared = experiment.KuhnTrainer(replace(SHORT, bonus=5.0, estimator="shared"), 1)
    shared._advantages(payoffs)
    assert shared._advantages(payoffs)[0] == pytest.approx(payoffs[0] + 5)


def test_branches_share_their_trunk_and_stage():
    """In a chain whose outcome is certain, a stage after the deciding one has no branch to prefer."""
    rng = np.random.default_rng(1)
    credit = trees(16, 4)(rng, Chain(right=1.0, wrong=0.0), uniform(Chain()))
    assert not credit.advantages[3].any() and not credit.advantages[4].any()
    choices, advantages = credit.choices[2], credit.advantages[2]
    right = (choices == RIGHT).mean()
    assert 0 < right < 1
    assert advantages == pytest.approx(np.where(choices == RIGHT, 1 - right, -right))
    # 5 of the trunk; a branch and its continuations: 16 * (1 + 4 * later stages)
    assert credit.stages_sampled == 5 + 16 * 5 + 16 * 4 * (4 + 3 + 2 + 1)


def test_broadcast_gives_every_stage_the_same():
    credit = broadcast(40)(np.random.default_rng(1), Chain(), uniform(Chain()))
    assert all((a == credit.advantages[0]).all() for a in credit.advantages) and credit.stages_sampled == 200
    assert shares(broadcast(40), Chain(), 10, 1)[0] == pytest.approx([0.2] * STAGES)


def test_shares_of_tree_credit():
    few, many = (shares(trees(4, m), Chain(), 60, 1)[0] for m in (1, 16))
    assert 0.2 < few[2] < many[2] < 0.8 and many.argmax() == 2
    assert few == pytest.approx(shares(trees(4, 1), Chain(), 60, 1)[0])
    nothing_decides = shares(trees(4, 4), Chain(decisive=None), 200, 1)[0]
    assert nothing_decides == pytest.approx([0.2] * STAGES, abs=0.04)


def test_a_nested_tree_is_judged_by_its_leaves():
    """In a chain whose outcome is certain, a branch of the deciding stage is right or wrong with all its leaves."""
    credit = nested(2)(np.random.default_rng(1), Chain(right=1.0, wrong=0.0), uniform(Chain()))
    assert credit.rollouts == 32 and credit.stages_sampled == 2 + 4 + 8 + 16 + 32
    assert [len(choices) for choices in credit.choices] == [2, 4, 8, 16, 32]
    assert not credit.advantages[3].any() and not credit.advantages[4].any()
    right_nodes = (credit.choices[2].reshape(4, 2) == RIGHT).astype(float)
    assert right_nodes.any()
    expected = right_nodes - right_nodes.mean(1, keepdims=True)
    assert credit.advantages[2] == pytest.approx(expected.ravel())
    first = right_nodes.reshape(2, 4).mean(1)
    assert credit.advantages[0] == pytest.approx(first - first.mean())


@pytest.mark.parametrize("sampler", [trees(4, 2), nested(2), broadcast(40)])
def test_every_kind_of_credit_learns_the_deciding_stage(sampler):
    result = learn(sampler, Chain(), 4.0, seed=1)
    assert result["reached"] and result == learn(sampler, Chain(), 4.0, seed=1)
    assert not learn(sampler, Chain(), 4.0, seed=1, budget=32)["reached"]
