"""The prediction game by hand: who earns what, and what an author may not do."""

import pytest

from sparring.core.verdict import Limits
from sparring.games.prediction.game import _OTHER_HEAP, OutputPredictionGame
from sparring.games.prediction.rules import OutputPredictionRules, foul
from tests.playing import Breaking, Letters, a_problem, by_player, play, player, reader

TOPIC = a_problem(id="sums", description="sums", function_signature="", baseline_tests=())
QUICK = Limits(cpu_s=0.3, wall_s=6.0, memory_mb=128, output_kb=16)


def game(**rules) -> OutputPredictionGame:
    return OutputPredictionGame(OutputPredictionRules(sandbox_limits=QUICK, **rules))


# ---------------------------------------------------------------------- rewards
def test_zero_sum_over_each_program(sandbox):
    authors = ["print(1 + 1)", "print('a b')", "print(3)"]
    predictions = ["2", "3", " a b\n", "a b", "4", "three"]  # two of each program, in order
    players = [reader("author", authors), reader("opponent", predictions, attempts=2, seed=2)]
    episode = play(game(), TOPIC, players, sandbox)
    assert [t.reward for t in by_player(episode, "author")] == [0.0, -1.0, 1.0]
    assert [t.components["stumped"] for t in by_player(episode, "author")] == [0.5, 0.0, 1.0]
    opponents = by_player(episode, "opponent")
    assert [t.reward for t in opponents] == [1.0, -1.0, 1.0, 1.0, -1.0, -1.0]
    assert [t.group for t in opponents] == ["0", "0", "1", "1", "2", "2"]
    assert [t.attempt for t in opponents] == list(range(6))
    assert [len(group) for group in episode.groups("opponent")] == [2, 2, 2]
    for author, group in zip(by_player(episode, "author"), episode.groups("opponent"), strict=True):
        assert author.reward + sum(t.reward for t in group) / len(group) == 0.0
        assert author.components["valid"] == 1.0 and author.components["lines"] == 1.0


@pytest.mark.parametrize(
    ("printed", "predicted", "right"),
    [
        ("12", "12", True),
        ("12", "  12 \n", True),
        (" 12 ", "12", True),
        ("12", "12.0", False),
        ("12", "'12'", False),
        ("12", "", False),
        ("1 2", "1  2", False),
        ("Yes", "yes", False),
        ("12", "```\n12\n```", True),
        ("12", "```\n13\n```", False),
        ("12", "12\n12", False),
        ("12", "It prints 12", False),
        # as chat models write it
        ("1", "`1`", True),
        ("1", "<think>\n2?\n</think>\n\n1", True),
        ("1", "`", False),
        ("1", "`1", False),
    ],
)
def test_a_prediction_is_the_line_itself(sandbox, printed, predicted, right):
    players = [reader("author", [f"print({printed!r})"]), reader("opponent", [predicted], seed=2)]
    episode = play(game(), TOPIC, players, sandbox)
    assert [t.reward for t in episode.trajectories] == ([-1.0, 1.0] if right else [1.0, -1.0])


def test_the_opponent_sees_the_program_and_nothing_else(sandbox):
    seen = []

    def says(prompt, sampling):
        seen.append(prompt)
        return "5"

    program = "x = 2\nprint(x + 3)"
    texts = [f"Secretly it prints 5.\n```python\n{program}\n```"]
    episode = play(game(), TOPIC, [reader("author", texts), player("opponent", says)], sandbox)
    assert seen == [f"{program}\n>"]
    full = player("opponent", says, format=Letters(full=True))
    play(game(), TOPIC, [reader("author", texts), full], sandbox)
    assert program in seen[1] and "Secretly" not in seen[1]
    assert episode.trajectories[0].artifact == f"{program}\n"


def test_programs_of_the_past_are_predicted_and_earn_nobody_anything(sandbox):
    players = [reader("author", ["print(1)"]), reader("opponent", ["1", "1", "2", "3"], attempts=1, seed=2)]
    memory = ["print(2)", "import time", "print(3)"]
    episode = play(game(), TOPIC, players, sandbox, memory)
    assert [t.player for t in episode.trajectories] == ["author", "opponent", "opponent", "opponent"]
    assert [(t.group, t.attempt, t.reward) for t in by_player(episode, "opponent")] == [
        ("0", 0, 1.0),
        ("1", 1, -1.0),
        ("3", 3, 1.0),
    ]


