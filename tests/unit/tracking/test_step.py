from collections.abc import Sequence
from dataclasses import replace

import pytest

from sparring.core.episode import Completion, Episode, FinishReason, Mistakes, Outcome, Trajectory, Turn
from sparring.core.interfaces import SandboxFailure
from sparring.core.play import PlayResult, usage_of
from sparring.core.tracing import Span
from sparring.tracking.step import (
    best_programs,
    episode_metrics,
    mistakes,
    policy_lag,
    require_some_judged,
    without_signal,
)

PLAYERS = ("generator", "discriminator")
SPANS = [("generate", 3.0, 4.0)]


def played(*episodes: Episode, spans: Sequence[Span] = SPANS) -> PlayResult:
    return PlayResult(episodes=list(episodes), sandbox={}, usage=usage_of(episodes), spans=list(spans))


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
    row = episode_metrics(PLAYERS, played(episode("a", None), spans=[]))
    assert row["generator_reward"] is None and row["tokens_per_s"] is None


def test_an_attempt_that_does_not_say_whether_it_solved_the_problem_did_not() -> None:
    of_four = episode("a", -1.0, -1.0, -1.0, 1.0)  # three of which crash before any test
    of_four.trajectories[3].components = {"solved": 1.0}
    row = episode_metrics(PLAYERS, played(of_four))
    assert row["generator_components"]["solved"] == 0.25


def test_what_the_engine_had_of_the_prompts_is_told_as_a_share() -> None:
    one = episode("a", 1.0)
    first, second = one.trajectories[0].turns
    known = replace(second, prompt_tokens=(9, 1, 8), completion=replace(second.completion, cached=3))
    one.trajectories[0].turns = [first, known]
    assert episode_metrics(PLAYERS, played(one))["prefix_hits"] == 0.75
    assert episode_metrics(PLAYERS, played())["prefix_hits"] is None


def test_turns_that_attempts_share_are_counted_once_and_answers_by_player() -> None:
    one = episode("a", 0.0, 1.0)  # of the very same turns
    row = episode_metrics(PLAYERS, played(one))
    assert (row["tokens"], row["generator_tokens"], row["discriminator_tokens"]) == (4, 4.0, None)
    other = episode("b", 1.0)
    assert usage_of([one, other]).sampled == {("generator", 0): 8}
    assert usage_of([one]) + usage_of([other]) == usage_of([one, other])


def test_only_rewarded_programs_are_remembered() -> None:
    episodes = [episode("a", 1.0, 0.0, None), episode("b", 0.5, 0.5), episode("c", 0.0)]
    assert best_programs(episodes) == {"a": (1.0, "program 1.0"), "b": (0.5, "program 0.5")}


def test_mistakes_are_told_by_problem_where_there_are_any() -> None:
    made = Mistakes(programs=("program 0.5",), tests={"f(1)": True})
    episodes = [replace(episode("a", 0.5), mistakes=made), episode("b", 1.0)]
    assert mistakes(episodes) == {"a": made}


def test_a_step_of_which_the_sandbox_judged_nothing_is_to_be_done_again() -> None:
    failed, judged = episode("a", None, None), episode("b", 0.0)
    require_some_judged(3, [failed])  # no reward, but the sandbox is not to blame
    for attempt in failed.trajectories:
        attempt.components["sandbox_failure"] = 1.0
    require_some_judged(3, [failed, judged])
    with pytest.raises(SandboxFailure, match="step 3: the sandbox judged none of 2 attempts"):
        require_some_judged(3, [failed])


def test_further_attempts_are_told_apart_since_only_failures_have_them() -> None:
    one = episode("a", 1.0, 0.0)
    one.trajectories += [replace(t, number=2) for t in episode("a", 0.5).trajectories]
    row = episode_metrics(PLAYERS, played(one))
    assert row["generator_reward"] == 0.5
    assert row["generator_further"] == {"attempts": 1, "reward": 0.5}
    assert "generator_further" not in episode_metrics(PLAYERS, played(episode("a", 1.0)))


def test_a_flag_that_an_attempt_does_not_name_is_0_there_and_other_parts_are_not() -> None:
    one = episode("a", 1.0, -1.0)
    for trajectory, components in zip(one.trajectories, ({"lines": 3.0}, {"foul_syntax": 1.0}), strict=True):
        trajectory.components |= components
    row = episode_metrics(PLAYERS, played(one))
    assert row["generator_components"] == {"lines": 3.0, "foul_syntax": 0.5}


def test_the_share_of_tests_that_shared_the_programs_interpreter_is_told_if_there_are_any() -> None:
    one = episode("a", 1.0, 0.0)
    shared = Outcome(test="f(1)", status="PASSED", shared=True)
    one.trajectories[0].outcomes = (shared, replace(shared, shared=False), replace(shared, counts=False))
    one.trajectories[1].outcomes = (replace(shared, shared=False),)
    sent = replace(one, trajectories=[t.without_turns(n) for n, t in enumerate(one.trajectories)])
    for each in (one, sent):  # as it was played, and as a rollout actor sends it
        assert episode_metrics(PLAYERS, played(each))["generator_components"] == {"shared_tests": 1 / 3}


def test_why_nobody_learns_is_said() -> None:
    one = episode("a", None, 1.0)
    one.trajectories[0].components["no_valid_test"] = 1.0
    said = without_signal(episode_metrics(PLAYERS, played(one)))
    assert "(1 of no valid test)" in said and "all other attempts" in said
    assert without_signal(episode_metrics(PLAYERS, played(episode("a", 1.0)))).startswith("all attempts")


def test_lag_is_counted_by_tokens_against_the_version_that_learns() -> None:
    one = episode("a", 1.0)
    turn = one.trajectories[0].turns[0]
    said = {"tokens": (1, 2, 8), "logprobs": (0.0,) * 3, "version": 3, "later": ((4, 1), (5, 2))}
    one.trajectories[0].turns = [replace(turn, completion=replace(turn.completion, **said))]
    usage = usage_of([one])
    assert policy_lag(usage, ["generator"], 6) == {"policy_lag_mean": 1.0, "policy_lag_max": 2.0}
    assert policy_lag(usage, ["discriminator"], 6) == {}
