"""Runs a program in any language, in the job's process: files are written, then a command replaces the process.

The expected output never enters the sandbox, so there is no second process to protect.
"""

import contextlib
import os
import signal
import socket

from .framing import recv_frame

NOT_STARTED = 127
"""Exit code of a command that cannot be started, as in a shell. A program may exit with it, too."""


def as_bytes(text: str) -> bytes:
    """Encodes a text as UTF-8. Surrogates that stand for bytes become these bytes. If there are others, all surrogates
    are encoded as they are, which is not valid UTF-8: the reader decides what that means."""
    try:
        return text.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        return text.encode("utf-8", "surrogatepass")


def run(control: socket.socket, command: list[str], environment: dict[str, str]) -> None:
    """Writes the files of the next frame into the working directory and executes `command` with the frame's `stdin`."""
    content = recv_frame(control)
    for name, text in content["files"].items():
        with contextlib.suppress(FileNotFoundError):  # an earlier test may have left a file or a link
            os.unlink(name)
        with open(name, "xb") as file:
            file.write(as_bytes(text))
    with open(".stdin", "wb") as file:
        file.write(as_bytes(content["stdin"]))
        file.flush()
        os.dup2(os.open(".stdin", os.O_RDONLY), 0)
    os.unlink(".stdin")
    os.environ.update(environment, MALLOC_ARENA_MAX="1")  # as kernel.share_one_heap
    for ignored in (signal.SIGPIPE, signal.SIGXFSZ):
        # Python ignores these signals, and exec passes that on; but `yes | head` must end
        signal.signal(ignored, signal.SIG_DFL)
    try:
        os.execvp(command[0], command)
    except OSError as error:
        os.write(2, f"{command[0]}: {error.strerror}".encode())
        os._exit(NOT_STARTED)
