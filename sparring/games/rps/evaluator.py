"""Evaluation of rock-paper-scissors: how much an opponent could gain against the policy's mixture of moves."""

from collections.abc import Sequence

from sparring.core.episode import Episode
from sparring.core.evaluation import Scores, mean, scores_of
from sparring.core.problem import Problem
from sparring.games.rps.payoffs import MOVES, exploitability
from sparring.games.rules import SEATS, RewardEvaluator


class MixtureEvaluator(RewardEvaluator):
    """Evaluator in which the policy plays against itself as in training, sampled at temperature 1. Scores:
    rock, paper, scissors: shares of the moves;
    illegal: share of answers that are no move;
    exploitability: reward of the best response to the legal moves; 0 in equilibrium. Estimated from n sampled moves, it is
    about 1 / sqrt(n) too high.

    combined is minus exploitability.
    """

    temperature = 1.0

    def __init__(self, problems: Sequence[Problem]) -> None:
        super().__init__(problems, SEATS)

    @property
    def shown(self) -> tuple[str, ...]:
        return "exploitability", "illegal"

    async def scores(self, played: Sequence[Sequence[Episode]], bank: None) -> Scores:
        """See Evaluator."""
        attempts = [t for episodes in played for episode in episodes for t in episode.trajectories]
        values = {name: mean([t.components[name] for t in attempts]) for name in (*MOVES, "illegal")}
        shares = {move: values[move] or 0.0 for move in MOVES}
        legal = sum(shares.values())
        mixture = {move: share / legal if legal else 1 / len(MOVES) for move, share in shares.items()}
        values["exploitability"] = exploitability(mixture) if attempts else None
        return scores_of(values, {"exploitability": -1.0})
