"""A soak of the sandbox: many jobs, a share of them hostile. Are honest jobs still judged rightly, and is anything left?

    python -m benchmarks.sandbox_soak               100,000 jobs, 5 % hostile; as root, on an idle machine
    python -m benchmarks.sandbox_soak --quick       600 jobs

Honest jobs have known verdicts and values: whatever differs is a wrong verdict, listed, and so is output of another job.
Output that is given to another test of the same job is counted apart. A hostile job must not pass, that is all. What is left is looked for in the sandbox (processes, descriptors of its supervisor, files in the
job directories, memory), in this process (descriptors, memory) and in the engine (containers), when idle, before and
after. After each tenth honest jobs alone run as a probe: their CPU per job (as in benchmarks.sandbox) must not grow.
The exit code is 1 where a verdict was wrong, a hostile job passed, or something is left.
"""

import asyncio
import itertools
import os
import random
import time
from argparse import Namespace
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import psutil

from benchmarks.end_to_end import proportional_set_size
from benchmarks.hostile_jobs import HOSTILE, LIMITS, TEST, Hostile
from benchmarks.processes import SandboxProcesses, descriptors, engine_roots
from benchmarks.report import arguments, publish
from benchmarks.sandbox_baselines import Cost, measure
from core.interfaces import SandboxFailure
from core.verdict import OutputTest, Status, Test, Verdict
from sandbox_workers.backends import choose_backend
from sandbox_workers.local import LocalSandbox

SLOTS = 2
IN_FLIGHT = 256
TENTHS = 10
LISTED = 20
PASSED, WRONG, ERROR = Status.PASSED, Status.WRONG_ANSWER, Status.RUNTIME_ERROR


@dataclass(frozen=True, kw_only=True, slots=True)
class Expected:
    """Of one test's verdict."""

    status: Status
    value: str | None = None
    stdout: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class Honest:
    """A job whose verdicts are known."""

    name: str
    program: str
    tests: tuple[Test, ...]
    expected: tuple[Expected, ...]

    def wrong(self, verdicts: Sequence[Verdict]) -> list[str]:
        """A line per wrong verdict. Lines of stdout that are not this job's make one wrong, too."""
        own = {line for expected in self.expected for line in expected.stdout.splitlines()}
        return [
            f"{self.name}: {test!r}: {verdict.status} {verdict.value} {verdict.stdout[:50]!r} {verdict.error}"
            for test, wanted, verdict in zip(self.tests, self.expected, verdicts, strict=True)
            if (verdict.status, verdict.value) != (wanted.status, wanted.value)
            or not own.issuperset(verdict.stdout.splitlines())
        ]

    def misplaced_output(self, verdicts: Sequence[Verdict]) -> int:
        """How many tests are not given just what was printed under them."""
        return sum(v.stdout != e.stdout for v, e in zip(verdicts, self.expected, strict=True))


@dataclass(kw_only=True, slots=True)
class Tally:
    """What came of the jobs."""

    honest: int = 0
    hostile: int = 0
    wrong: list[str] = field(default_factory=list)
    misplaced_output: int = 0
    """Honest verdicts with output of another test of their job, or without their own."""
    not_judged: list[str] = field(default_factory=list)
    """SandboxFailure, of honest or hostile jobs."""
    hostile_passed: list[str] = field(default_factory=list)
    hostile_statuses: Counter[str] = field(default_factory=Counter)


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--jobs", type=int, default=100_000)
    parser.add_argument("--hostile", type=float, default=0.05, help="share of hostile jobs")
    parser.add_argument("--backend", choices=("docker", "namespace"), help="default: docker where it runs")
    options = parser.parse_args()
    if options.quick:
        options.jobs = 600
    figures, ratios, sound = soak(options)
    publish(options.json, figures, ratios)
    raise SystemExit(0 if sound else 1)


