"""Credit as a config asks for it: which attempts are compared, and which tokens learn from what."""

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest

from configs.schema import Config
from learners.learner import Learner
from sparring.core.batch import BatchSpec, Sample, SampleSpec, transcript_of
from sparring.core.episode import Completion, Episode, FinishReason, Trajectory, Turn
from sparring.runtime.build import credit_of
from tests.learning import largest_difference, weights


def trajectory(
    player: str, reward: float | None, *, stages: tuple[int, ...] = (1, 2), last_token: int = 8
) -> Trajectory:
    turns, tokens = [], [9]
    for stage in stages:
        completion = Completion(
            tokens=(stage, last_token), logprobs=(-0.5, -0.1), version=0, finish_reason=FinishReason.STOP
        )
        turns.append(Turn(stage=stage, prompt_tokens=tuple(tokens), completion=completion, text=""))
        tokens += [stage, last_token]
    return Trajectory(player=player, attempt=0, turns=turns, reward=reward, artifact=f"program {reward}")


def config(estimator: str | None = None, **changes: object) -> Config:
    """estimator: the generator's."""
    if estimator:
        changes["generator"] = {"learner": {"estimator": {"kind": estimator}}}
    return Config.model_validate(changes)


def samples_of(
    config: Config, stage: int, *attempts: list[Trajectory], role: str = "generator"
) -> tuple[tuple[Sample, ...], dict[str, float]]:
    """attempts: those at each problem."""
    specs, left_out = credit_of(config, role).samples(played(*attempts), stage)
    return made(specs), left_out


def played(*attempts: list[Trajectory]) -> list[Episode]:
    """As play for training answers them."""
    return [
        Episode(
            problem_id=f"p{n}",
            trajectories=[t.without_turns(i) for i, t in enumerate(at_one)],
            transcripts=[transcript_of(t) for t in at_one],
        )
        for n, at_one in enumerate(attempts)
    ]


def made(specs: Sequence[SampleSpec]) -> tuple[Sample, ...]:
    return BatchSpec(step=1, samples=tuple(specs), temperature=1.0, seed=0).batch().samples


DIFFERING, TIED = (
    [trajectory("generator", r) for r in rewards] for rewards in ((1.0, 0.0, None), (0.5, 0.5))
)


def test_gae_rewards_are_relative_to_their_group_and_nothing_unjudged_is_learned_from() -> None:
    samples, left_out = samples_of(config(), 2, DIFFERING, TIED)
    assert [s.reward for s in samples] == [0.5, -0.5]  # the tied group has nothing to teach
    assert all(s.advantage is None for s in samples)
    assert left_out == {"groups_without_signal": 0.5, "dropped": 1.0}


@pytest.mark.parametrize(
    ("credit", "trained", "segments"),
    [
        ("stage", [False, False, False, True, True], ()),
        ("all", [False, True, True, True, True], ()),
        ("stage_gae", [False, True, True, True, True], (2, 2)),  # each turn is one step
    ],
)
def test_stage_credit_trains_the_tokens_of_the_stage(
    credit: str, trained: list[bool], segments: tuple[int, ...]
) -> None:
    samples, _ = samples_of(config(credit={"kind": credit}), 2, DIFFERING, TIED)
    assert [(list(s.trained), s.segments) for s in samples] == [(trained, segments)] * 2


@pytest.mark.parametrize(("masked", "trained"), [(True, [4, 2]), (False, [4, 4])])
def test_completions_that_were_cut_off_may_carry_no_loss(masked: bool, trained: list[int]) -> None:
    whole, cut = trajectory("generator", 1.0), trajectory("generator", 0.0)
    last = cut.turns[-1]
    cut.turns[-1] = replace(last, completion=replace(last.completion, finish_reason=FinishReason.LENGTH))
    settings = config(credit={"kind": "all"}, generator={"learner": {"mask_truncated": masked}})
    samples, _ = samples_of(settings, 2, [whole, cut])
    assert [sum(s.trained) for s in samples] == trained


def test_the_discriminator_has_no_stages() -> None:
    suites = [trajectory("discriminator", r, stages=(0,)) for r in (0.1, 0.9)]
    samples, _ = samples_of(config(credit={"kind": "stage"}), 4, suites, role="discriminator")
    assert [list(s.trained) for s in samples] == [[False, True, True]] * 2


def test_an_episode_without_any_reward_gives_no_sample() -> None:
    samples, left_out = samples_of(config(), 1, [trajectory("generator", None)])
    assert samples == () and left_out["dropped"] == 1.0


