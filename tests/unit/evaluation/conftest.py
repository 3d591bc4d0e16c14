"""A real sandbox for harmless programs, and one that fails where it is told to."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import pytest

from core.interfaces import Sandbox, SandboxFailure
from core.verdict import Limits, Verdict
from sandbox_workers.local import LocalSandbox


@dataclass
class Breaking:
    """Judges as `sandbox` does, except for the programs that break it."""

    sandbox: Sandbox
    on: set[str] = field(default_factory=set)

    async def judge(
        self,
        program: str,
        tests: Sequence,
        *,
        limits: Limits | None = None,
        run: int = 0,
        language: str = "python",
    ) -> list[Verdict]:
        if program in self.on:
            raise SandboxFailure("broken")
        return await self.sandbox.judge(program, tests, limits=limits, run=run, language=language)

    def stats(self) -> dict[str, float]:
        return {}


@pytest.fixture(scope="module")
def sandbox() -> Iterator[LocalSandbox]:
    """Plain processes run anywhere; the programs are the tests' own."""
    with LocalSandbox("process", limits=Limits(cpu_s=0.2, wall_s=3.0)) as local:
        yield local


@pytest.fixture
def breaking(sandbox: LocalSandbox) -> Breaking:
    return Breaking(sandbox)
