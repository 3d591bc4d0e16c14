"""Tic-tac-toe and Kuhn poker as rules: against brute force, and what a side may not see."""

from collections import Counter
from itertools import permutations, product
from random import Random

import pytest

from sparring.games.boards import kuhn
from sparring.games.boards.positions import KuhnPoker, TicTacToe, best_moves, bot_move, minimax, start

LINES = ["012", "345", "678", "036", "147", "258", "048", "246"]


def winner(cells: str) -> str | None:
    for line in LINES:
        marks = {cells[int(i)] for i in line}
        if len(marks) == 1 and marks != {"."}:
            return marks.pop()
    return None


def brute_force(cells: str, mark: str, known: dict[str, int]) -> int:
    """Value for X by trying everything; written apart from the rules under test."""
    if cells not in known:
        won = winner(cells)
        if won or "." not in cells:
            known[cells] = {"X": 1, "O": -1, None: 0}[won]
        else:
            after = [cells[:i] + mark + cells[i + 1 :] for i in range(9) if cells[i] == "."]
            values = [brute_force(c, "O" if mark == "X" else "X", known) for c in after]
            known[cells] = max(values) if mark == "X" else min(values)
    return known[cells]


@pytest.fixture(scope="module")
def positions() -> dict[str, int]:
    """All that can be reached, with their values."""
    known: dict[str, int] = {}
    brute_force("." * 9, "X", known)
    return known


# ---------------------------------------------------------------------- tic-tac-toe
def test_every_position_has_its_value_and_its_moves(positions):
    assert len(positions) == 5478
    for cells, value in positions.items():
        state = TicTacToe(cells)
        over = winner(cells) is not None or "." not in cells
        assert minimax(state) == value
        assert state.to_move == (cells.count("X") > cells.count("O"))
        assert state.payoff_first == (value if over else None)
        free = {str(i + 1) for i, cell in enumerate(cells) if cell == "."}
        assert set(state.legal_moves) == (set() if over else free)


def test_best_moves_are_those_that_keep_the_value(positions):
    for cells in Random(0).sample(sorted(positions), 400):
        state = TicTacToe(cells)
        if state.payoff_first is None:
            keeps = {m for m in state.legal_moves if positions[state.after(m).cells] == positions[cells]}
            assert set(best_moves(state)) == keeps != set()


def test_minimax_never_loses_to_anything(positions):
    """On either side, whatever the other plays: every reply is followed."""
    for side in (0, 1):
        seen, waiting = set(), [TicTacToe()]
        while waiting:
            state = waiting.pop()
            if state.cells in seen:
                continue
            seen.add(state.cells)
            if state.payoff_first is not None:
                assert state.payoff_first * (1 if side == 0 else -1) >= 0, state
                continue
            moves = best_moves(state) if state.to_move == side else state.legal_moves
            waiting += [state.after(move) for move in moves]


def test_a_move_marks_the_cell_of_the_mover():
    state = TicTacToe().after("5").after("1")
    assert state.cells == "O...X...." and state.to_move == 0
    assert TicTacToe().cells == "." * 9, "a state never changes"


def test_each_side_sees_itself_as_one():
    state = TicTacToe().after("1").after("9")
    assert state.brief() == "100000002" and state.after("5").brief() == "200020001"
    assert "You are X" in state.full() and "You are O" in state.after("5").full()
    assert "X 2 3\n4 5 6\n7 8 O" in state.full()


# ---------------------------------------------------------------------- Kuhn poker
OPEN = ["", "p", "b", "pb"]
"""Histories after which somebody moves."""


@pytest.mark.parametrize("history", OPEN)
@pytest.mark.parametrize("own", "JQK")
def test_what_a_side_is_shown_does_not_depend_on_the_others_card(history, own):
    mover = len(history) % 2
    shown = set()
    for other in "JQK":  # its own card, too: what is not looked at may be anything
        state = KuhnPoker((own, other) if mover == 0 else (other, own), history)
        shown.add((state.brief(), state.full(), state.information_set, state.legal_moves))
    assert len(shown) == 1
    brief, full, name, _ = shown.pop()
    assert brief == f"{own} {history}".strip() and name == own + history
    assert f"You hold {own}" in full
    others = set("JQK") - {own}
    assert not any(f" {other}" in full.replace("cards J < Q < K", "") for other in others)


