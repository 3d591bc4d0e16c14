"""HumanEval."""

import pytest

from sparring.problems.formats.humaneval import helpers
from tests.datasets import load, outcome


def test_humaneval() -> None:
    problems = load("humaneval.jsonl", "humaneval")
    grow = problems["HumanEval/9000"]
    assert grow.function_signature == "def grow_all(numbers: List[int]) -> List[int]:"
    assert (
        grow.description.startswith("from typing import List") and ">>> grow_all([1, 2])" in grow.description
    )
    (test,) = grow.evaluation_tests
    assert test.endswith("check(grow_all)\n")
    assert outcome(grow.reference_solution, test) == "passed"
    without_helper = "def grow_all(numbers): return [n + 1 for n in numbers]"
    assert outcome(without_helper, test) == "passed"  # the test has the prompt's helper of its own
    assert outcome("def grow_all(numbers): return numbers", test) == "AssertionError"
    assert outcome("", problems["HumanEval/9001"].baseline_tests[0]) == "NameError"


@pytest.mark.parametrize("body", ["", "    # returns the largest\n", '    """Return the largest."""\n'])
def test_a_prompt_without_a_docstring_keeps_its_imports(body: str) -> None:
    prompt = f"from typing import List\n\n\ndef f(xs: List[int]) -> int:\n{body}"
    assert helpers(prompt, "f").strip() == "from typing import List"