def test_tree_credit_is_a_branchs_value_beyond_its_siblings() -> None:
    """Two prefixes of two branches of two continuations; a continuation that was not judged is left out."""
    rewards = (1.0, 0.0, 0.0, 0.0, 1.0, None, 1.0, 1.0)
    attempts = [trajectory("generator", r) for r in rewards]
    for number, attempt in enumerate(attempts):
        attempt.place = (number // 4, number // 2)
    tree = config("dr_grpo", credit={"kind": "tree", "branches": 2, "continuations": 2})
    samples, left_out = samples_of(tree, 1, attempts)
    assert [s.advantage for s in samples] == [0.25, -0.25]
    assert left_out == {"groups_without_signal": 0.5, "dropped": 1.0}, "the other prefix's branches are alike"
    for sample in samples:
        assert sum(sample.sampled) == sum(sample.trained) == 2, "cut after the stage under training"


@pytest.mark.parametrize(
    ("estimator", "keys", "message"),
    [
        ("grpo", {"credit": {"kind": "stage_gae"}}, "stage_gae needs"),
        (None, {"credit": {"kind": "tree", "branches": 3}}, "must be a multiple"),
        ("hierarchical_grpo", {"credit": {"kind": "tree"}}, "hierarchical_grpo compares prefixes"),
        (
            None,
            {"discriminator": {"learner": {"estimator": {"kind": "hierarchical_grpo"}}}},
            "its suites do not branch",
        ),
        (None, {"device": "cpu", "generator": {"learner": {"precision": "fp16"}}}, "fp16 is for device cuda"),
        (None, {"device": "cpu", "generator": {"engine": {"sleep": True}}}, "sleep has no effect"),
        (None, {"generator": {"engine": {"sleep": True}}}, "one engine of a process to sleep"),
        (None, {"device": "cpu", "generator": {"learner": {"offload": "all"}}}, "no effect with device cpu"),
        (None, {"local": True, "generator": {"learner": {"workers": 2}}}, "no effect with local"),
    ],
)
def test_credit_and_learners_that_make_no_sense_are_refused(
    estimator: str | None, keys: dict, message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        config(estimator, **keys)


def test_rae_remembers_from_batch_to_batch() -> None:
    credit, resumed = (credit_of(config("rae"), "generator") for _ in range(2))
    first, _ = credit.samples(played(DIFFERING, TIED), stage=1)
    assert [s.advantage for s in first] == [1.0, 0.0, 0.5, 0.5]
    resumed.load_state_dict(json.loads(json.dumps(credit.state_dict())))
    for state in (credit, resumed):
        second, _ = state.samples(played(DIFFERING, TIED), stage=1)
        assert [s.advantage for s in second] == pytest.approx([0.5, -0.5, 0.0, 0.0])


@pytest.mark.parametrize("stage", [1, 2])
def test_a_further_attempt_learns_at_any_stage_and_is_compared_with_its_like(stage) -> None:
    again = [
        replace(trajectory("generator", r, stages=(2,)), number=2, group="attempt 2") for r in (1.0, 0.0)
    ]
    first = [trajectory("generator", r) for r in (0.0, 0.0, 1.0)]
    samples, _ = samples_of(config("grpo"), stage, [*first, *again])
    assert [sum(s.trained) for s in samples] == [2] * 5
    assert (samples[3].advantage or 0.0) == -(samples[4].advantage or 0.0) > 0


# ---------------------------------------------------------------------- what follows the stage under training
def three_stages(settings: Config, stage: int) -> Sequence[SampleSpec]:
    attempts = [
        trajectory("generator", reward, stages=(1, 2, 3), last_token=10 + number)
        for number, reward in enumerate((1.0, 0.0, 0.25, 0.5))
    ]
    return credit_of(settings, "generator").samples(played(attempts), stage)[0]


@pytest.mark.parametrize("stage", [1, 2, 3])
@pytest.mark.parametrize(
    "learner",
    [
        {"estimator": {"kind": "grpo"}},
        {"estimator": {"kind": "grpo"}, "kl": {"kind": "loss", "coefficient": 0.1}},
        {"estimator": {"kind": "reinforce_pp"}, "importance_cap": 2.0},
        {"estimator": {"kind": "gae"}},
        {"estimator": {"kind": "gae", "critic": "model"}, "entropy_coefficient": 0.01},
    ],
)
def test_tokens_after_the_stage_are_not_scored_and_the_update_is_the_same(
    make_learner: Callable[..., Learner], learner: dict[str, Any], stage: int
) -> None:
    specs = three_stages(config(generator={"learner": learner}), stage)
    whole = [spec._replace(reading=spec.reading._replace(turns=None)) for spec in specs]
    updated = []
    for chosen in (specs, whole):
        batch = BatchSpec(step=1, samples=tuple(chosen), temperature=1.0, seed=0).batch()
        updated.append(make_learner(1e-3, **learner))
        updated[-1].step(batch)
        lengths = {len(sample.tokens) for sample in batch.samples}
        assert lengths == {1 + 2 * (stage if chosen is specs else 3)}
    cut, uncut = ({n: p.grad for n, p in of.policy.trainable().items()} for of in updated)
    assert largest_difference(cut, uncut) < 1e-6 < max(grad.abs().max() for grad in uncut.values())
    assert largest_difference(*map(weights, updated)) < 1e-6


@pytest.mark.parametrize(
    "learner",
    [
        {"estimator": {"kind": "gae", "lam": 0.9}},
        {"estimator": {"kind": "gae", "gamma": 0.9}},
        {"estimator": {"kind": "gae"}, "kl": {"kind": "reward", "coefficient": 0.1}},
    ],
)
def test_tokens_after_the_stage_are_kept_if_the_advantage_depends_on_them(learner: dict[str, Any]) -> None:
    for sample in made(three_stages(config(generator={"learner": learner}), stage=1)):
        assert sum(sample.trained) == 2 and sum(sample.sampled) == 6
