"""A child process of a zygote, as the supervisor sees it: its pipes, its clock, its end."""

import json
import os
import socket
from typing import Any

from . import kernel
from .zygote import Settings

PIPE_CHUNK = 65536


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
        self.end: list | None = None
        """[exit code, CPU seconds, peak resident KiB], once it ended."""
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
        """CPU seconds at the last look while it lived; what it waited for is not in them."""

    def take_news(self) -> dict:
        """The zygote's next message. Raise ZygoteGone where it ended."""
        message = self.zygote.recv(PIPE_CHUNK)
        if not message:
            raise ZygoteGone("zygote ended")
        news = json.loads(message)
        self.pid = news.get("pid", self.pid)
        self.end = news.get("exit", self.end)
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
        """CPU seconds of the process so far; with those of its children once it ended."""
        if self.end is not None:
            return self.end[1]
        if self.pid is not None and (seconds := kernel.cpu_seconds(self.pid)) is not None:
            self.clock_s = seconds
        return self.clock_s

    def descendants_cpu_s(self) -> float:
        """CPU seconds of what it forked."""
        below = kernel.descendants(self.pid) if self.pid is not None else []
        return sum(kernel.cpu_seconds(pid) or 0.0 for pid in below)

    def run_delay_s(self) -> float:
        """Seconds that it has waited for a CPU that others had."""
        return kernel.run_delay_seconds(self.pid) if self.pid is not None else 0.0

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

        Returns the CPU seconds of all that it ever started. Raise ZygoteGone where something is left.
        """
        self.zygote.send(order)
        while "done" not in (news := self.take_news()):
            pass
        self.end = news["done"]
        self.close()
        if not news["clean"]:
            raise ZygoteGone("a directory could not be emptied")
        return news["cpu_s"]

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


def cpu_limit(limits: dict, tests: int) -> dict:
    """The limits with RLIMIT_CPU's: the last resort, since the supervisor's clock comes first."""
    return {**limits, "total_cpu_s": int(limits["cpu_s"] * (tests + 1)) + 2}
