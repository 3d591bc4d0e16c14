"""Board games' held-out scores: players whose scores are known."""

import asyncio
from collections.abc import Callable
from random import Random

import pytest

from sparring.core.interfaces import Sampling
from sparring.games.boards import kuhn
from sparring.games.boards.evaluator import MatchEvaluator
from sparring.games.boards.game import BoardGame
from sparring.games.boards.positions import TicTacToe, best_moves
from sparring.games.boards.rules import KuhnRules, TicTacToeRules, evaluation_matches
from tests.playing import play, player

Says = Callable[[str, Sampling], str]


def seen(prompt: str) -> str:
    return prompt.split("\0")[-1].removesuffix(">")


def scores(kind: str, says: Says, count: int = 10):
    game = BoardGame(TicTacToeRules() if kind == "tictactoe" else KuhnRules())
    evaluator = MatchEvaluator(evaluation_matches(kind, count))
    played = []
    for request in evaluator.requests(None):
        assert set(request.temperatures.values()) == {1.0}
        episodes = []
        for number, problem in enumerate(request.problems):
            seats = [player(s, says, attempts=request.attempts[s], seed=number) for s in ("first", "second")]
            episodes.append(play(game, problem, seats))
        played.append(episodes)
    found = asyncio.run(evaluator.scores(played, None))
    assert set(evaluator.shown) <= found.values.keys() and evaluator.bank_request() is None
    return found


def careful(prompt: str, sampling: Sampling) -> str:
    view = seen(prompt)
    own, other = ("X", "O") if view.count("1") == view.count("2") else ("O", "X")
    state = TicTacToe(view.translate(str.maketrans({"0": ".", "1": own, "2": other})))
    return Random(sampling.seed).choice(best_moves(state))


def follow(bets: dict[str, float]) -> Says:
    def says(prompt: str, sampling: Sampling) -> str:
        return "bet" if Random(sampling.seed).random() < bets[seen(prompt).replace(" ", "")] else "pass"

    return says


SETS = [n for role in (0, 1) for n in kuhn.information_sets(role)]


def test_who_plays_well_never_loses_at_tic_tac_toe_and_a_draw_is_half_a_win():
    scored = scores("tictactoe", careful)
    found = scored.values
    assert found["loss_vs_random"] == found["loss_vs_minimax"] == found["illegal"] == 0.0
    assert found["draw_vs_minimax"] == 1.0 and found["win_vs_random"] > 0.5
    for bot in ("random", "minimax"):
        assert found[f"win_vs_{bot}"] + found[f"draw_vs_{bot}"] + found[f"loss_vs_{bot}"] == pytest.approx(1)
        assert found[f"payoff_vs_{bot}"] == pytest.approx(found[f"win_vs_{bot}"] - found[f"loss_vs_{bot}"])
    assert scored.combined == found["win_vs_random"] + found["draw_vs_random"] / 2
    assert "nash_conv" not in found and scored.tasks == {}


def test_who_talks_instead_of_moving_loses_every_match():
    for kind in ("tictactoe", "kuhn"):
        found = scores(kind, lambda *_: "hm").values
        assert found["illegal"] == found["loss_vs_random"] == 1.0
        assert found["payoff_vs_random"] == {"tictactoe": -2.0, "kuhn": -3.0}[kind]


@pytest.mark.parametrize(
    ("says", "bet"),
    [
        (follow(dict.fromkeys(SETS, 0.0)), 0.0),
        (follow(dict.fromkeys(SETS, 1.0)), 1.0),
        (lambda *_: "hm", 0.0),
    ],
    ids=["passes", "bets", "an illegal move counts as a pass"],
)
def test_nash_conv_of_one_who_always_does_the_same(says, bet):
    found = scores("kuhn", says)
    assert found.values["nash_conv"] == pytest.approx(kuhn.nash_conv(dict.fromkeys(SETS, bet)))
    assert found.values["exploitability"] == found.values["nash_conv"] / 2
    assert found.combined == -found.values["nash_conv"]


def test_an_equilibrium_player_is_told_from_a_uniform_one():
    well = scores("kuhn", follow(dict(kuhn.equilibrium(0.2)))).values["nash_conv"]
    uniformly = scores("kuhn", follow(dict.fromkeys(SETS, 0.5))).values["nash_conv"]
    assert well < 0.3 < uniformly == pytest.approx(11 / 12, abs=0.4)


def test_each_probe_asks_the_side_that_moves_there():
    """A player who bets at one information set only is seen to do so there, and nowhere else."""
    for name in SETS:
        bets = dict.fromkeys(SETS, 0.0) | {name: 1.0}
        found = scores("kuhn", follow(bets), count=1).values["nash_conv"]
        assert found == pytest.approx(kuhn.nash_conv(bets)), name
