"""The supervisor's part for code tests. They run in the program's process, after the program."""

import contextlib
import os

from .child import Child
from .framing import pack
from .judged import Judged
from .judging import Judging, cleaned
from .roles import LOAD_FAILURES
from .stop import Stop, set_up_failed


class Shared(Judging):
    """A round in which the program's process runs its tests, too. Each verdict carries a token that is drawn for this
    round and sent to the process once the program is loaded."""

    def judge(self, program: str) -> list[Judged]:
        self.program = self.teller = Child(
            self._zygote, "program", self._settings, self.limits, streams=("stdout", "stderr")
        )
        self._is_set_up = False
        self._token = os.urandom(16).hex()  # `secrets` would load `random` before the zygote does
        self._start_clock(self.program)
        try:
            self.program.control.settimeout(self.limits["wall_s"])
            with contextlib.suppress(OSError):  # the child is dead, as its exit code shows
                self.program.control.sendall(pack({"program": program}))
            self._watch_all({})
        finally:
            self._finish_program(b"end" if self.stop is None else b"kill")
        return [verdict._replace(memory_bytes=self._memory_bytes()) for verdict in self._verdicts]

    def _check(self) -> float:
        if self.program.end is not None:
            self._read_frames()  # the frames that it sent before it ended
            if not self._is_over():
                self.stop = self._end("" if self.loaded else " while it was loaded")
        return super()._check()

    def _take(self, frame: dict) -> None:
        """Handles one frame. The frames come in this order: the process is set up, the program is loaded, then the
        verdicts."""
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
            asked = {"tests": [source for source, *_ in self._tests], "token": self._token}
            self.program.control.settimeout(self.limits["wall_s"])
            with contextlib.suppress(OSError):
                self.program.control.sendall(pack(asked))
            self.program.control.setblocking(False)
            self._begin_tests()

    def judged(self, stop: Stop) -> Judged:
        return super().judged(stop)._replace(isolation="shared")
