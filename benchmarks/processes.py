"""Processes of a sandbox and of the Docker Engine on this machine: which they are, what they used.

Linux. Another user's memory and files are readable by root only.
"""

import contextlib
import os
import threading
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import psutil

from benchmarks.end_to_end import proportional_set_size, tree

ENGINE = ("dockerd", "containerd")
SAMPLE_S = 0.01


@dataclass(frozen=True, kw_only=True, slots=True)
class SandboxProcesses:
    """Where a sandbox of this process lives."""

    supervisor: int
    roots: tuple[int, ...]
    """Its uppermost processes: the container's shim, or bubblewrap."""

    @classmethod
    def find(cls, kind: str, run_id: str) -> "SandboxProcesses":
        """Raise RuntimeError where there is not exactly one."""
        if kind == "docker":
            from sandbox_workers.docker_backend import RUN_LABEL, connect

            containers = connect().containers.list(filters={"label": f"{RUN_LABEL}={run_id}"})
            if len(containers) != 1:
                raise RuntimeError(f"{len(containers)} containers of run {run_id}")
            pid = int(containers[0].attrs["State"]["Pid"])
            return cls(supervisor=pid, roots=(psutil.Process(pid).ppid(),))
        roots = [p for p in psutil.Process().children() if p.name() in ("bwrap", "unshare")]
        if len(roots) != 1:
            raise RuntimeError(f"{len(roots)} bubblewraps are children of this process")
        below = roots[0].children(recursive=True)
        return cls(
            supervisor=next(p.pid for p in below if p.name().startswith("python")), roots=(roots[0].pid,)
        )

    def count(self) -> int:
        return len(tree(self.supervisor))

    def files(self) -> int:
        """Entries under its job directories; 0 to whoever may not look."""
        below = list(os.walk(Path("/proc", str(self.supervisor), "root", "jobs")))
        entries = sum(len(folders) + len(files) for _, folders, files in below)
        return entries - (len(below[0][1]) if below else 0)  # the directories themselves

    def descriptors(self) -> int:
        return descriptors(self.supervisor)

    def pss_mib(self) -> float:
        """Memory of all its processes, shared pages counted once, the container's shim excepted."""
        return sum(map(proportional_set_size, tree(self.supervisor))) / 2**20


def descriptors(pid: int) -> int:
    return len(os.listdir(f"/proc/{pid}/fd"))


def engine_roots() -> tuple[int, ...]:
    """The engine's daemons. All containers' traffic is theirs, so another user of the engine is counted too."""
    return tuple(p.pid for p in psutil.process_iter(["name"]) if p.info["name"] in ENGINE)


def cpu_seconds(roots: Iterable[int]) -> float:
    """CPU of all processes below and including the roots, and of the children that those have reaped."""
    processes = {process.pid: process for root in roots for process in tree(root)}
    return sum(map(_cpu, processes.values()))


def _cpu(process: psutil.Process) -> float:
    try:
        times = process.cpu_times()
    except psutil.Error:
        return 0.0
    return times.user + times.system + times.children_user + times.children_system


def machine_cpu_seconds() -> float:
    """CPU of everything on the machine since it started."""
    times = psutil.cpu_times()
    return times.user + times.nice + times.system + times.irq + times.softirq


class ShimWatch:
    """CPU of containers that come and go, from the shim of each downwards.

    Init reaps a shim, so its account is read while it lives, every 10 ms: what it uses after the last look is
    not counted, in favour of Docker.
    """

    def __init__(self) -> None:
        self.own_cpu_s = 0.0
        """What the watching itself has cost; known after the end."""
        self._cpu: dict[tuple[str, int], float] = {}
        self._before = set(psutil.pids())
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> "ShimWatch":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._end.set()
        self._thread.join()

    def cpu_seconds(self, containers: Sequence[str]) -> float:
        """Of the containers with these ids."""
        return sum(seconds for (container, _), seconds in self._cpu.items() if container in containers)

    def _watch(self) -> None:
        while not self._end.wait(SAMPLE_S):
            for pid in set(psutil.pids()) - self._before:
                with contextlib.suppress(OSError, psutil.Error):
                    if container := shim_of(Path(f"/proc/{pid}/cmdline").read_bytes()):
                        self._cpu[container, pid] = _cpu(psutil.Process(pid))
        self.own_cpu_s = time.thread_time()


def shim_of(command_line: bytes) -> str | None:
    """The container that a process is the shim of. containerd itself reaps `shim start` and `shim delete`."""
    words = command_line.decode(errors="replace").rstrip("\0").split("\0")
    is_shim = words[0].rpartition("/")[2].startswith("containerd-shim") and "-id" in words[:-1]
    return words[words.index("-id") + 1] if is_shim and words[-1] not in ("start", "delete") else None
