"""Every mistake in a file becomes one line that names the field."""

import gzip
import json
import re
import shutil

import pytest

from sparring.problems.formats import FORMATS, load_dataset
from sparring.problems.loader import ProblemFileError
from tests.datasets import DATA, error_of, rows, without, written
from tests.unit.problems.test_loader import EXAMPLES

FAULTY = [
    ("mbpp", {"task_id": "x"}, "entry 'x' (index 0), field 'task_id': found a string; expected the task's number"),
    ("mbpp", {"text": None}, "field 'text': found null; expected what the function shall do"),
    ("mbpp", {"test_list": ["assert 1", 2]}, "field 'test_list[1]': found a number; expected asserts"),
    ("mbpp", {"code": "def f("}, "field 'code': not valid Python; expected the reference solution"),
    ("mbpp", {"code": "def f(): pass"}, "field 'test_list': calls no function that 'code' defines"),
    ("humaneval", {"entry_point": "other"}, "field 'entry_point': neither prompt nor solution defines it"),
    ("humaneval", {"canonical_solution": "   return ("}, "field 'canonical_solution': no valid Python after"),
    ("mbpp_plus", {"assertion": "shared(1)"}, "field 'assertion': no asserts in it"),
    (
        "mbpp_plus",
        {"assertion": "assert shared({1}, {2}) == {3}", "plus_input": [[[[1]], [2]]]},
        "field 'plus_input': unlike the assertion's arguments",
    ),
    ("humaneval_plus", {"base_input": 1}, "field 'base_input': found a number"),
    ("livecodebench", {"private_test_cases": "?"}, "field 'private_test_cases': cannot be unpacked"),
    ("livecodebench", {"private_test_cases": "[]", "public_test_cases": "[]"}, "no tests, public or private"),
    ("livecodebench", {"private_test_cases": '[{"input": ""}]'}, "field 'private_test_cases[0].output': "),
    ("livecodebench", {"metadata": "{"}, "field 'metadata': not valid JSON; expected JSON such as"),
    ("code_contests", {"public_tests": {"input": ["1"]}}, "field 'public_tests': 1 inputs but 0 outputs"),
    ("code_contests", {"solutions": {"language": [3]}}, "field 'solutions': 1 languages but 0 solutions"),
    ("code_contests", {"time_limit": "1 s"}, "field 'time_limit': found a string; expected seconds, or "),
    ("apps", {"input_output": "{"}, "field 'input_output': not valid JSON"),
    ("apps", {"input_output": "[]"}, "field 'input_output': JSON of an empty list"),
    ("apps", {"input_output": '{"inputs": [1]}'}, "inputs and outputs are no lists of one length"),
    ("apps", {"solutions": '{"a": 1}'}, "field 'solutions': JSON of an object; expected a JSON list"),
    ("kodcode", {"solution": "def f("}, "field 'solution': not valid Python"),
    ("kodcode", {"test": "def test("}, "field 'test': not valid Python"),
    ("kodcode", {"test_info": "f"}, "field 'test_info': found a string"),
    ("bigcodebench", {"canonical_solution": "   return ("}, "field 'canonical_solution': no valid Python after"),
    ("bigcodebench", {"entry_point": "other"}, "field 'entry_point': neither prompt nor solution defines it"),
    ("ult", {"code": "def f("}, "field 'code': not valid Python"),
    ("ult", {"func_name": "other"}, "field 'func_name': 'code' does not define it"),
    ("taco", {"tags": "Math"}, "field 'tags': no Python list"),
    ("taco", {"time_limit": "300000 seconds"}, "field 'limits': cpu_s 300000.0; expected one that"),
    ("taco", {"input_output": '{"inputs": [[1]], "outputs": [[1]], "fn_name": 5}'}, "fn_name 5; expected the name"),
    ("code_contests", {"time_limit": -1}, "field 'limits': cpu_s -1"),
]  # fmt: skip


