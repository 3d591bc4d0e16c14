"""One pair of processes, seen from the supervisor: content in, verdicts out, limits kept.

The clock and the CPU account start anew with each test. A test is charged what loading the program took plus
its own, so it costs the same alone as in a batch.
"""

import json
import os
import select
import socket
import struct
import time
from dataclasses import dataclass

from . import kernel
from .framing import pack
from .zygote import ROLES, Settings

MAX_VERDICT_FRAME = 64 << 10
DEATH_WAIT_S = 1.0
"""How long the exit code of a program that broke its connection is waited for."""
TICK_S = 0.01
"""Shortest pause between two looks at the CPU clock."""
STATUSES = frozenset(
    (
        "PASSED",
        "WRONG_ANSWER",
        "RUNTIME_ERROR",
        "SYNTAX_ERROR",
        "TIME_LIMIT",
        "MEMORY_LIMIT",
        "OUTPUT_LIMIT",
        "SANDBOX_ERROR",
    )
)


class ZygoteGone(RuntimeError):
    """The slot cannot go on."""


@dataclass(frozen=True, slots=True)
class Stop:
    """Why a pair was ended before its last verdict."""

    status: str
    error: str
    may_be_ours: bool = False
    """The machine's state may have caused it: worth one retry."""
    starved: bool = False
    """The pair wanted the CPU and did not get it."""


