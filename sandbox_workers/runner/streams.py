"""The standard streams of a process whose program may have put others in their place."""

import contextlib
import sys


def flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(BaseException):
            stream.flush()
