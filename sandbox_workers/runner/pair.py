"""A Python program and its tests, seen from the supervisor: content in, verdicts out, limits kept.

The program's process (S) is forked anew for each round. Tests that are data are walked by the slot's evaluator (T), a process
that stays: `Pair`. Tests that are code run in S: `Shared`.
"""

import contextlib
import json
import os
import socket
import struct
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from . import kernel
from .calls import TESTING
from .child import Child
from .errors import MAX_ERROR
from .framing import pack
from .judged import Judged
from .roles import LOAD_FAILURES, NOT_DATA
from .round import TICK_S, Round
from .stop import Stop, killed_for_memory, set_up_failed
from .zygote import TEST_MEMORY_MB, Settings

MAX_VERDICT_FRAME = 64 << 10
DEATH_WAIT_S = 1.0
"""How long the exit code of a program that broke its connection is waited for."""
LOOKS = 5
"""At what a test does when a limit is passed, a TICK_S apart: a single one falls between two of its questions now and
then."""
TEST_RESIDENT_MB = 192
"""What a container has room for, MiB: a larger test process makes others fall."""
EVALUATOR_JOBS = 5000
"""An evaluator is replaced after as many: what its interpreter caches shall not pile up."""
STATUSES = frozenset(
    (
        "PASSED",
        "WRONG_ANSWER",
        "RUNTIME_ERROR",
        "SYNTAX_ERROR",
        "TIME_LIMIT",
        "MEMORY_LIMIT",
        "OUTPUT_LIMIT",
        "UNSUPPORTED",
        NOT_DATA,
    )
)
"""What a test process may say."""


class Evaluators:
    """The T of a slot: the one that stays, or a new one."""

    def __init__(self, zygote: socket.socket, settings: Settings) -> None:
        self._zygote, self._settings = zygote, settings
        self._kept: Child | None = None
        self._jobs = 0

    def take(self, limits: dict) -> Child:
        memory_mb = max(TEST_MEMORY_MB, limits["memory_mb"])
        if self._kept is not None and self._jobs < EVALUATOR_JOBS and memory_mb == TEST_MEMORY_MB:
            self._jobs += 1
            return self._kept
        if self._kept is not None:
            self.end(self._kept, b"end")
        return Child(
            self._zygote, "test", self._settings, {**limits, "memory_mb": memory_mb}, streams=("output",)
        )

    def keep(self, child: Child) -> None:
        child.read["output"].clear()
        if child is not self._kept:
            self._kept, self._jobs = child, 1

    def end(self, child: Child, order: bytes) -> None:
        self._kept = None
        with contextlib.suppress(OSError):  # it may have ended already
            child.control.shutdown(socket.SHUT_RDWR)
        child.finish(order)


class Judging(Round):
    """A round whose verdicts come in frames, one for each test in order."""

    teller: Child
    """It writes them."""

    def __init__(self, zygote: socket.socket, settings: Settings, limits: dict, tests: list[list]) -> None:
        super().__init__(zygote, settings, limits)
        self._tests = tests
        self._frames = bytearray()
        self._verdicts: list[Judged] = []
        self._last = False
        """The teller judges no further: the program is lost to it."""

    def judge(self, program: str) -> list[Judged]:
        """Verdicts of the first tests: of all of them, or up to the one that `stop` is about.

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
        """Processes that the program started are on nobody's clock while they run: all its verdicts pay for them."""
        started_s = self.program.finish(order) - self.program.clock_s
        if started_s > self.limits["cpu_s"] * max(1, len(self._verdicts)):
            error = f"what it started used {started_s:.2g} s of CPU"
            self._verdicts = [
                verdict._replace(status="TIME_LIMIT", value=None, error=error, by_test=False)
                for verdict in self._verdicts
            ]

    # ------------------------------------------------------------ output and verdicts

    def _read_frames(self) -> bool:
        """Never wait for the rest of a frame: who runs code may write to this pipe what it likes."""
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
        """Raises ValueError and the like if the frame is none that is due."""
        raise NotImplementedError

    def _take_verdict(self, frame: dict, **more: Any) -> None:
        said = {key: frame[key] for key in ("status", "value", "error", "by_test")}
        plain = (said["value"] is None or type(said["value"]) is str) and type(said["error"]) is str
        plain = plain and type(said["by_test"]) is bool
        if said["status"] not in STATUSES or frame["index"] != len(self._verdicts) or not plain:
            raise ValueError
        said["error"] = cleaned(said["error"])
        self._flush()  # it flushes before each reply
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
            return  # the program failed: all tests fare alike
        for text in self.program.read.values():
            text.clear()
        with contextlib.suppress(OSError):
            self.teller.control.send(b".")


