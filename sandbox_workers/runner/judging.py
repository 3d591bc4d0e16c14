"""A round whose verdicts come in frames, one per test, in order. `Pair` judges data tests, `Shared` judges code tests."""

import contextlib
import json
import socket
import struct
from collections.abc import Callable, Set
from typing import Any

from .child import Child
from .errors import MAX_ERROR
from .judged import Judged
from .round import Round
from .stop import Stop
from .zygote import Settings

MAX_VERDICT_FRAME = 64 << 10
STATUSES = frozenset(
    (
        "PASSED",
        "WRONG_ANSWER",
        "RUNTIME_ERROR",
        "SYNTAX_ERROR",
        "TIME_LIMIT",
        "MEMORY_LIMIT",
        "OUTPUT_LIMIT",
    )
)
"""Statuses that a process inside the sandbox may report."""


class Judging(Round):
    teller: Child
    """The child that writes the frames."""

    def __init__(self, zygote: socket.socket, settings: Settings, limits: dict, tests: list[list]) -> None:
        super().__init__(zygote, settings, limits)
        self._tests = tests
        self._frames = bytearray()
        self._verdicts: list[Judged] = []
        self._last = False
        """True if the teller judges no further tests, because it has lost the program."""

    def judge(self, program: str) -> list[Judged]:
        """Returns the verdicts of the first tests: of all tests or, if `stop` is set, of those before the test that it
        is about.

        Raises:
            ZygoteGone: the slot is broken.
        """
        raise NotImplementedError

    def _is_over(self) -> bool:
        return self.stop is not None or self._last or len(self._verdicts) >= len(self._tests)

    def _watch_all(self, sources: dict[int, Callable[[], bool]]) -> None:
        self.teller.control.setblocking(False)
        self._watch(self._sources() | {self.teller.control.fileno(): self._read_frames} | sources)

    def _finish_program(self, order: bytes) -> None:
        """Ends the program. What the processes that it started have used is known only now, so all its verdicts become
        TIME_LIMIT if that is more than its tests allow."""
        started_s = self.program.finish(order) - self.program.clock_s
        if started_s > self.limits["cpu_s"] * max(1, len(self._verdicts)):
            error = f"what it started used {started_s:.2g} s of CPU"
            self._verdicts = [
                verdict._replace(status="TIME_LIMIT", value=None, error=error) for verdict in self._verdicts
            ]

    # ------------------------------------------------------------ output and verdicts

    def _read_frames(self) -> bool:
        """Reads the frames that are there and returns False at the end. It never waits for the rest of a frame, because
        code in the sandbox may write anything to this pipe."""
        try:
            chunk = self.teller.control.recv(65536)
        except BlockingIOError:
            return True
        except OSError:
            return False
        self._frames += chunk
        while self.stop is None and len(self._frames) >= 4:
            (length,) = struct.unpack(">I", self._frames[:4])
            if length > MAX_VERDICT_FRAME:
                self._refuse()
                break
            if len(self._frames) < 4 + length:
                break
            body = bytes(self._frames[4 : 4 + length])
            del self._frames[: 4 + length]
            try:
                self._take(json.loads(body))
            except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
                self._refuse()
        return bool(chunk)

    def _refuse(self) -> None:
        self.stop = Stop("RUNTIME_ERROR", "something wrote to the verdict pipe")

    def _take(self, frame: dict) -> None:
        """Handles one frame. Raises ValueError or a similar error if the frame is not one that is due."""
        raise NotImplementedError

    def _take_verdict(self, frame: dict, statuses: Set[str] = STATUSES, **more: Any) -> None:
        status, value, error = (frame[key] for key in ("status", "value", "error"))
        plain = (value is None or type(value) is str) and type(error) is str
        if status not in statuses or frame["index"] != len(self._verdicts) or not plain:
            raise ValueError
        said = {
            "status": status,
            "value": value and encodable(value),
            "error": cleaned(error),
            "never_asked": frame.get("never_asked") is True,
        }
        self._flush()  # the program's streams are flushed before each frame
        if self.stop is not None:
            return
        self._verdicts.append(Judged(**said, **more, **self._measured()))
        self._last = frame.get("last") is True
        if not self._is_over():
            self._next_test()

    def _begin_tests(self) -> None:
        self._flush()
        self.loaded = True
        for name, text in self.program.read.items():
            self._load_output[name] = bytes(text)
            text.clear()
        self._load_cpu = self.program.cpu_s()
        self._next_test()

    def _next_test(self) -> None:
        self._start_clock(*self._wall.cpu_before)
        if not self.loaded:
            return  # the program failed, and all tests with it
        for text in self.program.read.values():
            text.clear()
        self._dropped = 0
        with contextlib.suppress(OSError):
            self.teller.control.send(b".")


def cleaned(error: str) -> str:
    """Returns a shortened error text without escape characters. A test that runs may have written the frame itself."""
    return encodable(error[:MAX_ERROR].replace("\x1b", ""))


def encodable(text: str) -> str:
    """Returns the text without lone surrogates, so that it can be logged."""
    return text.encode("utf-8", "replace").decode()
