"""UnLeakedTestBench: functions for which tests are to be written."""

from tests.datasets import load


def test_the_function_is_in_the_description_and_a_models_tests_are_not_read() -> None:
    problems = load("ult.jsonl", "ult")
    clamp, sign = problems["ult/7"], problems["ult/8"]
    assert clamp.description.startswith("Moves x into the interval") and clamp.entry_point == "clamp"
    assert clamp.reference_solution.strip() in clamp.description
    assert clamp.function_signature == "def clamp(x, low=0, high=1):"
    assert clamp.evaluation_tests == () and clamp.is_function
    assert sign.function_signature == "def sign(n: int) -> int:" and "\r" not in sign.description
