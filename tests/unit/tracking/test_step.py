from core.episode import Completion, Episode, FinishReason, Trajectory, Turn
from tracking.step import best_programs, episode_metrics

PLAYERS = ("generator", "discriminator")


def episode(problem_id: str, *rewards: float | None) -> Episode:
    """Attempts of the generator, of two turns with two tokens each."""
    said = Completion(tokens=(1, 8), logprobs=(-0.5, -0.1), version=0, finish_reason=FinishReason.STOP)
    turns = [Turn(stage=stage, prompt_tokens=(9,), completion=said, text="") for stage in (1, 2)]
    attempts = [
        Trajectory(player="generator", attempt=n, turns=turns, reward=reward, artifact=f"program {reward}")
        for n, reward in enumerate(rewards)
    ]
    return Episode(problem_id=problem_id, trajectories=attempts)


def test_a_step_without_any_reward_has_no_means() -> None:
    row = episode_metrics(PLAYERS, [episode("a", None)], {"generate": 0.0})
    assert row["generator_reward"] is None and row["tokens_per_s"] is None


def test_the_length_of_answers_is_told_by_player() -> None:
    row = episode_metrics(PLAYERS, [episode("a", 0.0, 1.0)], {"generate": 1.0})
    assert row["generator_tokens"] == 4.0 and row["discriminator_tokens"] is None


def test_only_rewarded_programs_are_remembered() -> None:
    episodes = [episode("a", 1.0, 0.0, None), episode("b", 0.5, 0.5), episode("c", 0.0)]
    assert best_programs(episodes) == {"a": (1.0, "program 1.0"), "b": (0.5, "program 0.5")}