def cleaned(error: str) -> str:
    """A test that runs may have written the frame itself."""
    return error[:MAX_ERROR].replace("\x1b", "").encode("utf-8", "replace").decode()


# ---------------------------------------------------------------- tests that are code


class Shared(Judging):
    """The program's process runs its tests, too. A verdict bears a token that was drawn for this round, and is told to the
    process once the program is loaded."""

    def judge(self, program: str) -> list[Judged]:
        self.program = self.teller = Child(
            self._zygote, "program", self._settings, self.limits, streams=("stdout", "stderr")
        )
        self._is_set_up = False
        self._token = os.urandom(16).hex()  # `secrets` would load `random` before the zygote does
        self._start_clock(self.program)
        try:
            self.program.control.settimeout(self.limits["wall_s"])
            with contextlib.suppress(OSError):  # the child is dead: its exit says so
                self.program.control.sendall(pack({"program": program}))
            self._watch_all({})
        finally:
            self._finish_program(b"end" if self.stop is None else b"kill")
        return [verdict._replace(memory_bytes=self._memory_bytes()) for verdict in self._verdicts]

    def _check(self) -> float:
        if self.program.end is not None:
            self._read_frames()  # what it said before it ended
            if not self._is_over():
                self.stop = self._end("" if self.loaded else " while it was loaded")
        return super()._check()

    def _take(self, frame: dict) -> None:
        """In this order: it is set up, the program is loaded, and then verdicts."""
        if not self._is_set_up:
            self._is_set_up = frame.get("ready") is True
            if not self._is_set_up:
                self.stop = set_up_failed(str(frame["set_up"]))
        elif self.loaded:
            if frame["token"] != self._token:
                raise ValueError
            self._take_verdict(frame, isolation="shared")
        elif "failed" in frame:
            status = frame["failed"] if frame["failed"] in LOAD_FAILURES else "RUNTIME_ERROR"
            self.stop = Stop(status, cleaned(str(frame["error"])))
        else:
            asked = {"tests": [source for source, _, _ in self._tests], "token": self._token}
            self.program.control.settimeout(self.limits["wall_s"])
            with contextlib.suppress(OSError):
                self.program.control.sendall(pack(asked))
            self.program.control.setblocking(False)
            self._begin_tests()

    def judged(self, stop: Stop) -> Judged:
        return super().judged(stop)._replace(isolation="shared")


# ---------------------------------------------------------------- tests that are data


