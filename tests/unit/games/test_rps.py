"""Rock-paper-scissors with an edge: its payoffs, its only equilibrium, who is paid what, and what is measured."""

import asyncio

import pytest

from sparring.games.rps.evaluator import MixtureEvaluator
from sparring.games.rps.game import RpsGame
from sparring.games.rps.payoffs import EDGE, MOVES, equilibrium, exploitability, payoff
from sparring.games.rps.rules import RpsRules
from tests.playing import Breaking, by_player, play, reader

RULES = RpsRules()


def match(firsts: list[str], seconds: list[str]):
    training, _ = RULES.own_problems(1)
    return play(RpsGame(RULES), training[0], [reader("first", firsts), reader("second", seconds, seed=2)])


def earned(firsts: list[str], seconds: list[str], player: str) -> list[float | None]:
    return [t.reward for t in by_player(match(firsts, seconds), player)]


def test_it_is_zero_sum_and_goes_round():
    for mine in MOVES:
        assert sum(payoff(mine, other) > 0 for other in MOVES) == 1
        for other in MOVES:
            assert payoff(mine, other) == -payoff(other, mine)
    assert payoff("rock", "scissors") == EDGE
    assert payoff("paper", "rock") == payoff("scissors", "paper") == 1


def test_nothing_gains_against_the_equilibrium_and_something_against_all_else():
    safe = equilibrium()
    assert sum(safe.values()) == pytest.approx(1) and exploitability(safe) == pytest.approx(0)
    for move in MOVES:
        leaning = {name: 0.95 * share + 0.05 * (name == move) for name, share in safe.items()}
        assert exploitability(leaning) > 0.01
    assert exploitability({"rock": 0.0, "paper": 0.0, "scissors": 1.0}) == EDGE


def test_both_are_paid_attempt_by_attempt():
    firsts, seconds = ["rock", "paper", "Scissors\n", "rock"], ["scissors", "paper", "rock", "paper"]
    assert earned(firsts, seconds, "first") == [2.0, 0.0, -2.0, -1.0]
    assert earned(firsts, seconds, "second") == [-2.0, 0.0, 2.0, 1.0]


@pytest.mark.parametrize(
    "text", ["Rock.", "**rock**", "`rock`", "```\nrock\n```", "<think>\nPaper?\n</think>\n\nrock"]
)
def test_a_move_is_read_as_chat_models_write_it(text):
    assert earned([text], ["scissors"], "first") == [2.0]


def test_no_move_is_a_loss_that_pays_nobody():
    assert earned(["well", "", "rock"], ["rock", "", "well"], "first") == [-3.0, -3.0, 0.0]
    first, *_ = match(["well"], ["rock"]).trajectories
    assert first.components == {
        **{"win": 0.0, "draw": 0.0, "loss": 1.0, "illegal": 1.0},
        **{"rock": 0.0, "paper": 0.0, "scissors": 0.0},
    }
    assert RULES.why("first", first.components).startswith("made an illegal move")


def test_what_is_measured_is_the_mixture_of_the_legal_moves():
    evaluator = RULES.evaluator(RULES.own_problems(4)[1], Breaking(), None)  # type: ignore[arg-type]
    assert isinstance(evaluator, MixtureEvaluator) and len(evaluator.requests(None)[0].problems) == 4
    episodes = [match(["rock"], ["rock"]), match(["paper"], ["rock"]), match(["well"], ["rock"])]
    scores = asyncio.run(evaluator.scores([episodes], None))
    assert scores.values["illegal"] == pytest.approx(1 / 6)
    assert scores.values["rock"] == pytest.approx(4 / 6)
    assert scores.values["exploitability"] == pytest.approx(0.8)  # paper against four rocks and one paper
    assert scores.combined == -scores.values["exploitability"]
