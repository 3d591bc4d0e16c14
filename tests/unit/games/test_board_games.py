"""Matches by hand: payoffs, illegal moves, walkovers, bots, and the probes of Kuhn poker."""

import pytest

from sparring.games.boards import kuhn
from sparring.games.boards.game import BoardGame
from sparring.games.boards.positions import KuhnPoker, TicTacToe, minimax
from sparring.games.boards.rules import ILLEGAL, KuhnRules, TicTacToeRules, evaluation_matches
from sparring.games.rules import matches
from tests.playing import Letters, play, player, sample_of


def last_seen(prompt: str) -> str:
    """The last message of a prompt of Letters."""
    return prompt.split("\0")[-1].removesuffix(">").split(">")[-1]


def moves(*texts: str):
    """Says these one after the other, in every attempt: how many were said is what the prompt holds."""
    return lambda prompt, sampling: texts[prompt.count(">") - 1]


def match(kind, first, second, *, attempts=1, seeds=(1, 2), problem=None, **rules):
    game = BoardGame({"tictactoe": TicTacToeRules, "kuhn": KuhnRules}[kind](**rules))
    players = [
        player(name, says, attempts=attempts, seed=seed)
        for name, says, seed in zip(("first", "second"), (first, second), seeds, strict=True)
    ]
    return play(game, problem or matches(kind, 1)[0], players)


def results(episode):
    return {t.player: (t.reward, next((k for k in ("win", "draw", "loss") if t.components[k]), "none"))
            for t in episode.trajectories}  # fmt: skip


# ---------------------------------------------------------------------- tic-tac-toe
def test_a_win_a_loss_a_draw():
    won = match("tictactoe", moves("1", "2", "3"), moves("4", "5"))
    assert results(won) == {"first": (1.0, "win"), "second": (-1.0, "loss")}
    lost = match("tictactoe", moves("1", "2", "9"), moves("4", "5", "6"))
    assert results(lost) == {"first": (-1.0, "loss"), "second": (1.0, "win")}
    drawn = match("tictactoe", moves("1", "2", "6", "7", "9"), moves("3", "4", "5", "8"))
    assert results(drawn) == {"first": (0.0, "draw"), "second": (-0.0, "draw")}
    assert all(t.components["illegal"] == 0.0 for e in (won, lost, drawn) for t in e.trajectories)
    assert [len(t.turns) for t in drawn.trajectories] == [5, 4]


def test_a_win_with_the_last_cell_is_no_draw():
    episode = match("tictactoe", moves("1", "2", "6", "7", "3"), moves("4", "5", "8", "9"))
    assert results(episode) == {"first": (1.0, "win"), "second": (-1.0, "loss")}


@pytest.mark.parametrize("move", ["5", "0", "10", "", "five", "\uff11", "6 7", "-6", "X"])
def test_an_illegal_move_loses_at_once(move):
    episode = match("tictactoe", moves("5", "1"), moves(move))
    assert results(episode) == {"first": (0.0, "none"), "second": (-2.0, "loss")}
    first, second = episode.trajectories
    assert (first.components["illegal"], second.components["illegal"]) == (0.0, 1.0)
    assert len(first.turns) == 1 and second.artifact == move.strip()


@pytest.mark.parametrize(
    "move", ["6", " 6 ", "6\n", "6.", "**6**", "`6`", "```\n6\n```", "<think>\nIt is 5.\n</think>\n\n6"]
)
def test_what_a_chat_model_puts_around_a_move_does_not_matter(move):
    episode = match("tictactoe", moves("5", "x"), moves(move))
    assert results(episode)["first"] == (-2.0, "loss")


def test_no_legal_result_is_as_bad_as_an_illegal_move():
    """Else who stands badly learns to make illegal ones: Kuhn poker did, .05 -> .53 of the matches in 30 steps."""
    assert ILLEGAL["tictactoe"] < -1
    assert ILLEGAL["kuhn"] < min(-abs(kuhn.payoff(c, h)) for c in kuhn.DEALS for h in kuhn.TERMINAL)


def test_a_player_who_never_came_to_move_has_nothing_to_learn():
    episode = match("tictactoe", moves("no move"), moves("1"))
    assert [t.player for t in episode.trajectories] == ["first"]
    assert results(episode) == {"first": (-2.0, "loss")}


def test_each_side_is_shown_its_own_view_and_its_trajectory_is_one_sequence():
    episode = match("tictactoe", moves("1", "2", "3"), moves("4", "5"))
    first, second = episode.trajectories
    text = Letters().text(first.turns[-1].prompt_tokens)
    assert text == "000000000>1100200000>2110220000>"
    assert Letters().text(second.turns[-1].prompt_tokens) == "200000000>4220100000>"
    for trajectory in (first, second):
        sample = sample_of(trajectory)
        assert sum(sample.sampled) == trajectory.token_count == 2 * len(trajectory.turns)


# ---------------------------------------------------------------------- Kuhn poker


