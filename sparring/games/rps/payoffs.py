"""Exact payoffs of rock-paper-scissors with an edge: a win by rock pays more. Pure.

The game is zero-sum and symmetric, so its value is 0. A policy that learns the best response to its current opponent goes
round in a circle; only a mixture of moves cannot be exploited.
"""

from collections.abc import Mapping

MOVES = ("rock", "paper", "scissors")
EDGE = 2.0
"""Reward of a win by rock; other wins pay 1."""
_BEATS = {"rock": "scissors", "paper": "rock", "scissors": "paper"}


def payoff(mine: str, other: str) -> float:
    """Returns what `mine` wins and `other` loses."""
    if mine == other:
        return 0.0
    winner = mine if _BEATS[mine] == other else other
    stake = EDGE if winner == "rock" else 1.0
    return stake if winner == mine else -stake


def exploitability(mixture: Mapping[str, float]) -> float:
    """Returns the payoff of the best response to a mixture of moves: 0 in equilibrium, at most EDGE."""
    return max(sum(share * payoff(reply, move) for move, share in mixture.items()) for reply in MOVES)


def equilibrium() -> dict[str, float]:
    """Returns the only equilibrium. It plays paper, which beats rock, EDGE times as often as each other move."""
    return {"rock": 1 / (2 + EDGE), "paper": EDGE / (2 + EDGE), "scissors": 1 / (2 + EDGE)}
