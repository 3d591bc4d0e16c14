"""Any other data set, by a map of its fields."""

import gzip
import json
import sys
import types
from pathlib import Path

import pytest

from sparring.problems.formats import load_dataset
from tests.datasets import DATA, error_of, load, rows

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
    if name.endswith("parquet"):
        pyarrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
        kept = [
            {k: v for k, v in row.items() if k in ("uid", "instruction", "tests", "answer")} for row in found
        ]
        parquet.write_table(pyarrow.Table.from_pylist(kept), path)
    elif name.endswith("gz"):
        path.write_bytes(gzip.compress((DATA / "columns.jsonl").read_bytes()))
    else:
        path.write_text(json.dumps(found, indent=2))
    fields = {k: v for k, v in FIELDS.items() if v in ("uid", "instruction", "tests", "answer")}
    assert [p.id for p in load_dataset(path, "fields", fields=fields)] == ["cube", "first"]


def test_faulty_field_maps(tmp_path) -> None:
    path = DATA / "columns.jsonl"
    assert "unknown field 'answers'; use some of id, " in error_of(path, "fields", fields={"answers": "a"})
    assert "no column for 'description'" in error_of(path, "fields", fields={"id": "uid"})
    wrong = error_of(path, "fields", fields={**FIELDS, "tags": "labels"})
    assert "field 'labels': missing; expected a column for 'tags'; columns are uid, instruction, " in wrong
    assert "go together" in error_of(path, "fields")
    assert "go together" in error_of(path, "mbpp", fields=FIELDS)


def test_a_data_set_on_the_hub(monkeypatch) -> None:
    fields = {**FIELDS, "id": "uid"}
    monkeypatch.setitem(sys.modules, "datasets", None)
    assert "run: pip install datasets" in error_of(Path("owner/name"), "fields", fields=fields)
    asked = []
    library = types.ModuleType("datasets")
    library.load_dataset = lambda name, split: asked.append((name, split)) or rows("columns.jsonl")  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "datasets", library)
    assert len(load_dataset("owner/name", "fields", fields=fields, split="validation")) == 2
    assert asked == [("owner/name", "validation")]
