"""The host's end of the connection to a runner: sends jobs as frames, receives verdicts, and keeps many jobs in flight.
All backends share it."""

import itertools
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future

from sandbox_workers.jobs import Backend, BackendDied, Job, SandboxUnavailable
from sandbox_workers.languages import PACKAGES_INSIDE, all_commands, packages, require_commands
from sandbox_workers.runner.framing import Frames, pack
from sandbox_workers.runner.judged import Judged
from sparring.core.verdict import Status, Verdict

START_TIMEOUT_S = 30.0
CLOSE_WAIT_S = 5.0
PATIENCE_S = 60.0
"""Seconds that the answers of one batch may take beyond what the limits of its jobs allow."""


class ChannelBackend(Backend):
    """A backend that lacks only `start`, which must call `_connect`, and `close`. It can be started once."""

    def __init__(self, slots: int) -> None:
        self.slots = slots
        self._ids = itertools.count()
        self._waiting: dict[int, Future] = {}
        self._longest_s: dict[Future, float] = {}
        """How long each job that waits or is judged may take, by its future."""
        self._lock = threading.Lock()
        self._ready: Future = Future()
        self._ended: str | None = "the sandbox is not started"
        self._commands: set[str] = set()
        self._last_words = bytearray()
        self._last_answer = 0.0
        self._reader: threading.Thread | None = None

    def _connect(self, send: Callable[[bytes], object], receive: Callable[[], bytes], way: str) -> None:
        """Connects to a runner and waits until it is ready.

        Args:
            send: writes all bytes to the runner's stdin.
            receive: returns some bytes of the runner's stdout, or no bytes at its end.
            way: how the runner was started, for error messages.

        Raises:
            SandboxUnavailable: the runner does not start.
        """
        self._send, self._ended = send, None
        frames = Frames(lambda _: receive(), most=1 << 40)  # the runner is trusted
        self._reader = threading.Thread(
            target=self._read_answers, args=(frames,), daemon=True, name="sandbox-answers"
        )
        self._reader.start()
        try:
            self._ready.result(START_TIMEOUT_S)
        except (TimeoutError, BackendDied) as error:
            self.close()
            late = isinstance(error, TimeoutError)
            why = f" within {START_TIMEOUT_S:g} s" if late else f": {error}"
            raise SandboxUnavailable(f"the sandbox did not start{why} ({way})") from None

    def _environment(self, uid_base: int) -> dict[str, str]:
        """Returns the environment variables that every runner gets; see runner/supervisor.py."""
        return {
            "SLOTS": str(self.slots),
            "UID_BASE": str(uid_base),
            "PYTHONHASHSEED": "0",
            "COMMANDS": " ".join(all_commands()),
            "PACKAGES": PACKAGES_INSIDE if packages() else "",
        }

    def commands(self) -> set[str]:
        return self._commands

    def healthy(self) -> bool:
        return self._ended is None

    def judge_batch(self, jobs: Sequence[Job]) -> list[list[Verdict]]:
        messages = [self._message(job) for job in jobs]
        futures = [
            self._submit(message, job.longest_s()) for message, job in zip(messages, jobs, strict=True)
        ]
        submitted = time.monotonic()
        return [self._answer(future, submitted) for future in futures]

    def _answer(self, future: Future, submitted: float) -> list[Verdict]:
        """Waits for the answer. Jobs of other batches may be ahead, and each is answered as a whole, so the time limit starts
        anew with each answer of the runner and is that of the longest job."""
        while True:
            silence_s = PATIENCE_S + max([*self._longest_s.values()], default=0.0)
            silent_since = max(submitted, self._last_answer)
            try:
                return future.result(max(0.01, silent_since + silence_s - time.monotonic()))
            except TimeoutError:
                if self._last_answer <= silent_since:
                    raise BackendDied(f"no answer to anything for {silence_s:g} s") from None

    def _message(self, job: Job) -> dict:
        message = job.message()
        if message["language"] is not None:
            require_commands(job.language, self._commands)
        return message

    def _submit(self, message: dict, longest_s: float) -> Future:
        future: Future = Future()
        future.add_done_callback(lambda done: self._longest_s.pop(done, None))
        with self._lock:
            if self._ended is not None:
                raise BackendDied(self._ended)
            number = next(self._ids)
            self._waiting[number] = future
            self._longest_s[future] = longest_s
            try:
                self._send(pack({"id": number, **message}))
            except (OSError, ValueError) as error:
                del self._waiting[number], self._longest_s[future]
                raise BackendDied(f"the sandbox takes no jobs: {error}") from None
        return future

    def _read_answers(self, frames: Frames) -> None:
        reason = "the sandbox ended"
        try:
            while True:
                message = frames.next()
                if "ready" in message:
                    self._commands = set(message["commands"])
                    self._ready.set_result(None)
                    continue
                with self._lock:
                    self._last_answer = time.monotonic()
                    future = self._waiting.pop(message["id"])
                future.set_result([_verdict(Judged(*fields)) for fields in message["verdicts"]])
        except EOFError:
            pass
        except Exception as error:
            reason = f"the sandbox's answer cannot be read: {type(error).__name__}: {error}"
        if words := self._last_words.decode("utf-8", "replace").strip():
            reason = f"{reason}: {words[-500:]}"
        with self._lock:
            self._ended = reason
            lost, self._waiting = list(self._waiting.values()), {}
        for future in [*lost, self._ready]:
            if not future.done():
                future.set_exception(BackendDied(reason))

    def _keep_stderr(self, chunk: bytes) -> None:
        """Keeps the last 4096 bytes of the runner's stderr for error messages."""
        self._last_words += chunk
        del self._last_words[:-4096]

    def _wait_ended(self) -> None:
        """Waits until the runner's output has been read to its end. If a descriptor is closed earlier, its number may
        belong to another file when the reader thread uses it again. The thread would then take bytes from that file,
        and the code that waits for them would wait forever."""
        if self._reader is not None:
            self._reader.join(CLOSE_WAIT_S)


def _verdict(judged: Judged) -> Verdict:
    fields = judged._asdict()
    return Verdict(**{**fields, "status": Status(judged.status), "shadowed": tuple(judged.shadowed)})
