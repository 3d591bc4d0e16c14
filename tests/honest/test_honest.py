"""Honest jobs: what plain CPython (or the language's own interpreter) says of program and test, the sandbox says too."""

from collections.abc import Mapping

import pytest

from sandbox_workers.languages import UnknownLanguage
from sparring.core.verdict import OutputTest, Status, Verdict
from tests.honest import plain
from tests.honest.conftest import GENERATED, JOBS, WRITTEN, Judged, Judgement
from tests.honest.jobs import Job
from tests.honest.not_served import NOT_SERVED, NOT_SERVED_ALONE

PARAMS = [
    *dict.fromkeys(job.theme for job in WRITTEN),
    *(pytest.param(theme, marks=pytest.mark.slow) for theme in dict.fromkeys(job.theme for job in GENERATED)),
]


def test_the_corpus_is_wide_and_has_no_job_twice() -> None:
    assert len(JOBS) >= 1000
    assert len({str(job) for job in JOBS}) == len({(job.program, job.tests) for job in JOBS}) == len(JOBS)
    assert not [str(job) for job in JOBS if not job.tests or not job.wrong or job.program in job.wrong]


def test_what_is_not_served_is_in_the_corpus() -> None:
    assert set(NOT_SERVED | NOT_SERVED_ALONE) <= {str(job) for job in JOBS}
    assert len(NOT_SERVED) <= 0.01 * len(JOBS) and len(NOT_SERVED_ALONE) <= 0.02 * len(JOBS)


@pytest.mark.kinds  # the corpus by itself
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


@pytest.mark.kinds  # the corpus by itself
@pytest.mark.parametrize("language", sorted({job.language for job in JOBS}))
def test_whole_programs_print_that_by_their_own_interpreter(language: str) -> None:
    if not plain.can_run(language):
        pytest.skip(f"no {language} here")
    for job in [job for job in JOBS if job.language == language and isinstance(job.tests[0], OutputTest)]:
        for program in job.programs():
            passed = [prints(language, program, test) for test in job.tests if isinstance(test, OutputTest)]
            assert all(passed) == (program == job.program), f"{job}:\n{program}"


def prints(language: str, program: str, test: OutputTest) -> bool:
    stdout = plain.run_program(language, program, test.stdin)
    return stdout is not None and test.judge(Verdict(status=Status.PASSED, stdout=stdout)).passed


@pytest.mark.parametrize("theme", PARAMS)
def test_right_programs_pass(judged: Mapping[Job, Judgement], theme: str) -> None:
    demand_all_passed({job: judged[job].known[0] for job in JOBS if job.theme == theme}, NOT_SERVED)


@pytest.mark.parametrize("theme", PARAMS)
def test_right_programs_pass_without_a_reference(judged: Mapping[Job, Judgement], theme: str) -> None:
    judged_alone = {job: judged[job].alone for job in JOBS if job.theme == theme}
    demand_all_passed(judged_alone, NOT_SERVED | NOT_SERVED_ALONE)


def demand_all_passed(judged: Mapping[Job, Judged], not_served: Mapping[str, str]) -> None:
    failed = [
        f"{job.name}: {test}: {verdict.status} {verdict.error}"
        for job, verdicts in judged.items()
        if str(job) not in not_served
        for test, verdict in zip(job.tests, known_language(verdicts), strict=True)
        if not verdict.passed
    ]
    if failed:
        pytest.fail("\n".join(failed), pytrace=False)


@pytest.mark.parametrize("theme", PARAMS)
def test_wrong_programs_fail(judged: Mapping[Job, Judgement], theme: str) -> None:
    passed = [
        f"{job.name}:\n{program}"
        for job in JOBS
        if job.theme == theme
        for program, verdicts in zip(job.wrong, judged[job].known[1:], strict=True)
        if all(verdict.passed for verdict in known_language(verdicts))
    ]
    if passed:
        pytest.fail("\n".join(passed), pytrace=False)


def known_language(judged: Judged) -> list[Verdict]:
    if isinstance(judged, UnknownLanguage):
        pytest.skip(str(judged))
    return judged
