"""MBPP+ and HumanEval+."""

import pytest

from sparring.core.source import literal
from sparring.problems.formats.evalplus import _typed_input
from tests.datasets import load, outcome


def test_mbpp_plus() -> None:
    shared = load("mbpp_plus.jsonl", "mbpp_plus")["Mbpp/9001"]
    assert shared.description.startswith("Write a function to find what two tuples share.")
    assert shared.baseline_tests == ("assert set(shared((1, 2), (2, 3))) == set((2,))",)
    assert len(shared.hidden_tests) == 3  # 23 inputs
    assert "for _input in [[(1, 2), (2, 3)], [(), (1,)], " in shared.hidden_tests[0]
    good = "def shared(a, b): return [x for x in b if x in a]"  # in any order, as a list: the asserts compare sets
    assert {outcome(good, test) for test in shared.hidden_tests} == {"passed"}
    assert outcome("def shared(a, b): return ()", shared.hidden_tests[0]) == "AssertionError"


def test_a_match_object_is_compared_by_truth() -> None:
    digits = load("mbpp_plus.jsonl", "mbpp_plus")["Mbpp/9002"]
    (test,) = digits.hidden_tests
    assert outcome(digits.reference_solution, test) == "passed"
    assert outcome("def digits(text): return any(c.isdigit() for c in text)", test) == "passed"
    assert outcome("def digits(text): return True", test) == "AssertionError"


@pytest.mark.parametrize(
    ("values", "examples", "expected"),
    [
        ([[1, [2]]], [[(1, [2])]], [(1, [2])]),
        ([[[1, 2], [3]]], [[[(1,)]]], [[(1, 2), (3,)]]),
        ([[], [[]]], [[(1,), [(2,)]]], [(), [()]]),
        ([[1, 2]], [[{3}]], [{1, 2}]),
        ([{"a": [1]}], [[{"b": (2,)}]], [{"a": (1,)}]),
        (["(1+2j)", "2"], [[0, 1.5]], [1 + 2j, 2.0]),
        (["(1+2j)"], [["text"]], ["(1+2j)"]),
        ([[1, 2, [3, 4]]], [[(5, (6, 7))]], [(1, 2, (3, 4))]),
        ([[1], 3], [], [[1], 3]),
    ],
)
def test_arguments_become_what_they_were_before_json(values, examples, expected) -> None:
    found = _typed_input(values, examples)
    assert found == expected and repr(found) == repr(expected)


def test_inputs_are_written_as_python() -> None:
    value = [1, (2,), (), {"b", "a"}, set(), {"k": [None, -0.5]}, "x'"]
    assert eval(literal(value)) == value
    assert "{'a', 'b'}" in literal(value)


def test_humaneval_plus() -> None:
    problems = load("humaneval_plus.jsonl", "humaneval_plus")
    grow, mean = problems["HumanEval/9000"], problems["HumanEval/9001"]
    assert grow.baseline_tests == load("humaneval.jsonl", "humaneval")["HumanEval/9000"].baseline_tests
    assert len(grow.hidden_tests) == 2  # the base inputs, then the plus inputs
    assert mean.baseline_tests == mean.hidden_tests[:1]  # this one has no test of HumanEval's
    for problem in problems.values():
        assert {outcome(problem.reference_solution, test) for test in problem.hidden_tests} == {"passed"}
    in_other_order = "def mean(v): return sum(x / len(v) for x in v)"
    assert outcome(in_other_order, mean.hidden_tests[1]) == "passed"  # as floats go
    assert (
        outcome("def mean(v): return sum(v) / len(v) + .001 if v else 0.0", mean.hidden_tests[0])
        == "AssertionError"
    )
    assert outcome("def mean(v): return str(sum(v))", mean.hidden_tests[0]) == "AssertionError"
    assert outcome("def grow_all(n): return [1 + x for x in n] * 2", grow.hidden_tests[1]) == "AssertionError"


def test_a_program_cannot_change_the_inputs_of_the_reference() -> None:
    grow = load("humaneval_plus.jsonl", "humaneval_plus")["HumanEval/9000"]
    cheat = "def grow_all(numbers):\n    numbers.clear()\n    return []"
    assert outcome(cheat, grow.hidden_tests[0]) == "AssertionError"
