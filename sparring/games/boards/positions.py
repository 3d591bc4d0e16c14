"""The rules of two-player zero-sum games: tic-tac-toe and Kuhn poker. Pure.

A state is immutable; role 0 moves first. `payoff_first` is None while the game goes on. `brief` (for models trained on
this game) and `full` (for chat models) describe the state to the role to move, without what that role may not know.
"""

from dataclasses import dataclass
from functools import cache
from random import Random

from sparring.games.boards import kuhn

_LINES = ((0, 1, 2), (3, 4, 5), (6, 7, 8), (0, 3, 6), (1, 4, 7), (2, 5, 8), (0, 4, 8), (2, 4, 6))


@dataclass(frozen=True, slots=True)
class TicTacToe:
    """A state of tic-tac-toe. Moves are "1" to "9".

    cells: nine characters ".", "X" or "O", row by row. X is role 0.
    """

    cells: str = "." * 9

    @property
    def to_move(self) -> int:
        return (9 - self.cells.count(".")) % 2

    @property
    def legal_moves(self) -> tuple[str, ...]:
        if self.payoff_first is not None:
            return ()
        return tuple(str(i + 1) for i, cell in enumerate(self.cells) if cell == ".")

    @property
    def payoff_first(self) -> float | None:
        for a, b, c in _LINES:
            if self.cells[a] != "." and self.cells[a] == self.cells[b] == self.cells[c]:
                return 1.0 if self.cells[a] == "X" else -1.0
        return None if "." in self.cells else 0.0

    def after(self, move: str) -> "TicTacToe":
        place = int(move) - 1
        return TicTacToe(self.cells[:place] + "XO"[self.to_move] + self.cells[place + 1 :])

    def brief(self) -> str:
        """Returns nine digits: 0 is an empty cell, 1 a cell of the role to move, 2 a cell of the other role."""
        own, other = "XO" if self.to_move == 0 else "OX"
        return self.cells.translate(str.maketrans({".": "0", own: "1", other: "2"}))

    def full(self) -> str:
        numbered = [cell if cell != "." else str(i + 1) for i, cell in enumerate(self.cells)]
        board = "\n".join(" ".join(numbered[row : row + 3]) for row in (0, 3, 6))
        return (
            f"Tic-tac-toe. You are {'XO'[self.to_move]}; three in a row wins. The board, free cells numbered:\n{board}\n"
            "Answer with the number of a free cell only."
        )


@dataclass(frozen=True, slots=True)
class KuhnPoker:
    """A state of Kuhn poker. Moves are "pass" and "bet".

    cards: the cards of role 0 and role 1. history: "p" for each pass and "b" for each bet, in order.
    """

    cards: tuple[str, str]
    history: str = ""

    @property
    def to_move(self) -> int:
        return kuhn.to_move(self.history)

    @property
    def legal_moves(self) -> tuple[str, ...]:
        return () if self.payoff_first is not None else ("pass", "bet")

    @property
    def payoff_first(self) -> float | None:
        return None if kuhn.legal_actions(self.history) else float(kuhn.payoff(self.cards, self.history))

    def after(self, move: str) -> "KuhnPoker":
        return KuhnPoker(self.cards, self.history + move[0])

    @property
    def information_set(self) -> str:
        return kuhn.information_set(self.cards, self.history)

    def brief(self) -> str:
        """Returns the card and the history, such as "K pb"."""
        return f"{self.cards[self.to_move]} {self.history}".rstrip()

    def full(self) -> str:
        done = ", ".join({"p": "pass", "b": "bet"}[action] for action in self.history) or "nothing yet"
        return (
            f"Kuhn poker: cards J < Q < K, one each, ante 1, a bet is 1. You hold {self.cards[self.to_move]} and move "
            f"{'first' if self.to_move == 0 else 'second'}. So far: {done}. After a bet, pass folds and bet calls.\n"
            "Answer with one word only: pass or bet."
        )


State = TicTacToe | KuhnPoker


def start(game: str, rng: Random) -> State:
    """Returns the first state of a match. The cards are dealt with rng."""
    return TicTacToe() if game == "tictactoe" else KuhnPoker(rng.choice(kuhn.DEALS))


def bot_move(opponent: str, state: State, rng: Random) -> str:
    """Returns the move of a fixed opponent: "random", "minimax" (tic-tac-toe: a random one of the best moves) or
    "equilibrium" (Kuhn poker: role 0 bluffs with the jack with probability 0.2)."""
    if opponent == "random":
        return rng.choice(state.legal_moves)
    if isinstance(state, TicTacToe):
        return rng.choice(best_moves(state))
    return "bet" if rng.random() < kuhn.equilibrium(0.2)[state.information_set] else "pass"


def best_moves(state: TicTacToe) -> tuple[str, ...]:
    """Returns all moves that keep the value of the position for the role to move."""
    values = {move: minimax(state.after(move)) for move in state.legal_moves}
    best = max(values.values()) if state.to_move == 0 else min(values.values())
    return tuple(move for move, value in values.items() if value == best)


@cache
def minimax(state: TicTacToe) -> float:
    """Returns the value for role 0 when both roles play optimally."""
    if state.payoff_first is not None:
        return state.payoff_first
    values = [minimax(state.after(move)) for move in state.legal_moves]
    return max(values) if state.to_move == 0 else min(values)
