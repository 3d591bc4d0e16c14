"""A Python program and its tests, seen from the supervisor: content in, verdicts out, limits kept.

The program's process (S) is forked anew for each round. So is the tests' (T), unless the tests are data: those are
walked, not run, and cannot touch T. Then the slot's evaluator, a T that stays, takes them.
"""

import contextlib
import json
import socket
import struct
import time
from dataclasses import replace

from . import kernel
from .child import Child
from .framing import pack
from .judged import Judged
from .peer import ASKING, TESTING
from .roles import MAX_ERROR, NOT_DATA
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


def test_memory_mb(limits: dict) -> int:
    return max(TEST_MEMORY_MB, limits["memory_mb"])


class Evaluators:
    """The T of a slot: the one that stays, or a new one."""

    def __init__(self, zygote: socket.socket, settings: Settings) -> None:
        self._zygote, self._settings = zygote, settings
        self._kept: Child | None = None
        self._jobs = 0

    def take(self, data: bool, limits: dict) -> Child:
        memory_mb = test_memory_mb(limits)
        if data and self._kept is not None and self._jobs < EVALUATOR_JOBS and memory_mb == TEST_MEMORY_MB:
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


class Pair(Round):
    """The two processes of one round: started, watched, ended."""

    def __init__(
        self, zygote: socket.socket, evaluators: Evaluators, settings: Settings, limits: dict, data: bool
    ) -> None:
        super().__init__(zygote, settings, limits)
        self._evaluators, self._data = evaluators, data
        self._frames = bytearray()
        self._verdicts: list[Judged] = []
        self._gone_since: float | None = None
        self._was_asking = False
        """So the test process was seen at the last look."""
        self._last = False
        """The test process judges no further: the program is lost to it."""

    # ------------------------------------------------------------ from start to end

    def judge(self, program: str, tests: list[list]) -> list[Judged]:
        """Verdicts of the first tests: of all of them, or up to the one that `stop` is about.

        Raises:
            ZygoteGone: the slot is broken.
        """
        ours, theirs = socket.socketpair()
        self.program = Child(
            self._zygote, "program", self._settings, self.limits, streams=("stdout", "stderr"), rpc=theirs
        )
        theirs.close()
        self.test = self._evaluators.take(self._data, self.limits)
        self.test.delay_s = self.test.run_delay_s()
        self._start_clock(self.program, self.test)
        self._wanted = len(tests)
        try:
            self._hand_over(ours, program, tests)
            self._watch(
                self._sources()
                | {
                    self.test.zygote.fileno(): lambda: bool(self.test.take_news()),
                    self.test.control.fileno(): self._read_verdicts,
                    self.test.outputs["output"]: self._read_test_output,
                }
            )
        finally:
            self._finish()
        return [verdict._replace(memory_bytes=self._memory_bytes()) for verdict in self._verdicts]

    def _hand_over(self, rpc: socket.socket, program: str, tests: list[list]) -> None:
        self.test.control.settimeout(self.limits["wall_s"])
        self.program.control.settimeout(self.limits["wall_s"])
        with contextlib.suppress(OSError):  # the child is dead: its exit says so
            self.program.control.sendall(pack({"program": program, "data": self._data}))
        with contextlib.suppress(OSError):
            socket.send_fds(self.test.control, [b"."], [rpc.fileno()])
            self.test.control.sendall(pack({"tests": tests, "data": self._data}))
        rpc.close()
        self.test.control.setblocking(False)

    def _is_over(self) -> bool:
        return self.stop is not None or self._last or len(self._verdicts) >= self._wanted

    def _finish(self) -> None:
        """Have what is not kept ended and wiped."""
        went_well = self.stop is None and not self._last
        order = b"end" if went_well else b"kill"
        if self._data and went_well:
            self._evaluators.keep(self.test)
        else:
            self._evaluators.end(self.test, order)
        started_s = self.program.finish(order) - self.program.clock_s
        if started_s > self.limits["cpu_s"] * max(1, len(self._verdicts)):
            self._charge(f"what it started used {started_s:.2g} s of CPU")

    def _charge(self, error: str) -> None:
        """Processes that the program started are on nobody's clock while they run: all its verdicts pay for them."""
        self._verdicts = [
            verdict._replace(status="TIME_LIMIT", value=None, error=error, by_test=False)
            for verdict in self._verdicts
        ]

    # ------------------------------------------------------------ limits

    def _check(self) -> float:
        if self.test.end is not None and self._gone_since is None:
            self._read_verdicts()  # what it said before it ended
            if self._gone_since is None and not self._is_over():
                self.stop = self._end_of_test()
        if self._gone_since is None:
            return super()._check()
        left = self._gone_since + DEATH_WAIT_S - time.monotonic()
        if self.program.end is not None or left <= 0:
            self.stop = self.stop or self._end_of_program()
        return max(left, 0.0)

    def _look(self) -> None:
        if not self._data:
            self.test.look()
            self._was_asking = self.test.pid is not None and kernel.name_of(self.test.pid) == ASKING
            if self.test.holds_more_than(memory_mb := test_memory_mb(self.limits)):
                error = f"test: its processes hold more than {memory_mb} MiB"
                self.stop = Stop("MEMORY_LIMIT", error, by_test=True)
        super()._look()

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
            stop = killed_for_memory(self.test, self.program.alone and peak_kib <= TEST_RESIDENT_MB << 10)
            if stop.status == "MEMORY_LIMIT" and self.program.alone and not (self._data or self._was_asking):
                return replace(stop, error=f"test: {stop.error}", by_test=True)
            return stop
        if self._data:  # what was evaluated is the program's; that it fell is ours, unless it does so again
            return Stop("RUNTIME_ERROR", f"its values end the evaluator, code {code}", may_be_ours=True)
        error = f"test: its process ended with code {code} and no verdict"
        return Stop("RUNTIME_ERROR", error, by_test=True, may_be_ours=code == -9)

    # ------------------------------------------------------------ output and verdicts

    def _measured(self) -> dict:
        return super()._measured() | {"test_cpu_ms": round(self._cpu_s(self.test) * 1e3, 3)}

    def _read_test_output(self) -> bool:
        cap = self.limits["output_kb"] << 10
        goes_on = self.test.read_output("output", cap)
        if len(self.test.read["output"]) > cap:
            error = f"test: more than {self.limits['output_kb']} KiB"
            self.stop = self.stop or Stop("OUTPUT_LIMIT", error, by_test=True)
        return goes_on

    def _read_verdicts(self) -> bool:
        """Never wait for the rest of a frame: a test may write to this pipe what it likes."""
        try:
            chunk = self.test.control.recv(65536)
        except BlockingIOError:
            return True
        except OSError:
            return False
        if self._gone_since is not None:
            return bool(chunk)  # nothing it says now counts
        self._frames += chunk
        while self.stop is None and self._gone_since is None and len(self._frames) >= 4:
            (length,) = struct.unpack(">I", self._frames[:4])
            if length > MAX_VERDICT_FRAME:
                self.stop = Stop("RUNTIME_ERROR", "test: wrote to the verdict pipe", by_test=True)
                break
            if len(self._frames) < 4 + length:
                break
            body = bytes(self._frames[4 : 4 + length])
            del self._frames[: 4 + length]
            self._take(body)
        return bool(chunk)

    def _take(self, body: bytes) -> None:
        """One frame of the test's: loaded, or a verdict."""
        try:
            frame = json.loads(body)
            if "set_up" in frame and not self.loaded and not self._verdicts:
                self.stop = set_up_failed(str(frame["set_up"]))
                return
            if frame.get("loaded") is True and not self.loaded and not self._verdicts:
                self._flush()
                self._begin_tests()
                return
            said = {key: frame[key] for key in ("status", "value", "error", "by_test", "asked_objects")}
            plain = (said["value"] is None or type(said["value"]) is str) and type(said["error"]) is str
            plain = plain and type(said["by_test"]) is type(said["asked_objects"]) is bool
            if said["status"] not in STATUSES or frame["index"] != len(self._verdicts) or not plain:
                raise ValueError
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
            self.stop = Stop("RUNTIME_ERROR", "test: wrote to the verdict pipe", by_test=True)
            return
        # A test may have written the frame itself.
        said["error"] = said["error"][:MAX_ERROR].replace("\x1b", "").encode("utf-8", "replace").decode()
        self._flush()  # it flushes before each reply
        if self.stop is not None:
            return
        if frame.get("gone"):
            self._gone_since = time.monotonic()  # its exit code says why: see _check
            return
        self._verdicts.append(Judged(**said, **self._measured(), data=self._data))
        self._last = frame.get("last") is True
        if not self._last and len(self._verdicts) < self._wanted:
            self._next_test()

    def _begin_tests(self) -> None:
        self.loaded = True
        for name, text in self.program.read.items():
            self._load_output[name] = bytes(text)
            text.clear()
        self._load_cpu = self.program.cpu_s()
        self._next_test()

    def _next_test(self) -> None:
        self._start_clock(self.program, self.test)
        if not self.loaded:
            return  # the program failed: all tests fare alike
        for text in self.program.read.values():
            text.clear()
        with contextlib.suppress(OSError):
            self.test.control.send(b".")
