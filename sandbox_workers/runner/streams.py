"""Standard streams, `input` and `print`: those that a test has put in their place serve the program, too."""

import builtins
import contextlib
import sys
from collections.abc import Iterator
from typing import Any

_ORIGINAL: list[tuple[Any, str, Any]] = []
"""(where, name, what was there)"""


def remember() -> None:
    """As they are before a test, or a program, can change them."""
    names = [(sys, "stdout"), (sys, "stderr"), (sys, "stdin"), (builtins, "input"), (builtins, "print")]
    _ORIGINAL[:] = [(place, name, getattr(place, name)) for place, name in names]


def replaced() -> dict[str, Any]:
    """By name, what is no longer as it was."""
    return {name: now for place, name, original in _ORIGINAL if (now := getattr(place, name)) is not original}


@contextlib.contextmanager
def lent(streams: dict[str, Any]) -> Iterator[None]:
    """By name, in the place of this process's own."""
    with contextlib.ExitStack() as stack:
        for place, name, original in _ORIGINAL:
            if name in streams:
                setattr(place, name, streams[name])
                stack.callback(setattr, place, name, original)
        yield


def flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(BaseException):
            stream.flush()
