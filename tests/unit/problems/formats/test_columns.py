"""Any other data set, by a map of its fields."""

import ast
import gzip
import json
import sys
import types
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import pytest

from sparring.problems.formats import load_dataset
from tests.datasets import DATA, error_of, load, rows, written

FIELDS = {
    "id": "uid", "description": "instruction", "baseline_tests": "tests", "reference_solution": "answer",
    "difficulty": "level", "tags": "topics", "hidden_tests": "secret",
}  # fmt: skip


def test_a_field_map() -> None:
    cube, first = load("columns.jsonl", "fields", fields=FIELDS).values()
    assert cube.baseline_tests == ("assert cube(2) == 8", "assert cube(-1) == -1")
    assert cube.hidden_tests == ("assert cube(0) == 0",)
    assert (cube.function_signature, cube.difficulty, cube.tags) == ("def cube(n):", 1, ("math",))
    assert first.baseline_tests == ("assert first([3, 4]) == 3",)
    assert (first.id, first.difficulty, first.tags) == ("first", "easy", ("lists",))


def test_a_field_map_needs_little() -> None:
    fields = {"description": "instruction", "baseline_tests": "tests"}
    first = load_dataset(DATA / "columns.jsonl", "fields", fields=fields)[0]
    assert (first.id, first.reference_solution, first.function_signature) == ("columns/0", "", "")


@pytest.mark.parametrize("name", ["columns.parquet", "columns.jsonl.gz", "columns.json"])
def test_other_kinds_of_files(tmp_path, name) -> None:
    path, found = tmp_path / name, rows("columns.jsonl")
    columns = ("uid", "instruction", "tests", "answer")
    if name.endswith("parquet"):
        pyarrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
        kept = [{column: row[column] for column in columns if column in row} for row in found]
        parquet.write_table(pyarrow.Table.from_pylist(kept), path)
    elif name.endswith("gz"):
        path.write_bytes(gzip.compress((DATA / "columns.jsonl").read_bytes()))
    else:
        path.write_text(json.dumps(found, indent=2))
    fields = {field: column for field, column in FIELDS.items() if column in columns}
    assert [p.id for p in load_dataset(path, "fields", fields=fields)] == ["cube", "first"]


def test_faulty_field_maps(tmp_path) -> None:
    path = DATA / "columns.jsonl"
    assert "unknown field 'answers'; use some of id, " in error_of(path, "fields", fields={"answers": "a"})
    assert "no column for 'description'" in error_of(path, "fields", fields={"id": "uid"})
    wrong = error_of(path, "fields", fields={**FIELDS, "tags": "labels"})
    assert "field 'labels': missing; expected a column for 'tags'; columns are uid, instruction, " in wrong
    assert "go together" in error_of(path, "fields")
    assert "go together" in error_of(path, "mbpp", fields=FIELDS)


@pytest.fixture
def hub(monkeypatch) -> Callable[[Mapping[str, list[dict]]], None]:
    """Puts a data set, by splits, in place of the hub's."""

    def holds(data_set: Mapping[str, list[dict]]) -> None:
        library = types.ModuleType("datasets")
        library.load_dataset = lambda name, split: dict(data_set) if split is None else data_set[split]  # type: ignore[attr-defined]
        monkeypatch.setitem(sys.modules, "datasets", library)

    return holds


@pytest.mark.parametrize(
    "format", ["mbpp", "mbpp_plus", "humaneval", "humaneval_plus", "apps", "kodcode", "bigcodebench"]
)
def test_every_format_with_entries_is_read_from_the_hub(hub, format: str) -> None:
    of_file = load_dataset(DATA / f"{format}.jsonl", format)
    hub({"test": rows(f"{format}.jsonl")})
    assert load_dataset("owner/name", format) == load_dataset("owner/name", format, split="test") == of_file


@pytest.mark.parametrize(
    ("format", "columns"),
    [
        ("apps", ("solutions", "input_output")),
        ("taco", ("solutions", "input_output", "tags")),
        ("livecodebench", ("public_test_cases", "metadata")),
    ],
)
def test_values_that_a_loader_has_parsed_already(hub, format: str, columns: Sequence[str]) -> None:
    """A set's own loading script on the hub may give lists and objects; the file has them as text."""
    of_file = rows(f"{format}.jsonl")
    parsed = [
        row | {c: (ast.literal_eval if c == "tags" else json.loads)(row[c]) for c in columns if row.get(c)}
        for row in of_file
    ]
    assert parsed != of_file
    hub({"test": parsed})
    assert load_dataset("owner/name", format) == load_dataset(DATA / f"{format}.jsonl", format)


def test_the_split_of_a_data_set_on_the_hub(hub) -> None:
    row = rows("humaneval.jsonl")[0]
    hub({"train": [row | {"task_id": "a"}], "test": [row | {"task_id": "b"}]})
    assert [p.id for p in load_dataset("owner/name", "humaneval")] == ["a"]
    assert [p.id for p in load_dataset("owner/name", "humaneval", split="test")] == ["b"]
    assert "cannot be loaded" in error_of(Path("owner/name"), "humaneval", split="other")
    hub({"v1": [row], "v2": [row]})
    assert error_of(Path("owner/name"), "humaneval") == "which split? Give one of v1, v2"


def test_without_the_hubs_library(monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, "datasets", None)
    assert "run: pip install datasets" in error_of(Path("owner/name"), "fields", fields=FIELDS)


def test_a_field_map_of_a_data_set_on_the_hub(hub) -> None:
    hub({"validation": rows("columns.jsonl")})
    fields = {**FIELDS, "id": "uid"}
    assert len(load_dataset("owner/name", "fields", fields=fields, split="validation")) == 2


def test_columns_as_tables_have_them(tmp_path) -> None:
    row = {
        "instruction": "Add one.",
        "tests": "['assert f(1) == 2', \"assert f(2) == 3\"]",  # pandas wrote the list
        "secret": None,
        "level": 1500.0,
        "topics": 7,
    }
    fields = {name: column for name, column in FIELDS.items() if column in row}
    (problem,) = load_dataset(written(tmp_path, row), "fields", fields=fields)
    assert problem.baseline_tests == ("assert f(1) == 2", "assert f(2) == 3")
    assert (problem.hidden_tests, problem.difficulty, problem.tags) == ((), 1500, ("7",))


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"tests": ["this is no python"]}, "field 'tests': 'this is no python', which is not Python"),
        ({"tests": ["f(1) == 2"]}, "'f(1) == 2' checks nothing"),
        ({"answer": "also none ("}, "field 'answer': not Python"),
        ({"instruction": " "}, "field 'instruction': an empty text"),
    ],
)
def test_what_is_no_python_is_told(tmp_path, changes, said) -> None:
    row = {"instruction": "Add one.", "tests": ["assert f(1) == 2"], "answer": "def f(n): return n + 1"}
    fields = {"description": "instruction", "baseline_tests": "tests", "reference_solution": "answer"}
    assert said in error_of(written(tmp_path, row | changes), "fields", fields=fields)
