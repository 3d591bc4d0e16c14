"""Tests that compare a contest program's output in the same way as the data set's own tester. Each data set has a class of
tests; `exact` converts them to sparring.core.verdict.OutputTest."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from itertools import zip_longest

from sparring.core.problem import Problem
from sparring.core.verdict import OutputTest, Test, Verdict

_NUMBER = re.compile(r"[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d{1,6})?")


@dataclass(frozen=True, kw_only=True, slots=True)
class CodeContestsTest(OutputTest):
    """A test that compares words, ignoring case and the blanks between them. Numbers that differ by at most 1e-5 are equal
    (google-deepmind/code_contests, execution/tester_sandboxer.cc)."""

    def judge(self, verdict: Verdict) -> Verdict:
        return _judged(self, verdict, relative=0.0, absolute=1e-5)


@dataclass(frozen=True, kw_only=True, slots=True)
class AppsTest(OutputTest):
    """A test that compares words, ignoring the blanks between them. Numbers that are close by numpy.allclose are equal
    (hendrycks/apps, testing_util.py). Left out: that tester also accepts the lines in any order, and therefore many wrong
    programs."""

    def judge(self, verdict: Verdict) -> Verdict:
        return _judged(self, verdict, relative=1e-5, absolute=1e-8)


@dataclass(frozen=True, kw_only=True, slots=True)
class LiveCodeBenchTest(OutputTest):
    """A test that compares lines without the blanks around them. A line is also correct if its words are equal as decimal
    numbers (LiveCodeBench/LiveCodeBench, lcb_runner/evaluation/testing_util.py)."""

    def judge(self, verdict: Verdict) -> Verdict:
        printed, expected = (text.strip().split("\n") for text in (verdict.stdout, self.stdout or ""))
        same = all(
            one is not None and other is not None and _same_line(one.strip(), other.strip())
            for one, other in zip_longest(printed, expected)
        )
        return verdict if same else OutputTest.judge(self, verdict)


def _same_line(printed: str, expected: str) -> bool:
    if printed == expected:
        return True
    words, wanted = printed.split(), expected.split()
    return len(words) == len(wanted) and all(
        _NUMBER.fullmatch(one) and _NUMBER.fullmatch(other) and Decimal(one) == Decimal(other)
        for one, other in zip(words, wanted, strict=True)
    )


def _judged(test: OutputTest, verdict: Verdict, *, relative: float, absolute: float) -> Verdict:
    printed, expected = verdict.stdout.split(), (test.stdout or "").split()
    lower = relative == 0.0  # CodeContests alone
    same = len(printed) == len(expected) and all(
        one == other
        or (lower and one.lower() == other.lower())
        or (_NUMBER.fullmatch(one) and _NUMBER.fullmatch(other) and _close(one, other, relative, absolute))
        for one, other in zip(printed, expected, strict=True)
    )
    return verdict if same else OutputTest.judge(test, verdict)


def _close(printed: str, expected: str, relative: float, absolute: float) -> bool:
    wanted = float(expected)
    return abs(float(printed) - wanted) <= absolute + relative * abs(wanted)


def exact(problems: Sequence[Problem]) -> list[Problem]:
    """Returns the problems with their output tests converted to sparring.core.verdict.OutputTest, which compares line by line and does
    not treat numbers in a special way."""

    def as_written(tests: Sequence[Test]) -> tuple[Test, ...]:
        return tuple(
            OutputTest(stdout=t.stdout, stdin=t.stdin, code=t.code) if isinstance(t, OutputTest) else t
            for t in tests
        )

    return [
        replace(p, baseline_tests=as_written(p.baseline_tests), hidden_tests=as_written(p.hidden_tests))
        for p in problems
    ]
