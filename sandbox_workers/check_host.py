"""Checks whether this host can judge programs. It starts each kind of sandbox, judges honest and hostile programs in
it, and asks for its languages and packages."""

import contextlib
import os
import shutil
import sys
from dataclasses import dataclass

from sandbox_workers.backends import SandboxChoice, choose_backend
from sandbox_workers.jobs import BackendDied, Job, SandboxUnavailable
from sandbox_workers.languages import PACKAGES_VARIABLE, UnknownLanguage, languages, require_commands
from sandbox_workers.namespace_backend import Privilege, find_way
from sandbox_workers.process_backend import weaker_points
from sparring.core.interfaces import SandboxKind
from sparring.core.verdict import Limits, Status

KINDS: tuple[SandboxKind, ...] = ("docker", "namespace", "process")
CHECKS = (
    ("def f(x): return x + 1", "assert f(1) == 2", Status.PASSED),
    ("def f(x): return x", "assert f(1) == 2", Status.WRONG_ANSWER),
    ("import os\ndef f(x): os._exit(0)", "assert f(1) == 2", Status.RUNTIME_ERROR),
    ("def f(x):\n    while True: pass", "assert f(1) == 2", Status.TIME_LIMIT),
    ("import socket\ndef f(x): socket.create_connection(('127.0.0.1', 9), 1)", "f(1)", Status.RUNTIME_ERROR),
    ("def f(x): return len(' ' * (1 << 30))", "f(1)", Status.MEMORY_LIMIT),
    ("def f(x): return x + 1", "import os\nassert f(1) == 2", Status.PASSED),
)
"""(program, test, expected status). The first test is a data test, the last one a code test."""
PYTHON = """\
import importlib.metadata, platform
def python(): return platform.python_version()
def packages(): return ", ".join(sorted({f"{d.name} {d.version}" for d in importlib.metadata.distributions()}))[:3000]
"""
NOTHING_CONTAINS = (
    "process for toy models on toy problems, nothing for others: start Docker or allow user namespaces "
    "(how: sandbox_workers/README.md)"
)


@dataclass(frozen=True, slots=True)
class CheckResult:
    """The findings about one kind of sandbox."""

    kind: SandboxKind
    fit: bool
    text: str
    isolation: str = ""
    """Isolation of a data test and of a code test, as their verdicts report it: sparring.core.verdict.Verdict.isolation."""
    languages: tuple[str, ...] = ()
    python: str = ""
    packages: str = ""
    """Packages that Python programs can import in addition to the standard library, with versions."""
    weaker: tuple[str, ...] = ()


def check_host() -> int:
    """Prints what this host offers. Returns 0 if a sandbox that contains programs works here, otherwise 1."""
    print(f"host: {os.cpu_count()} cores, Python {sys.version.split()[0]}, uid {os.geteuid()}, {_cgroups()}")
    findings = [examine(kind) for kind in KINDS]
    for finding in findings:
        print(f"\n{finding.kind}: {'works' if finding.fit else 'does not work'}: {finding.text}")
        if finding.isolation:
            print(f"  isolation: {finding.isolation}")
        if finding.languages:
            print(f"  languages: {', '.join(finding.languages)}")
        if finding.python:
            print(f"  Python {finding.python}; packages: {finding.packages or 'none'} ({PACKAGES_VARIABLE})")
        for point in finding.weaker:
            print(f"  weaker: {point}")
    picked = next((f.kind for f in findings if f.fit and f.kind != "process"), None)
    print(f"\nauto picks: {picked or NOTHING_CONTAINS}")
    return 0 if picked else 1


def examine(kind: SandboxKind) -> CheckResult:
    """Starts a sandbox of this kind, judges CHECKS in it, and closes it."""
    try:
        choice = choose_backend(kind)
        backend = choice.open(slots=1, index=0, run_id=f"check-{os.getpid()}")
        backend.start()
    except (SandboxUnavailable, UnknownLanguage) as missing:
        return CheckResult(kind, False, str(missing))
    try:
        limits = Limits(cpu_s=0.5, wall_s=3.0)
        jobs = [Job(program=program, tests=(test,), limits=limits) for program, test, _ in CHECKS]
        about = Job(program=PYTHON, tests=("python()", "packages()"), limits=Limits(cpu_s=5.0, wall_s=20.0))
        *judged, (python, packages) = backend.judge_batch([*jobs, about])
        verdicts = [verdict for (verdict,) in judged]
        found = backend.commands()
    except BackendDied as error:
        return CheckResult(kind, False, f"it died of the checks: {error}")
    finally:
        backend.close()
    wrong = [
        f"{program!r} gave {verdict.status} instead of {expected}"
        for (program, _, expected), verdict in zip(CHECKS, verdicts, strict=True)
        if verdict.status is not expected
    ]
    text = "; ".join(wrong) if wrong else f"{len(CHECKS)} of {len(CHECKS)} checks"
    if kind == "namespace":
        way = find_way()
        text += f", as {way.privilege}, by {way.bubblewrap}"
    return CheckResult(
        kind,
        not wrong,
        text,
        isolation=f"{verdicts[0].isolation} of a test that is data, {verdicts[-1].isolation} of one that is code",
        languages=tuple(_languages(found)),
        python=(python.value or "").strip("'"),
        packages=(packages.value or "").strip("'"),
        weaker=weaker(choice),
    )


def weaker(choice: SandboxChoice) -> tuple[str, ...]:
    """Returns one sentence for each respect in which this kind of sandbox is weaker than the strongest one."""
    shared = "programs share the host's kernel: a bug in it is a way out"
    if choice.kind == "docker":
        from sandbox_workers.docker_backend import connect, runtimes

        with contextlib.closing(connect()) as client:
            known = runtimes(client)
        hint = "sandbox.runtime: runsc" if "runsc" in known else "gVisor (runsc) is not installed"
        return (f"{shared} ({hint})",)
    if choice.kind == "process":
        return (shared, *weaker_points())
    points = (shared, "no cap on the memory of the sandbox as a whole, only on each process")
    points += ("programs can read the host's /usr",)
    if find_way().privilege is Privilege.ONE_UID:
        points += ("program and tests share a uid, kept apart by namespaces alone",)
    return points


def _languages(found: set[str]) -> list[str]:
    names = []
    for name in languages():
        try:
            require_commands(name, found)
        except UnknownLanguage:
            continue
        names.append(name)
    return names


def _cgroups() -> str:
    version = 2 if os.path.exists("/sys/fs/cgroup/cgroup.controllers") else 1
    runsc = ", runsc installed" if shutil.which("runsc") else ""
    return f"cgroups v{version}{runsc}"