def test_every_format_names_a_missing_field(tmp_path) -> None:
    cases = {
        "mbpp": ("mbpp.jsonl", "test_list", 'asserts, such as ["assert f(1) == 2"]'),
        "mbpp_plus": ("mbpp_plus.jsonl", "assertion", "the base tests, as asserts"),
        "humaneval": ("humaneval.jsonl", "test", "source that defines check(candidate)"),
        "humaneval_plus": ("humaneval_plus.jsonl", "base_input", "a list of lists of arguments"),
        "livecodebench": ("livecodebench.jsonl", "public_test_cases", "a JSON list of "),
        "code_contests": ("code_contests.jsonl", "public_tests", '{"input": [strings], '),
        "apps": ("apps.jsonl", "question", "the problem's text"),
        "taco": ("taco.jsonl", "question", "the problem's text"),
        "kodcode": ("kodcode.jsonl", "solution", "the reference solution"),
        "bigcodebench": ("bigcodebench.jsonl", "test", "a module with a unittest case"),
        "ult": ("ult.jsonl", "func_name", "the function's name"),
    }
    assert set(cases) | {"problems", "q", "grids", "grids_hidden", "fields"} == set(FORMATS)
    for format, (name, field, expected) in cases.items():
        good, bad = rows(name)[0], without(rows(name)[1], field)
        message = error_of(written(tmp_path, good, bad), format)
        assert f"field {field!r}: missing; expected {expected}" in message
        assert "1" in message.split(", field")[0] and f"(this is read as {format!r})" in message


@pytest.mark.parametrize(("format", "change", "message"), FAULTY)
def test_faulty_entries(tmp_path, format, change, message) -> None:
    path = written(tmp_path, {**rows(f"{format}.jsonl")[0], **change})
    assert message in error_of(path, format)


@pytest.mark.parametrize(("digits", "is_read"), [(5_000, True), (60_000, False)])
@pytest.mark.parametrize("format", ["mbpp", "livecodebench", "taco", "code_contests"])
def test_long_integers(tmp_path, format, digits, is_read) -> None:
    """What is longer than any set's own harness reads is an error of one line, or the problem is left out; no traceback."""
    number = "9" * digits
    change = {
        "livecodebench": {
            "private_test_cases": f'[{{"input": "{number}", "output": "1", "testtype": "functional"}}]',
            "metadata": '{"func_name": "f"}',
        },
        "taco": {"input_output": f'{{"inputs": [[{number}]], "outputs": [[1]], "fn_name": "f"}}'},
    }
    row = json.dumps({**rows(f"{format}.jsonl")[0], **change.get(format, {"other": "?"})})
    path = tmp_path / "set.jsonl"
    path.write_text(row if format in change else row.replace('"?"', number))
    if is_read:
        assert load_dataset(path, format)
    else:
        assert any(
            word in error_of(path, format)
            for word in ("Exceeds the limit", "not valid JSON", "no problem is left")
        )


def test_unusable_files(tmp_path) -> None:
    def message(content: bytes, name: str = "set.jsonl") -> str:
        path = tmp_path / name
        path.write_bytes(content)
        return error_of(path, "mbpp")

    assert error_of(tmp_path / "none.jsonl", "mbpp") == "no such file; check the path to the data set"
    assert "cannot be read (Is a directory)" in error_of(tmp_path, "mbpp")
    assert message(b"") == "holds no entries; give a data set with at least one"
    assert message(b"[]") == "holds no entries; give a data set with at least one"
    assert message(b"[1]") == "entry 0: expected an object, found a number; remove it"
    assert "malformed JSON at line 2, column 2" in message(b"\n{]\n")
    assert "malformed JSON at line 3, column 2" in message(b"[\n{},\n x]\n")
    assert "not UTF-8 text" in message(b"\xff\xfe")
    assert "not a whole gzip file" in message(b"{}", "set.jsonl.gz")
    assert "not a whole gzip file" in message(gzip.compress(b"{}" * 99)[:-9], "set.jsonl.gz")
    assert "not a parquet file" in message(b"{}", "set.parquet")


