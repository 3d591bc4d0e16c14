"""Reads the records of a data set, a file or a data set on the hub, and makes one-line error messages for records that cannot
be used."""

import gzip
import importlib
import io
import json
import zlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError, model_validator

from sparring.core.problem import Problem
from sparring.problems.loader import ProblemFileError, attempt, kind_of, parse_json

SUFFIXES = (".json", ".jsonl", ".gz", ".parquet")


class Record(BaseModel):
    """One entry of a data set, or an object in it. A field's description states the expected value, for error messages. Unknown
    fields are ignored, and a field that is null counts as missing. Null within a test's values is a value."""

    model_config = ConfigDict(extra="ignore")

    @model_validator(mode="before")
    @classmethod
    def _without_nulls(cls, raw: Any) -> Any:
        return {k: v for k, v in raw.items() if v is not None} if isinstance(raw, dict) else raw


AnyRecord = TypeVar("AnyRecord", bound=Record)


@dataclass(frozen=True, kw_only=True, slots=True)
class Entry:
    """A raw record with its place in the file."""

    path: Path
    index: int
    """Index of the record in the file, counted from 0."""
    raw: dict[str, Any]
    format: str
    faults: list[ProblemFileError] | None = None
    """The data set's faulty entries that are left out. None: the first one is raised."""

    def fault(self, field: str, found: str, expected: str) -> ProblemFileError:
        """Returns an error for the caller to raise. It names the record by the first of the usual id fields that it has."""
        names = (self.raw.get(key) for key in ("id", "task_id", "question_id", "problem_id", "name"))
        name = next((n for n in names if isinstance(n, str | int) and n != ""), None)
        who = f"entry {self.index}" if name is None else f"entry {name!r} (index {self.index})"
        return ProblemFileError(
            f"{self.path}: {who}, field {field!r}: {found}; expected {expected}; "
            f"correct it, or give the format that the file is in (this is read as {self.format!r})"
        )

    def validated(self, model: type[AnyRecord]) -> AnyRecord:
        """Returns the record as an instance of the model. Raises ProblemFileError for the first invalid field."""
        try:
            return model.model_validate(self.raw)
        except ValidationError as error:
            first = error.errors(include_url=False)[0]
            field = str(first["loc"][0])
            place = "".join(f"[{part}]" for part in first["loc"][1:] if isinstance(part, int))
            is_missing = first["type"] == "missing" and field not in self.raw
            value = None if first["type"] == "missing" else first["input"]
            found = "missing" if is_missing else f"found {kind_of(value)}"
            known = {info.alias or name: info for name, info in model.model_fields.items()}
            expected = known[field].description if field in known else None
            raise self.fault(field + place, found, expected or first["msg"]) from None

    def json(self, field: str, text: Any, expected: str) -> Any:
        """Returns the value of a field that holds JSON. A loader of the hub may have parsed it already."""
        if not isinstance(text, str):
            return text
        try:
            return parse_json(text)
        except json.JSONDecodeError:
            raise self.fault(field, "not valid JSON", expected) from None


def problems_of(rows: Iterable[Entry], convert: Callable[[Entry], Problem | None]) -> list[Problem]:
    """Returns the problem of each entry for which there is one. Entries that `convert` refuses with ProblemFileError, or whose
    limits are out of range, are left out if the entries have a list of faults; else the error is raised."""

    def converted(entry: Entry) -> Problem | None:
        try:
            return convert(entry)
        except ValidationError as error:
            first = error.errors(include_url=False)[0]
            limit = str(first["loc"][0])
            raise entry.fault("limits", f"{limit} {first['input']}", f"one that {first['msg']}") from None

    read = (attempt(lambda entry=entry: converted(entry), entry.faults) for entry in rows)
    return [problem for problem in read if problem is not None]


def is_on_hub(path: Path) -> bool:
    """Returns whether a path is "owner/name", a data set on the hub, and no file."""
    return not path.exists() and path.suffix not in SUFFIXES and len(path.parts) == 2


