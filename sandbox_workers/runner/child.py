"""A child process of a zygote, as the supervisor sees it: its pipes, its clock, its end."""

import json
import os
import socket
import time
from typing import Any

from . import kernel
from .zygote import Settings

PIPE_CHUNK = 65536
LOOK_S = 0.05
"""Average pause between two looks at all that a child started. It varies: nobody shall know when not to be seen."""
SHARED_MB = 64
"""Resident memory allowed beyond a limit, MiB: what processes share counts for each."""
ROUNDING_S = 0.03
"""The kernel tells what a process has waited for in ticks, of user and of system time."""


class ZygoteGone(RuntimeError):
    """The slot cannot go on."""


class Child:
    """Forked on construction, over sockets and pipes of the supervisor's.

    Args:
        zygote: the connection to the zygote of `role`, which keeps one child at a time.
        streams: names of its output pipes: ("stdout", "stderr"), or ("output",) for both in one.
        rpc: the end of the program's value RPC that the child gets.
        request: what the zygote is told beside the limits.
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
        """[exit code, CPU seconds, peak resident KiB], once it ended."""
        self.alone = True
        """Nothing was seen of another process that it started, nor that it gave up its share of the CPU."""
        self.control, control = socket.socketpair()
        pipes = [_output_pipe(role, settings) for _ in streams]
        self.outputs = {name: read for name, (read, _) in zip(streams, pipes, strict=True)}
        self.read = {name: bytearray() for name in streams}
        """What was read of each output and not yet taken."""
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
        """CPU seconds when it was last asked while it lived; of itself, without what it waited for."""
        self.delay_s = 0.0
        """Seconds that it had waited for a CPU, at the last look."""
        self.company_s = 0.0
        """CPU seconds of all that it started, up to the last look."""
        self.resident = 0
        """Bytes of memory of it and all that it started, at the last look."""
        self._accounted_s = self._hidden_s = 0.0
        self._look_at = time.monotonic() + LOOK_S

    def take_news(self) -> dict:
        """The zygote's next message. Raise ZygoteGone where it ended."""
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
        """Why it ended before its first untrusted line; None where it got there. Reads the control connection: not
        to be asked of a process that may have sent anything else."""
        self.control.setblocking(False)
        try:
            frame = self.control.recv(1024)
        except OSError:
            return None
        return str(json.loads(frame[4:])["set_up"]) if frame else None

    def cpu_s(self) -> float:
        """CPU seconds so far, of it and, up to the last look, of what it started."""
        if self.end is not None:
            return max(self.end[1], self.clock_s + self.company_s)
        if self.pid is not None and (seconds := kernel.cpu_seconds(self.pid)) is not None:
            self.clock_s = seconds
        return self.clock_s + self.company_s

    def run_delay_s(self) -> float:
        """Seconds that it has waited for a CPU that others had."""
        return kernel.run_delay_seconds(self.pid) if self.pid is not None else 0.0

    def until_look_s(self) -> float:
        """When a look is due."""
        return self._look_at - time.monotonic()

    def look(self) -> None:
        """See what it and all that it started use. What nobody waits for, since its parent ignores SIGCHLD, is on
        no account of the kernel's once it ended: then it counts with what it had used at the last look."""
        started = time.monotonic()
        if self.pid is not None and self.end is None:
            self.delay_s = self.run_delay_s()
            self.alone = self.alone and not kernel.is_reniced(self.pid)
            accounted_s = self._account_for_company()
            if self._is_less(accounted_s):  # or one ended between two files that were read
                accounted_s = self._account_for_company()
            if self._is_less(accounted_s):
                self._hidden_s += self._accounted_s - accounted_s
            self._accounted_s = accounted_s
            self.company_s = max(self.company_s, accounted_s + self._hidden_s)
        took = time.monotonic() - started  # long among the many processes of a host
        self._look_at = time.monotonic() + (LOOK_S + 10 * took) * 2 * os.urandom(1)[0] / 255

    def _account_for_company(self) -> float:
        """CPU seconds that the kernel knows of processes that it started."""
        family = kernel.family(self._parent)
        if self.pid not in family:
            return self._accounted_s
        self.alone = self.alone and len(family) == 1 and not kernel.has_reaped(family[self.pid])
        seconds = sum(kernel.cpu_seconds(pid) or 0.0 for pid in family if pid != self.pid)
        inherited = kernel.anonymous_bytes(self._parent)
        self.resident = sum(max(0, kernel.anonymous_bytes(pid) - inherited) for pid in family)
        return seconds + sum(map(kernel.reaped_cpu_seconds, family.values()))

    def _is_less(self, accounted_s: float) -> bool:
        """Than at the last look, beyond what rounding explains."""
        return self._accounted_s - accounted_s > ROUNDING_S

    def holds_more_than(self, memory_mb: int) -> bool:
        """Whether it and all that it started did so at the last look."""
        return self.resident > memory_mb + SHARED_MB << 20

    def held_more_than(self, memory_mb: int) -> bool:
        """Whether it did so itself, once it ended."""
        return self.end is not None and self.end[2] > memory_mb + SHARED_MB << 10

    def read_output(self, name: str, most: int) -> bool:
        """Move what is there into `read[name]`, at most a little beyond `most` bytes; False at its end."""
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
        """Have it ended and its directory wiped: by itself within a moment (b"end"), or killed at once (b"kill").

        Returns the CPU seconds of it and all that it ever started. Raise ZygoteGone where something is left.
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
        """Of our ends only."""
        self.control.close()
        for descriptor in self.outputs.values():
            os.close(descriptor)
        self.outputs = {}


def _output_pipe(role: str, settings: Settings) -> tuple[int, int]:
    if settings.isolation != "uids":
        return os.pipe()
    kernel.set_fs_uid(settings.uid(role))  # owned by the job: it may reopen /dev/stdout
    try:
        return os.pipe()
    finally:
        kernel.set_fs_uid(0)
