"""The supervisor's part for data tests. The program's process (S) is forked anew for each round. The slot's evaluator
(T), a process that stays, asks it."""

import contextlib
import socket
import time

from . import kernel
from .child import Child
from .framing import pack
from .judged import Judged
from .judging import STATUSES, Judging
from .roles import NOT_DATA
from .stop import Stop, killed_for_memory, set_up_failed
from .zygote import TEST_MEMORY_MB, Settings

DEATH_WAIT_S = 1.0
"""Seconds to wait for the exit code of a program that broke its connection."""
TEST_RESIDENT_MB = 192
"""Memory for which a container has room, MiB. A larger test process makes other processes fail."""
EVALUATOR_JOBS = 5000
"""Number of jobs after which an evaluator is replaced, so that its interpreter's caches do not grow without end."""


class Evaluators:
    """The evaluators (T) of a slot: one is kept for many jobs, and a new one is started if needed."""

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


class Pair(Judging):
    """A round of the program's process and of the evaluator that asks it."""

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
        with contextlib.suppress(OSError):  # the child is dead, as its exit code shows
            self.program.control.sendall(pack({"program": program}))
        with contextlib.suppress(OSError):
            socket.send_fds(self.test.control, [b"."], [rpc.fileno()])
            self.test.control.sendall(pack({"tests": self._tests}))
        rpc.close()

    def _finish(self) -> None:
        """Ends the processes that are not kept and has their directories emptied."""
        if self.stop is None and not self._last:
            self._evaluators.keep(self.test)
            self._finish_program(b"end")
        else:
            self._evaluators.end(self.test, b"kill")
            self._finish_program(b"kill")

    # ------------------------------------------------------------ limits

    def _check(self) -> float:
        if self.test.end is not None and self._gone_since is None:
            self._read_frames()  # the frames that it sent before it ended
            if self._gone_since is None and not self._is_over():
                self.stop = self._end_of_test()
        if self._gone_since is None:
            return super()._check()
        left = self._gone_since + DEATH_WAIT_S - time.monotonic()
        if self.program.end is not None or left <= 0:
            self.stop = self.stop or self._end_of_program()
        return max(left, 0.0)

    def _end_of_program(self) -> Stop:
        when = "" if self.loaded else " while it was loaded"
        if self.program.end is None:
            return Stop("RUNTIME_ERROR", f"the program closed its connection{when}")
        return self._end(when)

    def _is_within_limits(self) -> bool:
        """Returns whether the test's process has kept its limit. A program could make its test take the memory that it
        may not take itself."""
        return self.test.pid is not None and kernel.peak_kib(self.test.pid) <= TEST_RESIDENT_MB << 10

    def _end_of_test(self) -> Stop:
        assert self.test.end is not None
        code, _, peak_kib = self.test.end
        if code == -9 and kernel.oom_kills() > self._oom_before:
            self.program.look()
            return killed_for_memory(self.test, self.program.alone and peak_kib <= TEST_RESIDENT_MB << 10)
        # The program gave the values, but a crash of the evaluator counts as the sandbox's unless it happens again.
        return Stop("RUNTIME_ERROR", f"its values end the evaluator, code {code}", may_be_ours=True)

    # ------------------------------------------------------------ output and verdicts

    def _measured(self) -> dict:
        return super()._measured() | {"test_cpu_ms": round(self._cpu_s(self.test) * 1e3, 3)}

    def _read_test_output(self) -> bool:
        """Reads the evaluator's output, which holds the last words of its interpreter."""
        return self.test.read_output("output", self.limits["output_kb"] << 10)

    def _take(self, frame: dict) -> None:
        if self._gone_since is not None:
            return  # later frames do not count
        if "set_up" in frame:
            self.stop = set_up_failed(str(frame["set_up"]))
        elif frame.get("loaded") is True:
            self._begin_tests()
        elif frame.get("gone"):
            self._flush()
            self._gone_since = time.monotonic()  # its exit code says why: see _check
        else:
            more = {name: frame[name] for name in ("asked_objects", "shadowed")}
            self._take_verdict(frame, STATUSES | {NOT_DATA}, **more)
