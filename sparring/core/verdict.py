"""The sandbox's verdict on one (program, test), and the tests themselves. A failure of the program and a failure of the
sandbox are different statuses."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Literal, overload

from pydantic import Field

from sparring.core.settings import Settings


class Status(StrEnum):
    PASSED = "PASSED"
    WRONG_ANSWER = "WRONG_ANSWER"
    RUNTIME_ERROR = "RUNTIME_ERROR"
    SYNTAX_ERROR = "SYNTAX_ERROR"
    TIME_LIMIT = "TIME_LIMIT"
    MEMORY_LIMIT = "MEMORY_LIMIT"
    OUTPUT_LIMIT = "OUTPUT_LIMIT"
    UNSUPPORTED = "UNSUPPORTED"
    """The sandbox cannot run the test, or must not: the test is code, and `sandbox.code_tests` refuses code."""
    SANDBOX_ERROR = "SANDBOX_ERROR"

    def is_infrastructure(self) -> bool:
        """Returns whether the sandbox itself failed. Such a judgement is retried, and then dropped and counted; it never
        becomes a reward."""
        return self is Status.SANDBOX_ERROR

    def is_resource_limit(self) -> bool:
        return self in (Status.TIME_LIMIT, Status.MEMORY_LIMIT, Status.OUTPUT_LIMIT)


@dataclass(frozen=True, kw_only=True, slots=True)
class Verdict:
    """The result of one test on one program.

    Example:
        Verdict(status=Status.PASSED, value="[1, 4]", cpu_ms=1.2)    # test "f([1, 2])", an expression
        Verdict(status=Status.WRONG_ANSWER, cpu_ms=0.9)              # test "assert f(1) == 3"
    """

    status: Status
    value: str | None = None
    """repr of the plain value of an expression test; None for statement tests and failures."""
    cpu_ms: float = 0.0
    """CPU time of the program under this test, in milliseconds."""
    stdout: str = ""
    stderr: str = ""
    memory_bytes: int = 0
    """Peak resident memory of the program's process, over all tests that the process ran."""
    test_cpu_ms: float = 0.0
    """CPU time of the test's own process, in milliseconds; 0 if the test has no process of its own."""
    error: str = ""
    """Text of the exception, or the limit that was exceeded; cut off at a maximum length. It begins with "test: " if the test
    raised the exception by itself."""
    asked_objects: bool = False
    """Whether the test needed an object of one of the program's own classes for an answer, or the program changed an
    argument that the test gave to it."""
    isolation: Literal["separate", "shared"] = "separate"
    """separate: the program can pass only by the right results. The test is data: it calls the program and compares copies of
    the returned values, in a process that runs no code of the program (sandbox_workers/runner/data_tests.py). Or the test
    compares the output of a whole program. shared: the test is code and ran in the program's interpreter, as under pytest. A
    program that searches for its test there can find it, and can fake that the test passed."""

    never_asked: bool = False
    """Whether the test failed because it never uses the program."""
    shadowed: tuple[str, ...] = ()
    """For a data test: names of the library that meant the program's functions in it; see data_tests.shadowing."""

    @property
    def passed(self) -> bool:
        return self.status is Status.PASSED


@dataclass(frozen=True, kw_only=True, slots=True)
class OutputTest:
    """A test that compares the output of a whole program, in any language. The expected text never enters the sandbox.

    Example:
        OutputTest(stdin="3 4\n", stdout="7\n")
        OutputTest(code="print(f(3, 4))", stdout="7\n")     # Lua: the code runs after the program
    """

    stdout: str | None
    """Expected output. It is compared line by line, without blanks, tabs and carriage returns at the end of a line, and
    without empty lines at the end of the text. None: any output passes if the program ends without an error."""
    stdin: str = ""
    code: str = ""
    """Code that runs after the program, in its interpreter. It must run to its end, and prints its findings: only printed
    text is compared, since the program could fake any other sign of success."""

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
        """Returns the verdict after the comparison of the output."""
        if not verdict.passed or self.stdout is None or _lines(self.stdout) == _lines(verdict.stdout):
            return verdict
        return replace(verdict, status=Status.WRONG_ANSWER, error="other output than expected")


