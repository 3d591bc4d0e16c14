"""A runner at the other end of pipes. The backends without a Docker Engine share it."""

import os
import subprocess
import threading
from collections.abc import Mapping, Sequence
from typing import IO

from sandbox_workers.channel import CLOSE_WAIT_S, ChannelBackend


class PipedBackend(ChannelBackend):
    """A backend that lacks only `start`, which must call `_launch`."""

    def __init__(self, slots: int) -> None:
        super().__init__(slots)
        self._process: subprocess.Popen | None = None

    def _launch(
        self,
        command: Sequence[str],
        description: str,
        *,
        environment: Mapping[str, str] | None = None,
        keep: tuple[int, ...] = (),
    ) -> None:
        """Starts the runner and waits until it is ready.

        Args:
            command: command line of the runner.
            description: how the runner is started, for error messages.
            keep: descriptors that the runner inherits.

        Raises:
            SandboxUnavailable: the runner does not start.
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
        threading.Thread(target=self._read_stderr, args=(stderr,), daemon=True).start()
        output = stdout.fileno()
        self._connect(
            lambda data: _write_all(stdin.fileno(), data), lambda: os.read(output, 1 << 16), description
        )

    def _read_stderr(self, stderr: IO[bytes]) -> None:
        while chunk := stderr.read(4096):
            self._keep_stderr(chunk)

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
        self._wait_ended()


def _write_all(descriptor: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]
