"""The host's end of a runner that is scripted."""

import contextlib
import os
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, replace
from functools import partial
from typing import Any

import pytest

from sandbox_workers import channel
from sandbox_workers.channel import ChannelBackend
from sandbox_workers.jobs import BackendDied, Job, SandboxUnavailable
from sandbox_workers.runner.framing import Frames, pack
from sandbox_workers.runner.judged import Judged
from sparring.core.verdict import Limits, Status

READY = pack({"ready": "3.11", "commands": ["lua5.4"]})
JOB = Job(program="p", tests=("f(1)",), limits=Limits())


class ScriptedBackend(ChannelBackend):
    """`runner` reads jobs and writes what it likes."""

    def __init__(self, runner: Callable[[Frames, Callable[[bytes], object]], None]) -> None:
        super().__init__(slots=1)
        self.jobs, self.to_runner = os.pipe()
        self.from_runner, self.answers = os.pipe()
        self.runner = runner

    def start(self) -> None:
        threading.Thread(target=self._run, daemon=True).start()
        self._connect(partial(os.write, self.to_runner), lambda: os.read(self.from_runner, 9), "scripted")

    def _run(self) -> None:
        with contextlib.suppress(EOFError):  # the jobs ended
            self.runner(Frames(partial(os.read, self.jobs)), partial(os.write, self.answers))
        self._keep_stderr(b"x" * 9000 + b"last words")
        os.close(self.answers)

    def close(self) -> None:
        self._wait_ended()


@pytest.fixture
def start() -> Iterator[Callable[..., ScriptedBackend]]:
    made = []

    def start(runner: Callable) -> ScriptedBackend:
        made.append(backend := ScriptedBackend(runner))
        backend.start()
        return backend

    yield start
    for backend in made:
        os.close(backend.to_runner)
        backend.close()


def test_every_field_of_a_verdict_arrives_under_its_name(start: Callable) -> None:
    told: dict[str, Any] = {
        "status": "WRONG_ANSWER", "value": "[1]", "cpu_ms": 1.5, "stdout": "out", "stderr": "err", "error": "why",
        "memory_bytes": 7, "test_cpu_ms": 2.5, "asked_objects": True, "isolation": "shared",
        "never_asked": True, "shadowed": ("exp",),
    }  # fmt: skip
    assert told.keys() == set(Judged._fields)

    def answer(jobs: Frames, write: Callable) -> None:
        write(READY)
        write(pack({"id": jobs.next()["id"], "verdicts": [Judged(**told)]}))
        jobs.next()

    backend = start(answer)
    assert backend.commands() == {"lua5.4"} and backend.healthy()
    ((verdict,),) = backend.judge_batch([JOB])
    assert asdict(verdict) == told | {"status": Status.WRONG_ANSWER}


def test_a_runner_that_ends_within_an_answer_leaves_its_last_words(start: Callable) -> None:
    def end(jobs: Frames, write: Callable) -> None:
        write(READY)
        write(pack({"id": jobs.next()["id"], "verdicts": []})[:-1])

    backend = start(end)
    with pytest.raises(BackendDied, match=r"^the sandbox ended: x+last words$"):
        backend.judge_batch([JOB])
    assert not backend.healthy()
    with pytest.raises(BackendDied, match="the sandbox ended"):
        backend.judge_batch([JOB])


def test_a_short_job_waits_as_long_as_a_longer_one_of_another_batch_may_take(
    start: Callable, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(channel, "PATIENCE_S", 0.1)
    monkeypatch.setattr(Job, "longest_s", lambda job: 20.0 if job.program == "long" else 0.1)
    is_long_there = threading.Event()

    def answer(jobs: Frames, write: Callable) -> None:
        write(READY)
        numbers = [jobs.next()["id"]]
        is_long_there.set()
        numbers.append(jobs.next()["id"])
        time.sleep(1)
        for number in numbers:
            write(pack({"id": number, "verdicts": [Judged("PASSED")]}))
        jobs.next()

    backend = start(answer)
    thread = threading.Thread(target=backend.judge_batch, args=([replace(JOB, program="long")],))
    thread.start()
    assert is_long_there.wait(10)
    ((verdict,),) = backend.judge_batch([JOB])
    thread.join(10)
    assert verdict.passed and not backend._longest_s


def test_a_runner_that_is_never_ready_says_how_it_was_started() -> None:
    backend = ScriptedBackend(lambda jobs, write: None)
    with pytest.raises(SandboxUnavailable, match=r"did not start: .*last words \(scripted\)$"):
        backend.start()


def test_a_backend_that_was_not_started_judges_nothing() -> None:
    backend = ScriptedBackend(lambda jobs, write: None)
    assert backend.commands() == set() and not backend.healthy()
    with pytest.raises(BackendDied, match="not started"):
        backend.judge_batch([JOB])
