"""What a sandbox's verdicts on a program say, for the record."""

from collections.abc import Sequence

from core.episode import Outcome
from core.verdict import Test, Verdict


def outcomes_of(
    tests: Sequence[Test], verdicts: Sequence[Verdict], owner: str = "problem"
) -> tuple[Outcome, ...]:
    return tuple(
        Outcome(test=str(test), owner=owner, status=verdict.status, error=verdict.error)
        for test, verdict in zip(tests, verdicts, strict=True)
    )
