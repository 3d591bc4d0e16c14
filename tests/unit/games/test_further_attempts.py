"""Episodes of several attempts: who fails a test is told so, and tries again; each attempt earns by itself."""

import asyncio
from dataclasses import replace

import pytest

from sparring.core.evaluation import EvaluationSettings
from sparring.games.multistage.game import MultistageGame
from sparring.games.multistage.rules import MultistageRules
from sparring.games.programs.game import SolverGame
from sparring.games.programs.unit_tests import UnitTestsRules
from tests.playing import Breaking, Letters, a_problem, by_player, play, player, reader, sample_of

PROBLEM = a_problem(baseline_tests=("assert f(1) == 2", "assert f(3) == 6"))
RIGHT, WRONG = "def f(n): return n * 2", "def f(n): return n + 2"


def learner(first: list[str], attempts: int, again: str = RIGHT):
    """Begins with these programs, one an attempt; told that one fails, it writes `again`."""
    left = list(first)

    def says(prompt: str, sampling) -> str:
        return again if "fails" in prompt else left.pop(0)

    return player("generator", says, attempts=attempts, format=Letters(full=True))


def multistage(attempts: int) -> MultistageGame:
    return MultistageGame(MultistageRules(attempts_per_episode=attempts, stages=0))


def test_in_the_multi_stage_game_a_further_attempt_meets_the_opponents_tests(sandbox) -> None:
    suites = reader("discriminator", ["assert f(0) == 0\nassert f(2) == 4"])
    episode = play(multistage(3), PROBLEM, [learner([WRONG, RIGHT], 2), suites], sandbox)
    programs = episode.judged("generator")
    assert [(p.attempt, p.artifact, p.reward, p.group) for p in programs] == [
        (0, WRONG, 0.5, ""),
        (1, RIGHT, 1.0, ""),
        (2, RIGHT, 1.0, "attempt 2"),
    ]
    assert [len(group) for group in episode.groups("generator")] == [2, 1]
    first, _, further = programs
    said = [*first.turns[-1].prompt_tokens, *first.turns[-1].completion.tokens]
    assert list(further.turns[0].prompt_tokens[: len(said)]) == said, "the engine's prefix cache is hit"
    sample = sample_of(further)
    assert sum(sample.trained) == len(further.turns[0].completion.tokens), "what came before learns once"
    assert [p.number for p in programs] == [1, 1, 2]
    (suite,) = episode.judged("discriminator")
    assert suite.outcomes[1].kills == () and suite.components["pass_rate"] == pytest.approx((0.5 + 1 + 1) / 3)


def test_in_a_game_of_one_message_too(sandbox) -> None:
    game = SolverGame(UnitTestsRules(attempts_per_episode=3))
    episode = play(game, PROBLEM, [learner([WRONG, RIGHT], 2, again=WRONG)], sandbox)
    assert [(p.attempt, p.artifact, p.reward, p.group) for p in episode.trajectories] == [
        (0, WRONG, 0.0, ""),
        (1, RIGHT, 2.0, ""),
        (2, WRONG, 0.0, "attempt 2"),
        (4, WRONG, 0.0, "attempt 3"),
    ]
    assert all(p.components["format"] == 1.0 for p in episode.trajectories)


@pytest.mark.parametrize("game", [multistage(2), SolverGame(UnitTestsRules(attempts_per_episode=2))])
def test_a_sandbox_that_fails_is_no_reason_for_another_attempt(game) -> None:
    players = [learner([WRONG], 1), reader("discriminator", ["assert f(2) == 4"])]
    episode = play(game, PROBLEM, players, Breaking())
    assert len(by_player(episode, "generator")) == 1
    assert not episode.judged("generator")


@pytest.mark.parametrize("game", [multistage(3), SolverGame(UnitTestsRules(attempts_per_episode=3))])
def test_held_out_scores_are_of_first_attempts(game, sandbox) -> None:
    settings = EvaluationSettings(samples=2)
    requests = game.rules.evaluator([PROBLEM], sandbox, settings).requests({})
    assert requests and all(request.once for request in requests)
    players = [
        replace(seat, once=True)
        for seat in (learner([WRONG], 1), reader("discriminator", ["assert f(2) == 4"]))
    ]
    episode = play(game, PROBLEM, players, sandbox)
    assert [t.artifact for t in by_player(episode, "generator")] == [WRONG]


def test_without_a_baseline_test_there_is_nothing_to_tell(sandbox) -> None:
    bare = replace(PROBLEM, baseline_tests=())
    suites = reader("discriminator", ["assert f(2) == 4"])
    episode = play(multistage(2), bare, [learner([WRONG], 1), suites], sandbox)
    assert len(episode.judged("generator")) == 1


@pytest.mark.parametrize("game", [multistage(3), SolverGame(UnitTestsRules(attempts_per_episode=3))])
@pytest.mark.parametrize("full", [True, False])
def test_no_sequence_is_longer_than_what_the_game_says(game, full, sandbox) -> None:
    style = Letters(full=full)
    problem = replace(
        PROBLEM, baseline_tests=("assert f('é' * 3) == 'x'", "assert f(1) == 2", "f(" + "9" * 400 + ")")
    )
    seat = player("generator", lambda *_: "x" * 999, format=style, max_tokens=50)
    seats = {"generator": seat, "discriminator": reader("discriminator", ["assert f(2) == 4"])}
    episode = asyncio.run(game.play(problem, seats, sandbox))
    attempts = by_player(episode, "generator")
    assert len(attempts) == 3
    longest = max(len(t.turns[-1].prompt_tokens) + 50 for t in attempts)
    assert longest <= game.longest(problem, "generator", style, 50)
