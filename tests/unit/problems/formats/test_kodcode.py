"""KodCode and BigCodeBench: a solution and a module of tests."""

from tests.datasets import load, outcome


def test_kodcode(caplog) -> None:
    problems = load("kodcode.jsonl", "kodcode")
    assert list(problems) == ["kodcode/Prefill_9001_I", "kodcode/Algorithm_9002_I"]
    assert "1 of 3 questions have no test without arguments: left out" in caplog.text
    vowels, stack = problems.values()
    assert vowels.function_signature == "def count_vowels(text):" and vowels.difficulty == "easy"
    assert len(vowels.baseline_tests) == 2 and all("WORDS" in test for test in vowels.baseline_tests)
    assert all("def testing_word" in test for test in vowels.baseline_tests)
    assert [test.count("def test_") for test in vowels.baseline_tests] == [1, 1]
    assert "__main__" not in "".join(vowels.baseline_tests)
    (only,) = stack.baseline_tests
    assert "test_push" in only and "test_minimum" not in only and "pytest" not in only


def test_bigcodebench() -> None:
    counted, clipped = load("bigcodebench.jsonl", "bigcodebench").values()
    assert counted.id == "BigCodeBench/9000" and counted.function_signature == "def task_func(text):"
    assert counted.description.startswith("Count the letters") and len(counted.baseline_tests) == 1
    assert outcome(counted.preamble, "Counter(json.loads('[1]'))") == "passed"
    assert outcome(clipped.preamble, "assert LIMIT == 3 and 'task_func' not in globals()") == "passed"
    assert outcome(clipped.reference_solution, "assert task_func([9]) == [3]") == "passed"
