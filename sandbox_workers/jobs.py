"""What client, workers and backends say to each other."""

import hashlib
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from threading import Lock
from typing import Protocol

from cachetools import LRUCache, cached

from core.errors import SparringError
from core.interfaces import CodeTests
from core.verdict import KnownTest, Limits, OutputTest, ReferenceTest, Test, Verdict
from sandbox_workers.languages import UnknownLanguage, language_of
from sandbox_workers.runner.commands import BUILD_FACTOR
from sandbox_workers.runner.data_tests import read
from sandbox_workers.runner.stop import MOST_RETRIES
from sandbox_workers.runner.wall import PATIENCE

MOST_TEST_CHARS = 1_000_000
"""Of a test that is data: a data set's may hold large tables. A longer one is judged as code."""


class SandboxUnavailable(SparringError):
    """No sandbox of the wanted kind can run here; the text says what to install or to run."""


class BackendDied(RuntimeError):
    """The sandbox ended with jobs in it. Says nothing of any program."""


class WorkerLost(RuntimeError):
    """A worker that ended, is not there yet or has no sandbox: no job had a part in it."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Job:
    """One program with tests of one kind and one author: they share a test process, and could forge each
    other's verdicts."""

    program: str
    tests: tuple[Test, ...]
    limits: Limits
    language: str = "python"
    code_tests: CodeTests = "run"

    def longest_s(self) -> float:
        """How long it may take by its limits. Some tests, and building the program, may be tried twice, and each may
        wait for a CPU."""
        built = self.language != "python" and bool(language_of(self.language).build)
        runs = (len(self.tests) + MOST_RETRIES) * (1 + BUILD_FACTOR * built)
        return PATIENCE * self.limits.wall_s * runs

    def message(self) -> dict:
        """What the runner is told; see runner/supervisor.py.

        Raises:
            UnknownLanguage: the language, or Python source as a test of another language.
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
        return message | {"tests": tests, "language": language_of(self.language).message()}


def _message(test: str) -> list:
    """See runner/supervisor.py, Slot.judge."""
    if isinstance(test, KnownTest):
        return [test, test.plain, "data" if test.data else "code", test.entry_point]
    if not is_data(test):
        return [test, False, "code", ""]
    if isinstance(test, ReferenceTest):
        return [test, False, "reference", test.entry_point]
    return [test, False, "text", ""]


def _digest(test: str) -> bytes:
    return hashlib.sha256(test.encode("utf-8", "surrogatepass")).digest()


# Kept not by its text: a service's clients may send long ones.
@cached(LRUCache(100_000), key=_digest, lock=Lock())
def is_data(test: str) -> bool:
    """Whether a test can be walked: see runner/data_tests.py."""
    if len(test) > MOST_TEST_CHARS:
        return False
    try:
        with warnings.catch_warnings(action="ignore", category=SyntaxWarning):
            read(test)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    return True


class Backend(Protocol):
    """One warm sandbox. All methods may be called from any thread."""

    slots: int
    """Jobs judged at the same time."""

    def start(self) -> None:
        """Raise SandboxUnavailable where it cannot start."""
        ...

    def judge_batch(self, jobs: Sequence[Job]) -> list[list[Verdict]]:
        """One Verdict per job and test, in order. Raise BackendDied where the sandbox ended first."""
        ...

    def commands(self) -> set[str]:
        """Of all languages' commands, those that exist in the sandbox."""
        ...

    def healthy(self) -> bool: ...

    def close(self) -> None:
        """Kill what runs and remove what is left. Idempotent."""
        ...