def soak(options: Namespace) -> tuple[dict[str, Any], dict[str, float], bool]:
    kind = choose_backend(options.backend or "auto").kind
    run_id = f"soak-{os.getpid()}"
    tally, started = Tally(), time.perf_counter()
    probe = max(50, options.jobs // 200)
    with LocalSandbox(kind, slots=SLOTS, run_id=run_id, cache_size=0) as sandbox:
        schedule = mixed(options.hostile)
        run_jobs(sandbox, [*HOSTILE, *take_honest(probe)], tally)  # warm-up
        before = idle_state(sandbox, kind, run_id, tally)
        supervisor = SandboxProcesses.find(kind, run_id).supervisor
        tenths, probes = [], []
        for tenth in range(TENTHS):
            jobs = list(itertools.islice(schedule, options.jobs // TENTHS))
            tenths.append(timed(sandbox, kind, run_id, jobs, tally))
            probes.append(timed(sandbox, kind, run_id, take_honest(probe, inert_only=True), tally))
            print(progress(tenth, tenths[-1], probes[-1], tally), flush=True)
        after = idle_state(sandbox, kind, run_id, tally)
        replaced = SandboxProcesses.find(kind, run_id).supervisor != supervisor
        stats = sandbox.stats()
    left = leaks(before, after)
    figures = {
        "backend": kind,
        "duration_s": time.perf_counter() - started,
        **tally_figures(tally),
        "retries": stats["retries"],
        "infrastructure_failures": stats["infrastructure_failures"],
        "sandbox_replaced": replaced,
        "leaks": left,
        **{f"{name}_before": value for name, value in before.items()},
        **{f"{name}_after": value for name, value in after.items()},
        "containers_after_close": containers(kind, run_id),
        **tenth_figures("mixed", tenths),
        **tenth_figures("probe", probes),
    }
    sound = not (tally.wrong or tally.hostile_passed or left or figures["containers_after_close"])
    return figures, {"probe_cpu_first_vs_last": probes[0].cpu_ms / probes[-1].cpu_ms}, sound


# ---------------------------------------------------------------- jobs

numbers = itertools.count(1)


def right(n: int) -> Honest:
    return Honest(
        name="right",
        program=f"def f(x): return [x, x + {n}]",
        tests=(f"assert f(1) == [1, {1 + n}]", f"assert f(5) == [5, {5 + n}]", "f(2)"),
        expected=(
            Expected(status=PASSED),
            Expected(status=PASSED),
            Expected(status=PASSED, value=f"[2, {2 + n}]"),
        ),
    )


def wrong_once(n: int) -> Honest:
    return Honest(
        name="wrong once",
        program=f"def f(x): return {n} if x == 2 else 0",
        tests=("assert f(1) == 0", "assert f(2) == 0", "assert f(3) == 0"),
        expected=(Expected(status=PASSED), Expected(status=WRONG), Expected(status=PASSED)),
    )


def raises(n: int) -> Honest:
    return Honest(
        name="raises",
        program=f"def f(x):\n    if x == {n}: raise KeyError(x)\n    return x",
        tests=(f"assert f({n}) == {n}", f"assert f(-{n}) == -{n}"),
        expected=(Expected(status=ERROR), Expected(status=PASSED)),
    )


def does_not_parse(n: int) -> Honest:
    return Honest(
        name="does not parse",
        program=f"def f(x) return {n}",
        tests=("assert f(1) == 1",),
        expected=(Expected(status=Status.SYNTAX_ERROR),),
    )


def prints(n: int) -> Honest:
    return Honest(
        name="prints",
        program=f"def f(x):\n    print('job {n}', x)\n    return x",
        tests=("f(1)", "assert f(2) == 3"),
        expected=(
            Expected(status=PASSED, value="1", stdout=f"job {n} 1\n"),
            Expected(status=WRONG, stdout=f"job {n} 2\n"),
        ),
    )


def tested_by_code(n: int) -> Honest:
    return Honest(
        name="tested by code",
        program=f"def f(items):\n    items.append({n})\n    return sorted(items)",
        tests=(f"items = [{n + 1}]\nassert f(items) == [{n}, {n + 1}]", f"assert sorted(f([])) != [{n}]"),
        expected=(Expected(status=PASSED), Expected(status=WRONG)),
    )


def whole_program(n: int) -> Honest:
    return Honest(
        name="whole program",
        program=f"print(int(input()) + {n})",
        tests=(OutputTest(stdin="1\n", stdout=f"{n + 1}\n"), OutputTest(stdin="2\n", stdout="no")),
        expected=(
            Expected(status=PASSED, stdout=f"{n + 1}\n"),
            Expected(status=WRONG, stdout=f"{n + 2}\n"),
        ),
    )


INERT_KINDS = (right, wrong_once, raises, prints)
HONEST_KINDS = (*INERT_KINDS * 5, *(does_not_parse, tested_by_code) * 2, whole_program)


def take_honest(count: int, inert_only: bool = False) -> list[Honest]:
    """All kinds in turn."""
    kinds = itertools.cycle(INERT_KINDS if inert_only else HONEST_KINDS)
    return [make(next(numbers)) for make in itertools.islice(kinds, count)]


def mixed(hostile: float, seed: int = 0) -> Iterator[Honest | Hostile]:
    """Without end; the same jobs for the same seed."""
    rng = random.Random(seed)
    weights = [attack.weight for attack in HOSTILE]
    while True:
        if rng.random() < hostile:
            yield rng.choices(HOSTILE, weights)[0]
        else:
            yield rng.choice(HONEST_KINDS)(next(numbers))


# ---------------------------------------------------------------- judging


def run_jobs(sandbox: LocalSandbox, jobs: Sequence[Honest | Hostile], tally: Tally) -> None:
    asyncio.run(_judge_all(sandbox, jobs, tally))


async def _judge_all(sandbox: LocalSandbox, jobs: Sequence[Honest | Hostile], tally: Tally) -> None:
    waiting = iter(jobs)

    async def one_after_another() -> None:
        for job in waiting:
            try:
                await _judge(sandbox, job, tally)
            except SandboxFailure as failure:
                tally.not_judged.append(f"{job.name}: {failure}")

    await asyncio.gather(*(one_after_another() for _ in range(IN_FLIGHT)))


async def _judge(sandbox: LocalSandbox, job: Honest | Hostile, tally: Tally) -> None:
    if isinstance(job, Honest):
        tally.honest += 1
        verdicts = await sandbox.judge(job.program, job.tests)
        tally.wrong += job.wrong(verdicts)
        tally.misplaced_output += job.misplaced_output(verdicts)
        return
    tally.hostile += 1
    run = tally.hostile  # each is judged, never shared with an equal one in flight
    (verdict,) = await sandbox.judge(job.program, [TEST], limits=LIMITS, run=run)
    tally.hostile_statuses[f"{job.name}: {verdict.status}"] += 1
    if verdict.passed:
        tally.hostile_passed.append(job.name)


def timed(
    sandbox: LocalSandbox, kind: str, run_id: str, jobs: Sequence[Honest | Hostile], tally: Tally
) -> Cost:
    roots = SandboxProcesses.find(kind, run_id).roots + (engine_roots() if kind == "docker" else ())
    return measure(len(jobs), roots, lambda: run_jobs(sandbox, jobs, tally))


# ---------------------------------------------------------------- what is left


def idle_state(sandbox: LocalSandbox, kind: str, run_id: str, tally: Tally) -> dict[str, float]:
    """Once every slot has its evaluator, as after any honest job."""
    run_jobs(sandbox, take_honest(60, inert_only=True), tally)
    processes = SandboxProcesses.find(kind, run_id)
    return {
        "containers": containers(kind, run_id),
        "processes": processes.count(),
        "supervisor_descriptors": processes.descriptors(),
        "own_descriptors": descriptors(os.getpid()),
        "files": processes.files(),
        "sandbox_pss_mib": processes.pss_mib(),
        "own_pss_mib": proportional_set_size(psutil.Process()) / 2**20,
    }


def leaks(before: dict[str, float], after: dict[str, float]) -> list[str]:
    """What there is more of than before. Memory is reported and not judged: interpreters keep some."""
    countable = [name for name in before if not name.endswith("_mib")]
    return [f"{name}: {before[name]} -> {after[name]}" for name in countable if after[name] > before[name]]


def containers(kind: str, run_id: str) -> int:
    """Of this run, in whatever state."""
    if kind != "docker":
        return 0
    from sandbox_workers.docker_backend import RUN_LABEL, connect

    found = []
    for _ in range(20):  # the engine removes them in its own time
        found = connect().containers.list(
            all=True, filters={"label": f"{RUN_LABEL}={run_id}"}, ignore_removed=True
        )
        if not any(container.status == "removing" for container in found):
            break
        time.sleep(0.5)
    return len(found)


# ---------------------------------------------------------------- figures


def progress(tenth: int, mix: Cost, probe: Cost, tally: Tally) -> str:
    return (
        f"tenth {tenth + 1}: {mix.per_s:.0f} jobs/s, honest {probe.cpu_ms:.2f} ms CPU, {len(tally.wrong)} wrong, "
        f"{len(tally.hostile_passed)} hostile passed, {len(tally.not_judged)} not judged"
    )


def tally_figures(tally: Tally) -> dict[str, Any]:
    return {
        "honest_jobs": tally.honest,
        "hostile_jobs": tally.hostile,
        "wrong_verdicts": len(tally.wrong),
        "wrong_verdicts_listed": tally.wrong[:LISTED],
        "misplaced_output": tally.misplaced_output,
        "not_judged": len(tally.not_judged),
        "not_judged_listed": tally.not_judged[:LISTED],
        "hostile_passed": len(tally.hostile_passed),
        "hostile_passed_listed": tally.hostile_passed[:LISTED],
        "hostile_statuses": dict(sorted(tally.hostile_statuses.items())),
    }


def tenth_figures(name: str, costs: Sequence[Cost]) -> dict[str, float]:
    first, last = costs[0], costs[-1]
    return {
        f"{name}_first_tenth_jobs_per_s": first.per_s,
        f"{name}_last_tenth_jobs_per_s": last.per_s,
        f"{name}_first_tenth_cpu_ms_per_job": first.cpu_ms,
        f"{name}_last_tenth_cpu_ms_per_job": last.cpu_ms,
    }


if __name__ == "__main__":
    main()
