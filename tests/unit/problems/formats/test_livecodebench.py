"""LiveCodeBench, whose private tests are a pickle."""

import base64
import os
import pickle
import zlib
from datetime import datetime
from pathlib import Path

import pytest

from sparring.core.verdict import Limits
from sparring.problems.formats import load_dataset
from sparring.problems.formats.livecodebench import unpickled_text
from sparring.problems.formats.outputs import LiveCodeBenchTest
from tests.datasets import DATA, error_of, load, outcome, rows, written


def test_livecodebench() -> None:
    problems = load("livecodebench.jsonl", "livecodebench")
    whole, function = problems["livecodebench/ours_a"], problems["livecodebench/9001"]
    assert whole.baseline_tests == (LiveCodeBenchTest(stdin="1 2\n", stdout="3\n"),)
    assert whole.hidden_tests[1:] == (
        LiveCodeBenchTest(stdin="5 5\n", stdout="10\n"),
        LiveCodeBenchTest(stdin="-1 1\n", stdout="0"),
    )
    assert whole.hidden_tests[:1] == whole.baseline_tests  # the official score has them too
    assert (whole.function_signature, whole.reference_solution, whole.difficulty) == ("", "", "easy")
    assert whole.tags == ("atcoder", "2024-05-04")
    assert function.function_signature == "def repeatAll(words: List[str], k: int) -> List[str]:"
    plain = "def repeatAll(words, k): return tuple(w * k for w in words)"
    method = "class Solution:\n    def repeatAll(self, words, k): return [w * k for w in words]"
    for program in (plain, method):
        assert [outcome(function.in_harness(program), t) for t in function.evaluation_tests] == ["passed"] * 3
    wrong = "def repeatAll(words, k): return [w + w for w in words]"
    results = [outcome(wrong, test) for test in function.evaluation_tests]
    assert results == ["passed", "passed", "AssertionError"]


class _Hostile:
    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self):
        return os.mkdir, (str(self.mark),)


def test_a_malicious_pickle_is_refused_and_nothing_runs(tmp_path) -> None:
    mark = tmp_path / "it ran"
    packed = base64.b64encode(zlib.compress(pickle.dumps(_Hostile(mark)))).decode()
    path = written(tmp_path, {**rows("livecodebench.jsonl")[0], "private_test_cases": packed})
    message = error_of(path, "livecodebench")
    assert "field 'private_test_cases': cannot be unpacked (the pickle asks for " in message
    assert "mkdir" in message and not mark.exists()
    pickle.loads(pickle.dumps(_Hostile(mark)))
    assert mark.exists()  # it would have


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
@pytest.mark.parametrize("value", [len, Path("a"), Limits(), [1], b"bytes", 1.0])
def test_only_text_is_unpickled(value, protocol) -> None:
    with pytest.raises(pickle.UnpicklingError):
        unpickled_text(pickle.dumps(value, protocol))
    assert unpickled_text(pickle.dumps("täxt", protocol)) == "täxt"


@pytest.mark.parametrize(
    "packed", [b"", b"\x80", b"cos\nsystem\n(S'true'\ntR.", b"\x82\x01.", b"P1\n.", b"(lp0\n0."]
)
def test_malformed_pickles_are_refused(packed) -> None:
    with pytest.raises(pickle.UnpicklingError):
        unpickled_text(packed)


def test_a_functional_test_needs_a_name(tmp_path) -> None:
    path = written(tmp_path, {**rows("livecodebench.jsonl")[1], "metadata": "{}"})
    assert "field 'metadata': no func_name, but functional tests" in error_of(path, "livecodebench")


def test_a_date_is_a_string_or_what_arrow_makes_of_it(tmp_path: Path) -> None:
    pyarrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    found = rows("livecodebench.jsonl")
    for row in found:
        row["contest_date"] = datetime.fromisoformat(row["contest_date"])
    parquet.write_table(pyarrow.Table.from_pylist(found), tmp_path / "set.parquet")
    of_strings = load_dataset(DATA / "livecodebench.jsonl", "livecodebench")
    assert [p.tags for p in load_dataset(tmp_path / "set.parquet", "livecodebench")] == [
        p.tags for p in of_strings
    ]


def test_problems_have_the_limits_of_their_own_evaluation() -> None:
    for problem in load("livecodebench.jsonl", "livecodebench").values():
        assert (problem.limits_over(Limits()).cpu_s, problem.limits_over(Limits()).wall_s) == (6, 24)
        deep = "def down(n):\n    return n and 1 + down(n - 1)\n\nassert down(4000) == 4000\n"
        assert outcome(problem.in_harness(deep), "") == "passed"
