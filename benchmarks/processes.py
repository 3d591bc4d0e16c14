"""Finds the processes of a sandbox and of the Docker Engine on this machine, and measures their resources.

Linux only. Memory and files of another user's processes are readable only by root.
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
    """The processes of a sandbox that this process started."""

    supervisor: int
    roots: tuple[int, ...]
    """The sandbox's topmost processes: the container's shim, or bubblewrap."""

    @classmethod
    def find(cls, kind: str, run_id: str) -> "SandboxProcesses":
        """Finds the sandbox's processes. Raises RuntimeError if there is not exactly one sandbox."""
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
        """Returns the number of entries under the sandbox's job directories; 0 if this user may not read them."""
        below = list(os.walk(Path("/proc", str(self.supervisor), "root", "jobs")))
        entries = sum(len(folders) + len(files) for _, folders, files in below)
        return entries - (len(below[0][1]) if below else 0)  # without the job directories themselves

    def descriptors(self) -> int:
        return descriptors(self.supervisor)

    def pss_mib(self) -> float:
        """Returns the memory of all processes of the sandbox, without the container's shim; shared pages are counted
        once."""
        return sum(map(proportional_set_size, tree(self.supervisor))) / 2**20


def descriptors(pid: int) -> int:
    return len(os.listdir(f"/proc/{pid}/fd"))


def engine_roots() -> tuple[int, ...]:
    """Returns the process ids of the engine's daemons. They carry the traffic of all containers, so other users of the
    engine are counted too."""
    return tuple(p.pid for p in psutil.process_iter(["name"]) if p.info["name"] in ENGINE)


def cpu_seconds(roots: Iterable[int]) -> float:
    """Returns the CPU seconds of all processes below and including the roots, and of the children that they have
    reaped."""
    processes = {process.pid: process for root in roots for process in tree(root)}
    return sum(map(_cpu, processes.values()))


def _cpu(process: psutil.Process) -> float:
    try:
        times = process.cpu_times()
    except psutil.Error:
        return 0.0
    return times.user + times.system + times.children_user + times.children_system


def machine_cpu_seconds() -> float:
    """Returns the CPU seconds of the whole machine since it started."""
    times = psutil.cpu_times()
    return times.user + times.nice + times.system + times.irq + times.softirq


class ShimWatch:
    """Measures the CPU of short-lived containers, from the shim of each downwards.

    A shim is reaped by init, so its CPU account is read every 10 ms while it lives. What a shim uses after the last
    reading is not counted, which favours Docker.
    """

    def __init__(self) -> None:
        self.own_cpu_s = 0.0
        """CPU seconds of the measuring thread; known after it has ended."""
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
        """Returns the CPU seconds of the containers with these ids."""
        return sum(seconds for (container, _), seconds in self._cpu.items() if container in containers)

    def _watch(self) -> None:
        while not self._end.wait(SAMPLE_S):
            for pid in set(psutil.pids()) - self._before:
                with contextlib.suppress(OSError, psutil.Error):
                    if container := shim_of(Path(f"/proc/{pid}/cmdline").read_bytes()):
                        self._cpu[container, pid] = _cpu(psutil.Process(pid))
        self.own_cpu_s = time.thread_time()


def shim_of(command_line: bytes) -> str | None:
    """Returns the id of the container whose shim has this command line, or None if it is not a shim. `shim start` and
    `shim delete` are excluded, since containerd itself reaps them."""
    words = command_line.decode(errors="replace").rstrip("\0").split("\0")
    is_shim = words[0].rpartition("/")[2].startswith("containerd-shim") and "-id" in words[:-1]
    return words[words.index("-id") + 1] if is_shim and words[-1] not in ("start", "delete") else None
