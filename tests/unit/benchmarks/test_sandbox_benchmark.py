"""The helpers of the sandbox's benchmarks that need no sandbox."""

import asyncio
import itertools
from collections import Counter
from dataclasses import replace

from benchmarks.hostile_jobs import HOSTILE
from benchmarks.processes import shim_of
from benchmarks.reference_solutions import hollowed, own_tests
from benchmarks.report import percentile
from benchmarks.sandbox import make_jobs
from benchmarks.sandbox_soak import leaks
from benchmarks.soak_jobs import (
    KINDS,
    Expected,
    FromCorpus,
    Honest,
    SoakJob,
    attacks,
    corpus,
    equally_right,
    mixed,
    right,
    take_honest,
)
from sandbox_workers.jobs import is_data
from sandbox_workers.languages import languages
from sparring.core.verdict import KnownTest, ReferenceTest, Status, Verdict
from tests.attacks.test_forgery import EQUALLY_RIGHT
from tests.honest.not_served import NOT_SERVED


def run(program: str) -> dict:
    names: dict = {}
    exec(program, names)
    return names


def test_hollowed_functions_return_none_and_the_rest_stays() -> None:
    program = """
import math
LIMIT = 3
def f(x):
    "doc"
    def g(): return x
    return g()
async def h(): return 1
class A:
    size = 2
    def __init__(self): self.x = 1
    def m(self): return self.x
k = lambda x: x + 1
"""
    names = run(hollowed(program))
    assert names["f"](1) is None and names["k"](1) is None and names["A"]().m() is None
    assert names["LIMIT"] == 3 and names["A"].size == 2 and names["math"]
    assert not hasattr(names["A"](), "x")


def test_set_up_stands_before_each_test() -> None:
    row = {"test_list": ["assert f(a) == 1", "assert f(a) == 2"]}
    assert own_tests(row) == own_tests({**row, "test_setup_code": ""}) == row["test_list"]
    set_up = own_tests({**row, "test_setup_code": "a = 1"})
    assert set_up == [f"a = 1\n{test}" for test in row["test_list"]]


def test_jobs_are_distinct_right_and_of_the_kind_asked_for() -> None:
    for code in (False, True):
        jobs = make_jobs(3, code=code)
        assert len({program for program, _ in jobs}) == 3
        for program, tests in jobs:
            names = run(program)
            assert len(tests) == 5 and all(is_data(test) != code for test in tests)
            for test in tests:
                exec(test, names)


def test_percentile_is_the_nearest_rank() -> None:
    values = [float(n) for n in range(100, 0, -1)]
    assert (percentile(values, 50), percentile(values, 99), percentile(values, 100)) == (50, 99, 100)
    assert percentile([7.0], 50) == 7


def test_shims_are_known_by_their_command_line() -> None:
    line = b"/usr/bin/containerd-shim-runc-v2\0-namespace\0moby\0-id\0abc\0-address\0/run/x.sock\0"
    assert shim_of(line) == "abc"
    assert shim_of(line + b"start\0") is None
    assert shim_of(b"dockerd\0-id\0abc\0") is None
    assert shim_of(b"") is None


ALL = tuple(languages())


def test_the_schedule_repeats_and_holds_the_shares() -> None:
    shares = {"generated": 0.3, "corpus": 0.4, "hostile": 0.2, "attack": 0.1}
    jobs = [list(itertools.islice(mixed(shares, ALL, seed=1), 1000)) for _ in range(2)]
    names = [[job.name for job in of_run] for of_run in jobs]
    assert names[0] == names[1]
    counts = Counter(job.kind for job in jobs[0])
    assert counts.keys() == set(KINDS)
    assert all(0.7 * share < counts[kind] / 1000 < 1.4 * share for kind, share in shares.items())
    assert len({attack.name for attack in HOSTILE}) == len(HOSTILE) >= 12


def test_no_attack_and_no_job_of_the_corpus_comes_twice_before_all_came_once() -> None:
    here = ("python",)
    count = len(attacks(here))
    shares = {"generated": 0.0, "corpus": 0.0, "hostile": 0.0, "attack": 1.0}
    names = [job.name for job in itertools.islice(mixed(shares, here), 2 * count)]
    assert sorted(names[:count]) == sorted(names[count:]) and len(set(names)) == count


