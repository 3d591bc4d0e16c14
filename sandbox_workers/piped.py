"""A runner at the other end of two pipes: what the backends without an engine share."""

import os
import subprocess
import threading
from collections.abc import Mapping, Sequence
from typing import IO

from core.verdict import Verdict
from sandbox_workers.channel import CLOSE_WAIT_S, RunnerChannel
from sandbox_workers.jobs import BackendDied, Job, SandboxUnavailable


class PipedBackend:
    """A backend but for `start`, which must call `_launch`."""

    def __init__(self, slots: int) -> None:
        self.slots = slots
        self._process: subprocess.Popen | None = None
        self._channel: RunnerChannel | None = None
        self._stderr = bytearray()

    def start(self) -> None:
        raise NotImplementedError

    def _launch(
        self,
        command: Sequence[str],
        description: str,
        *,
        environment: Mapping[str, str] | None = None,
        keep: tuple[int, ...] = (),
    ) -> None:
        """Start the runner and wait until it is ready. `keep`: descriptors that it inherits.

        Raises:
            SandboxUnavailable: it does not start.
        """
        process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            pass_fds=keep,
            env=environment,
            bufsize=0,
            start_new_session=True,
        )
        self._process = process
        stdin, stdout, stderr = process.stdin, process.stdout, process.stderr
        assert stdin is not None and stdout is not None and stderr is not None
        threading.Thread(target=self._keep_stderr, args=(stderr,), daemon=True).start()
        output = stdout.fileno()
        self._channel = RunnerChannel(
            lambda data: _write_all(stdin.fileno(), data),
            lambda: os.read(output, 1 << 16),
            lambda: self._stderr.decode("utf-8", "replace"),
        )
        try:
            self._channel.wait_ready()
        except SandboxUnavailable as error:
            self.close()
            raise SandboxUnavailable(f"{error} ({description})") from None

    def _keep_stderr(self, stderr: IO[bytes]) -> None:
        while chunk := stderr.read(4096):
            self._stderr += chunk
            del self._stderr[:-4096]

    def commands(self) -> set[str]:
        """Of all languages, those that exist in the sandbox."""
        return self._channel.commands if self._channel is not None else set()

    def judge_batch(self, jobs: Sequence[Job]) -> list[list[Verdict]]:
        if self._channel is None:
            raise BackendDied("the sandbox is not started")
        return self._channel.judge_batch(jobs)

    def healthy(self) -> bool:
        return self._channel is not None and self._channel.alive()

    def close(self) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        assert process.stdin is not None
        try:
            process.stdin.close()
            process.wait(CLOSE_WAIT_S)
        except (OSError, subprocess.TimeoutExpired):
            process.kill()
            process.wait()
        if self._channel is not None:
            self._channel.wait_ended(CLOSE_WAIT_S)


def _write_all(descriptor: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]
