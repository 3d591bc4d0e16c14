"""Evaluation of board games against fixed opponents, and for Kuhn poker against the best response as well."""

from collections.abc import Sequence

from sparring.core.episode import Episode, Trajectory
from sparring.core.evaluation import Evaluator, Scores, mean, scores_of
from sparring.core.play import PlayRequest
from sparring.core.problem import Problem
from sparring.games.boards import kuhn
from sparring.games.boards.rules import PROBE
from sparring.games.rules import SEATS

_MATCHES = 1
_PROBES = 48
"""Number of moves that are sampled at each information set of Kuhn poker."""


class MatchEvaluator(Evaluator):
    """Evaluator in which the policy plays both sides as in training, sampled at temperature 1. Scores:
    win_vs_<opponent>, draw_vs_..., loss_vs_..., payoff_vs_...: shares of matches and mean payoff, for each opponent;
    illegal: share of matches that the policy lost by an illegal move;
    nash_conv (Kuhn poker only): 0 in equilibrium, 11/12 for uniform play. The policy's probabilities are estimated from
    moves that are sampled at each information set; an illegal move counts as pass;
    exploitability (Kuhn poker only): half of nash_conv.

    combined is the share of wins against the random opponent, with a draw as half a win; for Kuhn poker minus nash_conv.
    """

    def __init__(self, problems: Sequence[Problem]) -> None:
        self._matches = [p for p in problems if p.tags[0] in SEATS]
        self._probes = [p for p in problems if p.tags[0] == PROBE]
        self._opponents = tuple(dict.fromkeys(p.tags[1] for p in self._matches))

    @property
    def shown(self) -> tuple[str, ...]:
        kuhn_only = ("exploitability",) if self._probes else ()
        return (*(f"win_vs_{o}" for o in self._opponents), *kuhn_only, "illegal")

    def requests(self, bank: None) -> list[PlayRequest]:
        asked = [(self._matches, _MATCHES), *([(self._probes, _PROBES)] if self._probes else [])]
        return [
            PlayRequest(
                address=("evaluation",),
                problems=tuple(problems),
                attempts=dict.fromkeys(SEATS, attempts),
                temperatures=dict.fromkeys(SEATS, 1.0),
            )
            for problems, attempts in asked
        ]

    async def scores(self, played: Sequence[Sequence[Episode]], bank: None) -> Scores:
        """See Evaluator."""
        opponent_of = {p.id: p.tags[1] for p in self._matches}
        by_opponent: dict[str, list[Trajectory]] = {opponent: [] for opponent in self._opponents}
        for episode in played[0]:
            by_opponent[opponent_of[episode.problem_id]] += episode.trajectories
        values = {
            f"{outcome}_vs_{opponent}": mean([t.components[outcome] for t in trajectories])
            for opponent, trajectories in by_opponent.items()
            for outcome in ("win", "draw", "loss", "payoff")
        }
        values["illegal"] = mean([t.components["illegal"] for ts in by_opponent.values() for t in ts])
        if not self._probes:
            return scores_of(values, {"win_vs_random": 1.0, "draw_vs_random": 0.5})
        if (policies := self._policies(played[1])) is not None:
            nash_conv = kuhn.nash_conv(policies)
            values |= {"nash_conv": nash_conv, "exploitability": nash_conv / 2}
        return scores_of(values, {"nash_conv": -1.0})

    def _policies(self, probed: Sequence[Episode]) -> dict[str, float] | None:
        """Returns information set -> share of the sampled moves that bet; None if one of them was not played."""
        set_of = {p.id: p.tags[1] for p in self._probes}
        bets = {set_of[e.problem_id]: mean([t.components["bet"] for t in e.trajectories]) for e in probed}
        shares = {information_set: share for information_set, share in bets.items() if share is not None}
        return shares if len(shares) == len(self._probes) else None