def test_nobody_is_asked(sandbox):
    """As for the evaluation's bank: the programs are checked, but there is no reward."""
    players = [reader("author", ["print(1)", "print(", ""]), reader("opponent", [], seed=2)]
    episode = play(game(), TOPIC, players, sandbox)
    assert [(t.reward, t.components["valid"]) for t in episode.trajectories] == [
        (None, 1.0),
        (-1.0, 0.0),
        (-1.0, 0.0),
    ]


# ---------------------------------------------------------------------- what is not put to the opponent
FOULS = {
    "": "size",
    "   \n": "size",
    "print(1)  # " + "x" * 1000: "size",
    "print(1)  # " + "é" * 500: "size",  # a character may take as many tokens as it has bytes
    "print(": "syntax",
    "def f(n) return": "syntax",
    "import time\nprint(time.time())": "banned",
    "import math, random\nprint(random.random())": "banned",
    "from time import time\nprint(time())": "banned",
    "from . import math\nprint(1)": "banned",
    "import math.random\nprint(1)": "banned",
    "print(hash('a'))": "banned",
    "print(id(1))": "banned",
    "print(input())": "banned",
    "print(open('/etc/hostname').read())": "banned",
    "print(eval('1'))": "banned",
    "print(__import__('time').time())": "banned",
    "print(__builtins__)": "banned",
    "print((1).__hash__())": "banned",
    "print(object())": "banned",
    # the same by detours
    "m = getattr(print, '__self__')": "banned",
    "e = [eval][0]\nprint(e('1'))": "banned",
    "from math import __loader__ as l\nprint(l.load_module('time').time() // 1000)": "banned",
    "match print:\n    case int(__self__=b):\n        print(b)": "banned",
    "T = type(print)\nmatch print:\n    case T(__self__=b):\n        print(b)": "banned",
    "g = (x for x in ())\nprint(g.gi_frame.f_builtins['__import__']('time').time() // 1000)": "banned",
    "async def f(): pass\nprint(f().cr_frame)": "banned",
    "print(int.mro()[1]())": "banned",
    "print('{0.__self__.__loader__}'.format(print))": "banned",
    "print('{a.__self__}'.format_map({'a': print}))": "banned",
    "f = str.format\nprint(f('{0.__self__}', print))": "banned",
    "del __builtins__": "banned",
    "@eval\ndef f(): pass": "banned",
    "print([hash for hash in 'a'])": "banned",
    "print(f'{id(1)}')": "banned",
    "print(str('x'.upper)[-4:])": "banned",  # a constant's address is the same in every process
    "f = (5).bit_length\nprint(f'{f}')": "banned",
    "print(" + "+".join("1" * 450) + ")": "syntax",  # nested more deeply than Python goes
    "str = 'x'\nprint(str.upper)": "banned",
    "\uff53\uff54\uff52 = 'x'\nprint(str.upper)": "banned",  # the same name to Python
    "match 'x':\n    case str(upper=f): print(f)": "banned",
}


@pytest.mark.parametrize(("program", "broken"), FOULS.items())
def test_a_foul_is_seen_in_the_text_and_nothing_is_run(program, broken):
    assert foul(program, OutputPredictionRules()) == broken
    nothing_runs = Breaking()
    players = [reader("author", [program]), reader("opponent", ["1"], seed=2)]
    (attempt,) = play(game(), TOPIC, players, nothing_runs).trajectories
    assert attempt.reward == -1 and not nothing_runs.jobs
    assert attempt.components == {"valid": 0.0, f"foul_{broken}": 1.0}


@pytest.mark.parametrize(
    "program",
    [
        "import math\nprint(math.gcd(12, 18))",
        "from math import sqrt, floor as down\nprint(down(sqrt(17)))",
        "class A:\n    def __init__(self): self.x = 1\nprint(A().x)",
        "print(format(255, 'x'), f'{3:>4}', '%d' % 7)",
        "match (1, 2):\n    case (a, b):\n        print(a + b)",
        "print(sorted('hello', key=str.upper))",
        "print(1)  # " + "x" * 988,
    ],
)
def test_ordinary_programs_break_no_rule(program):
    assert foul(program, OutputPredictionRules()) is None


def test_what_cannot_be_read_is_no_program():
    for program in ("print('\0')", "x = '\ud800'" + "(" * 500, "(" * 990):
        assert foul(program, OutputPredictionRules()) == "syntax"