@pytest.mark.parametrize(
    ("first", "second", "history"),
    [("bet", "bet", "bb"), ("Pass", "Pass", "pp"), ("bet", "Pass", "bp"), ("Pass", "bet", "pbp")],
)
def test_kuhn_pays_what_the_rules_say_and_sums_to_zero(first, second, history):
    episode = match("kuhn", lambda *_: first, lambda *_: second, attempts=12)
    assert len(episode.trajectories) == 24
    for one, two in zip(episode.trajectories[::2], episode.trajectories[1::2], strict=True):
        assert one.attempt == two.attempt and one.reward == -two.reward
        cards = [last_seen(Letters().text(t.turns[0].prompt_tokens))[0] for t in (one, two)]
        assert one.reward == kuhn.payoff(cards, history)


def test_both_sides_play_one_deal_and_attempts_differ():
    episode = match("kuhn", lambda *_: "pass", lambda *_: "pass", attempts=40)
    cards = [last_seen(Letters().text(t.turns[0].prompt_tokens))[0] for t in episode.trajectories]
    deals = list(zip(cards[::2], cards[1::2], strict=True))
    assert all(a != b for a, b in deals) and len(set(deals)) == 6


# ---------------------------------------------------------------------- matches against bots
def test_the_evaluation_has_every_side_of_every_opponent():
    assert [p.tags for p in evaluation_matches("tictactoe", 2)] == [
        (seat, bot) for bot in ("random", "minimax") for seat in ("first", "second") for _ in range(2)
    ]
    problems = evaluation_matches("kuhn", 1)
    assert [p.tags[1] for p in problems if p.tags[0] == "probe"] == [
        name for role in (0, 1) for name in kuhn.information_sets(role)
    ]
    for kind in ("tictactoe", "kuhn"):
        ids = [p.id for p in matches(kind, 64) + evaluation_matches(kind, 5)]
        assert len(ids) == len(set(ids))


def perfect(prompt, sampling):
    """A best move, from what the player is shown alone."""
    seen = last_seen(prompt)
    own, other = ("X", "O") if seen.count("1") == seen.count("2") else ("O", "X")
    state = TicTacToe(seen.translate(str.maketrans({"0": ".", "1": own, "2": other})))
    sign = 1 if own == "X" else -1
    return max(state.legal_moves, key=lambda m: sign * minimax(state.after(m)))


def test_a_bots_seat_leaves_nothing_behind():
    bad = lambda *_: pytest.fail("the other player sits at another table")  # noqa: E731
    for problem in evaluation_matches("tictactoe", 3):
        seat, bot = problem.tags
        says = {"first": (perfect, bad), "second": (bad, perfect)}[seat]
        episode = match("tictactoe", *says, problem=problem, attempts=2)
        assert [(t.player, t.attempt) for t in episode.trajectories] == [(seat, 0), (seat, 1)]
        for trajectory in episode.trajectories:
            assert trajectory.reward in ((0.0,) if bot == "minimax" else (0.0, 1.0))
            sample_of(trajectory)


def test_the_deal_against_a_bot_follows_from_the_players_seed_alone():
    problem = evaluation_matches("kuhn", 1)[0]
    assert problem.tags == ("first", "random")
    says = (lambda *_: "bet", lambda *_: "bet")
    same = [match("kuhn", *says, attempts=30, seeds=(5, other), problem=problem) for other in (1, 9)]
    assert same[0] == same[1]


def test_an_illegal_move_against_a_bot_is_a_loss():
    for problem in evaluation_matches("kuhn", 1)[:4]:
        (trajectory,) = match("kuhn", lambda *_: "raise", lambda *_: "raise", problem=problem).trajectories
        assert trajectory.components["illegal"] == trajectory.components["loss"] == 1.0


# ---------------------------------------------------------------------- probes
@pytest.mark.parametrize("name", [n for role in (0, 1) for n in kuhn.information_sets(role)])
def test_a_probe_asks_for_one_move_where_the_match_would(name):
    asked = []

    def says(prompt, sampling):
        asked.append(prompt)
        return ["bet", "pass", " BET ", "raise"][len(asked) - 1]

    (problem,) = (p for p in evaluation_matches("kuhn", 1) if p.tags == ("probe", name))
    episode = match("kuhn", says, says, attempts=4, problem=problem)
    seat = ("first", "second")[len(name[1:]) % 2]
    assert [(t.player, t.attempt, t.reward) for t in episode.trajectories] == [
        (seat, i, None) for i in range(4)
    ]
    assert [(t.components["bet"], t.components["pass"]) for t in episode.trajectories] == [
        (1.0, 0.0), (0.0, 1.0), (1.0, 0.0), (0.0, 0.0),
    ]  # fmt: skip
    # the very tokens that a match leads to
    card, history = name[0], name[1:]
    other = "Q" if card != "Q" else "J"
    state = KuhnPoker((card, other) if seat == "first" else (other, card))
    said = ""
    for action in history:
        move = {"p": "pass", "b": "bet"}[action]
        if state.to_move == ("first", "second").index(seat):
            said += f"{state.brief()}>{move}\0"
        state = state.after(move)
    assert set(asked) == {f"{said}{state.brief()}>"}
