"""Converts the sandbox's verdicts on a program for the games."""

from collections.abc import Awaitable, Sequence

from sparring.core.episode import Outcome
from sparring.core.interfaces import SandboxFailure
from sparring.core.verdict import Status, Test, Verdict


async def judged(verdicts: Awaitable[list[Verdict]]) -> list[Verdict] | None:
    """Returns the verdicts; None if the sandbox failed. The caller then gives no reward, and the attempt is dropped and
    counted."""
    try:
        return await verdicts
    except SandboxFailure:
        return None


def outcomes_of(
    tests: Sequence[Test], verdicts: Sequence[Verdict], owner: str = "problem"
) -> tuple[Outcome, ...]:
    """Returns one outcome per test, for the log and for the message to a player that tries again.

    owner: name of the tests' author.
    """
    return tuple(
        Outcome(
            test=str(test),
            owner=owner,
            status=verdict.status,
            error=_error(test, verdict),
            shared=verdict.isolation == "shared",
        )
        for test, verdict in zip(tests, verdicts, strict=True)
    )


def _error(test: Test, verdict: Verdict) -> str:
    """Returns the verdict's error. If a whole program failed, the last line that it printed is appended: it is a part of
    the wrong output, or else the reason of the exit code."""
    if isinstance(test, str) or verdict.passed:
        return verdict.error
    wrong = verdict.status == Status.WRONG_ANSWER
    said = (verdict.stdout if wrong else verdict.stderr).split("\n")
    last = next((line.strip() for line in reversed(said) if line.strip()), "")
    return verdict.error + f": {last}" * bool(last)
