"""MBPP, sanitized too."""

from sparring.problems.formats import load_dataset
from tests.datasets import DATA, error_of, load, written


def test_mbpp() -> None:
    problems = load("mbpp.jsonl", "mbpp")
    count, total = problems["mbpp/11"], problems["mbpp/601"]
    assert count.description == "Write a function to count how often a digit occurs in a number."
    assert count.function_signature == "def count_digit(n, d):"  # not the helper above it
    assert count.baseline_tests == ("assert count_digit(1211, 1) == 3", "assert count_digit(7, 1) == 0")
    assert count.evaluation_tests == count.baseline_tests
    assert "\r" not in count.reference_solution
    assert total.entry_point == "total"  # a class is not what is under test
    assert (
        total.baseline_tests[0] == "light = Parcel(1)\nheavy = Parcel(40)\nassert total(light, heavy) == 41"
    )


def test_mbpp_sanitized_is_told_by_itself() -> None:
    (problem,) = load_dataset(DATA / "mbpp_sanitized.json", "mbpp")
    assert problem.description == "Write a function to find the half of a number."
    assert problem.baseline_tests == (
        "import math\nassert math.isclose(half(3), 1.5)",
        "import math\nassert half(0) == 0",
    )


def test_mbpp_splits_by_number() -> None:
    assert list(load("mbpp.jsonl", "mbpp", split="test")) == ["mbpp/11"]
    assert list(load("mbpp.jsonl", "mbpp", split="train")) == ["mbpp/601"]
    assert "no problem is left" in error_of(DATA / "mbpp.jsonl", "mbpp", split="prompt")
    assert "no split 'dev'; give one of prompt, test" in error_of(DATA / "mbpp.jsonl", "mbpp", split="dev")


ROW = {"task_id": 2, "code": "def f(n):\n    return 2 * n\n", "test_list": ["assert f(1) == 2"]}


def test_the_tests_of_the_hubs_mbpp_plus_are_hidden_tests(tmp_path) -> None:
    plus = "inputs = [[4]]\nresults = [8]\nfor i, (inp, exp) in enumerate(zip(inputs, results)):\n    assert f(*inp) == exp\n"
    (problem,) = load_dataset(written(tmp_path, ROW | {"prompt": "Double.", "test": plus}), "mbpp")
    assert problem.evaluation_tests == ("assert f(1) == 2", plus)
    assert problem.baseline_tests == ("assert f(1) == 2",)


def test_null_counts_as_missing(tmp_path) -> None:
    row = ROW | {"text": "Double.", "test_setup_code": None, "test_imports": None}
    (problem,) = load_dataset(written(tmp_path, row), "mbpp")
    assert problem.baseline_tests == ("assert f(1) == 2",)
    assert "field 'code': found null" in error_of(written(tmp_path, row | {"code": None}), "mbpp")
