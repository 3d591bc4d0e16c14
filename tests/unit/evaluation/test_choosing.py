"""Which of several programs is taken, by tests that nobody has confirmed."""

import asyncio

import pytest

from sparring.core.interfaces import SandboxFailure
from sparring.core.verdict import Limits
from sparring.evaluation.choosing import votes
from sparring.games.multistage.game import MultistageGame
from sparring.games.multistage.rules import MultistageRules
from tests.playing import Breaking
from tests.recorded import DOUBLE

RIGHT, WRONG, OTHER = "def f(n): return n * 2", "def f(n): return n + 2", "def f(n): return n ** 3"
ENDS = "def f(n): raise ValueError('always the same')"


def counted(sandbox, programs, tests) -> list[int]:
    return asyncio.run(votes(programs, tests, sandbox, Limits()))


@pytest.mark.parametrize(
    ("programs", "tests", "expected"),
    [
        ([WRONG, RIGHT, RIGHT], ["f(0)", "f(2)", "f(5)"], [1 + 3 + 1, 2 + 3 + 2, 2 + 3 + 2]),
        ([ENDS, ENDS, RIGHT], ["f(1)", "f(2)"], [0, 0, 2]),
        ([WRONG, RIGHT, OTHER], ["assert f(1) == 2", "assert f(3) == 6", "assert f(0) == 0"], [0, 9, 3]),
    ],
    ids=["a call counts those that agree", "a failure agrees with nobody", "an assert that holds counts all"],
)
def test_votes(sandbox, programs, tests, expected) -> None:
    assert counted(sandbox, programs, tests) == expected


def test_equal_programs_run_once_and_count_each(sandbox) -> None:
    watched = Breaking(sandbox, on=set())
    assert counted(watched, [RIGHT, RIGHT], ["f(1)"]) == [2, 2]
    assert len(watched.jobs) == 1


def test_without_tests_nobody_has_a_vote_and_nothing_runs() -> None:
    assert counted(Breaking(), [RIGHT, WRONG], []) == [0, 0]


def test_a_sandbox_that_fails_decides_nothing() -> None:
    with pytest.raises(SandboxFailure):
        counted(Breaking(), [RIGHT], ["f(1)"])


@pytest.mark.parametrize(
    ("test_format", "suite", "tests"),
    [
        ("strict", "assert f(1) == 2\nassert f(1) == 2\nno test\nassert f(2) == 4", ["assert f(1) == 2", "assert f(2) == 4"]),
        ("relabel", "assert f(1) == 7\nassert f(2) == 4", ["f(1)", "f(2)"]),
        ("input_only", "f(1)\nf( 1 )\ng(2)\nf(3)", ["f(1)", "f(3)"]),
    ],
)  # fmt: skip
def test_tests_are_taken_as_far_as_the_discriminator_was_trained_to_write_them(test_format, suite, tests):
    game = MultistageGame(MultistageRules(test_format=test_format))
    assert game.tests_of([suite, suite], DOUBLE) == tests