def test_what_is_shown_tells_all_that_may_be_known():
    """Twelve information sets, twelve messages: none is mixed up with another."""
    states = [KuhnPoker(c, h) for c, h in product(permutations("JQK", 2), OPEN)]
    by_set = {s.information_set: (s.brief(), s.full()) for s in states}
    assert len(by_set) == len({b for b, _ in by_set.values()}) == len({f for _, f in by_set.values()}) == 12


@pytest.mark.parametrize("cards", list(permutations("JQK", 2)))
def test_a_match_ends_as_the_rules_say(cards):
    for history in kuhn.TERMINAL:
        state = KuhnPoker(cards)
        for action in history:
            assert state.payoff_first is None and state.legal_moves == ("pass", "bet")
            state = state.after({"p": "pass", "b": "bet"}[action])
        assert state.history == history and state.legal_moves == ()
        assert state.payoff_first == kuhn.payoff(cards, history)


def test_every_deal_is_dealt_equally_often():
    dealt = Counter(start("kuhn", Random(seed)).cards for seed in range(3000))
    assert set(dealt) == set(permutations("JQK", 2))
    assert min(dealt.values()) > 400
    assert start("tictactoe", Random(1)) == TicTacToe()


# ---------------------------------------------------------------------- the fixed opponents
def test_bots_play_legally(positions):
    for cells in positions:
        state = TicTacToe(cells)
        if state.payoff_first is None:
            for bot in ("random", "minimax"):
                assert bot_move(bot, state, Random(cells)) in state.legal_moves
    for cards, history in product(permutations("JQK", 2), OPEN):
        for bot in ("random", "equilibrium"):
            assert bot_move(bot, KuhnPoker(cards, history), Random(history)) in ("pass", "bet")


def test_the_random_bot_tries_every_move():
    rng = Random(0)
    assert {bot_move("random", TicTacToe("X........"), rng) for _ in range(300)} == set("23456789")


def test_the_equilibrium_bot_bets_as_the_equilibrium_does():
    rng, policies = Random(5), kuhn.equilibrium(0.2)
    for cards, history in product(permutations("JQK", 2), OPEN):
        state = KuhnPoker(cards, history)
        bets = sum(bot_move("equilibrium", state, rng) == "bet" for _ in range(600)) / 600
        assert bets == pytest.approx(policies[state.information_set], abs=0.08)


# ---------------------------------------------------------------------- the solver, against what is known of Kuhn poker
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
    assert kuhn.payoff(cards, history) == won


def test_who_moves_and_what_they_know():
    assert [kuhn.to_move(h) for h in OPEN] == [0, 1, 1, 0]
    assert all(not kuhn.legal_actions(h) for h in kuhn.TERMINAL) and kuhn.legal_actions("pb") == "pb"
    assert kuhn.information_set("JK", "") == "J" and kuhn.information_set("JK", "b") == "Kb"
    assert kuhn.information_sets(0) == ["J", "Jpb", "Q", "Qpb", "K", "Kpb"]
    assert len(kuhn.DEALS) == 6 and len({*kuhn.information_sets(0), *kuhn.information_sets(1)}) == 12


def test_uniform_policies():
    uniform = {name: 0.5 for role in (0, 1) for name in kuhn.information_sets(role)}
    assert kuhn.nash_conv(uniform) == pytest.approx(11 / 12)
    assert kuhn.value(uniform) == pytest.approx(1 / 8)


@pytest.mark.parametrize("alpha", [0, 0.1, 0.25, 1 / 3])
def test_equilibria_cannot_be_exploited(alpha):
    assert kuhn.nash_conv(kuhn.equilibrium(alpha)) == pytest.approx(0, abs=1e-12)
    assert kuhn.value(kuhn.equilibrium(alpha)) == pytest.approx(-1 / 18)
    assert kuhn.best_response_value(kuhn.equilibrium(alpha), 0) == pytest.approx(-1 / 18)


def test_beyond_the_family_it_can_be_exploited():
    overplayed = {**kuhn.equilibrium(0.0), "J": 0.5}
    assert kuhn.nash_conv(overplayed) > 0.01


def test_a_best_response_cannot_see_the_other_card():
    """Against one who bets and calls always, a king wins 2, a jack is better folded, and a queen must meet both."""
    always = dict.fromkeys([c + h for c in kuhn.CARDS for h in OPEN], 1.0)
    # role 1 facing a bet: K calls (+2), J folds (-1), Q calls for (2 - 2) / 2 = 0 rather than fold for -1
    assert kuhn.best_response_value(always, 1) == pytest.approx((2 - 1 + 0) / 3)
