"""A match of rock-paper-scissors: both players answer at once, and their rewards follow from payoffs.py."""

import asyncio
from collections.abc import Mapping, Sequence

from sparring.core.episode import Episode, Trajectory
from sparring.core.interfaces import Message, Player, PromptFormat, Sandbox
from sparring.core.problem import Problem
from sparring.games.parsing import read_move
from sparring.games.rps.payoffs import EDGE, MOVES, payoff
from sparring.games.rps.rules import RpsRules
from sparring.games.rules import SEATS
from sparring.games.turns import answer_all

_FULL = (
    "Rock-paper-scissors against one opponent; both answer at once. Rock beats scissors, scissors beat paper, paper beats "
    "rock. A win by rock pays {edge:g}, other wins pay 1; the loser pays what the winner gets. Answer with one word only: "
    "rock, paper or scissors."
)


ILLEGAL = -3.0
"""Reward of an answer that is no move, below the worst legal result; the other player then earns nothing."""


class RpsGame:
    def __init__(self, rules: RpsRules) -> None:
        self.rules = rules

    async def play(
        self, problem: Problem, players: Mapping[str, Player], sandbox: Sandbox, memory: Sequence[str] = ()
    ) -> Episode:
        """Plays attempt i of one player against attempt i of the other. Neither the sandbox nor memory is used."""
        asked = [answer_all(players[seat], self.message()) for seat in SEATS]
        firsts, seconds = await asyncio.gather(*asked)
        for first, second in zip(firsts, seconds, strict=True):
            self._pay(first, second)
            self._pay(second, first)
        return Episode(problem_id=problem.id, trajectories=[*firsts, *seconds])

    def _pay(self, mine: Trajectory, other: Trajectory) -> None:
        move, against = (read_move(answer.artifact) for answer in (mine, other))
        won = payoff(move, against) if {move, against} <= {*MOVES} else None
        mine.reward = ILLEGAL if move not in MOVES else won or 0.0
        mine.components = {
            "win": float(won is not None and won > 0),
            "draw": float(won == 0),
            "loss": float(move not in MOVES or (won is not None and won < 0)),
            "illegal": float(move not in MOVES),
            **{name: float(move == name) for name in MOVES},
        }

    def message(self) -> Message:
        return Message(brief="rps", full=_FULL.format(edge=EDGE))

    def longest(self, problem: Problem, player: str, style: PromptFormat, max_tokens: int) -> int:
        return len(style.say((), self.message())) + max_tokens
