"""What the sandbox says of a program, as games take it."""

from collections.abc import Awaitable, Sequence

from core.episode import Outcome
from core.interfaces import SandboxFailure
from core.verdict import Status, Test, Verdict


async def judged(verdicts: Awaitable[list[Verdict]]) -> list[Verdict] | None:
    """None where the sandbox failed: no reward follows, and whoever asked drops the attempt and counts it."""
    try:
        return await verdicts
    except SandboxFailure:
        return None


def outcomes_of(
    tests: Sequence[Test], verdicts: Sequence[Verdict], owner: str = "problem"
) -> tuple[Outcome, ...]:
    """For the record, and for who tries again."""
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
    """Of a whole program with what it printed last: the reason of an exit code, or another output."""
    if isinstance(test, str) or verdict.passed:
        return verdict.error
    wrong = verdict.status == Status.WRONG_ANSWER
    said = (verdict.stdout if wrong else verdict.stderr).split("\n")
    last = next((line.strip() for line in reversed(said) if line.strip()), "")
    return verdict.error + f": {last}" * bool(last)
