"""Self-play in board games (SPIRAL, Liu et al. 2025, arXiv:2506.24119): one policy plays both sides of a zero-sum game.

An illegal move loses at once. The opponent's reward for it is a separate config key: if that reward is positive, a policy
learns to wait for illegal moves of the other side. The held-out "problems" are matches against fixed opponents and, for
Kuhn poker, its information sets.
"""

import asyncio
from collections.abc import Mapping, Sequence
from random import Random

from sparring.core.episode import Episode, Trajectory, Turn
from sparring.core.interfaces import Message, Player, PromptFormat, Sandbox
from sparring.core.problem import Problem
from sparring.core.seeding import derive_seed
from sparring.games.boards import kuhn
from sparring.games.boards.positions import KuhnPoker, State, TicTacToe, bot_move, start
from sparring.games.boards.rules import ILLEGAL, PROBE, BoardRules
from sparring.games.parsing import read_move
from sparring.games.rules import SEATS
from sparring.games.turns import take_turn


class BoardGame:
    def __init__(self, rules: BoardRules) -> None:
        self.rules = rules

    async def play(
        self, problem: Problem, players: Mapping[str, Player], sandbox: Sandbox, memory: Sequence[str] = ()
    ) -> Episode:
        """Plays one match per attempt. Neither the sandbox nor memory is used."""
        if problem.tags[:1] == (PROBE,):
            return Episode(problem_id=problem.id, trajectories=await self._probe(problem, players))
        seated: dict[str, Player | str] = dict(players)
        if problem.tags:
            seat, opponent = problem.tags
            seated = {name: players[name] if name == seat else opponent for name in SEATS}
        attempts = max(player.attempts for player in players.values())
        matches = await asyncio.gather(*(self._match(problem, seated, i) for i in range(attempts)))
        return Episode(problem_id=problem.id, trajectories=[t for match in matches for t in match])

    def longest(self, problem: Problem, player: str, style: PromptFormat, max_tokens: int) -> int:
        states = (
            [TicTacToe()] * 5
            if self.rules.kind == "tictactoe"
            else [KuhnPoker(("Q", "Q"), history) for history in ("", "pb")]
        )
        tokens: list[int] = []
        for state in states:
            tokens = [*style.say(tokens, _message(state)), *[0] * max_tokens]
        return len(tokens)

    async def _match(
        self, problem: Problem, seated: Mapping[str, Player | str], attempt: int
    ) -> list[Trajectory]:
        """Plays one match. Returns the trajectories of the players that made a move; bots have none."""
        # The deal is the same for both sides. Bots have no seed.
        seed = min(seat.seed for seat in seated.values() if isinstance(seat, Player))
        rng = Random(derive_seed(seed, "match", attempt))
        state = start(self.rules.kind, rng)
        turns: dict[str, list[Turn]] = {seat: [] for seat in SEATS}
        offender = None
        while state.payoff_first is None and offender is None:
            name = SEATS[state.to_move]
            seat = seated[name]
            if isinstance(seat, str):
                state = state.after(bot_move(seat, state, rng))
                continue
            turn = await _move(seat, state, turns[name], attempt)
            turns[name].append(turn)
            move = read_move(turn.text)
            if move in state.legal_moves:
                state = state.after(move)
            else:
                offender = name
        return [
            self._trajectory(name, attempt, turns[name], state, offender)
            for name in SEATS
            if turns[name]  # a bot has none, nor has a player that made no move
        ]

    def _trajectory(
        self, name: str, attempt: int, turns: list[Turn], state: State, offender: str | None
    ) -> Trajectory:
        payoff = state.payoff_first
        if offender is not None:
            reward = ILLEGAL[self.rules.kind] if name == offender else 0.0
            result = "loss" if name == offender else "walkover"
        else:
            assert payoff is not None
            reward = payoff if name == "first" else -payoff
            result = "win" if reward > 0 else "loss" if reward < 0 else "draw"
        parts = {outcome: float(outcome == result) for outcome in ("win", "draw", "loss")}
        return Trajectory(
            player=name,
            attempt=attempt,
            turns=turns,
            reward=reward,
            components=parts | {"illegal": float(name == offender), "payoff": reward},
            artifact=" ".join(turn.text.strip() for turn in turns),
        )

    async def _probe(self, problem: Problem, players: Mapping[str, Player]) -> list[Trajectory]:
        """Samples one move per attempt at an information set. The trajectories' components hold the moves."""
        name = problem.tags[1]
        card, history = name[0], name[1:]
        player = players[SEATS[kuhn.to_move(history)]]
        state = KuhnPoker((card, card), history)  # only the mover's own card is shown
        earlier = [KuhnPoker((card, card), history[:i]) for i in range(len(history) % 2, len(history), 2)]
        tokens: list[int] = []
        for before in earlier:  # the player's own moves that led to this information set
            said = {"p": "pass", "b": "bet"}[history[len(before.history)]]
            tokens = [*player.format.say(tokens, _message(before)), *player.format.completion(said)]
        tokens = player.format.say(tokens, _message(state))
        turns = await asyncio.gather(*(take_turn(player, tokens, i, 0) for i in range(player.attempts)))
        return [
            Trajectory(
                player=player.name,
                attempt=i,
                turns=[turn],
                components={move: float(read_move(turn.text) == move) for move in ("pass", "bet")},
                artifact=turn.text,
            )
            for i, turn in enumerate(turns)
        ]


def _message(state: State) -> Message:
    return Message(brief=state.brief(), full=state.full())


async def _move(player: Player, state: State, turns: Sequence[Turn], attempt: int) -> Turn:
    said = [*turns[-1].prompt_tokens, *turns[-1].completion.tokens] if turns else []
    return await take_turn(player, player.format.say(said, _message(state)), attempt, len(turns))
