"""The messages between client, workers and backends, and the interface of a backend."""

import hashlib
import re
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from threading import Lock
from typing import Protocol

from cachetools import LRUCache, cached

from sandbox_workers.languages import UnknownLanguage, language_of
from sandbox_workers.runner.commands import BUILD_FACTOR
from sandbox_workers.runner.data_tests import read
from sandbox_workers.runner.stop import MOST_RETRIES
from sandbox_workers.runner.wall import PATIENCE
from sparring.core.errors import SparringError
from sparring.core.interfaces import CodeTests
from sparring.core.verdict import KnownTest, Limits, OutputTest, ReferenceTest, Test, Verdict

MOST_TEST_CHARS = 1_000_000
"""Largest length of a data test, characters. Tests of data sets may hold large tables. A longer test is judged as code."""

_CODING = re.compile(
    r"\A(\ufeff?(?:[ \t\f]*(?:#[^\r\n]*)?(?:\r\n?|\n))??[ \t\f]*#[^\r\n]*?coding[:=][ \t]*)[-\w.]+", re.ASCII
)
"""Matches the beginning of a Python program, through the encoding that its first or second line declares."""


class SandboxUnavailable(SparringError):
    """Raised if no sandbox of the requested kind can run here. The message says what to install or to run."""


class BackendDied(RuntimeError):
    """Raised if a sandbox ends while it has jobs. It says nothing about any program."""


class WorkerLost(RuntimeError):
    """Raised if a worker has ended, is not there yet, or has no sandbox. No job caused it."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Job:
    """A program with tests of one kind and one author. Tests of a job may share a process, and could forge each other's
    verdicts."""

    program: str
    tests: tuple[Test, ...]
    limits: Limits
    language: str = "python"
    code_tests: CodeTests = "run"

    def longest_s(self) -> float:
        """Returns the longest time that the job may take within its limits, seconds. Some tests, and the build of the
        program, may be tried twice, and each run may have to wait for a CPU."""
        built = self.language != "python" and bool(language_of(self.language).build)
        runs = (len(self.tests) + MOST_RETRIES) * (1 + BUILD_FACTOR * built)
        return PATIENCE * self.limits.wall_s * runs

    def message(self) -> dict:
        """Returns the message to the runner; see runner/supervisor.py.

        Raises:
            UnknownLanguage: the language is not known, or a test of a program in another language is Python source.
        """
        outputs = [test for test in self.tests if isinstance(test, OutputTest)]
        message = {
            "program": self.program,
            "limits": self.limits.model_dump(),
            "refuses_code": self.code_tests == "refuse",
        }
        if not outputs and self.language == "python":
            return message | {
                "tests": [_message(test) for test in self.tests if isinstance(test, str)],
                "language": None,
            }
        if len(outputs) < len(self.tests):
            raise UnknownLanguage(
                f"tests of a {self.language} program must be OutputTests, not Python source"
            )
        tests = [{"code": test.code, "stdin": test.stdin} for test in outputs]
        if self.language == "python":  # its file is UTF-8
            message["program"] = _CODING.sub(r"\g<1>utf-8", self.program)
        return message | {"tests": tests, "language": language_of(self.language).message()}


def _message(test: str) -> list:
    """Returns the message for one test; see Slot.judge in runner/supervisor.py."""
    if isinstance(test, KnownTest):
        shadowed = None if test.shadowed is None else sorted(test.shadowed)
        return [test, test.plain, "data" if test.data else "code", "", shadowed]
    if not is_data(test):
        return [test, False, "code", "", None]
    if isinstance(test, ReferenceTest):
        return [test, False, "reference", test.entry_point, None]
    return [test, False, "text", "", None]


def _digest(test: str) -> bytes:
    return hashlib.sha256(test.encode("utf-8", "surrogatepass")).digest()


# The cache key is a hash, not the text, because clients of a service may send long tests.
@cached(LRUCache(100_000), key=_digest, lock=Lock())
def is_data(test: str) -> bool:
    """Returns whether a test is a data test by its text; see runner/data_tests.py."""
    if len(test) > MOST_TEST_CHARS:
        return False
    try:
        with warnings.catch_warnings(action="ignore", category=SyntaxWarning):
            read(test)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    return True


class Backend(Protocol):
    """A warm sandbox. All methods may be called from any thread."""

    slots: int
    """Number of jobs that are judged at the same time."""

    def start(self) -> None:
        """Starts the sandbox.

        Raises:
            SandboxUnavailable: the sandbox cannot start.
        """
        ...

    def judge_batch(self, jobs: Sequence[Job]) -> list[list[Verdict]]:
        """Returns one Verdict per job and test, in order.

        Raises:
            BackendDied: the sandbox ended before it answered.
        """
        ...

    def commands(self) -> set[str]:
        """Returns the commands that exist in the sandbox, out of those of all languages."""
        ...

    def healthy(self) -> bool: ...

    def close(self) -> None:
        """Kills all processes of the sandbox and removes what they left. Idempotent."""
        ...
