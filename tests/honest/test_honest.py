"""Honest jobs: what plain CPython (or the language's own interpreter) says of program and test, the sandbox says too.

`python -m pytest tests/honest -q` counts per theme what it does not.
"""

from collections.abc import Callable, Mapping, Sequence

import pytest

from core.verdict import OutputTest, Status, Verdict
from tests.honest import plain
from tests.honest.jobs import Job, read_corpus
from tests.honest.not_served import NOT_SERVED, NOT_SERVED_ALONE
from tests.honest.products import products

WRITTEN, GENERATED = read_corpus(), list(products())
JOBS = [*WRITTEN, *GENERATED]
PARAMS = [*WRITTEN, *(pytest.param(job, marks=pytest.mark.slow) for job in GENERATED)]


def test_the_corpus_is_wide_and_has_no_job_twice() -> None:
    assert len(JOBS) == len(PARAMS) >= 1000
    assert len({str(job) for job in JOBS}) == len({(job.program, job.tests) for job in JOBS}) == len(JOBS)
    assert not [str(job) for job in JOBS if not job.tests or not job.wrong or job.program in job.wrong]


def test_what_is_not_served_is_in_the_corpus() -> None:
    assert set(NOT_SERVED | NOT_SERVED_ALONE) <= {str(job) for job in JOBS}
    assert len(NOT_SERVED) <= 0.01 * len(JOBS) and len(NOT_SERVED_ALONE) <= 0.02 * len(JOBS)


def test_plain_cpython_passes_the_right_programs_and_fails_the_wrong_ones() -> None:
    """So whatever the sandbox says else is the sandbox's error."""
    jobs = [job for job in JOBS if isinstance(job.tests[0], str)]
    for program in [program for job in jobs for program in job.programs()]:
        compile(program, "program.py", "exec")  # a wrong program shall not be wrong for its syntax
    why = iter(plain.run_tests([(p, str(t)) for job in jobs for p in job.programs() for t in job.tests]))
    outcomes = [(job, [[next(why) for _ in job.tests] for _ in job.programs()]) for job in jobs]
    assert not [(str(job), failed) for job, (right, *_) in outcomes for failed in right if failed]
    assert not [
        (str(job), job.wrong[n]) for job, (_, *wrong) in outcomes for n, w in enumerate(wrong) if not any(w)
    ]


@pytest.mark.parametrize("job", [job for job in JOBS if isinstance(job.tests[0], OutputTest)], ids=str)
def test_whole_programs_print_that_by_their_own_interpreter(job: Job) -> None:
    if not plain.can_run(job.language):
        pytest.skip(f"no {job.language} here")
    for program in job.programs():
        passed = [prints(job.language, program, test) for test in job.tests if isinstance(test, OutputTest)]
        assert all(passed) == (program == job.program), program


def prints(language: str, program: str, test: OutputTest) -> bool:
    stdout = plain.run_program(language, program, test.stdin)
    return stdout is not None and test.judge(Verdict(status=Status.PASSED, stdout=stdout)).passed


@pytest.mark.parametrize("job", PARAMS, ids=str)
def test_right_program_passes(judgement_of: Callable, job: Job) -> None:
    demand_all_passed(job, judgement_of(job).known[0], NOT_SERVED)


@pytest.mark.parametrize("job", PARAMS, ids=str)
def test_right_program_passes_without_a_reference(judgement_of: Callable, job: Job) -> None:
    demand_all_passed(job, judgement_of(job).alone, NOT_SERVED | NOT_SERVED_ALONE)


def demand_all_passed(job: Job, verdicts: Sequence[Verdict], not_served: Mapping[str, str]) -> None:
    failed = [
        (str(test), v.status, v.error) for test, v in zip(job.tests, verdicts, strict=True) if not v.passed
    ]
    if failed and str(job) in not_served:
        pytest.skip(not_served[str(job)])
    if failed:
        pytest.fail("\n".join(map(str, failed)), pytrace=False)


@pytest.mark.parametrize("job", PARAMS, ids=str)
def test_wrong_program_fails(judgement_of: Callable, job: Job) -> None:
    (_, *wrong) = judgement_of(job).known
    passed = [
        program for program, verdicts in zip(job.wrong, wrong, strict=True) if all(v.passed for v in verdicts)
    ]
    if passed:
        pytest.fail("\n".join(passed), pytrace=False)
