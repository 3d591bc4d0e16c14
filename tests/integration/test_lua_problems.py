"""The toy Lua problems under Lua: references pass, mistakes fail, and Lua agrees with Python."""

import asyncio
from collections.abc import Iterator, Sequence
from random import Random

import pytest

from lab.lua import BREAKS, lua_code, lua_problems, lua_tests
from lab.problems import toy_specs
from lab.sampling import edge_input
from sandbox_workers.local import LocalSandbox
from sparring.core.problem import Problem
from sparring.core.verdict import Limits, OutputTest, Status
from tests.contracts.test_sandbox_contract import require

SAMPLE = 40


@pytest.fixture(scope="module")
def sandbox() -> Iterator[LocalSandbox]:
    require("docker")
    with LocalSandbox("docker", limits=Limits(cpu_s=1.0, wall_s=6.0, memory_mb=128)) as local:
        yield local


@pytest.fixture(scope="module")
def problems() -> list[Problem]:
    return Random(0).sample(lua_problems("train") + lua_problems("held_out"), SAMPLE)


def judge(sandbox: LocalSandbox, jobs: Sequence[tuple[str, Sequence]]) -> list[list[Status]]:
    """The statuses of each (program, tests)."""

    async def all_at_once() -> list:
        judged = (sandbox.judge(program, tests, language="lua") for program, tests in jobs)
        return await asyncio.wait_for(asyncio.gather(*judged), 120)

    return [[verdict.status for verdict in verdicts] for verdicts in asyncio.run(all_at_once())]


def test_references_pass_their_own_tests(sandbox: LocalSandbox, problems: list[Problem]) -> None:
    jobs = [(p.reference_solution, p.baseline_tests + p.hidden_tests) for p in problems]
    for problem, statuses in zip(problems, judge(sandbox, jobs), strict=True):
        assert set(statuses) == {Status.PASSED}, problem.id


def test_lua_gives_what_python_gives_for_every_part_of_the_grammar(sandbox: LocalSandbox) -> None:
    """All Specs that no file takes to Lua, in one program: each function is asked once."""
    specs, rng = toy_specs("train")[400:], Random(3)
    program, expected = "", ""
    for spec in specs:
        (test,) = lua_tests(spec, [edge_input(spec, rng)])
        program += lua_code(spec) + test.code
        expected += test.stdout or ""
    assert judge(sandbox, [(program, [OutputTest(stdout=expected)])]) == [[Status.PASSED]]


def test_every_mistake_fails_every_test(sandbox: LocalSandbox, problems: list[Problem]) -> None:
    jobs = []
    for change in BREAKS.values():
        sources = [(problem.reference_solution, problem.baseline_tests[:2]) for problem in problems]
        jobs += [(change(source), tests) for source, tests in sources if change(source) != source][:5]
    for (program, _), statuses in zip(jobs, judge(sandbox, jobs), strict=True):
        assert set(statuses) <= {Status.RUNTIME_ERROR, Status.WRONG_ANSWER}, program