class Pair(Judging):
    """The program's process, and the evaluator that asks it."""

    def __init__(
        self,
        zygote: socket.socket,
        evaluators: Evaluators,
        settings: Settings,
        limits: dict,
        tests: list[list],
    ) -> None:
        super().__init__(zygote, settings, limits, tests)
        self._evaluators = evaluators
        self._gone_since: float | None = None

    def judge(self, program: str) -> list[Judged]:
        ours, theirs = socket.socketpair()
        self.program = Child(
            self._zygote, "program", self._settings, self.limits, streams=("stdout", "stderr"), rpc=theirs
        )
        theirs.close()
        self.test = self.teller = self._evaluators.take(self.limits)
        self.test.delay_s = self.test.run_delay_s()
        self._start_clock(self.program, self.test)
        try:
            self._hand_over(ours, program)
            self._watch_all(
                {
                    self.test.zygote.fileno(): lambda: bool(self.test.take_news()),
                    self.test.outputs["output"]: self._read_test_output,
                }
            )
        finally:
            self._finish()
        return [verdict._replace(memory_bytes=self._memory_bytes()) for verdict in self._verdicts]

    def _hand_over(self, rpc: socket.socket, program: str) -> None:
        self.test.control.settimeout(self.limits["wall_s"])
        self.program.control.settimeout(self.limits["wall_s"])
        with contextlib.suppress(OSError):  # the child is dead: its exit says so
            self.program.control.sendall(pack({"program": program}))
        with contextlib.suppress(OSError):
            socket.send_fds(self.test.control, [b"."], [rpc.fileno()])
            self.test.control.sendall(pack({"tests": self._tests}))
        rpc.close()

    def _finish(self) -> None:
        """Have what is not kept ended and wiped."""
        if self.stop is None and not self._last:
            self._evaluators.keep(self.test)
            self._finish_program(b"end")
        else:
            self._evaluators.end(self.test, b"kill")
            self._finish_program(b"kill")

    # ------------------------------------------------------------ limits

    def _check(self) -> float:
        if self.test.end is not None and self._gone_since is None:
            self._read_frames()  # what it said before it ended
            if self._gone_since is None and not self._is_over():
                self.stop = self._end_of_test()
        if self._gone_since is None:
            return super()._check()
        left = self._gone_since + DEATH_WAIT_S - time.monotonic()
        if self.program.end is not None or left <= 0:
            self.stop = self.stop or self._end_of_program()
        return max(left, 0.0)

    def _test_is_to_blame(self) -> bool:
        """A test that waits for the program, or reads what it sent, does nothing of its own. The majority of LOOKS
        decides."""
        if self.test.pid is None:
            return False
        testing = 0
        for _ in range(LOOKS):
            testing += kernel.name_of(self.test.pid) == TESTING
            time.sleep(TICK_S)
        return testing > LOOKS // 2

    def _by_whom(self, stop: Stop) -> Stop:
        return replace(stop, error=f"test: {stop.error}", by_test=True) if self._test_is_to_blame() else stop

    def _end_of_program(self) -> Stop:
        when = "" if self.loaded else " while it was loaded"
        if self.program.end is None:
            return Stop("RUNTIME_ERROR", f"the program closed its connection{when}")
        return self._end(when)

    def _is_within_limits(self) -> bool:
        """A program could have its test take what it may not take itself."""
        return self.test.pid is not None and kernel.peak_kib(self.test.pid) <= TEST_RESIDENT_MB << 10

    def _end_of_test(self) -> Stop:
        assert self.test.end is not None
        code, _, peak_kib = self.test.end
        if code == -9 and kernel.oom_kills() > self._oom_before:
            self.program.look()
            return killed_for_memory(self.test, self.program.alone and peak_kib <= TEST_RESIDENT_MB << 10)
        # What was evaluated is the program's; that it fell is ours, unless it does so again.
        return Stop("RUNTIME_ERROR", f"its values end the evaluator, code {code}", may_be_ours=True)

    # ------------------------------------------------------------ output and verdicts

    def _measured(self) -> dict:
        return super()._measured() | {"test_cpu_ms": round(self._cpu_s(self.test) * 1e3, 3)}

    def _read_test_output(self) -> bool:
        """An interpreter's last words."""
        return self.test.read_output("output", self.limits["output_kb"] << 10)

    def _take(self, frame: dict) -> None:
        if self._gone_since is not None:
            return  # nothing it says now counts
        if "set_up" in frame:
            self.stop = set_up_failed(str(frame["set_up"]))
        elif frame.get("loaded") is True:
            self._begin_tests()
        elif frame.get("gone"):
            self._flush()
            self._gone_since = time.monotonic()  # its exit code says why: see _check
        else:
            self._take_verdict(frame, asked_objects=frame["asked_objects"])
