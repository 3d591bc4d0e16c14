"""The runner as plain processes, for hosts that allow neither containers nor namespaces (unprivileged containers,
hosted notebooks).

It is chosen automatically only for toy models on toy problems, because it contains programs much less than the
other backends do. See weaker_points.
"""

import os
import platform
import shutil
import subprocess
import tempfile
from functools import cache
from pathlib import Path

from sandbox_workers.jobs import SandboxUnavailable
from sandbox_workers.languages import packages
from sandbox_workers.namespace_backend import RUNNER, TAKE_UID, TRIAL_TIMEOUT_S, interpreter
from sandbox_workers.piped import PipedBackend
from sandbox_workers.seccomp import bpf_path

ENTRY = "import sys; sys.path.insert(0, sys.argv.pop()); from runner.supervisor import main; main()"
WEAKER_ALWAYS = (
    "programs see the host's processes, and its files as far as any user may read them",
    "no cap on memory, processes and disk of the sandbox as a whole",
)
WEAKER_ONE_UID = (
    "program, tests and this process share one uid: a program can signal them, read their files and memory, "
    "and so end them or forge verdicts",
)
WEAKER_WITHOUT_SECCOMP = ("programs may use the network and every system call",)


def weaker_points() -> tuple[str, ...]:
    """Returns one sentence for each thing that this backend does not contain on this host."""
    points = WEAKER_ALWAYS
    if not may_give_uids():
        points += WEAKER_ONE_UID
    if _filter() is None:
        points += WEAKER_WITHOUT_SECCOMP
    return points


@cache
def may_give_uids() -> bool:
    """Returns whether each job can have its own uid. This is tried, because uid 0 of a container may lack root's
    rights."""
    python, _ = interpreter()
    with tempfile.TemporaryDirectory(prefix="sparring-trial-") as home:
        trial = [python, "-I", "-S", "-c", TAKE_UID, home, "200000"]
        return subprocess.run(trial, capture_output=True, timeout=TRIAL_TIMEOUT_S).returncode == 0


def _filter() -> Path | None:
    try:
        return bpf_path()
    except SandboxUnavailable:
        return None


class ProcessBackend(PipedBackend):
    """Plain processes with `slots` slots.

    Args:
        own_uids: whether each job gets its own uids. If None, this is found out.
    """

    def __init__(self, *, slots: int = 2, uid_base: int = 200_000, own_uids: bool | None = None) -> None:
        super().__init__(slots)
        self._own_uids = may_give_uids() if own_uids is None else own_uids
        self._uid_base = uid_base
        self._directory: str | None = None

    def start(self) -> None:
        python, prefix = interpreter()
        if self._own_uids and prefix is not None and not _open_to_all(Path(prefix)):
            raise SandboxUnavailable(
                f"other users cannot read {prefix}: install a Python of at least 3.11 in /usr, or this one elsewhere"
            )
        found = packages()
        if self._own_uids and found is not None and not _open_to_all(Path(found)):
            raise SandboxUnavailable(f"other users cannot read {found}: put the packages elsewhere")
        _remove_orphans()
        self._directory = tempfile.mkdtemp(prefix=f"{_prefix()}{os.getpid()}-")
        os.chmod(self._directory, 0o711)  # jobs must reach their own directories but not list them
        for slot in range(self.slots):
            for role in "pt":
                os.mkdir(f"{self._directory}/{slot}{role}", 0o700)
        environment = self._environment(self._uid_base) | {
            "PATH": "/usr/local/bin:/usr/bin:/bin",
            "LANG": "C.UTF-8",
            "JOBS": self._directory,
            "ISOLATION": "uids" if self._own_uids else "none",
            "CHOWN_JOBS": "1" if self._own_uids else "0",
            "PACKAGES": found or "",
        }
        if (bpf := _filter()) is not None:
            environment["SECCOMP_BPF"] = str(bpf)
        self._launch(
            [python, "-s", "-P", "-B", "-c", ENTRY, str(RUNNER.parent)],
            "plain processes",
            environment=environment,
        )

    def close(self) -> None:
        super().close()
        directory, self._directory = self._directory, None
        if directory is not None:
            shutil.rmtree(directory, ignore_errors=True)


def _prefix() -> str:
    """Returns the beginning of the directories' names on this machine and in this namespace of process ids."""
    return f"sparring-jobs-{platform.node()}-{os.stat('/proc/self/ns/pid').st_ino}-"


def _remove_orphans() -> None:
    """Removes the directories of sandboxes whose owner was killed. Other machines and containers may share the place."""
    for directory in Path(tempfile.gettempdir()).glob(f"{_prefix()}*-*"):
        owner = directory.name.removeprefix(_prefix()).partition("-")[0]
        if owner.isdecimal() and not Path(f"/proc/{owner}").exists():
            shutil.rmtree(directory, ignore_errors=True)


def _open_to_all(path: Path) -> bool:
    return all(parent.stat().st_mode & 0o005 == 0o005 for parent in (path, *path.parents))
