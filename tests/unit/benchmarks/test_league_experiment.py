"""The league's experiment: its gradient, and that it tells cycles from what does not go round."""

import numpy as np
import pytest

from benchmarks.experiments.kuhn import probabilities
from benchmarks.experiments.league import (
    CYCLIC,
    GAMES,
    MOVES,
    LeagueSettings,
    exploitability,
    gradient,
    train,
)
from sparring.games.rps import payoffs


def test_the_gradient_is_that_of_the_objective():
    rng = np.random.default_rng(1)
    logits, actions, paid = rng.normal(size=3), rng.integers(3, size=40), rng.normal(size=40)

    def objective(table: np.ndarray) -> float:
        pi = probabilities(table)
        return float(((paid - paid.mean()) * np.log(pi)[actions]).mean() - 0.2 * (pi * np.log(pi)).sum())

    steps = np.eye(3) * 1e-5
    expected = [(objective(logits + s) - objective(logits - s)) / 2e-5 for s in steps]
    assert gradient(logits, actions, paid, 0.2) == pytest.approx(expected, abs=1e-6)


def test_payoffs_are_the_games():
    for payoff in GAMES.values():
        assert (payoff == -payoff.T).all()
    mixture = {"rock": 0.5, "paper": 0.2, "scissors": 0.3}
    assert exploitability(np.array([mixture[m] for m in MOVES]), CYCLIC) == pytest.approx(
        payoffs.exploitability(mixture)
    )


@pytest.mark.parametrize("arm", ["self", "history", "league"])
def test_where_nothing_goes_round_everyone_gets_there(arm):
    """The negative control: scissors is all one needs."""
    found = train(LeagueSettings(game="transitive", arm=arm, updates=150, entropy=0.05), seed=1)
    assert found["last"] < 0.1


def test_the_same_seed_is_the_same_run():
    settings = LeagueSettings(arm="league", updates=60)
    assert train(settings, 3) == train(settings, 3)