class Pair:
    """The program and the test process of one round: started, watched, ended."""

    def __init__(self, zygote: socket.socket, settings: Settings, limits: dict) -> None:
        self.zygote = zygote
        self.limits = limits
        self.stop: Stop | None = None
        self.loaded = False
        self.pids: dict[str, int] = {}
        self.ends: dict[str, list] = {}
        self._settings = settings
        self._load_cpu = 0.0
        self._cpu_before: dict[str, float] = dict.fromkeys(ROLES, 0.0)
        self._cpu_after: dict[str, float] = dict.fromkeys(ROLES, 0.0)
        self._load_output = bytearray()
        self._output = bytearray()
        self._test_output = 0
        self._frames = bytearray()
        self._verdicts: list[list] = []
        self._gone_since: float | None = None
        self._last = False
        """The test process judges no further: the program is lost to it."""
        self._oom_before = kernel.oom_kills()

    # ------------------------------------------------------------ from start to end

    def judge(self, program: str, tests: list[str]) -> list[list]:
        """Verdicts of the first tests: of all of them, or up to the one that `stop` is about.

        Raises:
            ZygoteGone: the slot is broken.
        """
        self._launch()
        try:
            self._hand_over(program, tests)
            self._watch(len(tests))
        finally:
            self._finish()
            self._control.close()
            os.close(self._outputs["program"])
            os.close(self._outputs["test"])
        return self._verdicts

    def _launch(self) -> None:
        """Have the zygote fork the pair around sockets and pipes of ours."""
        rpc = socket.socketpair()
        controls = {role: socket.socketpair() for role in ROLES}
        pipes = {role: self._output_pipe(role) for role in ROLES}
        theirs = []
        for role, end in zip(ROLES, rpc, strict=True):
            theirs += [controls[role][1].fileno(), end.fileno(), pipes[role][1]]
        socket.send_fds(self.zygote, [json.dumps(self.limits).encode()], theirs)
        for end in (*rpc, *(pair[1] for pair in controls.values())):
            end.close()
        for pipe in pipes.values():
            os.close(pipe[1])
            os.set_blocking(pipe[0], False)
        self._to_program, self._control = controls["program"][0], controls["test"][0]
        self._outputs = {role: pipe[0] for role, pipe in pipes.items()}

    def _output_pipe(self, role: str) -> tuple[int, int]:
        if self._settings.single_uid:
            return os.pipe()
        kernel.set_fs_uid(self._settings.uid(role))  # owned by the job: it may reopen /dev/stdout
        try:
            return os.pipe()
        finally:
            kernel.set_fs_uid(0)

    def _hand_over(self, program: str, tests: list[str]) -> None:
        try:
            for connection, content in (
                (self._to_program, {"program": program}),
                (self._control, {"tests": tests}),
            ):
                connection.settimeout(self.limits["wall_s"])
                connection.sendall(pack(content))
        except OSError:
            pass  # the child is dead: its exit says so
        self._to_program.close()
        self._control.setblocking(False)

    def _watch(self, wanted: int) -> None:
        poll = select.poll()
        descriptors = {self.zygote.fileno(): "zygote", self._control.fileno(): "control"}
        descriptors |= {descriptor: role for role, descriptor in self._outputs.items()}
        for descriptor in descriptors:
            poll.register(descriptor, select.POLLIN)
        self._started = time.monotonic()
        while self.stop is None and not self._last and len(self._verdicts) < wanted:
            timeout_s = self._check_clocks()
            if self.stop is not None:
                return
            for descriptor, _ in poll.poll(timeout_s * 1000):
                if not self._read(descriptors[descriptor]):
                    poll.unregister(descriptor)
            if "test" in self.ends and self._gone_since is None:
                self._read("control")  # what it said before it ended
                if len(self._verdicts) < wanted and self._gone_since is None and not self._last:
                    self.stop = self.stop or self._death_of_test()

    def _read(self, source: str) -> bool:
        """Take what is there; False at the source's end."""
        if source == "zygote":
            self._zygote_message()
            return True
        if source == "control":
            return self._read_verdicts()
        return self._read_output(source)

    def _zygote_message(self) -> dict:
        message = self.zygote.recv(65536)
        if not message:
            raise ZygoteGone("zygote ended")
        news = json.loads(message)
        if "pids" in news:
            self.pids = news["pids"]
        elif "exit" in news:
            self.ends[news["exit"]] = news["end"]
        return news

    # ------------------------------------------------------------ limits

    def _cpu(self, role: str) -> float:
        """CPU seconds of the role's process so far."""
        if role in self.ends:
            self._cpu_after[role] = self.ends[role][1]
        elif role in self.pids and (seconds := kernel.cpu_seconds(self.pids[role])) is not None:
            self._cpu_after[role] = seconds
        return self._cpu_after[role]

    def _test_cpu(self, role: str) -> float:
        """CPU seconds charged to the current test."""
        load = self._load_cpu if role == "program" else 0.0
        return load + max(0.0, self._cpu(role) - self._cpu_before[role])

    def cpu_ms(self) -> float:
        """CPU milliseconds charged to the current test."""
        return round(self._test_cpu("program") * 1e3, 3)

    def _check_clocks(self) -> float:
        """Set `stop` where a limit is passed; else return how many seconds may pass until the next look."""
        if self._gone_since is not None:
            left = self._gone_since + DEATH_WAIT_S - time.monotonic()
            if "program" in self.ends or left <= 0:
                self.stop = self._death_of_program()
            return max(left, 0.0)
        cpu_left = self.limits["cpu_s"]
        for role, prefix in (("program", ""), ("test", "test: ")):
            left = self.limits["cpu_s"] - self._test_cpu(role)
            if left <= 0:
                self.stop = Stop("TIME_LIMIT", f"{prefix}more than {self.limits['cpu_s']:g} s of CPU")
            cpu_left = min(cpu_left, left)
        wall_left = self._started + self.limits["wall_s"] - time.monotonic()
        if wall_left <= 0 and self.stop is None:
            self.stop = self._wall_expired()
        return max(TICK_S, min(cpu_left, wall_left))

    def _wall_expired(self) -> Stop:
        """Wall time says little of a program on a busy machine: with little CPU used it is first suspected to
        be ours."""
        used = max(self._test_cpu(role) for role in ROLES) + self._descendants_cpu()
        whose = "test: " if self._test_cpu("test") > self._test_cpu("program") else ""
        error = f"{whose}more than {self.limits['wall_s']:g} s by the clock"
        if used >= self.limits["cpu_s"] / 2:
            return Stop("TIME_LIMIT", error)
        starved = len(self.pids) < len(ROLES) or any(kernel.is_runnable(pid) for pid in self.pids.values())
        return Stop("TIME_LIMIT", error, may_be_ours=True, starved=starved)

    def _descendants_cpu(self) -> float:
        """CPU seconds of what the pair forked: a fork bomb starves none but itself."""
        forked = [pid for parent in self.pids.values() for pid in kernel.descendants(parent)]
        return sum(kernel.cpu_seconds(pid) or 0.0 for pid in forked)

    def _death_of_program(self) -> Stop:
        code, cpu_s, _ = self.ends.get("program", [None, 0.0, 0])
        when = "" if self.loaded else " while it was loaded"
        if code is None:
            return Stop("RUNTIME_ERROR", f"the program closed its connection{when}")
        if code >= 0:
            return Stop("RUNTIME_ERROR", f"the program exited with code {code}{when}")
        if code == -9 and cpu_s >= self.limits["total_cpu_s"] - 0.1:
            return Stop("TIME_LIMIT", "more CPU than all tests together may use")
        if code == -9 and kernel.oom_kills() > self._oom_before:
            return Stop("MEMORY_LIMIT", "killed by the kernel for want of memory", may_be_ours=True)
        return Stop("RUNTIME_ERROR", f"the program was killed by signal {-code}{when}")

    def _death_of_test(self) -> Stop:
        if self.ends["test"][0] == -9 and kernel.oom_kills() > self._oom_before:
            return Stop("MEMORY_LIMIT", "test: killed by the kernel for want of memory", may_be_ours=True)
        return Stop(
            "RUNTIME_ERROR", f"test: its process ended with code {self.ends['test'][0]} and no verdict"
        )

    # ------------------------------------------------------------ output and verdicts

    def stdout(self) -> str:
        """What the program printed while it was loaded and under the current test, cut at the limit."""
        cap = self.limits["output_kb"] << 10
        return bytes(self._load_output + self._output)[:cap].decode("utf-8", "replace")

    def _read_output(self, role: str) -> bool:
        cap = self.limits["output_kb"] << 10
        while True:
            try:
                chunk = os.read(self._outputs[role], 65536)
            except BlockingIOError:
                return True
            if not chunk:
                return False
            if role == "test":
                self._test_output += len(chunk)
                over = self._test_output > cap
            else:
                self._output += chunk
                over = len(self._load_output) + len(self._output) > cap
            if over:
                prefix = "test: " if role == "test" else ""
                self.stop = self.stop or Stop(
                    "OUTPUT_LIMIT", f"{prefix}more than {self.limits['output_kb']} KiB"
                )
                return True

    def _read_verdicts(self) -> bool:
        """Never wait for the rest of a frame: a test may write to this pipe what it likes."""
        try:
            chunk = self._control.recv(65536)
        except BlockingIOError:
            return True
        except OSError:
            return False
        self._frames += chunk
        while self.stop is None and self._gone_since is None and len(self._frames) >= 4:
            (length,) = struct.unpack(">I", self._frames[:4])
            if length > MAX_VERDICT_FRAME:
                self.stop = Stop("RUNTIME_ERROR", "test: wrote to the verdict pipe")
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
            if frame.get("loaded") is True and not self.loaded and not self._verdicts:
                self._read_output("program")
                self._begin_tests()
                return
            status, value, error = frame["status"], frame["value"], frame["error"]
            plain = (value is None or type(value) is str) and type(error) is str
            if status not in STATUSES or frame["index"] != len(self._verdicts) or not plain:
                raise ValueError
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
            self.stop = Stop("RUNTIME_ERROR", "test: wrote to the verdict pipe")
            return
        self._read_output("program")  # flushed before the program's last reply
        if self.stop is not None:
            return
        if frame.get("gone"):
            self._gone_since = time.monotonic()  # its exit code says why: see _check_clocks
            return
        self._verdicts.append([status, value, self.cpu_ms(), self.stdout(), error])
        self._last = frame.get("last") is True
        self._next_test()

    def _begin_tests(self) -> None:
        self.loaded = True
        self._load_output, self._output = self._output, bytearray()
        self._load_cpu = self._cpu("program")
        self._next_test()

    def _next_test(self) -> None:
        self._cpu_before = {role: self._cpu(role) for role in ROLES}
        self._started = time.monotonic()
        if self.loaded:
            self._output = bytearray()

    def _finish(self) -> None:
        """Have everything killed and wiped."""
        self.zygote.send(b"end")
        while "done" not in (news := self._zygote_message()):
            pass
        if not news["clean"]:
            raise ZygoteGone("a directory could not be emptied")
        if (
            self.stop is not None
            and self.stop.status == "TIME_LIMIT"
            and news["cpu_s"] >= self.limits["cpu_s"] / 2
        ):
            # Reaped, those show what they used that had lost their parent, too.
            self.stop = Stop("TIME_LIMIT", self.stop.error)
