"""`python -m sandbox_workers judge` on input that is none."""

import asyncio
import json
import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from sandbox_workers.__main__ import JobLine, judge_all, main, read_jobs
from sandbox_workers.client import SandboxClient
from sandbox_workers.lines import judge_request
from sparring.core.errors import SparringError
from sparring.core.verdict import Limits
from tests.unit.sandbox_workers.conftest import ScriptedTransport


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--slots", "0"], "--slots 0: 1 or more"),
        (["--memory-mb", "16"], "--memory-mb 16: 32 or more"),
        ([], "jobs.jsonl:1: Input should be a valid string"),
    ],
)
def test_bad_input_is_told_in_a_line(options: list[str], said: str, tmp_path: Path) -> None:
    jobs = tmp_path / "jobs.jsonl"
    jobs.write_bytes(b'{"id": 1, "program": "# \xe9", "tests": ["f()"]}\n')
    with pytest.raises(SparringError, match=re.escape(said)):
        main(["judge", "--sandbox", "process", *options, str(jobs)])


def read(**job: object) -> list[JobLine]:
    return list(read_jobs([json.dumps({"id": 1, "program": "", "tests": ["t"]} | job)], "-", memory_mb=128))


def test_an_answer_does_not_wait_for_the_next_job(capsys: pytest.CaptureFixture[str]) -> None:
    """The next line is written once the answer to the one before was read."""
    said: list[str] = []

    def is_answered(number: int) -> bool:
        said.append(capsys.readouterr().out)
        return f'"id": {number}' in "".join(said)

    def jobs() -> Iterator[JobLine]:
        for number in range(3):
            end = time.monotonic() + 10
            while number and not is_answered(number - 1):
                assert time.monotonic() < end, "no answer while the next line is waited for"
                time.sleep(0.01)
            yield from read(id=number)

    client: Any = SandboxClient(ScriptedTransport(), version="v")
    assert asyncio.run(judge_all(jobs(), client)) == 0
    assert is_answered(2)


@pytest.mark.parametrize("expected", ["x" * 100_000, "\u4e00" * 60_000, "x"])
def test_an_output_that_is_expected_may_be_printed(expected: str) -> None:
    transport = ScriptedTransport()
    (job,) = read(tests=[{"stdout": expected}])
    asyncio.run(judge_request(SandboxClient(transport, version="v"), job, Limits()))
    ((_, (sent,)),) = transport.batches
    assert sent.limits.output_kb * 1024 > len(expected.encode())


def test_a_job_that_states_no_memory_has_what_there_is() -> None:
    (job,) = read(limits={"cpu_s": 3})
    assert (job.limits.memory_mb, job.limits.cpu_s) == (128, 3)
