"""Measures the sandbox's CPU, throughput, latency and memory against other ways to run a program, in the same run.

    python -m benchmarks.sandbox                    a few minutes; on an otherwise idle machine, as root
    python -m benchmarks.sandbox --quick            under a minute
    python -m benchmarks.sandbox --mbpp mbpp.jsonl  the reference solutions of a data set, too

A job is a program of about 1 ms with five tests, `assert f(n) == literal`; no two programs are equal and there is no
cache. The tests of `code` jobs are code, so that a test process is forked for each.

CPU is counted per process, so other load does not enter. For the sandbox, these are this process (client, channel) and,
with Docker, all processes below the container's shim, dockerd and containerd, which carry the traffic; without Docker,
all processes below bubblewrap. The CPU of children that their parents have reaped is included. For the baselines, see
sandbox_baselines.py. Other users of the same engine do distort the figures with Docker. `machine_cpu_ms_per_job` is
that of the whole machine, for comparison on an idle one. `ratios` are the baseline's CPU per job divided by ours:
larger is better.

Each figure is the median over rounds in which all take turns; as many jobs run at a time as the sandbox has slots.
"""

import asyncio
import itertools
import os
import shutil
import time
from argparse import Namespace
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.processes import SandboxProcesses, engine_roots, proportional_set_size, tree
from benchmarks.reference_solutions import first_failure, judge_references
from benchmarks.report import arguments, percentile, publish
from benchmarks.sandbox_baselines import (
    Cost,
    JobSource,
    bare_fork,
    docker_exec,
    docker_run,
    host_subprocess,
    measure,
)
from sandbox_workers.backends import choose_backend
from sandbox_workers.jobs import SandboxUnavailable
from sandbox_workers.local import LocalSandbox
from sparring.core.verdict import Limits, Status

SLOTS = 2
IN_FLIGHT = 64
BATCH_PROGRAMS, BATCH_TESTS = 16, 20
HANG_CPU_S = 1.0
numbers = itertools.count()


@dataclass(frozen=True, kw_only=True, slots=True)
class Sizes:
    """Sizes of the measurements."""

    rounds: int
    jobs: int
    forks: int
    subprocesses: int
    execs: int
    runs: int
    latencies: int
    company: int
    """Number of jobs that run beside the one that hangs."""


FULL = Sizes(
    rounds=5, jobs=1000, forks=1000, subprocesses=100, execs=20, runs=10, latencies=2000, company=1000
)
QUICK = Sizes(rounds=2, jobs=200, forks=200, subprocesses=20, execs=4, runs=3, latencies=300, company=200)


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--mbpp", type=Path, help="JSON lines of reference solutions with their tests")
    parser.add_argument("--sandbox", choices=("docker", "namespace"), help="default: docker where it runs")
    options = parser.parse_args()
    figures, ratios = run(options, QUICK if options.quick else FULL)
    publish(options.json, figures, ratios)


def run(options: Namespace, sizes: Sizes) -> tuple[dict[str, Any], dict[str, float]]:
    kind = choose_backend(options.sandbox or "auto").kind
    run_id = f"benchmark-{os.getpid()}"
    with LocalSandbox(kind, slots=SLOTS, run_id=run_id, cache_size=0) as sandbox:
        processes = SandboxProcesses.find(kind, run_id)
        asyncio.run(judge_all(sandbox, [*make_jobs(50), *make_jobs(50, code=True)], IN_FLIGHT))
        figures: dict[str, Any] = {"backend": kind, **memory(processes)}
        costs = take_turns(contestants(sandbox, processes, kind, sizes), sizes.rounds)
        for name, rounds in costs.items():
            figures |= cost_figures(name, rounds)
        figures |= batches(sandbox, processes, kind, sizes.rounds)
        for in_flight in (1, 16, 256):
            figures |= latency(sandbox, sizes.latencies, in_flight)
        figures |= hanging_job(sandbox, sizes)
        if options.mbpp:
            figures |= judge_references(sandbox, options.mbpp)
        figures["infrastructure_failures"] = sandbox.stats()["infrastructure_failures"]
    ours = figures["sandbox_cpu_ms_per_job"]
    compared = ("docker_run", "subprocess", "bare_fork")
    return figures, {
        f"vs_{name}": figures[f"{name}_cpu_ms_per_job"] / ours for name in compared if name in costs
    }


# ---------------------------------------------------------------- jobs


def make_jobs(count: int, code: bool = False, tests: int = 5) -> list[JobSource]:
    """Returns jobs with distinct programs; the tests are data, or code if `code`."""
    return [make_job(next(numbers), code, tests) for _ in range(count)]


def make_job(number: int, code: bool, tests: int) -> JobSource:
    """Returns a job that takes about 0.2 ms per test."""
    program = f"def f(n):\n    total = {number}\n    for i in range(4000):\n        total += i * n\n    return total\n"
    answers = {n: number + 7_998_000 * n for n in range(1, tests + 1)}
    if code:
        return program, [f"import os\nassert f({n}) == {answer}" for n, answer in answers.items()]
    return program, [f"assert f({n}) == {answer}" for n, answer in answers.items()]


async def judge_all(sandbox: LocalSandbox, jobs: Sequence[JobSource], in_flight: int) -> list[float]:
    """Judges the jobs, with `in_flight` jobs at a time, and returns the seconds that each took. Raises RuntimeError if
    a test does not pass."""
    room = asyncio.Semaphore(in_flight)

    async def one(program: str, tests: Sequence[str]) -> float:
        async with room:
            start = time.perf_counter()
            verdicts = await sandbox.judge(program, tests)
            seconds = time.perf_counter() - start
        if failure := first_failure(verdicts):
            raise RuntimeError(f"wrong verdict on an honest job: {failure}")
        return seconds

    return await asyncio.gather(*(one(*job) for job in jobs))


