"""Kill rates by hand, ratings against known strengths, and intervals that are honest."""

import asyncio
import math
from dataclasses import replace

import numpy as np
import pytest

from sparring.evaluation.league import (
    CrossPlay,
    bradley_terry,
    games_of_matches,
    games_of_meeting,
    kill_rate,
    meet,
    ratings,
    survival_rate,
)
from sparring.games.multistage.game import MultistageGame
from sparring.games.multistage.rules import MultistageRules
from tests.recorded import DOUBLE as OF_RUNS
from tests.recorded import match

GAME = MultistageGame(MultistageRules(test_format="input_only"))
DOUBLE = replace(OF_RUNS, hidden_tests=("assert f(3) == 6", "assert f(-1) == -2"))
RIGHT, SQUARES, ABSOLUTE = (f"def f(x): return {body}" for body in ("x + x", "x * x", "abs(2 * x)"))
MEETING = CrossPlay(
    programs=[["right", "a", "b"], ["right", "right", "a"]],
    wrong=frozenset("ab"),
    killed=[[frozenset("a"), frozenset()], [frozenset("ab"), frozenset("b")]],
)


# ---------------------------------------------------------------------- programs against suites
def test_rates_by_hand():
    nothing = CrossPlay(programs=[["c"], ["c"]], wrong=frozenset(), killed=[[frozenset()] * 2] * 2)
    both = [MEETING, nothing]
    assert kill_rate(both, 0, 0) == 1 / 4 and kill_rate(both, 1, 0) == 3 / 4
    assert kill_rate(both, 0, 1) == kill_rate(both, 1, 1) == 1 / 2
    assert [survival_rate(both, 0, d) for d in (0, 1)] == [3 / 4, 1 / 2]
    assert [survival_rate(both, 1, d) for d in (0, 1)] == [3 / 4, 3 / 4]
    assert math.isnan(kill_rate([nothing], 0, 0))


def test_every_suite_meets_every_program(sandbox):
    programs = [[RIGHT, SQUARES], [ABSOLUTE]]
    suites = [["f(2)\nf(0)", "f(2)"], ["f(5)"]]  # squares and abs are right at 2 and 0
    meeting = asyncio.run(meet(DOUBLE, programs, suites, sandbox, GAME))
    assert meeting.wrong == {SQUARES, ABSOLUTE}
    assert meeting.killed == [[set(), set()], [{SQUARES}]]


def test_a_game_is_a_program_on_a_suite_and_one_of_them_wins_it():
    won = games_of_meeting(MEETING)
    assert won.sum() == 2 * 2 * 2 * 3  # members, members, suites, programs
    assert not won[:2, :2].any() and not won[2:, 2:].any()  # nobody meets its own kind
    assert won[2, 0] == 1 and won[0, 2] == 5 and won[3, 0] == 3 and won[0, 3] == 3


# ---------------------------------------------------------------------- matches
def test_who_makes_an_illegal_move_loses_the_game():
    won = games_of_matches(match(), {"first": 2, "second": 0}, 3)
    assert won[2, 0] == 1 and won.sum() == 1


def test_a_draw_is_half_a_game_for_each():
    episode = match()
    for trajectory in episode.trajectories:
        trajectory.components |= {"win": 0.0, "draw": 1.0, "loss": 0.0}
    won = games_of_matches(episode, {"first": 0, "second": 1}, 2)
    assert won.tolist() == [[0, 0.5], [0.5, 0]]


# ---------------------------------------------------------------------- ratings
def tournament(points: np.ndarray, games: int, units: int, seed: int) -> list[np.ndarray]:
    """Everyone against everyone, in Elo points."""
    chances = 1 / (1 + 10 ** ((points[None] - points[:, None]) / 400))
    rng, players = np.random.default_rng(seed), len(points)
    found = []
    for _ in range(units):
        won = np.triu(rng.binomial(games, chances), 1).astype(float)
        found.append(won + (np.triu(np.full((players, players), float(games)), 1) - won).T)
    return found


def test_ratings_are_where_the_likelihood_is_flat():
    """Each player's expected wins are its wins (Hunter 2004, section 2), the drawn games among them."""
    won = sum(tournament(np.array([0.0, 120.0, -300.0, 250.0]), 7, 5, 3))
    log_s = bradley_terry(won[None])[0]
    chances = 1 / (1 + np.exp(log_s[None] - log_s[:, None]))
    games = won + won.T + ((won + won.T) > 0)
    expected = (games * chances * ~np.eye(4, dtype=bool)).sum(1)
    assert expected == pytest.approx(won.sum(1) + 0.5 * 3, rel=1e-5)
    assert log_s.sum() == pytest.approx(0)


def test_two_populations_have_one_scale():
    """Players who never meet their own kind are still in order, and shifted against the others as they are."""
    truth = np.array([0.0, 150.0, 300.0, 50.0, 250.0])
    across = np.zeros((5, 5))
    across[:3, 3:] = across[3:, :3] = 1
    games = [won * across for won in tournament(truth, 400, 20, 5)]
    points = np.array([r.points for r in ratings(games, resamples=50)])
    assert points == pytest.approx(truth - truth.mean(), abs=25)


def test_who_wins_everything_has_a_finite_rating():
    won = np.array([[0.0, 20.0, 20.0], [0.0, 0.0, 10.0], [0.0, 10.0, 0.0]])
    best, middle, other = ratings([won])
    assert best.points > middle.points == pytest.approx(other.points, abs=0.1)
    assert best.points < 1000


def test_95_percent_intervals_hold_the_truth_about_95_times_in_100():
    truth = np.array([-100.0, 0.0, 100.0])
    held = 0
    for seed in range(60):
        rated = ratings(tournament(truth, 4, 40, seed), resamples=200, seed=seed)
        held += sum(r.low <= t <= r.high for r, t in zip(rated, truth, strict=True))
    assert 0.88 <= held / 180 <= 0.99


def test_the_same_games_give_the_same_ratings():
    games = tournament(np.array([0.0, 80.0, 10.0]), 3, 10, 1)
    assert ratings(games, seed=4) == ratings(games, seed=4)


def test_players_without_a_common_opponent_are_not_rated():
    apart = np.zeros((4, 4))
    apart[0, 1] = apart[2, 3] = 3
    with pytest.raises(ValueError, match="met none of the others"):
        ratings([apart])
