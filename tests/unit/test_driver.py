"""The driver's own arithmetic: batches, metrics, the clock."""

import pytest

from configs.schema import Config
from core.episode import Completion, Episode, FinishReason, Trajectory, Turn
from curriculum.curriculum import Assignment, Phase
from driver import StepClock, best_programs, episode_metrics, make_batch


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


EPISODES = [
    Episode(problem_id="a", trajectories=[trajectory("generator", r) for r in (1.0, 0.0, None)]),
    Episode(problem_id="b", trajectories=[trajectory("generator", r) for r in (0.5, 0.5)]),
]


def test_gae_rewards_are_relative_to_their_group_and_nothing_unjudged_is_learned_from() -> None:
    batch, left_out = make_batch(config(), assignment(2), "generator", EPISODES, update=4)
    assert [s.reward for s in batch.samples] == [0.5, -0.5]  # the tied group has nothing to teach
    assert all(s.advantage is None for s in batch.samples)
    assert left_out == {"groups_without_signal": 0.5, "dropped": 1.0}
    assert batch.step == 4


def test_raw_rewards_where_centring_is_off() -> None:
    raw = config(generator={"learner": {"center_rewards": False}})
    batch, _ = make_batch(raw, assignment(2), "generator", EPISODES, update=1)
    assert [s.reward for s in batch.samples] == [1.0, 0.0, 0.5, 0.5]


def test_grpo_leaves_out_groups_without_signal() -> None:
    grpo = config(generator={"learner": {"estimator": "grpo"}})
    batch, left_out = make_batch(grpo, assignment(2), "generator", EPISODES, update=1)
    assert len(batch.samples) == 2 and left_out["groups_without_signal"] == 0.5
    assert sum(s.advantage or 0.0 for s in batch.samples) == pytest.approx(0.0)


@pytest.mark.parametrize(
    ("credit", "trained"),
    [("stage", [False, False, False, True, True]), ("all", [False, True, True, True, True])],
)
def test_stage_credit_trains_the_tokens_of_the_stage(credit: str, trained: list[bool]) -> None:
    batch, _ = make_batch(config(credit=credit), assignment(2), "generator", EPISODES, update=1)
    assert list(batch.samples[0].trained) == trained


def test_the_discriminator_has_no_stages() -> None:
    episodes = [
        Episode(
            problem_id="a", trajectories=[trajectory("discriminator", r, stages=(0,)) for r in (0.1, 0.9)]
        )
    ]
    batch, _ = make_batch(config(credit="stage"), assignment(4), "discriminator", episodes, update=1)
    assert [list(s.trained) for s in batch.samples] == [[False, True, True]] * 2


def test_an_episode_without_any_reward_gives_no_sample() -> None:
    episodes = [Episode(problem_id="a", trajectories=[trajectory("generator", None)])]
    batch, left_out = make_batch(config(), assignment(1), "generator", episodes, update=1)
    assert batch.samples == () and left_out["dropped"] == 1.0
    row = episode_metrics(episodes, {"generate": 0.0})
    assert row["generator_reward"] is None and row["tokens_per_s"] is None


def test_only_rewarded_programs_are_remembered() -> None:
    assert best_programs(EPISODES) == {"a": (1.0, "program 1.0"), "b": (0.5, "program 0.5")}
    assert best_programs([Episode(problem_id="c", trajectories=[trajectory("generator", 0.0)])]) == {}


def test_the_clock_gives_judging_to_the_sandbox_and_the_rest_of_a_play_to_the_rollout() -> None:
    clock = StepClock()
    clock.split({"sandbox": -1.0, "generate": 0.0})
    clock.lap("learn")
    seconds = clock.seconds()
    assert seconds["sandbox"] == -1.0 and seconds["rollout"] >= 1.0
    assert seconds["total"] >= seconds["learn"] >= 0.0
