"""Answers that real instruct models gave when they were asked for tests of MBPP's functions, as they were sampled: with the
function before the tests, in unittest and pytest, over several lines, cut off, with prose and with junk. Which tests must be
found in each was read by eye."""

import json
from pathlib import Path

import pytest

from sparring.core.problem import Problem
from sparring.games.multistage.emitted import InputLimits, parse_suite

ANSWERS = [
    json.loads(line)
    for line in (Path(__file__).parents[1] / "golden" / "suite_answers.jsonl").read_text().splitlines()
]


@pytest.mark.parametrize("record", ANSWERS, ids=[f"{n}-{r['model'][:6]}" for n, r in enumerate(ANSWERS)])
def test_the_tests_of_an_answer_are_found(record: dict) -> None:
    problem = Problem(
        id="p",
        description="",
        function_signature=record["signature"],
        baseline_tests=(),
        reference_solution="",
    )
    tests = parse_suite(record["answer"], problem, test_format="relabel", limits=InputLimits())
    assert [test.call for test in tests if not test.fault] == record["tests"]
    assert [test.fault for test in tests if test.fault] == record["faults"]


def test_the_answers_are_of_several_models_and_shapes() -> None:
    assert len({record["model"] for record in ANSWERS}) > 1 and len(ANSWERS) >= 30
    texts = [record["answer"] for record in ANSWERS]
    for shape in ("import unittest", "import pytest", "def ", "assert "):
        assert any(shape in text for text in texts), shape
