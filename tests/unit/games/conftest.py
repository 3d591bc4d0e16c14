"""A table at which whole episodes are played without a model and without a sandbox."""

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from sandbox_workers.local import LocalSandbox
from sparring.core.episode import Episode
from sparring.core.interfaces import Branching, Sampling, SandboxFailure
from sparring.core.problem import Problem
from sparring.core.seeding import derive_seed
from sparring.core.verdict import Limits, Status, Verdict
from sparring.games.multistage.game import MultistageGame
from sparring.games.multistage.rules import MultistageRules
from tests.playing import a_problem, play, player


@dataclass
class FakeSandbox:
    """Runs the test's own harmless programs in this process. What fails, flakes or is slow is said beforehand."""

    broken: set[str] = field(default_factory=set)
    """Programs on which the sandbox itself fails."""
    flaky: set[str] = field(default_factory=set)
    """Tests whose outcome differs from run to run."""
    statuses: Mapping[tuple[str, str], Status] = field(default_factory=dict)
    """Outcome of (program, test), where it is not found out by running."""
    cpu_ms: Mapping[str, float] = field(default_factory=dict)
    """CPU time of a test, by its source."""
    jobs: list[tuple[str, tuple[str, ...], int]] = field(default_factory=list)
    """What was asked: (program, tests, run)."""

    async def judge(
        self,
        program: str,
        tests: Sequence[Any],
        *,
        limits: Limits | None = None,
        run: int = 0,
        language: str = "python",
    ) -> list[Verdict]:
        self.jobs.append((program, tuple(tests), run))
        await asyncio.sleep(0)
        if program in self.broken:
            raise SandboxFailure("the sandbox is broken")
        return [self._verdict(program, test, run) for test in tests]

    def stats(self) -> dict[str, float]:
        return {"jobs": float(len(self.jobs))}

    def _verdict(self, program: str, test: str, run: int) -> Verdict:
        cpu_ms = self.cpu_ms.get(test, 1.0)
        if (program, test) in self.statuses:
            return Verdict(status=self.statuses[program, test], cpu_ms=cpu_ms)
        if test in self.flaky and run == 1:
            return Verdict(status=Status.WRONG_ANSWER, cpu_ms=cpu_ms)
        namespace: dict[str, Any] = {}
        try:
            exec(program, namespace)
            value = None
            try:
                value = repr(eval(test, namespace))
            except SyntaxError:  # the test is no expression
                exec(test, namespace)
            return Verdict(status=Status.PASSED, value=value, cpu_ms=cpu_ms)
        except AssertionError:
            return Verdict(status=Status.WRONG_ANSWER, cpu_ms=cpu_ms)
        except SyntaxError:
            return Verdict(status=Status.SYNTAX_ERROR, cpu_ms=cpu_ms)
        except Exception as error:
            told = f"{type(error).__name__}: {error}"
            return Verdict(status=Status.RUNTIME_ERROR, cpu_ms=cpu_ms, error=told)


@dataclass
class Table:
    sandbox: FakeSandbox = field(default_factory=FakeSandbox)
    problem: Problem = a_problem(baseline_tests=("assert f(0) == 0",))

    def play(
        self,
        programs: Sequence[str],
        suites: Sequence[str],
        memory: Sequence[str] = (),
        branching: Branching | None = None,
        past: Mapping[str, tuple[str, ...]] = {},
        **rules: Any,
    ) -> Episode:
        lines: dict[int, str] = {}
        for attempt, program in enumerate(programs):
            for stage in range(1, 5):
                lines[derive_seed(1, attempt, stage)] = f"thought {stage} of attempt {attempt}"
            lines[derive_seed(1, attempt, 5)] = program
        for attempt, suite in enumerate(suites):
            lines[derive_seed(2, attempt, 0)] = suite

        def says(_: str, sampling: Sampling) -> str:
            return lines[sampling.seed or 0]

        generator = player("generator", says, attempts=len(programs), seed=1)
        discriminator = player("discriminator", says, attempts=len(suites), seed=2)
        seats = [
            replace(generator, branching=branching, past=past.get("generator", ())),
            replace(discriminator, past=past.get("discriminator", ())),
        ]
        game = MultistageGame(MultistageRules.model_validate({"test_format": "strict"} | rules))
        return play(game, self.problem, seats, self.sandbox, memory)


@pytest.fixture(scope="session")
def sandbox() -> Iterator[LocalSandbox]:
    """Plain processes run anywhere; the programs are the tests' own."""
    limits = Limits(cpu_s=0.5, wall_s=6.0, memory_mb=128, output_kb=16)
    with LocalSandbox("process", limits=limits) as local:
        yield local


@pytest.fixture
def table() -> Table:
    return Table()
