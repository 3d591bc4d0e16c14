"""`python -m sandbox_workers judge` on input that is none."""

import re
from pathlib import Path

import pytest

from sandbox_workers.__main__ import main, read_jobs
from sparring.core.errors import SparringError


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


def test_a_job_that_states_no_memory_has_what_there_is() -> None:
    (job,) = read_jobs(['{"id": 1, "program": "", "tests": [], "limits": {"cpu_s": 3}}'], "-", memory_mb=128)
    assert (job.limits.memory_mb, job.limits.cpu_s) == (128, 3)
