"""Kuhn poker: payoffs by hand, and the solver against what is known of the game."""

import pytest

from sparring.games.boards.kuhn import (
    CARDS,
    DEALS,
    TERMINAL,
    best_response_value,
    equilibrium,
    information_set,
    information_sets,
    legal_actions,
    nash_conv,
    payoff,
    to_move,
    value,
)


@pytest.mark.parametrize(
    ("cards", "history", "won"),
    [
        ("KJ", "pp", 1),
        ("JK", "pp", -1),
        ("JK", "bp", 1),  # a bluff that works
        ("KJ", "pbp", -1),  # a king folded
        ("KQ", "bb", 2),
        ("QK", "bb", -2),
        ("QJ", "pbb", 2),
        ("JQ", "pbb", -2),
    ],
)
def test_payoffs(cards, history, won):
    assert payoff(cards, history) == won


def test_who_moves_and_what_they_know():
    assert [to_move(h) for h in ("", "p", "b", "pb")] == [0, 1, 1, 0]
    assert all(not legal_actions(h) for h in TERMINAL) and legal_actions("pb") == "pb"
    assert information_set("JK", "") == "J" and information_set("JK", "b") == "Kb"
    assert information_sets(0) == ["J", "Jpb", "Q", "Qpb", "K", "Kpb"]
    assert len(DEALS) == 6 and len({*information_sets(0), *information_sets(1)}) == 12


def test_uniform_policies():
    uniform = {name: 0.5 for role in (0, 1) for name in information_sets(role)}
    assert nash_conv(uniform) == pytest.approx(11 / 12)
    assert value(uniform) == pytest.approx(1 / 8)


@pytest.mark.parametrize("alpha", [0, 0.1, 0.25, 1 / 3])
def test_equilibria_cannot_be_exploited(alpha):
    assert nash_conv(equilibrium(alpha)) == pytest.approx(0, abs=1e-12)
    assert value(equilibrium(alpha)) == pytest.approx(-1 / 18)
    assert best_response_value(equilibrium(alpha), 0) == pytest.approx(-1 / 18)


def test_beyond_the_family_it_can_be_exploited():
    overplayed = {**equilibrium(0.0), "J": 0.5}
    assert nash_conv(overplayed) > 0.01


def test_a_best_response_cannot_see_the_other_card():
    """Against one who bets and calls always, a king wins 2, a jack is better folded, and a queen must meet both."""
    always = dict.fromkeys([c + h for c in CARDS for h in ("", "p", "b", "pb")], 1.0)
    # role 1 facing a bet: K calls (+2), J folds (-1), Q calls for (2 - 2) / 2 = 0 rather than fold for -1
    assert best_response_value(always, 1) == pytest.approx((2 - 1 + 0) / 3)
