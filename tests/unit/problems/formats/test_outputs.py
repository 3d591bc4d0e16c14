"""What a contest's program prints, compared as the set's own tester does."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparring.core.verdict import OutputTest, Status, Verdict
from sparring.problems.formats.outputs import AppsTest, CodeContestsTest, LiveCodeBenchTest, exact
from tests.playing import a_problem

KINDS = (CodeContestsTest, AppsTest, LiveCodeBenchTest, OutputTest)


def passes(kind: type[OutputTest], printed: str, expected: str) -> bool:
    return kind(stdout=expected).judge(Verdict(status=Status.PASSED, stdout=printed)).passed


@pytest.mark.parametrize(
    ("printed", "expected", "right"),
    [
        ("0.333333333\n", "0.333333333333\n", (True, True, False, False)),
        ("0.333\n", "0.333333333333\n", (False, False, False, False)),
        ("1.5\n", "1.50\n", (True, True, True, False)),
        ("2.0 3\n", "2 3\n", (True, True, True, False)),
        ("100000000001", "100000000000", (False, True, False, False)),
        ("1\n2\n3\n", "1 2 3\n", (True, True, False, False)),
        (" 3  4\n", "3 4\n", (True, True, True, False)),
        ("a  b\n", "a b\n", (True, True, False, False)),
        ("No\n", "NO\n", (True, False, False, False)),
        ("3 4\n", "3\n", (False, False, False, False)),
        ("nan\n", "NaN\n", (True, False, False, False)),
        ("1e999999 2", "1e999998 2", (False, False, False, False)),
        ("1_0", "10", (False, False, False, False)),
        ("a\nb", "b\na", (False, False, False, False)),
        ("", "", (True, True, True, True)),
    ],
)
def test_each_set_has_its_own_comparison(printed: str, expected: str, right: tuple[bool, ...]) -> None:
    assert tuple(passes(kind, printed, expected) for kind in KINDS) == right


@given(st.text(), st.text())
def test_what_line_by_line_is_right_is_right_to_each(printed: str, expected: str) -> None:
    for kind in KINDS:
        assert passes(kind, expected, expected)
        if passes(OutputTest, printed, expected):
            assert passes(kind, printed, expected)


@pytest.mark.parametrize("kind", KINDS)
def test_a_program_that_fails_is_not_made_right_by_what_it_prints(kind: type[OutputTest]) -> None:
    failed = Verdict(status=Status.RUNTIME_ERROR, stdout="2")
    assert kind(stdout="2").judge(failed) is failed


def test_exact_outputs_are_one_key_away() -> None:
    tests = (CodeContestsTest(stdin="1", stdout="NO"), "assert f(1)")
    (changed,) = exact([a_problem(baseline_tests=tests, hidden_tests=tests)])
    plain = (OutputTest(stdin="1", stdout="NO"), "assert f(1)")
    assert changed.baseline_tests == changed.hidden_tests == plain
    assert type(changed.baseline_tests[0]) is OutputTest
