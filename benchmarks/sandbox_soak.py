"""A soak test of the sandbox: many jobs of every kind at once. It checks that all are judged rightly and nothing is
left.

    python -m benchmarks.sandbox_soak               100,000 jobs; as root, on an idle machine, not under nice -n 19
    python -m benchmarks.sandbox_soak --jobs 2000   a short one; --quick has 600

The kinds of jobs are in soak_jobs.py: generated ones, the honest corpus of tests/honest, hostile programs, the named
attacks of tests/attacks. Each job knows its expected verdicts: every difference is listed as wrong. Output that is
attributed to another test of the same job is counted separately. Leftovers are counted when idle, before and after: in
the sandbox (processes, descriptors of its supervisor, files in the job directories, memory), in this process
(descriptors, memory) and in the engine (containers). After each tenth, honest jobs alone run as a probe: their CPU per
job (as in benchmarks.sandbox) must not grow. At the end another tenth runs kind by kind, to show what each kind leaves.
The exit code is 1 if a verdict was wrong or something is left.
"""

import asyncio
import contextlib
import itertools
import os
import time
from argparse import Namespace
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import psutil

from benchmarks.end_to_end import proportional_set_size
from benchmarks.hostile_jobs import HOSTILE
from benchmarks.processes import SandboxProcesses, descriptors, engine_roots
from benchmarks.report import arguments, publish
from benchmarks.sandbox_baselines import Cost, measure
from benchmarks.soak_jobs import KINDS, HostileJob, SoakJob, mixed, take_honest
from sandbox_workers.backends import choose_backend
from sandbox_workers.languages import UnknownLanguage, languages
from sandbox_workers.local import LocalSandbox
from sparring.core.interfaces import SandboxFailure
from sparring.core.verdict import OutputTest

SLOTS = 2
IN_FLIGHT = 256
TENTHS = 10
LISTED = 20
SHARES = {"corpus": 0.2, "hostile": 0.03, "attack": 0.02}
"""Shares of all jobs; the other jobs are generated."""


@dataclass(kw_only=True, slots=True)
class Tally:
    """The results of the jobs of one kind."""

    jobs: int = 0
    wrong: list[str] = field(default_factory=list)
    """Wrong verdicts, hostile jobs that passed, and attacks that were not held off."""
    not_judged: list[str] = field(default_factory=list)
    """Jobs that ended with a SandboxFailure."""
    counted: Counter[str] = field(default_factory=Counter)


Tallies = dict[str, Tally]


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--jobs", type=int, default=100_000)
    for kind, share in SHARES.items():
        parser.add_argument(f"--{kind}", type=float, default=share, help=f"share of {kind} jobs")
    parser.add_argument("--sandbox", choices=("docker", "namespace"), help="default: docker where it runs")
    options = parser.parse_args()
    if os.nice(0) == 19:
        parser.error(
            "an attack that leaves niceness 19 cannot be told from nice -n 19: use nice -n 18 at most"
        )
    if options.quick:
        options.jobs = 600
    figures, ratios, sound = soak(options)
    publish(options.json, figures, ratios)
    raise SystemExit(0 if sound else 1)


