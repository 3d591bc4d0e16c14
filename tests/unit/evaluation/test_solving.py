"""A problem from its text to a program, with a generator and a discriminator that say what a test has them say."""

import asyncio
from dataclasses import replace

from sparring.core.interfaces import Sampling
from sparring.core.problem import Problem
from sparring.core.verdict import Limits
from sparring.evaluation.solving import Solver, SolveResult, Tester
from sparring.evaluation.writing import PolicyWriter
from sparring.games.multistage.game import MultistageGame
from sparring.games.multistage.rules import MultistageRules
from sparring.games.programs.game import SolverGame
from sparring.games.programs.unit_tests import UnitTestsRules
from tests.playing import Breaking, Letters, player
from tests.recorded import DOUBLE

RIGHT, WRONG = "def f(n): return n * 2", "def f(n): return n + 2"
PROBLEM = replace(
    DOUBLE,
    baseline_tests=("assert f(2) == 4", "assert f(5) == 10"),
    reference_solution="",
    hidden_tests=("assert f(5) == 10", "assert f(7) == 14"),
)
CODE = MultistageGame(MultistageRules(stages=0))
ALL = MultistageGame(MultistageRules())


def writer(*texts: str, style: Letters | None = None) -> PolicyWriter:
    """Answers with one text after the other, the last one for ever; remembers its prompts."""
    left, prompts = list(texts), []

    def says(prompt: str, sampling: Sampling) -> str:
        prompts.append(prompt)
        return left.pop(0) if len(left) > 1 else left[0]

    seat = player("generator", says, format=style or Letters())
    made = PolicyWriter(policy=seat.policy, format=seat.format, max_tokens=100, seed=1)
    made.policy.prompts = prompts  # type: ignore[attr-defined]
    return made


def solver(by: PolicyWriter, sandbox=None, *, game=CODE, **more) -> Solver:
    return Solver(game=game, writer=by, temperature=1.0, sandbox=sandbox, limits=Limits(), **more)


def solved(by: Solver, problem: Problem = PROBLEM, **more) -> SolveResult:
    return asyncio.run(by.solve(problem, **more))


def test_without_a_sandbox_the_stages_are_written_and_nothing_is_run() -> None:
    heard, texts = [], ["a", "b", "c", "d", RIGHT]
    done = solved(solver(writer(*texts), game=ALL), on_turn=lambda i, turn: heard.append((i, turn.text)))
    assert [stage["text"] for stage in done.attempts[0].stages] == texts
    assert done.attempts[0].stages[2]["stage"] == "pseudocode"
    assert heard == [(0, text) for text in texts]
    assert done.solved is None and done.attempts[0].outcomes is None
    assert done.as_dict()["program"] == RIGHT and done.as_dict()["valid_python"] is True


def test_an_answer_that_is_no_python_is_marked_and_one_in_another_language_is_not() -> None:
    broken = solver(writer("t += below 2"))
    assert solved(broken).as_dict()["valid_python"] is False
    in_lua = replace(PROBLEM, language="lua", baseline_tests=(), hidden_tests=())
    assert solved(broken, in_lua).as_dict()["valid_python"] is None


def test_a_failed_attempt_is_told_what_failed_and_made_again(sandbox) -> None:
    by = writer(WRONG, RIGHT, style=Letters(full=True))
    done = solved(solver(by, sandbox, attempts=3))
    assert [tried.program for tried in done.attempts] == [WRONG, RIGHT] and done.solved
    told = by.policy.prompts[1].removeprefix(by.policy.prompts[0])  # type: ignore[attr-defined]
    assert "fails 1 of 2 tests" in told and "assert f(5) == 10" in told and "WRONG_ANSWER" in told
    assert "f(7)" not in told, "a test for evaluation alone is told to nobody"
    assert [o.owner for o in done.attempts[1].outcomes or ()] == ["problem", "problem", "hidden"]


def test_so_does_a_game_of_one_message(sandbox) -> None:
    by = writer(f"```python\n{WRONG}\n```", f"```python\n{RIGHT}\n```", style=Letters(full=True))
    done = solved(solver(by, sandbox, game=SolverGame(UnitTestsRules()), attempts=2))
    assert [tried.program.strip() for tried in done.attempts] == [WRONG, RIGHT] and done.solved


def test_the_answer_is_the_attempt_that_passes_most(sandbox) -> None:
    done = solved(solver(writer(WRONG, "def f(n): return None"), sandbox, attempts=2))
    assert done.as_dict()["program"] == WRONG and done.solved is False and len(done.attempts) == 2


def test_an_attempt_that_has_no_room_is_not_made_and_that_is_said(sandbox) -> None:
    by = writer(WRONG, RIGHT)
    needed = CODE.longest(PROBLEM, "generator", by.format, by.max_tokens)
    done = solved(solver(by, sandbox, attempts=2, room=needed))
    assert len(done.attempts) == 1 and "no room for another attempt" in done.note


def test_a_problem_that_does_not_fit_is_its_own_error() -> None:
    done = solved(solver(writer(RIGHT), room=20))
    assert not done.attempts and "there is room for 20" in done.error


def test_a_sandbox_that_fails_leaves_the_program_without_a_verdict() -> None:
    done = solved(solver(writer(RIGHT), Breaking()))
    assert done.error == "broken" and done.solved is None and done.as_dict()["program"] == RIGHT


def test_a_discriminators_tests_choose_and_the_rest_is_kept(sandbox) -> None:
    game = MultistageGame(MultistageRules(test_format="input_only"))
    tester = Tester(writer=writer("f(0)\nf(5)\nf(3)"), game=game, suites=2)
    done = solved(solver(writer(WRONG, RIGHT, RIGHT), sandbox, best_of=3, tester=tester))
    assert done.as_dict()["program"] == RIGHT and done.tests == ["f(0)", "f(5)", "f(3)"]
    assert done.attempts[0].votes == 6 and sorted(t.votes or 0 for t in done.others) == [3, 6]


def test_what_a_discriminator_cannot_test_is_that_problems_error(sandbox) -> None:
    suites = Tester(writer=writer("f(0)"), game=MultistageGame(MultistageRules()), suites=1, room=30)
    by = solver(writer(RIGHT), sandbox, best_of=2, tester=suites)
    assert "there is room for 30" in solved(by).error
    for nameless in ("", "f(n)"):
        assert "give a signature" in solved(by, replace(PROBLEM, function_signature=nameless)).error


def test_where_nothing_is_told_the_first_program_stands(sandbox) -> None:
    bare = replace(PROBLEM, baseline_tests=(), hidden_tests=())
    done = solved(solver(writer(WRONG), sandbox, attempts=3), bare)
    assert len(done.attempts) == 1 and done.solved is None