def test_every_attack_and_every_job_that_is_served_is_in_the_soak() -> None:
    named = {attack.name.partition(": ")[2] for attack in attacks(ALL)}
    assert len(named) == len(attacks(ALL)) >= 300
    assert {"meet at a lock", "kill the neighbour", "lua: prints and ends", "its fork server"} <= named
    assert "object that compares with itself" in named
    names = [job.name for job in corpus(ALL)]
    assert len(set(names)) == len(names) >= 2000 and not set(names) & set(NOT_SERVED)
    assert {job.language for job in (entry.job for entry in corpus(("c", "bash")))} == {"c", "bash"}
    of_the_corpus = {"generated": 0.0, "corpus": 1.0, "hostile": 0.0, "attack": 0.0}
    count = len(corpus(ALL)) + len(equally_right())
    assert {job.name for job in itertools.islice(mixed(of_the_corpus, ALL), count)} >= {
        f"forgery: {name}" for name in EQUALLY_RIGHT
    }


class Same:
    """A sandbox that says the same of everything."""

    def __init__(self, verdict: Verdict) -> None:
        self.verdict = verdict
        self.tests: list = []

    async def judge(self, program, tests, *, limits=None, run=0, language="python") -> list[Verdict]:
        self.tests += tests
        return [self.verdict for _ in tests]


def wrong(job: SoakJob, verdict: Verdict) -> list[str]:
    return asyncio.run(job.judge(Same(verdict), 1)).wrong


def test_a_right_program_must_pass_and_a_wrong_one_fail() -> None:
    by_kind: dict[bool, FromCorpus] = {job.program == job.job.program: job for job in corpus(ALL)}
    passed, failed = Verdict(status=Status.PASSED), Verdict(status=Status.WRONG_ANSWER)
    for right_one, job in by_kind.items():
        assert bool(wrong(job, passed)) == (not right_one)
        assert bool(wrong(job, failed)) == right_one


def test_another_program_meets_the_test_as_the_reference_left_it() -> None:
    passed = Verdict(status=Status.PASSED)
    (job,) = [job for job in equally_right() if job.name == "forgery: generator for a list"]
    assert not wrong(job, passed) and len(wrong(job, replace(passed, status=Status.RUNTIME_ERROR))) == 2
    sandbox = Same(passed)
    asyncio.run(job.judge(sandbox, 1))
    assert type(sandbox.tests[0]) is ReferenceTest and sandbox.tests[1].plain
    sandbox = Same(replace(passed, asked_objects=True))
    asyncio.run(job.judge(sandbox, 1))
    assert isinstance(sandbox.tests[1], KnownTest) and not sandbox.tests[1].plain


def test_no_attack_holds_whatever_the_sandbox_says() -> None:
    """Each has a verdict that it may not get."""
    reached = Verdict(status=Status.PASSED, value="reached")
    lost = Verdict(status=Status.SANDBOX_ERROR)
    assert not [
        attack.name for attack in attacks(ALL) if not wrong(attack, reached) or not wrong(attack, lost)
    ]


def test_a_program_that_blames_its_test_does_not_hold() -> None:
    (attack,) = [a for a in attacks(("python",)) if a.name == "blame: exception class named test"]
    assert not wrong(attack, Verdict(status=Status.RUNTIME_ERROR))
    assert wrong(attack, Verdict(status=Status.RUNTIME_ERROR, error="test: x"))


def test_honest_jobs_are_honest() -> None:
    """Judged here by running them: the statuses expected are those deserved."""
    for job in take_honest(60, data_only=True):
        names = run(job.program)
        for test, expected in zip(job.tests, job.expected, strict=True):
            assert isinstance(test, str)
            assert outcome(test, names) == expected.status, (job.name, test)


def outcome(test: str, names: dict) -> Status:
    try:
        exec(test, names)
    except AssertionError:
        return Status.WRONG_ANSWER
    except Exception:
        return Status.RUNTIME_ERROR
    return Status.PASSED


def test_wrong_verdicts_are_told_from_misplaced_output() -> None:
    expected = (Expected(Status.PASSED, stdout="a\n"), Expected(Status.PASSED, stdout="b\n"))
    job = Honest(name="j", program="", tests=("f(1)", "f(2)"), expected=expected)
    passed, other = (Verdict(status=Status.PASSED, stdout=text) for text in ("a\nb\n", "c\n"))
    assert job.wrong([passed, passed]) == [] and job.misplaced_output([passed, passed]) == 2
    assert len(job.wrong([passed, other])) == 1
    verdict = Verdict(status=Status.PASSED)
    assert len(right(1).wrong([verdict, verdict, verdict])) == 1  # the value is missing


def test_leaks_are_counts_that_grew() -> None:
    before = {"processes": 7, "files": 0, "own_pss_mib": 30.0}
    after = {"processes": 6, "files": 2, "own_pss_mib": 50.0}
    assert leaks(before, after) == ["files: 0 -> 2"]
