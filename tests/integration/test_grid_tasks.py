"""Grid tasks in the real sandbox: every reference solves its task, and only what equals the output passes."""

import asyncio
from collections.abc import Iterator

import pytest

from lab.grid_families import families
from lab.grid_tasks import grid_problems
from sandbox_workers.jobs import SandboxUnavailable
from sandbox_workers.local import LocalSandbox
from sparring.core.interfaces import Sandbox
from sparring.core.problem import Problem
from sparring.core.verdict import Status, Verdict
from sparring.games.programs.golf_rewards import GolfRules, fault_of, golf_reward
from sparring.problems.grids import GridPair, GridTask, pair_tests, to_problem


@pytest.fixture(scope="module")
def sandbox() -> Iterator[Sandbox]:
    try:
        opened = LocalSandbox("auto")
    except SandboxUnavailable as missing:
        pytest.skip(str(missing))
    with opened:
        yield opened


def judge_all(sandbox: Sandbox, jobs: list[tuple[str, tuple[str, ...]]]) -> list[list[Verdict]]:
    async def all_of_them() -> list[list[Verdict]]:
        return await asyncio.gather(*(sandbox.judge(program, tests) for program, tests in jobs))

    return asyncio.run(all_of_them())


def all_tests(problem: Problem) -> tuple[str, ...]:
    return tuple(t for t in problem.baseline_tests + problem.hidden_tests if isinstance(t, str))


def test_references_in_every_style_pass_and_doing_nothing_does_not(sandbox: Sandbox) -> None:
    by_family = {p.tags[0]: p for p in grid_problems("held_out") + grid_problems("train")}
    problems = list(by_family.values())
    assert len(problems) == len(families())
    solutions = [
        (program, all_tests(problem))
        for problem in problems
        for program in (problem.reference_solution, *problem.other_solutions)
    ]
    verdicts = judge_all(sandbox, solutions)
    failed = [
        job[0] for job, of_job in zip(solutions, verdicts, strict=True) if not all(v.passed for v in of_job)
    ]
    assert failed == []
    for of_job in judge_all(sandbox, [("p=lambda g:g", all_tests(problem)) for problem in problems]):
        assert {verdict.status for verdict in of_job} <= {Status.PASSED, Status.WRONG_ANSWER}
        assert not all(verdict.passed for verdict in of_job)


@pytest.mark.parametrize(
    ("program", "status"),
    [
        ("p=lambda g:[*zip(*g)]", "PASSED"),
        ("p=lambda g:((True,0),(False,1))", "PASSED"),
        ("def p(g): g.reverse(); return [[1,0],[0,1]]", "PASSED"),
        ("class L(list):\n def __eq__(s,o): return True\np=lambda g:L([[1]])", "WRONG_ANSWER"),
        ("class E:\n def __eq__(s,o): return True\np=lambda g:[[E(),E()],[E(),E()]]", "RUNTIME_ERROR"),
        ("p=lambda g:(r for r in g)", "WRONG_ANSWER"),
        ("p=lambda g:[map(int,r)for r in g]", "WRONG_ANSWER"),
        ("p=lambda g:[bytes(r)for r in g]", "WRONG_ANSWER"),
        ("p=lambda g:{tuple(r):1 for r in g}", "WRONG_ANSWER"),
        ("p=lambda g:g[5]", "RUNTIME_ERROR"),
        ("p=lambda g:(", "SYNTAX_ERROR"),
        ("q=lambda g:g", "RUNTIME_ERROR"),
    ],
)
def test_what_a_pairs_test_takes(sandbox: Sandbox, program: str, status: str) -> None:
    pair = GridPair(((1, 0), (0, 1)), ((1, 0), (0, 1)))
    ((verdict, again),) = judge_all(sandbox, [(program, pair_tests([pair, pair]))])
    assert verdict.status == again.status == status, verdict


def test_the_largest_task_is_judged(sandbox: Sandbox) -> None:
    grid = tuple(tuple((row * column + row) % 10 for column in range(30)) for row in range(30))
    pair = GridPair(grid, grid[::-1])
    problem = to_problem(GridTask("large", (pair,) * 3, (pair,), (pair,) * 262))
    ((*verdicts,),) = judge_all(sandbox, [("p=lambda g:g[::-1]", all_tests(problem))])
    assert len(verdicts) == 266 and all(verdict.passed for verdict in verdicts)
    reward, components = golf_reward(266, 266, 18, GolfRules(), fault_of(verdicts))
    assert reward > 1 and components["kaggle_score"] == 2482
