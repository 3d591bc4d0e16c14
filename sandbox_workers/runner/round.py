"""A round: the process of one program from its start to its end, as the supervisor sees it. The round reads the
program's output and enforces the limits.

`Pair` is a round with a second process for the tests, `CommandRound` a round of a command.
"""

import select
import socket
import time
from collections.abc import Callable

from . import kernel
from .child import Child
from .judged import Judged
from .stop import Stop, killed_for_memory, set_up_failed
from .wall import Wall
from .zygote import Settings

TICK_S = 0.01
"""Shortest pause between two looks at the CPU clock, seconds."""
MOST_DROPPED = 1 << 20
"""Largest size of what is dropped of stderr per test, bytes. A flood would delay the other slots."""


class Round:
    """The base of all rounds. The clock and the account of CPU time start anew with each test. A test is charged with
    the loading of the program and with its own time, so it costs the same alone as in a batch."""

    program: Child

    def __init__(self, zygote: socket.socket, settings: Settings, limits: dict) -> None:
        self.limits = limits
        self.stop: Stop | None = None
        """Why the round was ended early, or None."""
        self.loaded = False
        """True once the program has reported which names it defines."""
        self._zygote, self._settings = zygote, settings
        self._load_cpu = 0.0
        self._load_output = {"stdout": b"", "stderr": b""}
        self._dropped = 0
        self._oom_before = kernel.oom_kills()

    def _is_over(self) -> bool:
        raise NotImplementedError

    def _watch(self, sources: dict[int, Callable[[], bool]]) -> None:
        """Reads the sources and checks the limits until the round is over. A source is called if its descriptor has
        data, and returns whether more may come."""
        poll = select.poll()
        for descriptor in sources:
            poll.register(descriptor, select.POLLIN)
        timeout_s = 0.0
        while not self._is_over():
            due = time.monotonic() + timeout_s
            ready = poll.poll(timeout_s * 1000)
            self._wall.stand_still(time.monotonic() - due)
            for descriptor, _ in ready:
                if not sources[descriptor]():
                    poll.unregister(descriptor)
            timeout_s = self._check()

    def _sources(self) -> dict[int, Callable[[], bool]]:
        """Returns the sources of the program."""
        return {
            self.program.zygote.fileno(): lambda: bool(self.program.take_news()),
            self.program.outputs["stdout"]: lambda: self._read_output("stdout"),
            self.program.outputs["stderr"]: lambda: self._read_output("stderr"),
        }

    # ------------------------------------------------------------ limits

    def _start_clock(self, *children: Child) -> None:
        self._wall = Wall(children, self.limits["wall_s"])

    def _cpu_s(self, child: Child) -> float:
        """Returns the CPU seconds that are charged to the current test."""
        load = self._load_cpu if child is self.program else 0.0
        return load + max(0.0, child.cpu_s() - self._wall.cpu_before[child])

    def _check(self) -> float:
        """Sets `stop` if a limit is exceeded. Returns the seconds that may pass until the next check."""
        if self._is_over():
            return 0.0
        if self.program.until_look_s() <= 0:
            self._look()
        cpu_left = self.limits["cpu_s"]
        for child in self._wall.cpu_before:
            left = self.limits["cpu_s"] - self._cpu_s(child)
            if left <= 0 and self.stop is None:
                self.stop = Stop("TIME_LIMIT", f"more than {self.limits['cpu_s']:g} s of CPU")
            cpu_left = min(cpu_left, left)
        wall_left = self._wall.left_s()
        if wall_left <= 0 and self.stop is None:
            self.stop = self._wall.expired()
        memory_mb = self._most_resident_mb()
        if self.program.holds_more_than(memory_mb):  # the wall clock may have looked, too
            self.stop = Stop("MEMORY_LIMIT", f"its processes hold more than {memory_mb} MiB")
        return max(TICK_S, min(cpu_left, wall_left, self.program.until_look_s()))

    def _look(self) -> None:
        """Measures what the clocks of the processes do not show."""
        self.program.look()

    def _most_resident_mb(self) -> int:
        """Returns how much the program and all processes that it started may hold, MiB."""
        return self.limits.get("resident_mb", self.limits["memory_mb"])

    def _end(self, when: str = "") -> Stop:
        """Returns the stop that follows from the program's end."""
        assert self.program.end is not None
        code = self.program.end[0]
        if not self.loaded and (error := self.program.set_up_error()) is not None:
            return set_up_failed(error)
        if code >= 0:
            return Stop("RUNTIME_ERROR", f"the program exited with code {code}{when}")
        if code == -9 and kernel.oom_kills() > self._oom_before:
            return killed_for_memory(self.program, self._is_within_limits())
        # The kernel may have sent SIGKILL for lack of memory without counting it in the cgroup.
        error = f"the program was killed by signal {-code}{when}"
        return Stop("RUNTIME_ERROR", error, may_be_ours=code == -9)

    def _is_within_limits(self) -> bool:
        return not self.program.held_more_than(self._most_resident_mb())

    # ------------------------------------------------------------ output and verdicts

    def printed(self, name: str) -> str:
        """Returns what the program wrote to stdout or stderr while it was loaded and during the current test: of stdout
        the beginning, of stderr the end, up to the limit."""
        cap = self.limits["output_kb"] << 10
        part = slice(-cap, None) if name == "stderr" else slice(cap)
        return (self._load_output[name] + self.program.read[name])[part].decode("utf-8", "replace")

    def _read_output(self, name: str) -> bool:
        cap = self.limits["output_kb"] << 10
        goes_on = self.program.read_output(name, cap)
        taken = self.program.read[name]
        if name == "stderr":  # programs log there, and no test compares it
            self._dropped += max(0, len(taken) - cap)
            del taken[:-cap]
            printed, most = self._dropped + cap, MOST_DROPPED + cap
        else:
            printed, most = len(self._load_output[name]) + len(taken), cap
        if printed > most:
            self.stop = self.stop or Stop("OUTPUT_LIMIT", f"more than {most >> 10} KiB on {name}")
        return goes_on

    def _flush(self) -> None:
        """Reads what the program has printed so far."""
        for name in ("stdout", "stderr"):
            self._read_output(name)

    def _measured(self) -> dict:
        """Returns the fields of the current test's verdict that are measured."""
        return {
            "cpu_ms": round(self._cpu_s(self.program) * 1e3, 3),
            "stdout": self.printed("stdout"),
            "stderr": self.printed("stderr"),
            "memory_bytes": self._memory_bytes(),
        }

    def _memory_bytes(self) -> int:
        """Returns the peak resident memory of the program's process over all its tests, bytes; 0 while it is not known."""
        return self.program.end[2] << 10 if self.program.end is not None else 0

    def judged(self, stop: Stop) -> Judged:
        """Returns the verdict of the current test that follows from the stop."""
        return Judged(stop.status, error=stop.error, **self._measured())
