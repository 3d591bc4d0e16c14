"""The driver's own arithmetic: batches, metrics, the clock."""

import json
from dataclasses import replace

import pytest

from configs.schema import Config
from core.episode import Completion, Episode, FinishReason, Trajectory, Turn
from curriculum.curriculum import Assignment, Phase
from driver import best_programs, episode_metrics, make_batch
from learners.advantages.estimate import Advantages


def trajectory(player: str, reward: float | None, *, stages: tuple[int, ...] = (1, 2)) -> Trajectory:
    turns, tokens = [], [9]
    for stage in stages:
        completion = Completion(
            tokens=(stage, 8), logprobs=(-0.5, -0.1), version=0, finish_reason=FinishReason.STOP
        )
        turns.append(Turn(stage=stage, prompt_tokens=tuple(tokens), completion=completion, text=""))
        tokens += [stage, 8]
    return Trajectory(player=player, attempt=0, turns=turns, reward=reward, artifact=f"program {reward}")


def assignment(stage: int) -> Assignment:
    return Assignment(
        step=3, stage=stage, phase=Phase.GENERATOR, learning=("generator",), problem_ids=("p",), attempts={}
    )


def config(**changes: object) -> Config:
    return Config.model_validate(changes)


def batch_of(config: Config, assignment: Assignment, role: str, episodes: list[Episode], update: int):
    advantages = Advantages(config.policy(role).learner)
    return make_batch(config, advantages, assignment, role, episodes, update)


EPISODES = [
    Episode(problem_id="a", trajectories=[trajectory("generator", r) for r in (1.0, 0.0, None)]),
    Episode(problem_id="b", trajectories=[trajectory("generator", r) for r in (0.5, 0.5)]),
]


def test_gae_rewards_are_relative_to_their_group_and_nothing_unjudged_is_learned_from() -> None:
    batch, left_out = batch_of(config(), assignment(2), "generator", EPISODES, update=4)
    assert [s.reward for s in batch.samples] == [0.5, -0.5]  # the tied group has nothing to teach
    assert all(s.advantage is None for s in batch.samples)
    assert left_out == {"groups_without_signal": 0.5, "dropped": 1.0}
    assert batch.step == 4


def test_raw_rewards_where_centring_is_off() -> None:
    raw = config(generator={"learner": {"estimator": {"center_rewards": False}}})
    batch, _ = batch_of(raw, assignment(2), "generator", EPISODES, update=1)
    assert [s.reward for s in batch.samples] == [1.0, 0.0, 0.5, 0.5]


def test_grpo_leaves_out_groups_without_signal() -> None:
    grpo = config(generator={"learner": {"estimator": {"kind": "grpo"}}})
    batch, left_out = batch_of(grpo, assignment(2), "generator", EPISODES, update=1)
    assert len(batch.samples) == 2 and left_out["groups_without_signal"] == 0.5
    assert sum(s.advantage or 0.0 for s in batch.samples) == pytest.approx(0.0)


@pytest.mark.parametrize(
    ("credit", "trained"),
    [("stage", [False, False, False, True, True]), ("all", [False, True, True, True, True])],
)
def test_stage_credit_trains_the_tokens_of_the_stage(credit: str, trained: list[bool]) -> None:
    batch, _ = batch_of(config(credit={"kind": credit}), assignment(2), "generator", EPISODES, update=1)
    assert list(batch.samples[0].trained) == trained


def test_completions_that_were_cut_off_may_carry_no_loss() -> None:
    whole, cut = trajectory("generator", 1.0), trajectory("generator", 0.0)
    last = cut.turns[-1]
    cut.turns[-1] = replace(last, completion=replace(last.completion, finish_reason=FinishReason.LENGTH))
    episodes = [Episode(problem_id="a", trajectories=[whole, cut])]
    masked = config(credit={"kind": "all"}, generator={"learner": {"mask_truncated": True}})
    batch, _ = batch_of(masked, assignment(2), "generator", episodes, update=1)
    assert [sum(s.trained) for s in batch.samples] == [4, 2]
    batch, _ = batch_of(config(credit={"kind": "all"}), assignment(2), "generator", episodes, update=1)
    assert [sum(s.trained) for s in batch.samples] == [4, 4]


