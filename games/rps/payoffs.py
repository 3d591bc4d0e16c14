"""Rock-paper-scissors with an edge, exactly: a win by rock pays more. Pure.

Zero sum and symmetric, so its value is 0. Who answers the opponent of today goes round in a circle; only a mixture is safe.
"""

from collections.abc import Mapping

MOVES = ("rock", "paper", "scissors")
_BEATS = {"rock": "scissors", "paper": "rock", "scissors": "paper"}


def payoff(mine: str, other: str, edge: float) -> float:
    """What `mine` wins, and `other` loses. edge: of a win by rock; other wins pay 1."""
    if mine == other:
        return 0.0
    winner = mine if _BEATS[mine] == other else other
    stake = edge if winner == "rock" else 1.0
    return stake if winner == mine else -stake


def exploitability(mixture: Mapping[str, float], edge: float) -> float:
    """What the best reply to a mixture of moves earns: 0 in equilibrium, at most `edge`."""
    return max(sum(share * payoff(reply, move, edge) for move, share in mixture.items()) for reply in MOVES)


def equilibrium(edge: float) -> dict[str, float]:
    """The only one: paper, which answers rock, as often as rock is worth more."""
    return {"rock": 1 / (2 + edge), "paper": edge / (2 + edge), "scissors": 1 / (2 + edge)}