class ReferenceTest(str):
    """Python source of a test on which a reference solution is judged. A reference solution is trusted: if its results cannot
    be compared as data, the test counts as code for all programs (known_by). No other program influences this.

    entry_point: the name of the function in the problem, if known. In the test, this name means the program's function, even
        if Python has a function of the same name. If it is not known, it is guessed (data_tests.shadowing).
    """

    entry_point: str

    def __new__(cls, source: str, entry_point: str = "") -> "ReferenceTest":
        test = super().__new__(cls, source)
        test.entry_point = entry_point
        return test


class KnownTest(str):
    """Python source of a test that the reference solution passed, and the way in which the reference was judged: programs are
    judged in the same way."""

    data: bool
    """Whether the test is judged as data (see Verdict.isolation). No object of a program can turn it into code."""
    plain: bool
    """For a data test: whether it needed only values, calls and iterations of the reference's results, and the reference did
    not change its arguments. Then nothing more is asked of another program's objects, since these could give the answer
    that the test expects, and a program's changes to its arguments do not help it to pass."""
    shadowed: frozenset[str] | None
    """Names of the library, such as `exp`, that mean the program's functions, because the reference defines them. Another
    program that defines more of them does not decide what the test means. None: they are guessed."""

    def __new__(
        cls, source: str, *, data: bool = False, plain: bool = True, shadowed: Iterable[str] | None = None
    ) -> "KnownTest":
        test = super().__new__(cls, source)
        test.data, test.plain = data, plain
        test.shadowed = None if shadowed is None else frozenset(shadowed)
        return test


@overload
def known_by(test: str, reference: Iterable[Verdict]) -> str: ...
@overload
def known_by(test: "Test", reference: Iterable[Verdict]) -> "Test": ...
def known_by(test: "Test", reference: Iterable[Verdict]) -> "Test":
    """Returns the test in the form in which programs are judged on it, given the reference solution's verdicts on it."""
    verdicts = list(reference)
    if isinstance(test, OutputTest):
        return test
    if not all(verdict.passed for verdict in verdicts):
        return str(test)
    return KnownTest(
        test,
        data=all(verdict.isolation == "separate" for verdict in verdicts),
        plain=not any(verdict.asked_objects for verdict in verdicts),
        shadowed={name for verdict in verdicts for name in verdict.shadowed},
    )


Test = str | OutputTest
"""A string is Python source: see sparring.core.interfaces.Sandbox."""


def _lines(text: str) -> list[str]:
    lines = [line.rstrip(" \t\r") for line in text.replace("\r\n", "\n").split("\n")]
    while lines and not lines[-1]:
        lines.pop()
    return lines


class Limits(Settings):
    """The resources that one job may use. A job is one program with its tests."""

    cpu_s: float = Field(default=2.0, gt=0, le=86400)
    """CPU seconds of the program per test."""
    wall_s: float = Field(default=8.0, gt=0, le=86400)
    """Wall-clock seconds per test. Set it well above cpu_s: on a busy machine, wall time depends on other processes, too."""
    memory_mb: int = Field(default=256, ge=32, le=1 << 20)
    """MiB of address space of a process. For a whole program in Python, JavaScript, C or q: MiB of resident memory."""
    processes: int = Field(default=16, ge=1, le=1 << 20)
    file_mb: int = Field(default=8, ge=0, le=1 << 20)
    output_kb: int = Field(default=64, ge=1, le=1 << 20)
    """KiB of stdout per test; a program that prints more gets OUTPUT_LIMIT. On stderr it may print 1 MiB more, of which the
    end is kept."""

    def over(self, others: "Limits") -> "Limits":
        """Returns the other limits, overridden by the limits that are set here. A data set may, for example, state the CPU
        time only; the memory limit is then the run's, and the wall-clock limit at least four times the CPU limit."""
        own = self.model_dump(exclude_unset=True)
        if "cpu_s" in own:
            own.setdefault("wall_s", max(others.wall_s, 4 * self.cpu_s))
        return others.model_copy(update=own)
