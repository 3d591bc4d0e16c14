"""What the sandbox says of a program, as games take it."""

from collections.abc import Awaitable, Sequence

from core.episode import Outcome
from core.interfaces import SandboxFailure
from core.verdict import Test, Verdict


async def judged(verdicts: Awaitable[list[Verdict]]) -> list[Verdict] | None:
    """None where the sandbox failed: no reward follows, and whoever asked drops the attempt and counts it."""
    try:
        return await verdicts
    except SandboxFailure:
        return None


def outcomes_of(
    tests: Sequence[Test], verdicts: Sequence[Verdict], owner: str = "problem"
) -> tuple[Outcome, ...]:
    """For the record."""
    return tuple(
        Outcome(test=str(test), owner=owner, status=verdict.status, error=verdict.error)
        for test, verdict in zip(tests, verdicts, strict=True)
    )
