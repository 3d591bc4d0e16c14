"""Reference solutions on their own tests, in the sandbox, before anything starts."""

import asyncio
import textwrap
from collections.abc import Sequence
from pathlib import Path

from core.interfaces import Sandbox
from core.problem import Problem
from core.verdict import Test, Verdict
from problems.loader import ProblemFileError

_NAMED = 3


async def failing_references(problems: Sequence[Problem], sandbox: Sandbox) -> dict[str, list[str]]:
    """What each reference solution does wrong, by problem id: its own baseline and hidden tests that it fails, in the
    problem's language and limits.

    A problem without a reference solution is skipped. A SandboxFailure propagates: it says nothing about the problems.
    """
    with_reference = [problem for problem in problems if problem.reference_solution.strip()]
    judged = await asyncio.gather(
        *(
            sandbox.judge(
                problem.reference_solution,
                _own_tests(problem),
                limits=problem.limits,
                language=problem.language,
            )
            for problem in with_reference
        )
    )
    failing: dict[str, list[str]] = {}
    for problem, verdicts in zip(with_reference, judged, strict=True):
        for position, verdict in enumerate(verdicts):
            if not verdict.passed:
                failing.setdefault(problem.id, []).append(_offence(problem, position, verdict))
    return failing


async def validate_references(problems: Sequence[Problem], sandbox: Sandbox, path: str | Path) -> None:
    """Raises ProblemFileError, naming the first few offences, if a reference solution fails. See failing_references."""
    offences = [
        offence for of_one in (await failing_references(problems, sandbox)).values() for offence in of_one
    ]
    if not offences:
        return
    named = "; ".join(offences[:_NAMED])
    more = f"; and {len(offences) - _NAMED} more" if len(offences) > _NAMED else ""
    raise ProblemFileError(
        f"{path}: {len(offences)} of the tests fail on their own reference_solution: {named}{more}; "
        "correct the test or the solution, or give --problems.failing-references leave_out"
    )


def _own_tests(problem: Problem) -> tuple[Test, ...]:
    return problem.baseline_tests + problem.hidden_tests


def _offence(problem: Problem, position: int, verdict: Verdict) -> str:
    count = len(problem.baseline_tests)
    field = f"baseline_tests[{position}]" if position < count else f"hidden_tests[{position - count}]"
    test = textwrap.shorten(str(_own_tests(problem)[position]), 100)
    reason = f" ({textwrap.shorten(verdict.error, 100)})" if verdict.error.strip() else ""
    return f"problem {problem.id!r}, {field} {test!r}: {verdict.status}{reason}"
