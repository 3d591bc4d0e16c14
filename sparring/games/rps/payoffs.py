"""Exact payoffs of rock-paper-scissors with an edge: a win by rock pays more. Pure.

The game is zero-sum and symmetric, so its value is 0. A policy that learns the best response to its current opponent goes
round in a circle; only a mixture of moves cannot be exploited.
"""

from collections.abc import Mapping

MOVES = ("rock", "paper", "scissors")
_BEATS = {"rock": "scissors", "paper": "rock", "scissors": "paper"}


def payoff(mine: str, other: str, edge: float) -> float:
    """Returns what `mine` wins and `other` loses. edge: payoff of a win by rock; other wins pay 1."""
    if mine == other:
        return 0.0
    winner = mine if _BEATS[mine] == other else other
    stake = edge if winner == "rock" else 1.0
    return stake if winner == mine else -stake


def exploitability(mixture: Mapping[str, float], edge: float) -> float:
    """Returns the payoff of the best response to a mixture of moves: 0 in equilibrium, at most `edge`."""
    return max(sum(share * payoff(reply, move, edge) for move, share in mixture.items()) for reply in MOVES)


def equilibrium(edge: float) -> dict[str, float]:
    """Returns the only equilibrium. It plays paper, which beats rock, `edge` times as often as each other move."""
    return {"rock": 1 / (2 + edge), "paper": edge / (2 + edge), "scissors": 1 / (2 + edge)}
