"""CodeContests, APPS, TACO."""

import json
from pathlib import Path

import pytest

from sandbox_workers.jobs import is_data
from sparring.core.verdict import Limits
from sparring.problems.formats import load_dataset
from sparring.problems.formats.outputs import AppsTest, CodeContestsTest
from tests.datasets import load, outcome, rows, written


def test_code_contests() -> None:
    problems = load("code_contests.jsonl", "code_contests")
    double = problems["code_contests/9001_A. Double"]
    assert double.reference_solution == "print(int(input()) * 2)"
    assert double.other_solutions == ("n = int(input())\nprint(n + n)\n",)
    assert double.wrong_solutions == ("print(int(input()) ** 2)", "print(6)")
    assert double.baseline_tests == (CodeContestsTest(stdin="3\n", stdout="6\n"),)
    assert len(double.hidden_tests) == 4
    assert double.limits == Limits(cpu_s=1.5, wall_s=6.0, memory_mb=244)
    assert (double.difficulty, double.tags) == (7, ("math",))
    assert problems["code_contests/9002_B. Lines"].limits is None


def test_code_contests_of_several_sources(tmp_path: Path, caplog) -> None:
    row = {"name": "A. Twice", "description": "d", "public_tests": {"input": ["3\n"], "output": ["6\n"]}}
    changes = [
        {"source": 2},
        {"source": 3},
        {"name": "B", "input_file": "in.txt"},
        {"name": "C", "source": 2},
    ]
    problems = load_dataset(written(tmp_path, *(row | change for change in changes)), "code_contests")
    names = ["A. Twice (source 2)", "A. Twice (source 3)", "C"]
    assert [problem.id for problem in problems] == [f"code_contests/{name}" for name in names]
    assert "1 problems want files: left out" in caplog.text


def test_apps(caplog) -> None:
    problems = load("apps.jsonl", "apps")
    assert list(problems) == ["apps/9000", "apps/9001"]
    assert "1 of 3 problems have no tests: left out" in caplog.text
    backwards, pair = problems.values()
    assert backwards.reference_solution == "print(input()[::-1])"  # the first one is Python 2
    assert backwards.baseline_tests == (
        AppsTest(stdin="abc\n", stdout="cba\n"),
        AppsTest(stdin="xy", stdout="yx"),
    )
    assert pair.function_signature == "def pair(n: int) -> List[int]:"
    for program in (pair.reference_solution, *pair.other_solutions):
        assert {outcome(pair.in_harness(program), test) for test in pair.baseline_tests} == {"passed"}
    assert outcome("def pair(n): return [n, 2 * n]", pair.baseline_tests[1]) == "AssertionError"


@pytest.mark.parametrize("format", ["apps", "taco"])
def test_whole_numbers_that_are_keys(tmp_path: Path, format: str) -> None:
    """JSON turns them into strings; as in the sets' own testers, the program gets numbers, and may return numbers."""
    inputs, outputs = [[{"1": 5, "-2": 6}], [{"a": 1}]], [{"2": 5, "-1": 6}, {"a": 1}]
    cases = {"fn_name": "f", "inputs": inputs, "outputs": outputs}
    row = rows(f"{format}.jsonl")[1] | {"input_output": json.dumps(cases)}
    (problem,) = load_dataset(written(tmp_path, row), format)
    numbers, words = problem.baseline_tests
    assert outcome("def f(d): return {k + 1: v for k, v in d.items()}", numbers) == "passed"
    assert outcome("def f(d): return {str(k): v for k, v in d.items()}", numbers) == "AssertionError"
    assert outcome("def f(d): return d", words) == "passed"
    assert is_data(numbers) and is_data(words)


def test_null_within_a_tests_values_is_a_value(tmp_path: Path) -> None:
    cases = {"fn_name": "f", "inputs": [[{"a": None}]], "outputs": [[None]]}
    row = rows("apps.jsonl")[1] | {"input_output": cases}
    (problem,) = load_dataset(written(tmp_path, row), "apps")
    assert outcome("def f(d): return list(d.values())", problem.baseline_tests[0]) == "passed"


def test_taco() -> None:
    even, longest = load("taco.jsonl", "taco").values()
    assert (even.id, even.difficulty, even.tags) == ("taco/0", "easy", ("Mathematics", "Number theory"))
    assert even.limits == Limits(cpu_s=1.5, wall_s=6.0, memory_mb=128)
    assert (longest.function_signature, longest.limits) == ("def longest(words):", None)
    assert outcome(longest.reference_solution, longest.baseline_tests[0]) == "passed"
