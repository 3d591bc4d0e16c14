"""One recorded episode of each game, replayed line by line: how it goes changes deliberately or not at all.

SPARRING_UPDATE_GOLDEN=1 writes it anew.
"""

import os
from collections.abc import Sequence
from pathlib import Path

import pytest

from sparring.core.episode import Episode
from sparring.core.verdict import Limits, OutputTest, Status
from sparring.games.boards.game import BoardGame
from sparring.games.boards.rules import KuhnRules, TicTacToeRules, evaluation_matches
from sparring.games.prediction.game import OutputPredictionGame
from sparring.games.prediction.rules import OutputPredictionRules
from sparring.games.programs.code_execution import CodeExecutionRules
from sparring.games.programs.code_golf import CodeGolfRules
from sparring.games.programs.game import SolverGame
from sparring.games.programs.unit_tests import UnitTestsRules
from sparring.games.rps.game import RpsGame
from sparring.games.rps.rules import RpsRules
from sparring.games.rules import matches
from tests.playing import a_problem, lines_of, play, player, reader

GOLDEN = Path(__file__).parents[2] / "golden"
LIMITS = Limits(cpu_s=0.5, wall_s=6.0, memory_mb=128, output_kb=16)

PROGRAMS = [
    "```python\ndef f(n): return n + n\n```",
    "def f(n): return 7 if n == 3 else n * 2",
    "def f(n): return n * 2 if n >= 0 else 0",
    "def f(n) return",
]
SUITES = [
    "assert f(1) == 2\nassert f(-1) == -2\nassert f( 1 ) == 2\nassert f(2) == 5",
    "# edge cases\nassert f(3) == 6\nassert f(x) == 2\nassert f('a') == 'aa'\nassert f(10**9) == 2",
    "let me think",
]


def check(kind: str, episodes: Sequence[Episode]) -> None:
    """Byte for byte."""
    record = GOLDEN / f"{kind}_episode.jsonl"
    replayed = [line for episode in episodes for line in lines_of(episode)]
    if os.environ.get("SPARRING_UPDATE_GOLDEN") == "1":
        record.write_text("\n".join(replayed) + "\n")
    recorded = record.read_text().splitlines()
    for number, (was, now) in enumerate(zip(recorded, replayed, strict=True), 1):
        assert now == was, f"line {number} of {record.name}"


def test_multistage(table):
    table.sandbox.statuses = {(PROGRAMS[1], "assert f(-1) == -2"): Status.TIME_LIMIT}
    check("multistage", [table.play(PROGRAMS, SUITES)])


def test_code_execution(sandbox):
    texts = ["```python\nprint(1)\n```", "x = 1", "def f(n) return", "1 / 0", "def f(n): return n + n"]
    plain = SolverGame(CodeExecutionRules(sandbox_limits=LIMITS))
    gated = SolverGame(CodeExecutionRules(sandbox_limits=LIMITS, gate_on_tests=True))
    check(
        "code_execution",
        [play(g, a_problem(), [reader("generator", texts)], sandbox) for g in (plain, gated)],
    )


def test_output_prediction(sandbox):
    programs = [
        "```python\nx = 2\nprint(x * 3)\n```",
        "import time\nprint(1)",
        "print(1 / 0)",
        "print('a b')",
    ]
    predictions = {(0, 0): "6", (0, 1): "5", (3, 0): "a b\n", (3, 1): " a b", (4, 0): "9", (4, 1): "10"}
    said = [predictions.get((i // 2, i % 2), "") for i in range(10)]
    players = [reader("author", programs), reader("opponent", said, attempts=2, seed=2)]
    game = OutputPredictionGame(OutputPredictionRules(sandbox_limits=LIMITS))
    check(
        "output_prediction", [play(game, a_problem(description="products"), players, sandbox, ["print(9)"])]
    )


def test_unit_tests(sandbox):
    adding = a_problem(
        id="add",
        description="Print the sum of two numbers.",
        function_signature="",
        baseline_tests=(OutputTest(stdin="1 2", stdout="3\n"), OutputTest(stdin="2 2", stdout="4")),
    )
    programs = ["a, b = map(int, input().split())\nprint(a + b)", "print(3)", "print(", "print(1/0)"]
    direct = SolverGame(UnitTestsRules(sandbox_limits=LIMITS))
    reasoned = SolverGame(UnitTestsRules(sandbox_limits=LIMITS, answer_format="reasoning"))
    asked = [f"<reasoning>easy</reasoning>\n<answer>{p}</answer>" for p in programs[:2]] + [programs[0]]
    check(
        "unit_tests",
        [
            play(direct, adding, [reader("generator", programs)], sandbox),
            play(reasoned, adding, [reader("generator", asked)], sandbox),
        ],
    )


def test_code_golf(sandbox):
    task = a_problem(
        id="task001",
        description="[[1,2]] -> [[2,1]]",
        function_signature="def p(grid):",
        baseline_tests=("assert p([[1, 2]]) == [[2, 1]]", "assert p([[3, 0]]) == [[0, 3]]"),
    )
    texts = [
        "```python\np=lambda g:[r[::-1]for r in g]\n```",
        "p=lambda g:[[2,1]]",
        "p=lambda g:",
        "p=lambda g:g[9]",
    ]
    game = SolverGame(CodeGolfRules(sandbox_limits=LIMITS, show_best=True))
    check("code_golf", [play(game, task, [reader("generator", texts)], sandbox, ["p=lambda g:[g[0][::-1]]"])])


def test_rps():
    answers = {"first": ["rock", "Paper\n", "well"], "second": ["scissors", "paper", "rock"]}
    seats = [reader(name, texts, seed=seed) for seed, (name, texts) in enumerate(answers.items(), 1)]
    check("rps", [play(RpsGame(RpsRules()), RpsRules().own_problems(1)[0][0], seats)])


@pytest.mark.parametrize(
    ("rules", "moves"), [(TicTacToeRules(), "123456789"), (KuhnRules(), ("pass", "bet"))]
)
def test_boards(rules, moves):
    """Of oneself, of every bot on every side, and of every probe; the players say anything, in turn."""
    problems = [*matches(rules.kind, 2), *evaluation_matches(rules.kind, 1)]

    def says(prompt, sampling):
        options = [*moves, "!"] if rules.kind == "kuhn" else moves
        return options[sampling.seed % len(options)]

    def seats(number: int):
        return [
            player(name, says, attempts=3, seed=number * 2 + i) for i, name in enumerate(("first", "second"))
        ]

    check(rules.kind, [play(BoardGame(rules), p, seats(number)) for number, p in enumerate(problems)])
