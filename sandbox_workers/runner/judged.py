"""The answer of a runner for one test."""

from collections.abc import Sequence
from typing import NamedTuple


class Judged(NamedTuple):
    """The fields of sparring.core.verdict.Verdict. As JSON they are a list."""

    status: str
    value: str | None = None
    cpu_ms: float = 0.0
    stdout: str = ""
    stderr: str = ""
    error: str = ""
    memory_bytes: int = 0
    test_cpu_ms: float = 0.0
    asked_objects: bool = False
    isolation: str = "separate"
    never_asked: bool = False
    shadowed: Sequence[str] = ()


REFUSED = Judged(
    "UNSUPPORTED", error="the test is code, which sandbox.code_tests refuses", isolation="shared"
)
