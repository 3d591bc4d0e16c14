"""Measures what a job costs without Sparring's sandbox: each function judges all jobs, `parallel` at a time, and
returns the CPU and wall-clock cost.

    docker_run    `docker run --rm --network none` per job, of the sandbox's own image
    docker_exec   `docker exec` per job into one warm container; jobs are not isolated from each other
    subprocess    python3 -c on this machine; no isolation
    bare_fork     a warm Python process forks; the child compiles and runs program and tests in-process and
                  ends, the parent waits. No isolation, no limits: about the least that a fresh process can cost
    true          fork and exec of /bin/true, by the same process
"""

import contextlib
import json
import resource
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import psutil

from benchmarks.processes import ShimWatch, cpu_seconds, engine_roots, machine_cpu_seconds
from sandbox_workers.namespace_backend import interpreter

JobSource = tuple[str, Sequence[str]]
"""A program and its tests."""
TIMEOUT_S = 120

FORK_SERVER = """
import json, os, resource, sys, time
jobs = json.load(sys.stdin)

def used():
    both = resource.getrusage(resource.RUSAGE_SELF), resource.getrusage(resource.RUSAGE_CHILDREN)
    return sum(u.ru_utime + u.ru_stime for u in both)

def child(program, tests):
    names = {}
    exec(compile(program, "program.py", "exec"), names)
    for test in tests:
        exec(compile(test, "test.py", "exec"), names)

cpu, wall = used(), time.perf_counter()
for job in jobs:
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            if job is None:
                os.execv("/bin/true", ["true"])
            child(*job)
            code = 0
        finally:
            os._exit(code)
    if os.waitpid(pid, 0)[1]:
        sys.exit("a job failed")
print(json.dumps([used() - cpu, time.perf_counter() - wall]))
"""


@dataclass(frozen=True, kw_only=True, slots=True)
class Cost:
    """The total cost of `jobs` jobs."""

    jobs: int
    cpu_s: float
    wall_s: float
    machine_cpu_s: float = 0.0
    """CPU seconds of the whole machine during the jobs."""

    @property
    def cpu_ms(self) -> float:
        return 1000 * self.cpu_s / self.jobs

    @property
    def per_s(self) -> float:
        return self.jobs / self.wall_s


def measure(jobs: int, roots: Sequence[int], work: Callable[[], object]) -> Cost:
    """Returns the cost of `work`. CPU is that of the processes below `roots`, of this process and of the children that
    it reaps."""
    machine, cpu, wall = machine_cpu_seconds(), cpu_seconds(roots) + _own_cpu(), time.perf_counter()
    work()
    return Cost(
        jobs=jobs,
        wall_s=time.perf_counter() - wall,
        cpu_s=cpu_seconds(roots) + _own_cpu() - cpu,
        machine_cpu_s=machine_cpu_seconds() - machine,
    )


def _own_cpu() -> float:
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + children.ru_utime + children.ru_stime


def docker_run(jobs: Sequence[JobSource], parallel: int, image: str) -> Cost:
    """Returns the cost with `docker run`. CPU is that of the docker client, dockerd, containerd, and the shims with all
    processes below them."""
    with tempfile.TemporaryDirectory() as folder:
        commands = [
            ["docker", "run", "--rm", "--network", "none", "--cidfile", f"{folder}/{n}", image]
            for n in range(len(jobs))
        ]
        with ShimWatch() as shims:
            cost = measure(len(jobs), engine_roots(), lambda: _run_all(commands, jobs, parallel))
        ids = [path.read_text() for path in Path(folder).iterdir()]
    cpu_s = cost.cpu_s - shims.own_cpu_s + shims.cpu_seconds(ids)
    return Cost(jobs=cost.jobs, wall_s=cost.wall_s, cpu_s=cpu_s, machine_cpu_s=cost.machine_cpu_s)


def docker_exec(jobs: Sequence[JobSource], parallel: int, image: str) -> Cost:
    """Returns the cost with `docker exec`. CPU is as in docker_run, without the start and end of the container."""
    with _warm_container(image) as (container, shim):
        commands = [["docker", "exec", container]] * len(jobs)
        return measure(len(jobs), (*engine_roots(), shim), lambda: _run_all(commands, jobs, parallel))


def host_subprocess(jobs: Sequence[JobSource], parallel: int) -> Cost:
    return measure(len(jobs), (), lambda: _run_all([[]] * len(jobs), jobs, parallel, interpreter()[0]))


def _run_all(
    prefixes: Iterable[list[str]], jobs: Sequence[JobSource], parallel: int, python: str = "python3"
) -> None:
    """Runs `python -c` with program and tests after each prefix."""

    def one(prefix: list[str], job: JobSource) -> None:
        source = "\n".join((job[0], *job[1]))
        _checked([*prefix, python, "-c", source])

    with ThreadPoolExecutor(parallel) as threads:
        list(threads.map(one, prefixes, jobs))


def _checked(command: list[str], given: str = "") -> str:
    done = subprocess.run(command, input=given, capture_output=True, text=True, timeout=TIMEOUT_S)
    if done.returncode:
        raise RuntimeError(f"{command[:3]} ended with {done.returncode}: {done.stderr[-500:]}")
    return done.stdout


@contextlib.contextmanager
def _warm_container(image: str) -> Iterator[tuple[str, int]]:
    """Yields (container id, process id of its shim). The container ends by itself if it is not removed."""
    container = _checked(["docker", "run", "-d", "--rm", "--network", "none", image, "sleep", "1800"]).strip()
    try:
        init = int(_checked(["docker", "inspect", "--format", "{{.State.Pid}}", container]))
        yield container, psutil.Process(init).ppid()
    finally:
        _checked(["docker", "rm", "--force", container])


def bare_fork(jobs: Sequence[JobSource | None], parallel: int) -> Cost:
    """Returns the cost with one forking process per share of the jobs. CPU is that of the process and its children,
    without its start. A job None stands for /bin/true."""
    shares = [jobs[n::parallel] for n in range(parallel)]

    def serve(share: Sequence[JobSource | None]) -> list[float]:
        return json.loads(_checked([interpreter()[0], "-c", FORK_SERVER], json.dumps(share)))

    with ThreadPoolExecutor(parallel) as threads:
        costs = list(threads.map(serve, shares))
    return Cost(jobs=len(jobs), cpu_s=sum(cpu for cpu, _ in costs), wall_s=max(wall for _, wall in costs))
