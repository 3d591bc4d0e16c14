"""A child process of a zygote as the supervisor sees it: its pipes, its clock and its end."""

import json
import os
import socket
import time
from typing import Any

from . import kernel
from .zygote import Settings

PIPE_CHUNK = 65536
LOOK_S = 0.05
"""Average pause between two looks at all processes that a child started, seconds. The pause varies, so that no program
knows when it is not observed."""
SHARED_MB = 64
"""Resident memory that is allowed beyond a limit, MiB. Memory that processes share is counted for each process."""
ROUNDING_S = 0.03
"""Tolerance of comparisons of CPU time, seconds. The kernel counts the user and system time of processes that were
waited for in ticks."""


class ZygoteGone(RuntimeError):
    """Raised if a slot cannot go on."""


class Child:
    """A child process with its sockets and pipes to the supervisor. The constructor has the zygote fork it.

    Args:
        zygote: the connection to the zygote of `role`, which has one child at a time.
        streams: names of the output pipes: ("stdout", "stderr"), or ("output",) if both share one.
        rpc: the child's end of the connection between program and test.
        request: what the zygote gets in addition to the limits.
    """

    def __init__(
        self,
        zygote: socket.socket,
        role: str,
        settings: Settings,
        limits: dict,
        *,
        streams: tuple[str, ...],
        rpc: socket.socket | None = None,
        **request: Any,
    ) -> None:
        self.zygote = zygote
        self.pid: int | None = None
        self._parent = 0
        self.end: list | None = None
        """[exit code, CPU seconds, peak resident KiB] once the child has ended."""
        self.alone = True
        """True as long as the child was not seen to have another process or to have lowered its share of the CPU."""
        self.control, control = socket.socketpair()
        pipes = [_output_pipe(role, settings) for _ in streams]
        self.outputs = {name: read for name, (read, _) in zip(streams, pipes, strict=True)}
        self.read = {name: bytearray() for name in streams}
        """Bytes of each output that were read and not yet taken."""
        for descriptor in self.outputs.values():
            os.set_blocking(descriptor, False)
        theirs = [control.fileno(), pipes[0][1], pipes[-1][1]]
        if rpc is not None:
            theirs.append(rpc.fileno())
        socket.send_fds(zygote, [json.dumps({"limits": limits, **request}).encode()], theirs)
        control.close()
        for _, write in pipes:
            os.close(write)
        self.clock_s = 0.0
        """CPU seconds of the child itself when they were last read, without those of processes that it waited for."""
        self.delay_s = 0.0
        """Seconds that the child had waited for a CPU at the last look."""
        self.company_s = 0.0
        """CPU seconds of all processes that the child started, up to the last look."""
        self.resident = 0
        """Memory of the child and of all processes that it started, at the last look, bytes."""
        self._accounted_s = self._hidden_s = 0.0
        self._look_at = time.monotonic() + LOOK_S

    def take_news(self) -> dict:
        """Reads the zygote's next message.

        Raises:
            ZygoteGone: the zygote ended.
        """
        message = self.zygote.recv(PIPE_CHUNK)
        if not message:
            raise ZygoteGone("zygote ended")
        news = json.loads(message)
        self.pid = news.get("pid", self.pid)
        self._parent = news.get("parent", 0) or self._parent
        self.end = news.get("exit", self.end)
        self.alone = self.alone and news.get("alone", True)
        return news

    def set_up_error(self) -> str | None:
        """Returns why the child ended before its first untrusted line, or None if it reached that line. This reads the
        control connection, so it must not be called for a process that may have sent anything else."""
        self.control.setblocking(False)
        try:
            frame = self.control.recv(1024)
        except OSError:
            return None
        return str(json.loads(frame[4:])["set_up"]) if frame else None

    def cpu_s(self) -> float:
        """Returns the CPU seconds so far of the child and, up to the last look, of the processes that it started."""
        if self.end is not None:
            return max(self.end[1], self.clock_s + self.company_s)
        if self.pid is not None and (seconds := kernel.cpu_seconds(self.pid)) is not None:
            self.clock_s = seconds
        return self.clock_s + self.company_s

    def run_delay_s(self) -> float:
        """Returns the seconds that the child has waited for a CPU that other processes had."""
        return kernel.run_delay_seconds(self.pid) if self.pid is not None else 0.0

    def until_look_s(self) -> float:
        """Returns the seconds until the next look is due."""
        return self._look_at - time.monotonic()

    def look(self) -> None:
        """Measures what the child and all processes that it started use. If the parent of a process ignores SIGCHLD,
        the kernel accounts for the process nowhere once it has ended. Then the process counts with what it had used
        at the last look."""
        started = time.monotonic()
        if self.pid is not None and self.end is None:
            self.delay_s = self.run_delay_s()
            self.alone = self.alone and not kernel.is_reniced(self.pid)
            accounted_s = self._account_for_company()
            if self._is_less(accounted_s):  # a process may have ended between two reads
                accounted_s = self._account_for_company()
            if self._is_less(accounted_s):
                self._hidden_s += self._accounted_s - accounted_s
            self._accounted_s = accounted_s
            self.company_s = max(self.company_s, accounted_s + self._hidden_s)
        took = time.monotonic() - started  # long if the host has many processes
        self._look_at = time.monotonic() + (LOOK_S + 10 * took) * 2 * os.urandom(1)[0] / 255

    def _account_for_company(self) -> float:
        """Returns the CPU seconds that the kernel reports for the processes that the child started. Also updates
        `alone` and `resident`."""
        family = kernel.family(self._parent)
        if self.pid not in family:
            return self._accounted_s
        self.alone = self.alone and len(family) == 1 and not kernel.has_reaped(family[self.pid])
        seconds = sum(kernel.cpu_seconds(pid) or 0.0 for pid in family if pid != self.pid)
        inherited = kernel.anonymous_bytes(self._parent)
        self.resident = sum(max(0, kernel.anonymous_bytes(pid) - inherited) for pid in family)
        return seconds + sum(map(kernel.reaped_cpu_seconds, family.values()))

    def _is_less(self, accounted_s: float) -> bool:
        """Returns whether this is less than at the last look, beyond what rounding explains."""
        return self._accounted_s - accounted_s > ROUNDING_S

    def holds_more_than(self, memory_mb: int) -> bool:
        """Returns whether the child and all processes that it started held more than `memory_mb` and SHARED_MB at the
        last look."""
        return self.resident > memory_mb + SHARED_MB << 20

    def held_more_than(self, memory_mb: int) -> bool:
        """Returns whether the child has ended and had itself held more than `memory_mb` and SHARED_MB."""
        return self.end is not None and self.end[2] > memory_mb + SHARED_MB << 10

    def read_output(self, name: str, most: int) -> bool:
        """Moves available output into `read[name]`, until that has a little more than `most` bytes. Returns False at
        the end of the output."""
        taken = self.read[name]
        while len(taken) <= most:
            try:
                chunk = os.read(self.outputs[name], PIPE_CHUNK)
            except BlockingIOError:
                return True
            if not chunk:
                return False
            taken += chunk
        return True

    def finish(self, order: bytes) -> float:
        """Has the child ended and its directory emptied.

        Args:
            order: b"end" gives the child a moment to end by itself, b"kill" kills it at once.

        Returns:
            CPU seconds of the child and of all processes that it ever started.

        Raises:
            ZygoteGone: something of the child is left.
        """
        self.zygote.send(order)
        while "done" not in (news := self.take_news()):
            pass
        self.end = news["done"]
        self.close()
        if not news["clean"]:
            raise ZygoteGone("a directory could not be emptied")
        return max(news["cpu_s"], self.clock_s + self.company_s)

    def close(self) -> None:
        """Closes the supervisor's ends of the connections."""
        self.control.close()
        for descriptor in self.outputs.values():
            os.close(descriptor)
        self.outputs = {}


def _output_pipe(role: str, settings: Settings) -> tuple[int, int]:
    if settings.isolation != "uids":
        return os.pipe()
    kernel.set_fs_uid(settings.uid(role))  # the job owns its pipe and may reopen /dev/stdout
    try:
        return os.pipe()
    finally:
        kernel.set_fs_uid(0)
