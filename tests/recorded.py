"""Makes the record of runs without a driver; the code that reads runs is tested on these."""

import json
from collections.abc import Iterable, Mapping
from pathlib import Path

import yaml

import sparring.problems
from actors.rows import episode_rows
from sparring.core.episode import Episode
from sparring.core.problem import Problem
from sparring.core.seeding import derive_seed
from sparring.games import GameRules
from sparring.games.boards.game import BoardGame
from sparring.games.boards.rules import TicTacToeRules
from sparring.games.multistage.rules import MultistageRules
from sparring.games.rules import matches
from sparring.tracking.run_record import RunRecord
from tests.playing import letters, play, player, reader

EXAMPLES = Path(sparring.problems.__file__).with_name("example_problems.json")
DOUBLE = Problem(
    id="double",
    description="Return n doubled.",
    function_signature="def f(n: int) -> int:",
    baseline_tests=("assert f(0) == 0", "assert f(2) == 4"),
    reference_solution="def f(n): return n * 2",
)


PROGRAMS = ["def f(n): return n + n", "def f(n): return 7 if n == 3 else n * 2", "def f(n): return 1 / 0"]
"""Programs for DOUBLE: a right one, one that is wrong for 3, and one that raises."""


def lines(step: int, episodes: Iterable[Episode], seats: Mapping[str, str], stage: int = 2) -> list[bytes]:
    """Returns the lines that the run's record is given for the episodes."""
    begins = {"step": step, "stage": stage, "phase": "alternating"}
    decode = dict.fromkeys(seats.values(), letters)
    return [episode_rows(begins, episode, seats, decode) for episode in episodes]


def record(run: Path, rules: GameRules, *steps: list[Episode]) -> None:
    """Writes the record of a run in which these episodes were played, step by step from 1."""
    kept = RunRecord(run)
    kept.start({"game": rules.model_dump(mode="json")})
    kept.add({"step": 0, "held_out": {"generator_pass_rate": 0.25}})
    for step, episodes in enumerate(steps, 1):
        kept.add_episodes(lines(step, episodes, rules.seats))
        metrics = {f"{name}_reward": 0.5 for name in rules.seats}
        kept.add({"step": step, "stage": 2, "phase": "alternating", "validity": 0.75} | metrics)


def record_with_problems(
    run: Path, rules: GameRules, *steps: list[Episode], problem: Problem = DOUBLE
) -> Path:
    """Writes the record of a run on a file with one problem, with a config from which the run can be read again. Returns
    the run's directory."""
    record(run, rules, *steps)
    problems = run / "problems.json"
    entry = {
        name: getattr(problem, name) for name in ("id", "description", "function_signature", "baseline_tests")
    }
    entry |= {"reference_solution": problem.reference_solution, "difficulty": "easy", "tags": []}
    entry["hidden_tests"] = ["assert f(3) == 6"] if problem is DOUBLE else []
    problems.write_text(json.dumps({"problems": [entry]}))
    of_problems = {"file": str(problems), "held_out": {"file": str(EXAMPLES)}}
    config = {"game": rules.model_dump(mode="json"), "problems": of_problems}
    (run / "config.yaml").write_text(yaml.safe_dump(config))
    return run


def match() -> Episode:
    """Plays a match of tic-tac-toe; `second` ends it by an illegal move."""
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
