"""Credit as a config asks for it: which attempts are compared, and which tokens learn from what."""

import json
from collections.abc import Callable
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


def config(**changes: object) -> Config:
    return Config.model_validate(changes)


def samples_of(
    config: Config, stage: int, episodes: list[Episode], role: str = "generator"
) -> tuple[tuple[Sample, ...], dict[str, float]]:
    return made(*credit_of(config, role).samples(played(episodes), stage))


def played(episodes: list[Episode]) -> list[Episode]:
    """As play for training answers them."""
    kept = []
    for episode in episodes:
        trajectories = [t.without_turns(i) for i, t in enumerate(episode.trajectories)]
        transcripts = [transcript_of(t) for t in episode.trajectories]
        kept.append(replace(episode, trajectories=trajectories, transcripts=transcripts))
    return kept


def made(
    specs: tuple[SampleSpec, ...], left_out: dict[str, float]
) -> tuple[tuple[Sample, ...], dict[str, float]]:
    return BatchSpec(step=1, samples=specs, temperature=1.0, seed=0).batch().samples, left_out


EPISODES = [
    Episode(problem_id="a", trajectories=[trajectory("generator", r) for r in (1.0, 0.0, None)]),
    Episode(problem_id="b", trajectories=[trajectory("generator", r) for r in (0.5, 0.5)]),
]


def test_gae_rewards_are_relative_to_their_group_and_nothing_unjudged_is_learned_from() -> None:
    samples, left_out = samples_of(config(), 2, EPISODES)
    assert [s.reward for s in samples] == [0.5, -0.5]  # the tied group has nothing to teach
    assert all(s.advantage is None for s in samples)
    assert left_out == {"groups_without_signal": 0.5, "dropped": 1.0}


def test_raw_rewards_where_centring_is_off() -> None:
    raw = config(generator={"learner": {"estimator": {"center_rewards": False}}})
    samples, _ = samples_of(raw, 2, EPISODES)
    assert [s.reward for s in samples] == [1.0, 0.0, 0.5, 0.5]


def test_grpo_leaves_out_groups_without_signal() -> None:
    grpo = config(generator={"learner": {"estimator": {"kind": "grpo"}}})
    samples, left_out = samples_of(grpo, 2, EPISODES)
    assert len(samples) == 2 and left_out["groups_without_signal"] == 0.5
    assert sum(s.advantage or 0.0 for s in samples) == pytest.approx(0.0)


@pytest.mark.parametrize(
    ("credit", "trained"),
    [("stage", [False, False, False, True, True]), ("all", [False, True, True, True, True])],
)
def test_stage_credit_trains_the_tokens_of_the_stage(credit: str, trained: list[bool]) -> None:
    samples, _ = samples_of(config(credit={"kind": credit}), 2, EPISODES)
    assert list(samples[0].trained) == trained


def test_completions_that_were_cut_off_may_carry_no_loss() -> None:
    whole, cut = trajectory("generator", 1.0), trajectory("generator", 0.0)
    last = cut.turns[-1]
    cut.turns[-1] = replace(last, completion=replace(last.completion, finish_reason=FinishReason.LENGTH))
    episodes = [Episode(problem_id="a", trajectories=[whole, cut])]
    masked = config(credit={"kind": "all"}, generator={"learner": {"mask_truncated": True}})
    samples, _ = samples_of(masked, 2, episodes)
    assert [sum(s.trained) for s in samples] == [4, 2]
    samples, _ = samples_of(config(credit={"kind": "all"}), 2, episodes)
    assert [sum(s.trained) for s in samples] == [4, 4]


def test_the_discriminator_has_no_stages() -> None:
    episodes = [
        Episode(
            problem_id="a", trajectories=[trajectory("discriminator", r, stages=(0,)) for r in (0.1, 0.9)]
        )
    ]
    samples, _ = samples_of(config(credit={"kind": "stage"}), 4, episodes, "discriminator")
    assert [list(s.trained) for s in samples] == [[False, True, True]] * 2


def test_an_episode_without_any_reward_gives_no_sample() -> None:
    episodes = [Episode(problem_id="a", trajectories=[trajectory("generator", None)])]
    samples, left_out = samples_of(config(), 1, episodes)
    assert samples == () and left_out["dropped"] == 1.0


# ---------------------------------------------------------------------- stage credit
def test_stage_gae_takes_each_turn_as_one_step() -> None:
    samples, _ = samples_of(config(credit={"kind": "stage_gae"}), 2, EPISODES)
    assert [s.segments for s in samples] == [(2, 2)] * 2
    assert all(sum(s.trained) == sum(s.sampled) for s in samples)
    plain, _ = samples_of(config(credit={"kind": "all"}), 2, EPISODES)
    assert [s.segments for s in plain] == [()] * 2