def test_ids_are_unique_and_formats_known(tmp_path) -> None:
    row = rows("humaneval.jsonl")[0]
    assert "problem 'HumanEval/9000' (index 1), field 'id': already used at index 0" in error_of(
        written(tmp_path, row, row), "humaneval"
    )
    assert "unknown format 'x'; give one of problems, mbpp, " in error_of(tmp_path, "x")
    assert "files of the format 'apps' have no splits" in error_of(DATA / "apps.jsonl", "apps", split="test")


def test_our_own_format_is_one_of_them() -> None:
    assert len(load_dataset(EXAMPLES, "problems")) == 24


def test_grid_tasks_are_read_as_problems(tmp_path) -> None:
    pair = {"input": [[1, 2]], "output": [[2, 1]]}
    task = {"train": [pair], "test": [pair], "arc-gen": [{"input": [[n]], "output": [[n]]} for n in range(9)]}
    (tmp_path / "task007.json").write_text(json.dumps(task))
    (problem,) = load_dataset(tmp_path, "grids")
    assert problem.id == "task007" and len(problem.baseline_tests) == 11
    assert "3" in problem.description and "8" not in problem.description  # of arc-gen, the first four


def test_null_within_an_object_counts_as_missing(tmp_path) -> None:
    row, *_ = rows("code_contests.jsonl")
    given = row | {
        "time_limit": {"seconds": 3, "nanos": None},
        "private_tests": {"input": None, "output": None},
    }
    (problem,) = load_dataset(written(tmp_path, given), "code_contests")
    assert problem.limits is not None and problem.limits.cpu_s == 3


@pytest.mark.parametrize(
    ("format", "broken"), {format: change for format, change, _ in reversed(FAULTY)}.items()
)
def test_a_faulty_entry_is_refused_or_left_out(tmp_path, format, broken) -> None:
    """In every format: the first fault is raised, or the other entries are read, and the fault is told."""
    good, other = rows(f"{format}.jsonl")[:2]
    path = written(tmp_path, good, {**other, **broken})
    said = error_of(path, format)
    faults: list[ProblemFileError] = []
    assert load_dataset(path, format, faults=faults) == load_dataset(
        written(tmp_path, good, name="1.jsonl"), format
    )
    assert [str(fault) for fault in faults] == [f"{path}: {said}"]
    with pytest.raises(ProblemFileError, match=re.escape(said.partition("field")[2])):
        load_dataset(written(tmp_path, *[{**other, **broken}] * 2), format, faults=[])


def test_faulty_entries_of_formats_that_are_no_rows(tmp_path) -> None:
    file, folder = tmp_path / "problems.json", tmp_path / "lua"
    entries = json.loads(EXAMPLES.read_text())["problems"][:2]
    file.write_text(json.dumps({"problems": [entries[0] | {"tags": 3}, entries[1]]}))
    shutil.copytree(DATA / "lua" / "train", folder)
    (folder / "broken").mkdir()
    pair = {"input": [[1, 2]], "output": [[2, 1]]}
    grids = tmp_path / "grids"
    grids.mkdir()
    (grids / "task001.json").write_text("{")
    (grids / "task002.json").write_text(json.dumps({"train": [pair], "test": [pair], "arc-gen": []}))
    for path, format, fault in (
        (file, "problems", "field 'tags'"), (folder, "q", "no reference solution"), (grids, "grids", "malformed JSON"),
    ):  # fmt: skip
        faults: list[ProblemFileError] = []
        assert load_dataset(path, format, faults=faults)
        assert len(faults) == 1 and fault in str(faults[0])
        if format != "grids":  # a faulty file of a directory of grids is always left out
            assert fault in error_of(path, format)