def soak(options: Namespace) -> tuple[dict[str, Any], dict[str, float], bool]:
    kind = choose_backend(options.sandbox or "auto").kind
    run_id = f"soak-{os.getpid()}"
    started = time.perf_counter()
    probe = max(50, options.jobs // 200)
    shares = {name: getattr(options, name) for name in SHARES}
    shares["generated"] = 1 - sum(shares.values())
    if min(shares.values()) < 0:
        raise SystemExit(f"--{', --'.join(SHARES)} are shares of all jobs: together at most 1")
    tallies: Tallies = {name: Tally() for name in KINDS}
    with LocalSandbox(kind, slots=SLOTS, run_id=run_id, cache_size=0) as sandbox:
        schedule = mixed(shares, spoken(sandbox))
        warm_up = [*(HostileJob(hostile=one) for one in HOSTILE), *take_honest(probe)]
        run_jobs(sandbox, warm_up, tallies)
        before = idle_state(sandbox, kind, run_id, tallies)
        supervisor = SandboxProcesses.find(kind, run_id).supervisor
        tenths, probes = [], []
        for tenth in range(TENTHS):
            jobs = list(itertools.islice(schedule, options.jobs // TENTHS))
            tenths.append(timed(sandbox, kind, run_id, jobs, tallies))
            probes.append(timed(sandbox, kind, run_id, take_honest(probe, data_only=True), tallies))
            print(progress(tenth, tenths[-1], probes[-1], tallies), flush=True)
        after = idle_state(sandbox, kind, run_id, tallies)
        grown = {}
        alone = list(itertools.islice(schedule, options.jobs // TENTHS))
        for name in KINDS:
            earlier = idle_state(sandbox, kind, run_id, tallies)
            run_jobs(sandbox, [job for job in alone if job.kind == name], tallies)
            later = idle_state(sandbox, kind, run_id, tallies)
            grown[name] = {part: later[part] - earlier[part] for part in later}
        replaced = SandboxProcesses.find(kind, run_id).supervisor != supervisor
        stats = sandbox.stats()
    left = leaks(before, after)
    figures = {
        "backend": kind,
        "duration_s": time.perf_counter() - started,
        **tally_figures(tallies, grown),
        "retries": stats["retries"],
        "infrastructure_failures": stats["infrastructure_failures"],
        "sandbox_replaced": replaced,
        "leaks": left,
        **{f"{name}_before": value for name, value in before.items()},
        **{f"{name}_after": value for name, value in after.items()},
        "containers_after_close": containers(kind, run_id),
        "mixed_first_tenth_jobs_per_s": tenths[0].per_s,
        "mixed_last_tenth_jobs_per_s": tenths[-1].per_s,
        # the probes alone: a job of the mixture may have a sandbox replaced, whose CPU account is then lost
        "probe_first_tenth_cpu_ms_per_job": probes[0].cpu_ms,
        "probe_last_tenth_cpu_ms_per_job": probes[-1].cpu_ms,
    }
    wrong = any(tally.wrong for tally in tallies.values())
    sound = not (wrong or left or figures["containers_after_close"])
    return figures, {"probe_cpu_first_vs_last": probes[0].cpu_ms / probes[-1].cpu_ms}, sound


# ---------------------------------------------------------------- judging


def spoken(sandbox: LocalSandbox) -> list[str]:
    """Returns the languages whose programs can run here."""
    here = []
    for language in languages():
        with contextlib.suppress(UnknownLanguage):
            asyncio.run(sandbox.judge("", [OutputTest(stdout="")], language=language))
            here.append(language)
    return here


def run_jobs(sandbox: LocalSandbox, jobs: Sequence[SoakJob], tallies: Tallies) -> None:
    asyncio.run(_judge_all(sandbox, jobs, tallies))


async def _judge_all(sandbox: LocalSandbox, jobs: Sequence[SoakJob], tallies: Tallies) -> None:
    waiting = iter(jobs)

    async def one_after_another() -> None:
        for job in waiting:
            tally = tallies[job.kind]
            tally.jobs += 1
            try:
                wrong, counted = await job.judge(sandbox, tally.jobs)
            except SandboxFailure as failure:
                tally.not_judged.append(f"{job.name}: {failure}")
            else:
                tally.wrong += wrong
                for line in wrong:  # the figures are written hours later
                    print(line, flush=True)
                tally.counted.update(counted)

    await asyncio.gather(*(one_after_another() for _ in range(IN_FLIGHT)))


def timed(sandbox: LocalSandbox, kind: str, run_id: str, jobs: Sequence[SoakJob], tallies: Tallies) -> Cost:
    roots = SandboxProcesses.find(kind, run_id).roots + (engine_roots() if kind == "docker" else ())
    return measure(len(jobs), roots, lambda: run_jobs(sandbox, jobs, tallies))


# ---------------------------------------------------------------- what is left


def idle_state(sandbox: LocalSandbox, kind: str, run_id: str, tallies: Tallies) -> dict[str, float]:
    """Measures the idle state after a job in every slot, so that each slot has its evaluator, as after any honest job."""
    run_jobs(sandbox, take_honest(60, data_only=True), tallies)
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
    """Returns what has grown. Memory is reported but not counted as a leak, since interpreters keep some."""
    countable = [name for name in before if not name.endswith("_mib")]
    return [f"{name}: {before[name]} -> {after[name]}" for name in countable if after[name] > before[name]]


def containers(kind: str, run_id: str) -> int:
    """Returns the number of this run's containers, in any state."""
    if kind != "docker":
        return 0
    from sandbox_workers.docker_backend import RUN_LABEL, connect

    found = []
    for _ in range(20):  # the engine removes them with a delay
        found = connect().containers.list(
            all=True, filters={"label": f"{RUN_LABEL}={run_id}"}, ignore_removed=True
        )
        if not any(container.status == "removing" for container in found):
            break
        time.sleep(0.5)
    return len(found)


# ---------------------------------------------------------------- figures


def progress(tenth: int, mix: Cost, probe: Cost, tallies: Tallies) -> str:
    wrong, not_judged = (sum(len(getattr(t, n)) for t in tallies.values()) for n in ("wrong", "not_judged"))
    return (
        f"tenth {tenth + 1}: {mix.per_s:.0f} jobs/s, honest {probe.cpu_ms:.2f} ms CPU, "
        f"{wrong} wrong, {not_judged} not judged"
    )


def tally_figures(tallies: Tallies, grown: dict[str, dict[str, float]]) -> dict[str, Any]:
    """Returns the figures by kind; `grown` is what has grown after the jobs of one kind alone."""
    return {
        f"{kind}_{name}": value
        for kind, tally in tallies.items()
        for name, value in {
            "jobs": tally.jobs,
            "wrong_verdicts": len(tally.wrong),
            "wrong_verdicts_listed": tally.wrong[:LISTED],
            "not_judged": len(tally.not_judged),
            "not_judged_listed": tally.not_judged[:LISTED],
            "counted": dict(sorted(tally.counted.items())),
            "growth": {name: round(more, 2) for name, more in grown[kind].items() if more},
        }.items()
    }


if __name__ == "__main__":
    main()
