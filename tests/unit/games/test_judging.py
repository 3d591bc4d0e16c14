"""What a sandbox's verdicts say for the record."""

import asyncio
from dataclasses import replace

import pytest

from sparring.core.episode import OUTCOME_CHARACTERS, Outcome
from sparring.core.verdict import OutputTest, Status, Verdict
from sparring.games.judging import outcomes_of
from sparring.games.multistage.game import MultistageGame
from sparring.games.multistage.rules import MultistageRules
from sparring.games.programs.code_execution import CodeExecutionRules
from sparring.games.programs.code_golf import CodeGolfRules
from sparring.games.programs.game import SolverGame
from sparring.games.programs.unit_tests import UnitTestsRules
from tests.playing import Breaking, by_player, play, player, reader, with_tests


def test_each_test_is_named_with_its_verdict():
    tests = ["assert f(1) == 2", OutputTest(stdin="1 2\n", stdout="3\n")]
    verdicts = [
        Verdict(status=Status.PASSED),
        Verdict(status=Status.RUNTIME_ERROR, error="ZeroDivisionError"),
    ]
    assert outcomes_of(tests, verdicts) == (
        Outcome(test="assert f(1) == 2", owner="problem", status="PASSED"),
        Outcome(
            test="stdin '1 2\\n' prints '3\\n'",
            owner="problem",
            status="RUNTIME_ERROR",
            error="ZeroDivisionError",
        ),
    )


def test_a_whole_program_is_told_apart_by_what_it_said_last(sandbox):
    tests = [OutputTest(stdout="1\n"), OutputTest(stdout=None)]
    programs = {"print('a')\nprint('b\\n')": "b", "import sys\nsys.exit('no such thing')": "no such thing"}
    for program, said in programs.items():
        verdicts = asyncio.run(sandbox.judge(program, tests))
        error = outcomes_of(tests, verdicts)[0].error
        assert error == f"{verdicts[0].error}: {said}" and verdicts[0].error


def test_texts_are_cut_off():
    most = OUTCOME_CHARACTERS
    outcome = Outcome(test="x" * 10_000, status="PASSED", error="y" * most["error"])
    assert outcome.test == "x" * most["test"] + "…"
    assert outcome.error == "y" * most["error"]


@pytest.mark.parametrize(
    "game",
    [
        SolverGame(UnitTestsRules()),
        SolverGame(CodeExecutionRules()),
        SolverGame(CodeGolfRules()),
        MultistageGame(MultistageRules(stages=0)),
    ],
)
def test_programs_are_judged_behind_the_problems_preamble(table, sandbox, game):
    """And the record shows them without it."""
    problem = replace(
        with_tests(table.problem, "assert f(1) == 2"),
        preamble="one = 1",
        reference_solution="def f(n): return n + one",
    )
    judges = Breaking(sandbox, on=set())
    program = "def f(n): return one + n"
    seats = [player("generator", lambda *_: program), player("discriminator", lambda *_: "assert f(3) == 4")]
    episode = play(game, problem, seats if isinstance(game, MultistageGame) else seats[:1], judges)
    assert judges.jobs and all("one = 1" in source for source, *_ in judges.jobs)
    (attempt,) = by_player(episode, "generator")
    assert attempt.artifact == program
    assert {outcome.status for outcome in attempt.outcomes} == {"PASSED"}
    assert attempt.components.get("bytes", len(program)) == len(program)


@pytest.mark.parametrize(
    "also",
    ["(__import__('os').getpid() or True)", "f.__code__.co_nlocals == 1", "helper(2)", "print(1) is None"],
)
def test_a_players_test_is_calls_of_the_entry_point_and_comparisons(table, sandbox, also):
    """Code could remember its runs, and fail every right program; or judge the program's style, or its helpers."""
    test = f"assert f(2) == 4 and {also}"
    problem = replace(
        table.problem, reference_solution="def helper(n): return n\ndef f(n): return helper(n) * 2"
    )
    players = [
        player("generator", lambda *_: "def f(x):\n    y = x + x\n    return y"),
        reader("discriminator", [test, f"{test}\nassert f(3) == 6"]),
    ]
    episode = play(MultistageGame(MultistageRules(stages=0, test_format="strict")), problem, players, sandbox)
    none, one = by_player(episode, "discriminator")
    assert (none.components["valid"], one.components["valid"]) == (0, 1)