def test_tree_credit_is_a_branchs_value_beyond_its_siblings() -> None:
    """Two prefixes of two branches of two continuations; a continuation that was not judged is left out."""
    rewards = (1.0, 0.0, 0.0, 0.0, 1.0, None, 1.0, 1.0)
    attempts = [trajectory("generator", r) for r in rewards]
    for number, attempt in enumerate(attempts):
        attempt.place = (number // 4, number // 2)
    settings = {
        "credit": {"kind": "tree", "branches": 2, "continuations": 2},
        "generator": {"learner": {"estimator": {"kind": "dr_grpo"}}},
    }
    episodes = [Episode(problem_id="a", trajectories=attempts)]
    samples, left_out = samples_of(config(**settings), 1, episodes)
    assert [s.advantage for s in samples] == [0.25, -0.25]
    assert left_out == {"groups_without_signal": 0.5, "dropped": 1.0}, "the other prefix's branches are alike"
    for sample in samples:
        assert sum(sample.sampled) == sum(sample.trained) == 2, "cut after the stage under training"


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        (
            {"credit": {"kind": "stage_gae"}, "generator": {"learner": {"estimator": {"kind": "grpo"}}}},
            "stage_gae needs",
        ),
        ({"credit": {"kind": "tree", "branches": 3}}, "must be a multiple"),
        (
            {
                "credit": {"kind": "tree"},
                "generator": {"learner": {"estimator": {"kind": "hierarchical_grpo"}}},
            },
            "hierarchical_grpo compares prefixes",
        ),
        (
            {"discriminator": {"learner": {"estimator": {"kind": "hierarchical_grpo"}}}},
            "its suites do not branch",
        ),
        ({"device": "cpu", "generator": {"learner": {"precision": "fp16"}}}, "fp16 is for device cuda"),
        ({"device": "cpu", "generator": {"engine": {"sleep": True}}}, "sleep has no effect with device cpu"),
        ({"generator": {"engine": {"sleep": True}}}, "vLLM puts one engine of a process to sleep"),
        (
            {"device": "cpu", "generator": {"learner": {"offload": "all"}}},
            "no effect with device cpu",
        ),
        ({"local": True, "generator": {"learner": {"workers": 2}}}, "no effect with local"),
    ],
)
def test_credit_and_learners_that_make_no_sense_are_refused(keys: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        config(**keys)


def test_rae_remembers_from_batch_to_batch() -> None:
    settings = config(generator={"learner": {"estimator": {"kind": "rae"}}})
    credit, resumed = (credit_of(settings, "generator") for _ in range(2))
    first, _ = credit.samples(played(EPISODES), stage=1)
    assert [s.advantage for s in first] == [1.0, 0.0, 0.5, 0.5]
    resumed.load_state_dict(json.loads(json.dumps(credit.state_dict())))
    for state in (credit, resumed):
        second, _ = state.samples(played(EPISODES), stage=1)
        assert [s.advantage for s in second] == pytest.approx([0.5, -0.5, 0.0, 0.0])


@pytest.mark.parametrize("stage", [1, 2])
def test_a_further_attempt_learns_at_any_stage_and_is_compared_with_its_like(stage) -> None:
    again = [
        replace(trajectory("generator", r, stages=(2,)), number=2, group="attempt 2") for r in (1.0, 0.0)
    ]
    first = [trajectory("generator", r) for r in (0.0, 0.0, 1.0)]
    grpo = config(generator={"learner": {"estimator": {"kind": "grpo"}}})
    samples, _ = samples_of(grpo, stage, [Episode(problem_id="a", trajectories=[*first, *again])])
    assert [sum(s.trained) for s in samples] == [2] * 5
    assert (samples[3].advantage or 0.0) == -(samples[4].advantage or 0.0) > 0


# ---------------------------------------------------------------------- what follows the stage under training
def three_stages(settings: Config, stage: int) -> list[SampleSpec]:
    attempts = [
        trajectory("generator", reward, stages=(1, 2, 3), last_token=10 + number)
        for number, reward in enumerate((1.0, 0.0, 0.25, 0.5))
    ]
    specs, _ = credit_of(settings, "generator").samples(
        played([Episode(problem_id="a", trajectories=attempts)]), stage
    )
    return list(specs)


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
    for spec in three_stages(config(generator={"learner": learner}), stage=1):
        (sample,) = made((spec,), {})[0]
        assert sum(sample.trained) == 2 and sum(sample.sampled) == 6