# ---------------------------------------------------------------- CPU and throughput


def sandbox_cost(
    sandbox: LocalSandbox, processes: SandboxProcesses, kind: str, jobs: Sequence[JobSource]
) -> Cost:
    roots = processes.roots + (engine_roots() if kind == "docker" else ())
    return measure(len(jobs), roots, lambda: asyncio.run(judge_all(sandbox, jobs, IN_FLIGHT)))


def contestants(
    sandbox: LocalSandbox, processes: SandboxProcesses, kind: str, sizes: Sizes
) -> dict[str, Callable[[], Cost]]:
    """Returns what is compared, by name; without Docker if it is not available."""
    ways: dict[str, Callable[[], Cost]] = {
        "sandbox": lambda: sandbox_cost(sandbox, processes, kind, make_jobs(sizes.jobs)),
        "sandbox_code": lambda: sandbox_cost(sandbox, processes, kind, make_jobs(sizes.jobs, code=True)),
        "bare_fork": lambda: bare_fork(make_jobs(sizes.forks), SLOTS),
        "true": lambda: bare_fork([None] * sizes.forks, SLOTS),
        "subprocess": lambda: host_subprocess(make_jobs(sizes.subprocesses), SLOTS),
    }
    try:
        image = choose_backend("docker").image
    except SandboxUnavailable:
        return ways
    if shutil.which("docker"):
        ways["docker_exec"] = lambda: docker_exec(make_jobs(sizes.execs), SLOTS, image)
        ways["docker_run"] = lambda: docker_run(make_jobs(sizes.runs), SLOTS, image)
    return ways


def take_turns(ways: dict[str, Callable[[], Cost]], rounds: int) -> dict[str, list[Cost]]:
    costs: dict[str, list[Cost]] = {name: [] for name in ways}
    for _ in range(rounds):
        for name, way in ways.items():
            costs[name].append(way())
    return costs


def cost_figures(name: str, rounds: Sequence[Cost]) -> dict[str, float]:
    figures = {
        f"{name}_cpu_ms_per_job": median(cost.cpu_ms for cost in rounds),
        f"{name}_jobs_per_s": median(cost.per_s for cost in rounds),
    }
    machine = median(1000 * cost.machine_cpu_s / cost.jobs for cost in rounds)
    return figures | ({f"{name}_machine_cpu_ms_per_job": machine} if machine else {})


def batches(sandbox: LocalSandbox, processes: SandboxProcesses, kind: str, rounds: int) -> dict[str, float]:
    """Measures few programs with many tests each, all requested at once."""
    costs = [
        sandbox_cost(sandbox, processes, kind, make_jobs(BATCH_PROGRAMS, tests=BATCH_TESTS))
        for _ in range(5 * rounds)
    ]
    return {
        "batch_wall_ms_per_test": median(1000 * c.wall_s / (BATCH_PROGRAMS * BATCH_TESTS) for c in costs),
        # A batch is short compared with the clock's ticks, so all batches are summed.
        "batch_cpu_ms_per_test": 1000
        * sum(c.cpu_s for c in costs)
        / (len(costs) * BATCH_PROGRAMS * BATCH_TESTS),
    }


# ---------------------------------------------------------------- latency, memory, one that hangs


def latency(sandbox: LocalSandbox, jobs: int, in_flight: int) -> dict[str, float]:
    seconds = asyncio.run(judge_all(sandbox, make_jobs(max(jobs, 4 * in_flight)), in_flight))
    return {
        f"latency_{in_flight}_p50_ms": 1000 * percentile(seconds, 50),
        f"latency_{in_flight}_p99_ms": 1000 * percentile(seconds, 99),
    }


def memory(processes: SandboxProcesses) -> dict[str, float]:
    """Returns the memory and the number of processes of the warm, idle sandbox; shared pages are counted once."""
    above = [process for root in processes.roots for process in tree(root)]
    total = sum(map(proportional_set_size, above)) / 2**20
    return {
        "idle_pss_mib": processes.pss_mib(),
        "idle_pss_with_shim_mib": total,
        "idle_processes": processes.count(),
    }


def hanging_job(sandbox: LocalSandbox, sizes: Sizes) -> dict[str, float]:
    """Measures the wall-clock time of many jobs, with and without one among them that never ends."""
    without, hung = [], []
    for _ in range(min(3, sizes.rounds)):
        for seconds, hang in ((without, False), (hung, True)):
            start = time.perf_counter()
            asyncio.run(_with_company(sandbox, make_jobs(sizes.company), hang))
            seconds.append(time.perf_counter() - start)
    return {
        "hang_company_jobs": sizes.company,
        "hang_without_wall_s": median(without),
        "hang_with_wall_s": median(hung),
        "hang_extra_wall_s": median(hung) - median(without),
    }


async def _with_company(sandbox: LocalSandbox, jobs: Sequence[JobSource], hang: bool) -> None:
    half = len(jobs) // 2
    first = asyncio.create_task(judge_all(sandbox, jobs[:half], half))
    await asyncio.sleep(0)  # requested before the one that hangs
    stuck = asyncio.create_task(_hang(sandbox)) if hang else None
    await asyncio.gather(first, judge_all(sandbox, jobs[half:], half))
    if stuck is not None:
        await stuck


async def _hang(sandbox: LocalSandbox) -> None:
    program = f"def f(n):\n    while True:\n        n = {next(numbers)}\n"
    (verdict,) = await sandbox.judge(program, ["assert f(1) == 2"], limits=Limits(cpu_s=HANG_CPU_S))
    if verdict.status is not Status.TIME_LIMIT:
        raise RuntimeError(f"a job that hangs is judged {verdict.status}: {verdict.error}")


if __name__ == "__main__":
    main()
