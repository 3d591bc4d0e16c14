"""Runs as the games and the record leave them, without a driver: what reads runs is tested on these."""

from pathlib import Path
from types import SimpleNamespace

from core.episode import Episode
from core.problem import Problem
from core.seeding import derive_seed
from games import GameRules
from games.boards.game import BoardGame
from games.boards.rules import TicTacToeRules
from games.multistage.rules import MultistageRules
from games.rules import matches
from tests.playing import play, player, reader
from tracking.episodes import episode_rows
from tracking.run_record import RunRecord

DOUBLE = Problem(
    id="double",
    description="Return n doubled.",
    function_signature="def f(n: int) -> int:",
    baseline_tests=("assert f(0) == 0", "assert f(2) == 4"),
    reference_solution="def f(n): return n * 2",
)


PROGRAMS = ["def f(n): return n + n", "def f(n): return 7 if n == 3 else n * 2", "def f(n): return 1 / 0"]
"""At DOUBLE: right, wrong for 3, one that fails."""


LETTERS = SimpleNamespace(decode=lambda tokens: "".join(map(chr, tokens)))
"""The tokenizer of tests.playing.Letters."""


def record(run: Path, rules: GameRules, *steps: list[Episode]) -> None:
    """A run in which these episodes were played, step by step from 1."""
    kept = RunRecord(run)
    kept.start({"game": rules.model_dump(mode="json")})
    kept.add({"step": 0, "held_out": {"generator_pass_rate": 0.25}})
    for step, episodes in enumerate(steps, 1):
        tokenizers = dict.fromkeys(rules.seats.values(), LETTERS)
        kept.add_episodes(episode_rows(step, 2, "alternating", episodes, rules.seats, tokenizers))
        metrics = {f"{name}_reward": 0.5 for name in rules.seats}
        kept.add({"step": step, "stage": 2, "phase": "alternating", "validity": 0.75} | metrics)


def match() -> Episode:
    """Of tic-tac-toe; `second` ends it by a move that is not allowed."""
    moves = {"first": ["1", "2", "3"], "second": ["4", "4"]}
    seats = [player(name, lambda *_, name=name: moves[name].pop(0)) for name in moves]
    return play(BoardGame(TicTacToeRules()), matches("tictactoe", 1)[0], seats)


def spar(rules: MultistageRules, programs: list[str], suites: list[str], sandbox) -> Episode:
    last = {derive_seed(1, attempt, 5): program for attempt, program in enumerate(programs)}
    generator = player(
        "generator",
        lambda _, sampling: last.get(sampling.seed or 0, "a thought"),
        attempts=len(programs),
        seed=1,
    )
    return play(rules.game(), DOUBLE, [generator, reader("discriminator", suites, seed=2)], sandbox)