def test_the_discriminator_has_no_stages() -> None:
    episodes = [
        Episode(
            problem_id="a", trajectories=[trajectory("discriminator", r, stages=(0,)) for r in (0.1, 0.9)]
        )
    ]
    batch, _ = batch_of(config(credit={"kind": "stage"}), assignment(4), "discriminator", episodes, update=1)
    assert [list(s.trained) for s in batch.samples] == [[False, True, True]] * 2


def test_an_episode_without_any_reward_gives_no_sample() -> None:
    episodes = [Episode(problem_id="a", trajectories=[trajectory("generator", None)])]
    batch, left_out = batch_of(config(), assignment(1), "generator", episodes, update=1)
    assert batch.samples == () and left_out["dropped"] == 1.0
    row = episode_metrics(("generator", "discriminator"), episodes, {"generate": 0.0})
    assert row["generator_reward"] is None and row["tokens_per_s"] is None


def test_the_length_of_answers_is_told_by_player() -> None:
    episodes = [
        Episode(problem_id="a", trajectories=[trajectory("generator", r, stages=(1, 2)) for r in (0.0, 1.0)])
    ]
    row = episode_metrics(("generator", "discriminator"), episodes, {"generate": 1.0})
    assert row["generator_tokens"] == 4.0 and row["discriminator_tokens"] is None


def test_only_rewarded_programs_are_remembered() -> None:
    assert best_programs(EPISODES) == {"a": (1.0, "program 1.0"), "b": (0.5, "program 0.5")}
    assert best_programs([Episode(problem_id="c", trajectories=[trajectory("generator", 0.0)])]) == {}


# ---------------------------------------------------------------------- stage credit
def test_stage_gae_takes_each_turn_as_one_step() -> None:
    batch, _ = batch_of(config(credit={"kind": "stage_gae"}), assignment(2), "generator", EPISODES, update=1)
    assert [s.segments for s in batch.samples] == [(2, 2)] * 2
    assert all(sum(s.trained) == sum(s.sampled) for s in batch.samples)
    plain, _ = batch_of(config(credit={"kind": "all"}), assignment(2), "generator", EPISODES, update=1)
    assert [s.segments for s in plain.samples] == [()] * 2


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
    batch, left_out = batch_of(config(**settings), assignment(1), "generator", episodes, update=1)
    assert [s.advantage for s in batch.samples] == [0.25, -0.25]
    assert left_out == {"groups_without_signal": 0.5, "dropped": 1.0}, "the other prefix's branches are alike"
    for sample in batch.samples:
        assert sum(sample.sampled) == sum(sample.trained) == 2, "cut after the stage under training"


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        (
            {"credit": {"kind": "stage_gae"}, "generator": {"learner": {"estimator": {"kind": "grpo"}}}},
            "stage_gae needs",
        ),
        ({"credit": {"kind": "tree", "branches": 3}}, "must be a multiple"),
        ({"credit": {"branches": 8}}, r"credit\.stage\.branches"),
        (
            {
                "credit": {"kind": "tree"},
                "generator": {"learner": {"estimator": {"kind": "hierarchical_grpo"}}},
            },
            "hierarchical_grpo compares prefixes",
        ),
        ({"generator": {"learner": {"estimator": {"kind": "hierarchical_grpo"}}}}, "needs credit tree"),
        (
            {"discriminator": {"learner": {"estimator": {"kind": "hierarchical_grpo"}}}},
            "its suites do not branch",
        ),
        ({"device": "cpu", "generator": {"learner": {"precision": "fp16"}}}, "fp16 is for device cuda"),
        (
            {"device": "cpu", "generator": {"learner": {"offload_optimizer": True}}},
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
    advantages = Advantages(settings.generator.learner)
    first, _ = make_batch(settings, advantages, assignment(1), "generator", EPISODES, 1)
    assert [s.advantage for s in first.samples] == [1.0, 0.0, 0.5, 0.5]
    resumed = Advantages(settings.generator.learner)
    resumed.load_state_dict(json.loads(json.dumps(advantages.state_dict())))
    for state in (advantages, resumed):
        second, _ = make_batch(settings, state, assignment(1), "generator", EPISODES, 2)
        assert [s.advantage for s in second.samples] == pytest.approx([0.5, -0.5, 0.0, 0.0])


def test_each_policy_learns_at_its_own_rate() -> None:
    settings = config(learning_rate=1e-4, discriminator={"learner": {"learning_rate_scale": 3.0}})
    assert settings.policy_learning_rate("generator") == 1e-4
    assert settings.policy_learning_rate("discriminator") == pytest.approx(3e-4)
