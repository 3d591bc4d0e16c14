"""What the sandbox says about one (program, test). The program's fault and the sandbox's fault are different things."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Literal, overload

from pydantic import Field

from core.settings import Settings


class Status(StrEnum):
    PASSED = "PASSED"
    WRONG_ANSWER = "WRONG_ANSWER"
    RUNTIME_ERROR = "RUNTIME_ERROR"
    SYNTAX_ERROR = "SYNTAX_ERROR"
    TIME_LIMIT = "TIME_LIMIT"
    MEMORY_LIMIT = "MEMORY_LIMIT"
    OUTPUT_LIMIT = "OUTPUT_LIMIT"
    UNSUPPORTED = "UNSUPPORTED"
    """The sandbox cannot, or shall not, run the test: it is code, and `sandbox.code_tests` refuses that."""
    SANDBOX_ERROR = "SANDBOX_ERROR"

    def is_infrastructure(self) -> bool:
        """True where the sandbox failed: never a reward, always retried, then dropped and counted."""
        return self is Status.SANDBOX_ERROR

    def is_resource_limit(self) -> bool:
        return self in (Status.TIME_LIMIT, Status.MEMORY_LIMIT, Status.OUTPUT_LIMIT)


@dataclass(frozen=True, kw_only=True, slots=True)
class Verdict:
    """Outcome of one test on one program.

    Example:
        Verdict(status=Status.PASSED, value="[1, 4]", cpu_ms=1.2)    # test "f([1, 2])", an expression
        Verdict(status=Status.WRONG_ANSWER, cpu_ms=0.9)              # test "assert f(1) == 3"
    """

    status: Status
    value: str | None = None
    """repr of the plain value of an expression test; None for statement tests and failures."""
    cpu_ms: float = 0.0
    """CPU time of the program under this test, milliseconds."""
    stdout: str = ""
    stderr: str = ""
    memory_bytes: int = 0
    """Peak resident memory of the program's process, over all tests that it was started for."""
    test_cpu_ms: float = 0.0
    """CPU time of the test's own process, milliseconds; 0 where there is none."""
    error: str = ""
    """Exception text or the reason of a limit, capped."""
    by_test: bool = False
    """It was the test that broke or hung, not the program under it. Where the test is known to be good it may
    have broken on what the program returned."""
    asked_objects: bool = False
    """The test asked something that only an object of one of the program's own classes can answer, or the program has changed
    what the test gave it."""
    isolation: Literal["separate", "shared"] = "separate"
    """Separate: nothing that the program does can make it pass but the right results. The test is data, calls and comparisons of
    copies of what they return, evaluated in a process that runs no code of the program's (sandbox_workers/runner/data_tests.py);
    or it is what a whole program prints. Shared: the test is code and ran in the program's interpreter, as it would under pytest:
    a program that looks for its test can find it, and can say that it passed."""

    @property
    def passed(self) -> bool:
        return self.status is Status.PASSED


@dataclass(frozen=True, kw_only=True, slots=True)
class OutputTest:
    """A test of a whole program in any language: what it prints. The expected text never enters the sandbox.

    Example:
        OutputTest(stdin="3 4\n", stdout="7\n")
        OutputTest(code="print(f(3, 4))", stdout="7\n")     # Lua: the code runs after the program
    """

    stdout: str | None
    """None expects nothing: PASSED where the program ends well. Compared line by line, without blanks, tabs
    and carriage returns at a line's end, and without empty lines at the text's."""
    stdin: str = ""
    code: str = ""
    """Runs after the program, in its interpreter, and must come to its own end. It prints what it found, for the
    program could make anything else look well."""

    def __post_init__(self) -> None:
        if self.code and self.stdout is None:
            raise ValueError(
                "an OutputTest with code expects no output, so nothing would be tested: have the code print what "
                "it found, and give that as stdout"
            )

    def __str__(self) -> str:
        asked = self.code.strip() or (f"stdin {self.stdin!r}" if self.stdin else "the program")
        return f"{asked} prints {self.stdout!r}" if self.stdout is not None else f"{asked} runs"

    def judge(self, verdict: Verdict) -> Verdict:
        """What the verdict is once the output is compared."""
        if not verdict.passed or self.stdout is None or _lines(self.stdout) == _lines(verdict.stdout):
            return verdict
        return replace(verdict, status=Status.WRONG_ANSWER, error="other output than expected")


