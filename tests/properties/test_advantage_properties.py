from statistics import fmean

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from learners.advantages.dr_grpo import dr_grpo
from learners.advantages.estimate import Advantages
from learners.advantages.gae import gae
from learners.advantages.grpo import grpo
from learners.advantages.rloo import rloo
from learners.settings import LearnerSettings
from learners.targets import Targets, targets_of, whiten
from sparring.core.batch import Sample

examples = settings(max_examples=150, deadline=None)

reward = st.floats(-1, 1, width=32)
groups = st.lists(reward, min_size=2, max_size=16).filter(lambda g: max(g) - min(g) > 1e-2)


@examples
@given(groups)
def test_grpo_is_of_unit_size(rewards):
    assert sum(a * a for a in grpo(rewards)) <= len(rewards) - 1 + 1e-9


@examples
@given(groups)
def test_grpo_keeps_the_order(rewards):
    advantages = grpo(rewards)
    ranked = [a for _, a in sorted(zip(rewards, advantages, strict=True))]
    assert ranked == sorted(ranked)


@examples
@given(groups, st.floats(-5, 5))
def test_grpo_does_not_see_a_shift(rewards, shift):
    assert grpo([r + shift for r in rewards]) == pytest.approx(grpo(rewards), abs=1e-6)


@examples
@given(groups, st.floats(1, 100))
def test_grpo_hardly_sees_a_scale(rewards, scale):
    """But for the epsilon in the denominator."""
    assert grpo([r * scale for r in rewards]) == pytest.approx(grpo(rewards), rel=5e-2, abs=1e-9)


@examples
@given(reward, st.integers(0, 10))
def test_grpo_says_nothing_of_equal_rewards(value, count):
    assert grpo([value] * count) is None


@examples
@given(st.lists(reward, min_size=1, max_size=16), st.booleans())
def test_gae_credit_is_the_reward_or_its_distance_from_the_mean(rewards, center):
    settings = LearnerSettings(estimator={"kind": "gae", "center_rewards": center})
    (credit,) = Advantages(settings).credit([rewards], game="g", player="r")
    if center and max(rewards) - min(rewards) < 1e-9:
        assert credit is None
        return
    assert credit is not None
    assert [advantage for _, advantage in credit] == [None] * len(rewards)
    baseline = fmean(rewards) if center else 0.0
    assert [r for r, _ in credit] == pytest.approx([r - baseline for r in rewards])


@examples
@given(st.lists(reward, min_size=1, max_size=16))
def test_grpo_credit_pairs_rewards_with_their_advantages(rewards):
    (credit,) = Advantages(LearnerSettings(estimator={"kind": "grpo"})).credit(
        [rewards], game="g", player="r"
    )
    advantages = grpo(rewards)
    assert credit == (None if advantages is None else list(zip(rewards, advantages, strict=True)))


@examples
@given(groups, st.randoms(use_true_random=False), st.sampled_from([grpo, dr_grpo]))
def test_group_estimators_are_centred_and_permute_with_their_group(rewards, rng, estimator):
    advantages = estimator(rewards)
    assert fmean(advantages) == pytest.approx(0, abs=1e-9)
    order = rng.sample(range(len(rewards)), len(rewards))
    assert estimator([rewards[i] for i in order]) == pytest.approx([advantages[i] for i in order], abs=1e-9)


@examples
@given(groups)
def test_rloo_leaves_each_reward_out_of_its_own_baseline(rewards):
    """The definition, computed as it stands."""
    for index, advantage in enumerate(rloo(rewards)):
        others = [reward for i, reward in enumerate(rewards) if i != index]
        assert advantage == pytest.approx(rewards[index] - fmean(others), abs=1e-9)


@examples
@given(
    st.lists(st.tuples(st.integers(1, 30), reward, st.sampled_from("ab")), min_size=2, max_size=20).filter(
        lambda batch: all(
            max(of) - min(of) > 1e-2
            for p in {p for *_, p in batch}
            if (of := [r for _, r, q in batch if p == q])
        )
    )
)
def test_reinforce_pp_is_centred_over_each_players_tokens_and_of_unit_size(batch):
    settings = LearnerSettings(estimator={"kind": "reinforce_pp"})
    (credit,) = Advantages(settings).credit([[r for _, r, _ in batch]], game="g", player="r")
    samples = [
        Sample(
            tokens=(1,) * (length + 1),
            sampled=(False, *[True] * length),
            trained=(False, *[True] * length),
            logprobs=(0.0,) * (length + 1),
            reward=reward,
            advantage=advantage,
            player=player,
        )
        for (length, _, player), (reward, advantage) in zip(batch, credit, strict=True)
    ]
    targets = {i: targets_of(sample, settings) for i, sample in enumerate(samples)}
    equal = {i: Targets(torch.full_like(of.advantages_S, 0.7)) for i, of in targets.items()}
    whiten(samples, equal)
    assert not any(of.advantages_S.any() for of in equal.values())
    whiten(samples, targets)
    for player in {sample.player for sample in samples}:
        pooled = torch.cat([targets[i].advantages_S for i, s in enumerate(samples) if s.player == player])
        assert pooled.mean().item() == pytest.approx(0, abs=1e-4)
        assert pooled.var().item() == pytest.approx(1, rel=1e-2)


# ---------------------------------------------------------------------- gae
@st.composite
def trajectories(draw):
    length = draw(st.integers(1, 20))
    number = st.floats(-2, 2, width=32)
    rewards = draw(st.lists(number, min_size=length, max_size=length))
    values = draw(st.lists(number, min_size=length, max_size=length))
    return torch.tensor(rewards, dtype=torch.float64), torch.tensor(values, dtype=torch.float64)


unit = st.floats(0, 1)


@examples
@given(trajectories(), unit, unit)
def test_gae_is_the_weighted_sum_of_all_later_errors(trajectory, gamma, lam):
    """An independent O(T^2) formula: eq. 16 as it stands."""
    rewards, values = trajectory
    length = len(rewards)
    following = [*values.tolist()[1:], 0.0]
    deltas = [rewards[t].item() + gamma * following[t] - values[t].item() for t in range(length)]
    expected = [sum((gamma * lam) ** (k - t) * deltas[k] for k in range(t, length)) for t in range(length)]
    advantages, returns = gae(rewards, values, gamma, lam)
    assert advantages.tolist() == pytest.approx(expected, abs=1e-9)
    assert (returns - values).tolist() == pytest.approx(expected, abs=1e-9)