def entries(
    path: Path, format: str, split: str | None = None, faults: list[ProblemFileError] | None = None
) -> Iterator[Entry]:
    """Yields the entries of a data set on the hub or of a file, in their order. The file holds JSON lines or a JSON array, either
    of them optionally compressed with gzip (.gz), or is a parquet file (.parquet).

    Args:
        split: the split of a data set on the hub. None: its only one, or "train".
        faults: see Entry.

    Raises ProblemFileError if the data set cannot be read, contains anything but objects, or is empty.
    """
    index = -1
    for index, raw in enumerate(_rows_on_hub(path, split) if is_on_hub(path) else _raw_records(path)):
        if not isinstance(raw, dict):
            raise ProblemFileError(
                f"{path}: entry {index}: expected an object, found {kind_of(raw)}; remove it"
            )
        yield Entry(path=path, index=index, raw=raw, format=format, faults=faults)
    if index < 0:
        raise ProblemFileError(f"{path}: holds no entries; give a data set with at least one")


def _rows_on_hub(name: Path, split: str | None) -> Iterator[dict[str, Any]]:
    try:
        datasets = importlib.import_module("datasets")
    except ImportError:
        raise ProblemFileError(
            f"{name}: no such file, and loading it from the hub needs datasets; run: pip install datasets"
        ) from None
    try:
        rows = datasets.load_dataset(name.as_posix(), split=split)
    except Exception as error:  # the library raises many kinds of errors
        reason = " ".join(str(error).split())[:200]
        raise ProblemFileError(
            f"{name}: the hub's data set cannot be loaded ({reason}); check name and split"
        ) from None
    if split is None:
        if len(rows) > 1 and "train" not in rows:
            raise ProblemFileError(f"{name}: which split? Give one of {', '.join(rows)}")
        rows = rows["train"] if "train" in rows else next(iter(rows.values()))
    yield from map(dict, rows)


def _raw_records(path: Path) -> Iterator[Any]:
    try:
        with path.open("rb") as file:
            if path.suffix == ".parquet":
                yield from _parquet(path, file)
            elif path.suffix == ".gz":
                with gzip.open(file) as unpacked:
                    yield from _json(path, unpacked)  # type: ignore[arg-type]
            else:
                yield from _json(path, file)
    except FileNotFoundError:
        raise ProblemFileError(f"{path}: no such file; check the path to the data set") from None
    except (gzip.BadGzipFile, zlib.error, EOFError) as error:
        raise ProblemFileError(f"{path}: not a whole gzip file ({error}); fetch it again") from None
    except UnicodeDecodeError as error:
        raise ProblemFileError(f"{path}: not UTF-8 text (byte {error.start}); save it as UTF-8") from None
    except OSError as error:
        raise ProblemFileError(f"{path}: cannot be read ({error.strerror}); give a readable file") from None


def _json(path: Path, file: BinaryIO) -> Iterator[Any]:
    """Yields the elements of a JSON array if the text starts with a bracket, else the value of each line."""
    text = io.TextIOWrapper(file, encoding="utf-8-sig")
    for number, line in enumerate(text, start=1):
        if not line.strip():
            continue
        is_array = line.lstrip().startswith("[")
        document = line + text.read() if is_array else line
        try:
            value = parse_json(document)
        except json.JSONDecodeError as error:
            where = f"line {number + error.lineno - 1}, column {error.colno}"
            raise ProblemFileError(
                f"{path}: malformed JSON at {where}: {error.msg}; give a JSON array, or one object per line"
            ) from None
        if is_array:
            yield from value
            return
        yield value


def _parquet(path: Path, file: BinaryIO) -> Iterator[Any]:
    try:
        parquet = importlib.import_module("pyarrow.parquet")  # comes with Ray; imported only if needed
    except ImportError:
        raise ProblemFileError(f"{path}: reading parquet needs pyarrow; run: pip install pyarrow") from None
    try:
        for batch in parquet.ParquetFile(file).iter_batches(batch_size=256):
            yield from batch.to_pylist()
    except importlib.import_module("pyarrow").ArrowInvalid as error:
        raise ProblemFileError(f"{path}: not a parquet file ({error}); fetch it again") from None