RUNS = {
    "1 / 0": "fails",
    "print(1)\n1 / 0": "fails",
    "while True: pass": "fails",
    "print('x' * 50_000)": "fails",  # more than the sandbox takes
    "print(lambda: 0)": "not_deterministic",  # an address
    "print(repr(lambda: 0)[-4:])": "not_deterministic",  # the part of it that does not differ between processes
    "class A: pass\nprint(str(A())[-4:])": "not_deterministic",
    "def f(): yield\nprint(f'{f()!r}'[-3:])": "not_deterministic",
    "print(str([].append)[-4:])": "not_deterministic",
    "print(list({str(n) for n in range(9)}))": "not_deterministic",  # hashes
    "x = 1": "output",
    "print()": "output",
    "print(' ' * 5)": "output",
    "print(1)\nprint(2)": "output",
    "print('\\n1')": "output",
    "print('1\\r2')": "output",
    "print('1\\x0b2')": "output",
    "print('1\\u20282')": "output",
    "print('x' * 41)": "output",
}


def test_a_foul_shows_when_it_is_run(sandbox):
    players = [reader("author", list(RUNS)), reader("opponent", [], seed=2)]
    episode = play(game(), TOPIC, players, sandbox)
    assert {t.artifact: [k for k in t.components if k != "valid"] for t in episode.trajectories} == {
        program: [f"foul_{broken}"] for program, broken in RUNS.items()
    }
    assert all(t.reward == -1.0 and t.components["valid"] == 0.0 for t in episode.trajectories)


def test_what_just_fits_is_put_to_the_opponent(sandbox):
    programs = ["print('x' * 40)", "print('1\\n\\n')", "print('1', end='')", "print('a\\tb')"]
    said = ["x" * 40, "1", "1", "a\tb"]
    players = [reader("author", programs), reader("opponent", said, attempts=1, seed=2)]
    episode = play(game(), TOPIC, players, sandbox)
    assert [t.reward for t in by_player(episode, "opponent")] == [1.0] * 4


class _WithEnd(Letters):
    """A format of a model that has a special token, <end>."""

    def text(self, completion_tokens, begins=""):
        return super().text(completion_tokens, begins).replace("<end>", "")


@pytest.mark.parametrize(
    "program",
    [
        "print('```')",
        "print('```x```')",
        "print('<think>')",
        "print('a<think>b</think>c')",
        "print('a<end>')",
        "print('a<en' + 'd>')",
        "print(len('<end>'))",
        "print('x' * 21)",
    ],
)
def test_what_no_answer_can_be_is_a_foul(sandbox, program):
    opponent = player("opponent", lambda prompt, sampling: "x", format=_WithEnd(), max_tokens=20)
    episode = play(game(), TOPIC, [reader("author", [f"```python\n{program}\n```"]), opponent], sandbox)
    (author,) = episode.trajectories
    assert author.reward == -1.0 and author.components["foul_output"] == 1.0


# ---------------------------------------------------------------------- the sandbox, the seats, the length
@pytest.mark.parametrize("programs", [{"print(1)"}, {_OTHER_HEAP + "print(1)"}])
def test_a_sandbox_that_breaks_in_either_run_gives_nobody_a_reward(sandbox, programs):
    broken = Breaking(sandbox, on=programs)
    players = [reader("author", ["print(1)", "print(2)"]), reader("opponent", ["1", "2"], attempts=1, seed=2)]
    episode = play(game(), TOPIC, players, broken, memory=["print(1)"])
    assert [(t.player, t.reward) for t in episode.trajectories] == [
        ("author", None),
        ("author", -1.0),
        ("opponent", 1.0),
    ]
    assert episode.trajectories[0].components == {"sandbox_failure": 1.0}


def test_seats():
    assert OutputPredictionRules().seats == {"author": "generator", "opponent": "discriminator"}
    assert set(OutputPredictionRules(self_play=True).seats.values()) == {"generator"}


@pytest.mark.parametrize("full", [False, True])
def test_the_longest_question_holds_the_longest_program(full):
    style, rules = Letters(full=full), OutputPredictionRules(max_program_chars=300)
    played = OutputPredictionGame(rules)
    longest = played.longest(TOPIC, "opponent", style, 7)
    for program in ("x" * 300, "é" * 150):
        assert foul(program, rules) is None
        assert len(style.say((), played.question(program))) + 7 <= longest
    assert played.longest(TOPIC, "author", style, 7) == len(style.say((), played.topic(TOPIC))) + 7
