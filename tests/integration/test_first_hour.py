"""The first hour on machines and in shells of all kinds: a short run, and a look at one of its attempts.

A place is a command that runs another in it. Elsewhere are: a notebook's cell (test_notebooks.py), `ray job submit` from
another directory (test_two_nodes.py), a run on Ray without a network (test_ray_run.py), the installation (test_setup.py).
"""

import fcntl
import json
import os
import pty
import re
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import termios
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from tests.integration.conftest import SHORT, eventually, rows_of

ROOT = Path(__file__).parents[2]
pytestmark = [pytest.mark.nightly, pytest.mark.timeout(900)]
RUN = ("driver.py", "--config", "debug", *SHORT, "--run-name", "first", "--curriculum.stages", "1")
IN_MOUNTS = ["unshare", "--mount", "sh", "-c"]
PLACES = {
    "one slow core": ["taskset", "-c", "0", "nice", "-n", "19"],
    "4 GiB of memory": ["prlimit", f"--data={4 << 30}"],
    "64 MB of shared memory": [*IN_MOUNTS, 'mount -t tmpfs -o size=64m none /dev/shm && exec "$@"', "sh"],
    "a full /tmp": [*IN_MOUNTS, 'mount -t tmpfs -o size=1m none /tmp && exec "$@"', "sh"],
    "no network": ["unshare", "--net", "sh", "-c", 'ip link set lo up && exec "$@"', "sh"],
    "no home": ["env", "-u", "HOME", "-u", "XDG_CACHE_HOME"],
    "a plain locale": ["env", "LC_ALL=C", "PYTHONUTF8=0", "PYTHONCOERCECLOCALE=0"],
}


@pytest.fixture
def home() -> Iterator[Path]:
    """A directory outside of /tmp, which a place may hide."""
    directory = Path(tempfile.mkdtemp(prefix="first-hour-", dir="/var/tmp"))
    yield directory
    shutil.rmtree(directory)


def environment(home: Path) -> dict[str, str]:
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("RAY_", "TMP"))}
    return kept | {"OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", "XDG_CACHE_HOME": str(home / "cache")}


def run(
    home: Path, place: Sequence[str], *arguments: str, tree: Path = ROOT
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*place, sys.executable, *arguments],
        cwd=tree,
        env=environment(home) | {"PYTHONPATH": str(tree)},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        encoding="utf-8",
        timeout=600,
    )


def assert_ran(done: subprocess.CompletedProcess[str], output: Path) -> None:
    assert done.returncode == 0, f"{done.stdout[-2000:]}\n{done.stderr[-2000:]}"
    assert not done.stderr.strip()
    results = json.loads((output / "first" / "training_results.json").read_text())
    assert results["held_out"].keys() == {"before", "after"}


@pytest.mark.parametrize("place", PLACES)
def test_a_run_and_a_look_at_it(place: str, home: Path) -> None:
    command = PLACES[place]
    if subprocess.run([*command, "true"], capture_output=True).returncode:
        pytest.skip(f"no place of this kind can be made here: {command[0]}")
    assert_ran(run(home, command, *RUN, "--output-dir", str(home)), home)
    shown = run(home, command, "-m", "sparring", "show", str(home / "first"))
    assert shown.returncode == 0 and "why an attempt earned" in shown.stdout, shown.stderr


def test_a_clone_in_a_path_with_blanks_and_umlauts(home: Path) -> None:
    tree = home / "Müllers Übung (1)"
    subprocess.run(["git", "checkout-index", "--all", f"--prefix={tree}/"], cwd=ROOT, check=True)
    done = run(home, [], *RUN, "--output-dir", "die Läufe", tree=tree)
    assert_ran(done, tree / "die Läufe")
    shown = run(home, [], "-m", "sparring", "show", "die Läufe/first", tree=tree)
    assert shown.returncode == 0, shown.stderr


def test_a_terminal_that_hangs_up_does_not_end_a_run_under_nohup(home: Path) -> None:
    with (home / "out").open("w") as out:
        process = subprocess.Popen(
            ["nohup", sys.executable, *RUN, "--output-dir", str(home)],
            cwd=ROOT,
            env=environment(home) | {"PYTHONPATH": str(ROOT)},
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=out,
            start_new_session=True,
        )
    try:
        assert eventually(lambda: bool(rows_of(home / "first")) or process.poll() is not None, 300)
        os.killpg(process.pid, signal.SIGHUP)
        assert process.wait(300) == 0, (home / "out").read_text()[-2000:]
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait(30)
    assert (home / "first" / "training_results.json").is_file()


def test_a_terminal_of_80_columns_gets_no_longer_line(home: Path) -> None:
    pid, terminal = pty.fork()
    if pid == 0:
        os.chdir(ROOT)
        command = [sys.executable, *RUN, "--output-dir", str(home)]
        os.execve(sys.executable, command, environment(home) | {"PYTHONPATH": str(ROOT), "TERM": "xterm"})
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
    said, end = b"", time.monotonic() + 300
    try:
        while time.monotonic() < end:
            said += os.read(terminal, 1 << 16)
    except OSError:  # it has ended
        pass
    finally:
        os.close(terminal)
        _, status = os.waitpid(pid, 0)
    assert os.waitstatus_to_exitcode(status) == 0, said[-2000:]
    plain = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", said.decode())
    steps = [line for line in re.split("[\r\n]+", plain) if line.startswith("step ")]
    assert len(steps) >= 3 and max(map(len, steps)) <= 80
