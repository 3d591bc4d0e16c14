"""Chooses among several programs for one problem by means of tests that were not validated."""

import asyncio
from collections import Counter
from collections.abc import Sequence

from sparring.core.interfaces import Sandbox
from sparring.core.verdict import Limits, Status, Verdict

Results = Sequence[Sequence[str | None]]
"""programs x tests: the result of a call, "" for a passed assert, or None for a failure."""


async def votes(programs: Sequence[str], tests: Sequence[str], sandbox: Sandbox, limits: Limits) -> list[int]:
    """Returns the votes for each program (`count_votes`). Raises SandboxFailure."""
    return count_votes(await results(programs, tests, sandbox, limits))


async def results(programs: Sequence[str], tests: Sequence[str], sandbox: Sandbox, limits: Limits) -> Results:
    """Returns the results of programs on tests. Raises SandboxFailure."""
    if not tests:
        return [[] for _ in programs]
    distinct = list(dict.fromkeys(programs))
    ran = await asyncio.gather(*(sandbox.judge(program, tests, limits=limits) for program in distinct))
    verdicts = dict(zip(distinct, ran, strict=True))
    return [[_said(verdict) for verdict in verdicts[program]] for program in programs]


def count_votes(results: Results) -> list[int]:
    """Returns the votes for each program. A test that is a call adds the number of programs with the same result, including
    the program itself; an assert that the program passes adds the number of all programs. A failed test adds nothing, since
    equal errors are no agreement.

    If all tests are calls, this is a majority vote over outputs; if all are asserts, it counts the passed tests. CodeT
    combines both (Chen et al. 2022, arXiv 2207.10397).
    """
    counted = [0] * len(results)
    for said in zip(*results, strict=True):
        same = Counter(word for word in said if word is not None)
        for i, word in enumerate(said):
            if word is not None:
                counted[i] += len(results) if word == "" else same[word]
    return counted


def _said(verdict: Verdict) -> str | None:
    """Returns the result of a call, "" for a passed assert, or None for a failure."""
    return (verdict.value or "") if verdict.status is Status.PASSED else None
