"""Which of several programs for one problem is the best, by tests that nobody has confirmed."""

import asyncio
from collections import Counter
from collections.abc import Sequence

from core.interfaces import Sandbox
from core.verdict import Limits, Status, Verdict


async def votes(programs: Sequence[str], tests: Sequence[str], sandbox: Sandbox, limits: Limits) -> list[int]:
    """Of each program: for each call the number of programs that give the same result, itself included, and for each
    assert that it passes the number of all programs. Nothing for what fails: errors agree on nothing.

    So calls alone make a majority of outputs, and asserts alone count what is passed (as CodeT has both: Chen et al.
    2022, arXiv 2207.10397). Raises SandboxFailure.
    """
    if not tests:
        return [0] * len(programs)
    distinct = list(dict.fromkeys(programs))
    ran = await asyncio.gather(*(sandbox.judge(program, tests, limits=limits) for program in distinct))
    verdicts = dict(zip(distinct, ran, strict=True))
    counted = [0] * len(programs)
    for index in range(len(tests)):
        said = [_said(verdicts[program][index]) for program in programs]
        same = Counter(word for word in said if word is not None)
        for i, word in enumerate(said):
            if word is not None:
                counted[i] += len(programs) if word == "" else same[word]
    return counted


def _said(verdict: Verdict) -> str | None:
    """The result of a call, "" for an assert that holds, None for what failed."""
    return (verdict.value or "") if verdict.status is Status.PASSED else None
