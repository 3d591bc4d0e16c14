"""Checks reference solutions against their own tests in the sandbox, before a run starts."""

import asyncio
import textwrap
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from sparring.core.interfaces import Sandbox
from sparring.core.problem import Problem
from sparring.core.verdict import ReferenceTest, Status, Verdict, known_by
from sparring.problems.loader import ProblemFileError

_NAMED = 3


class Offence(NamedTuple):
    """A test that a problem's own reference solution fails."""

    status: Status
    text: str
    """The problem, the test and the reason, in one line."""


async def judge_references(
    problems: Sequence[Problem], sandbox: Sandbox
) -> tuple[list[Problem], dict[str, list[Offence]]]:
    """Judges each reference solution on its problem's baseline and hidden tests, in the problem's language and limits.

    Returns (the problems, with their tests in the form in which programs are judged on them: sparring.core.verdict.known_by; the
    failed tests by problem id). A problem without a reference solution is returned unchanged. A SandboxFailure propagates,
    since it is not a fault of the problems.
    """
    judged = await asyncio.gather(*(_judge_reference(problem, sandbox) for problem in problems))
    return [problem for problem, _ in judged], {problem.id: found for problem, found in judged if found}


async def _judge_reference(problem: Problem, sandbox: Sandbox) -> tuple[Problem, list[Offence]]:
    if not problem.reference_solution.strip():
        return problem, []
    entry_point = problem.entry_point if problem.is_function else ""
    tests = [
        ReferenceTest(test, entry_point) if isinstance(test, str) else test
        for test in problem.baseline_tests + problem.hidden_tests
    ]
    verdicts = await sandbox.judge(
        problem.in_harness(problem.reference_solution),
        tests,
        limits=problem.limits,
        language=problem.language,
    )
    offences = [
        Offence(verdict.status, _told(problem, position, verdict))
        for position, verdict in enumerate(verdicts)
        if not verdict.passed
    ]
    known = tuple(known_by(test, [verdict]) for test, verdict in zip(tests, verdicts, strict=True))
    count = len(problem.baseline_tests)
    return replace(problem, baseline_tests=known[:count], hidden_tests=known[count:]), offences


async def validate_references(
    problems: Sequence[Problem], sandbox: Sandbox, path: str | Path
) -> list[Problem]:
    """Returns the problems as judge_references does.

    Raises:
        ProblemFileError: a reference solution fails a test. The message names the first few failures.
    """
    problems, failing = await judge_references(problems, sandbox)
    offences = [offence.text for of_one in failing.values() for offence in of_one]
    if not offences:
        return problems
    named = "; ".join(offences[:_NAMED])
    install = "how programs can import packages: docs/sandbox.md; " * any(
        "ModuleNotFoundError" in offence for offence in offences
    )
    more = f"; and {len(offences) - _NAMED} more" if len(offences) > _NAMED else ""
    raise ProblemFileError(
        f"{path}: {len(offences)} of the tests fail on their own reference_solution: {named}{more}; {install}"
        "correct the test or the solution, or give --problems.failing-references leave_out"
    )


def _told(problem: Problem, position: int, verdict: Verdict) -> str:
    count = len(problem.baseline_tests)
    field = f"baseline_tests[{position}]" if position < count else f"hidden_tests[{position - count}]"
    test = textwrap.shorten(str((problem.baseline_tests + problem.hidden_tests)[position]), 100)
    said = [part for part in (verdict.error, *verdict.stderr.strip().splitlines()[-1:]) if part.strip()]
    reason = f" ({': '.join(textwrap.shorten(part, 100) for part in said)})" if said else ""
    return f"problem {problem.id!r}, {field} {test!r}: {verdict.status}{reason}"
