"""Kuhn poker (Kuhn 1950, "A simplified two-person poker"), and the exact distance of policies from its equilibrium.

There are three cards; each role gets one, and the ante is 1. The roles move in turn: pass or bet 1; after a bet, pass
folds and bet calls. The cards are shown if both roles pass or a bet is called. The game is zero-sum; its value is -1/18
for role 0, which moves first. Pure functions.
"""

from collections.abc import Mapping, Sequence
from itertools import permutations

CARDS = "JQK"
"""The cards in rising order."""
ACTIONS = "pb"
"""Pass and bet."""
DEALS = tuple(permutations(CARDS, 2))
"""The deals (card of role 0, card of role 1), which are equally likely."""
SITUATIONS = (("", "pb"), ("p", "b"))
"""The histories at which each role moves."""
TERMINAL = ("pp", "bp", "bb", "pbp", "pbb")

Policies = Mapping[str, float]
"""The policies of both roles: information set -> probability of a bet."""


def to_move(history: str) -> int:
    return len(history) % 2


def legal_actions(history: str) -> str:
    """Returns the legal actions; none if the game is over."""
    return "" if history in TERMINAL else ACTIONS


def information_set(cards: Sequence[str], history: str) -> str:
    """Returns what the role to move knows: its card and the history."""
    return cards[to_move(history)] + history


def information_sets(role: int) -> list[str]:
    return [card + history for card in CARDS for history in SITUATIONS[role]]


def payoff(cards: Sequence[str], history: str) -> int:
    """Returns what role 0 wins and role 1 loses at the end of the game."""
    if history in ("bp", "pbp"):
        return 1 if history == "bp" else -1
    stake = 2 if history.endswith("bb") else 1
    return stake if CARDS.index(cards[0]) > CARDS.index(cards[1]) else -stake


def value(policies: Policies) -> float:
    """Returns the expected payoff of role 0."""
    return sum(_value(policies, cards, "") for cards in DEALS) / len(DEALS)


def best_response_value(policies: Policies, role: int) -> float:
    """Returns the expected payoff of `role` for the best response to the other role's policy."""
    total = 0.0
    for own in CARDS:
        others = {card: 1 / len(DEALS) for card in CARDS if card != own}
        total += _best_response(policies, role, own, others, "")
    return total


def nash_conv(policies: Policies) -> float:
    """Returns what both roles together would gain by best responses: 0 in equilibrium, 11/12 for uniform policies (Lanctot
    et al. 2017, arXiv:1711.00832, section 2). The game is zero-sum, so the payoffs without deviation cancel out."""
    return best_response_value(policies, 0) + best_response_value(policies, 1)


def equilibrium(alpha: float) -> Policies:
    """Returns an equilibrium. alpha, in [0, 1/3], is the probability that role 0 bluffs with the jack."""
    first = {"J": alpha, "Q": 0.0, "K": 3 * alpha, "Jpb": 0.0, "Qpb": alpha + 1 / 3, "Kpb": 1.0}
    second = {"Jp": 1 / 3, "Qp": 0.0, "Kp": 1.0, "Jb": 0.0, "Qb": 1 / 3, "Kb": 1.0}
    return first | second


def _probability(policies: Policies, name: str, action: str) -> float:
    return policies[name] if action == "b" else 1 - policies[name]


def _value(policies: Policies, cards: Sequence[str], history: str) -> float:
    if not legal_actions(history):
        return payoff(cards, history)
    name = information_set(cards, history)
    return sum(
        _probability(policies, name, action) * _value(policies, cards, history + action)
        for action in legal_actions(history)
    )


def _best_response(
    policies: Policies, role: int, own: str, others: Mapping[str, float], history: str
) -> float:
    """Returns the expected payoff of the best response of `role` from a history on. `role` does not know the other role's
    card, so it chooses the action with the best sum over the possible cards.

    Args:
        own: the card of `role`.
        others: card of the other role -> probability that it is dealt and that the other role acts as in `history`.
    """
    if not legal_actions(history):
        sign = 1 if role == 0 else -1
        return sum(
            reach * sign * payoff((own, other) if role == 0 else (other, own), history)
            for other, reach in others.items()
        )
    if to_move(history) == role:
        return max(_best_response(policies, role, own, others, history + action) for action in ACTIONS)
    total = 0.0
    for action in ACTIONS:
        reached = {
            other: reach * _probability(policies, other + history, action) for other, reach in others.items()
        }
        total += _best_response(policies, role, own, reached, history + action)
    return total