class ReferenceTest(str):
    """Python source of a test that a reference solution is judged by. A reference is trusted: if its results cannot be compared as
    data, the test is code for all programs (known_by). No other program has a say in that.

    entry_point: the name that the problem gives, if there is one: it means the program's function, even if Python has one of
        this name. Without it, a guess (data_tests.shadowing).
    """

    __slots__ = ("entry_point",)
    entry_point: str

    def __new__(cls, source: str, entry_point: str = "") -> "ReferenceTest":
        test = super().__new__(cls, source)
        test.entry_point = entry_point
        return test

    def __reduce__(self) -> tuple:
        return ReferenceTest, (str(self), self.entry_point)


class KnownTest(str):
    """Python source of a test that a reference has passed, and how it was judged there: programs are judged in the same way."""

    __slots__ = ("data", "entry_point", "plain")
    data: bool
    """As data: see Verdict.isolation. No object of a program's can make code of it."""
    plain: bool
    """Of data: it asked the reference's results for nothing but values, calls and iterations, and the reference changed nothing
    that it was given. Of no other program's objects it asks for more, for they could answer what the test wants to hear; and
    what a program does to its arguments does not help it."""
    entry_point: str
    """As the reference test's."""

    def __new__(
        cls, source: str, *, data: bool = False, plain: bool = True, entry_point: str = ""
    ) -> "KnownTest":
        test = super().__new__(cls, source)
        test.data, test.plain, test.entry_point = data, plain, entry_point
        return test

    def __reduce__(self) -> tuple:
        return _known, (str(self), self.data, self.plain, self.entry_point)


def _known(source: str, data: bool, plain: bool, entry_point: str) -> KnownTest:
    return KnownTest(source, data=data, plain=plain, entry_point=entry_point)


@overload
def known_by(test: str, reference: Iterable[Verdict]) -> str: ...
@overload
def known_by(test: "Test", reference: Iterable[Verdict]) -> "Test": ...
def known_by(test: "Test", reference: Iterable[Verdict]) -> "Test":
    """The test, as programs meet it once the reference has passed it."""
    verdicts = list(reference)
    if isinstance(test, OutputTest):
        return test
    if not all(verdict.passed for verdict in verdicts):
        return str(test)
    return KnownTest(
        test,
        data=all(verdict.isolation == "separate" for verdict in verdicts),
        plain=not any(verdict.asked_objects for verdict in verdicts),
        entry_point=test.entry_point if isinstance(test, ReferenceTest) else "",
    )


Test = str | OutputTest
"""A string is Python source: see core.interfaces.Sandbox."""


def _lines(text: str) -> list[str]:
    lines = [line.rstrip(" \t\r") for line in text.replace("\r\n", "\n").split("\n")]
    while lines and not lines[-1]:
        lines.pop()
    return lines


class Limits(Settings):
    """What one job may use. A job is one program with its tests."""

    cpu_s: float = Field(default=2.0, gt=0, le=86400)
    """CPU seconds of the program over one test."""
    wall_s: float = Field(default=8.0, gt=0, le=86400)
    """Wall-clock seconds per test, well above cpu_s: on a busy machine wall time says little of the program."""
    memory_mb: int = Field(default=256, ge=32, le=1 << 20)
    """Address space of a process; of a whole program in Python, JavaScript, C or q the resident memory. MiB."""
    processes: int = Field(default=16, ge=1, le=1 << 20)
    file_mb: int = Field(default=8, ge=0, le=1 << 20)
    output_kb: int = Field(default=64, ge=1, le=1 << 20)
    """Captured stdout plus stderr, KiB; more is OUTPUT_LIMIT."""

    def over(self, others: "Limits") -> "Limits":
        """What is said here, and of the rest the others': a data set that states its CPU time leaves the memory to the run."""
        return others.model_copy(update=self.model_dump(exclude_unset=True))
