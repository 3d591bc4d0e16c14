"""Reads a user's problem file. Every mistake in the file becomes a one-line message with its place and how to fix it.

Loading only checks what can be checked without running code. references.py runs the reference solutions in the sandbox;
a user's code never runs in this process.
"""

import ast
import json
import textwrap
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Annotated, Any, TypeVar

from pydantic import BaseModel, ConfigDict, Discriminator, Field, Tag, ValidationError

from sparring.core.errors import SparringError
from sparring.core.problem import Problem
from sparring.core.source import parse, parse_signature, unchecked
from sparring.core.verdict import Limits, OutputTest, Test

_TESTS = ("baseline_tests", "hidden_tests")


class ProblemFileError(SparringError):
    """A problem file is unusable. The message is one line: file, problem, field, what was expected, how to fix it."""

    is_of_entry = False
    """Whether one entry is at fault, and the others may be used (attempt)."""


class _Output(BaseModel):
    """A test that compares what the program prints."""

    model_config = ConfigDict(extra="forbid", strict=True)

    stdin: str = ""
    code: str = ""
    stdout: str


_Test = Annotated[
    Annotated[str, Tag("python")] | Annotated[_Output, Tag("output")],
    Discriminator(lambda test: "output" if isinstance(test, dict | _Output) else "python"),
]


class _Entry(BaseModel):
    """One element of the file's list "problems"."""

    model_config = ConfigDict(extra="forbid", strict=True)

    id: str = Field(min_length=1)
    description: str = Field(min_length=1)
    function_signature: str
    baseline_tests: list[_Test] = Field(min_length=1)
    reference_solution: str = Field(min_length=1)
    difficulty: str | int
    tags: list[str]
    hidden_tests: list[_Test] = []
    other_solutions: list[str] = []
    wrong_solutions: list[str] = []
    language: str = Field("python", min_length=1)
    preamble: str = ""
    epilogue: str = ""
    limits: Limits | None = None


class _UnsolvedEntry(_Entry):
    """A problem that is solved but not trained on. Only its description is required."""

    id: str = ""
    function_signature: str = ""
    baseline_tests: list[_Test] = []
    reference_solution: str = ""
    difficulty: str | int = "unknown"
    tags: list[str] = []


_EXPECTED = {
    "id": 'a non-empty string, such as "two_sum"',
    "description": "a non-empty string that states the task",
    "function_signature": 'a non-empty string, such as "def double(n: int) -> int:"',
    "baseline_tests": 'a non-empty list of strings, such as ["assert double(2) == 4"], or of objects, such as {"stdin": "2", "stdout": "4"}',
    "reference_solution": 'a non-empty string, such as "def double(n):\\n    return n * 2\\n"',
    "difficulty": 'a string or a whole number, such as "easy" or 2',
    "tags": 'a list of strings, such as ["math"], or []',
    "hidden_tests": 'a list like that of baseline_tests, such as ["assert double(-1) == -2"]',
    "other_solutions": "a list of strings: further correct programs, which no good test fails",
    "wrong_solutions": "a list of strings: wrong programs, which good tests fail",
    "language": 'a string, such as "lua"',
    "preamble": "a string: code before each program",
    "epilogue": "a string: code after each program",
    "limits": f'an object with some of {", ".join(Limits.model_fields)}, such as {{"cpu_s": 5}}',
}
_LAYOUT = '{"problems": [{"id": ..., "description": ..., ...}]}'


Made = TypeVar("Made")


def attempt(make: Callable[[], Made], faults: list[ProblemFileError] | None) -> Made | None:
    """Returns what `make` makes of one entry of a data set. If the entry is faulty, its ProblemFileError is raised, or, if
    there is a list of faults, put into it, and the result is None: the entry is left out."""
    try:
        return make()
    except ProblemFileError as error:
        if faults is None:
            error.is_of_entry = True
            raise
        faults.append(error)
        return None


def load_problems(path: str | Path, *, faults: list[ProblemFileError] | None = None) -> list[Problem]:
    """Returns the file's problems, in the file's order. Raises ProblemFileError for any fault of the file. faults: see
    attempt."""
    file = Path(path)
    read = (
        attempt(lambda raw=raw, index=index: _problem(raw, index, file), faults)
        for index, raw in enumerate(_raw_entries(file))
    )
    return [problem for problem in read if problem is not None]


def load_to_solve(path: Path) -> tuple[list[Problem], dict[str, str]]:
    """Reads a file whose entries need only a description. Returns (the valid problems, the faults of the other entries by
    id).

    Raises ProblemFileError if the file as a whole is not a problem file.
    """
    problems: dict[str, Problem] = {}
    faults: dict[str, str] = {}
    for index, raw in enumerate(_raw_entries(path)):
        if isinstance(raw, dict) and "id" not in raw:
            raw = {"id": f"problem {index}", **raw}
        name = str(raw.get("id")) if isinstance(raw, dict) else f"problem {index}"
        try:
            problem = _problem(raw, index, path, _UnsolvedEntry)
        except ProblemFileError as error:
            faults[name] = str(error)
            continue
        if name in problems or name in faults:
            faults[f"{name} (index {index})"] = f"{path}: {_name(raw, index)}, field 'id': used before"
        else:
            problems[name] = problem
    return list(problems.values()), faults


def _raw_entries(path: Path) -> list[Any]:
    document = read_json(path, "problem", _LAYOUT)
    if not isinstance(document, dict) or "problems" not in document:
        raise ProblemFileError(f"{path}: expected a JSON object with the key 'problems'; write {_LAYOUT}")
    unknown = sorted(set(document) - {"problems"})
    if unknown:
        raise ProblemFileError(f"{path}: unknown key {unknown[0]!r} beside 'problems'; remove it")
    entries = document["problems"]
    if not isinstance(entries, list):
        raise ProblemFileError(
            f"{path}: field 'problems': expected a list, found {kind_of(entries)}; write {_LAYOUT}"
        )
    if not entries:
        raise ProblemFileError(f"{path}: field 'problems' is an empty list; add at least one problem")
    return entries


def read_json(path: Path, what: str, layout: str) -> Any:
    """Returns the JSON document of a file. Raises ProblemFileError if it cannot be read.

    what, layout: the kind of file and its expected form, for the error message.
    """
    try:
        text = path.read_text(encoding="utf-8-sig")
    except FileNotFoundError:
        raise ProblemFileError(f"{path}: no such file; check the path to the {what} file") from None
    except UnicodeDecodeError as error:
        raise ProblemFileError(f"{path}: not UTF-8 text (byte {error.start}); save it as UTF-8") from None
    except OSError as error:
        raise ProblemFileError(f"{path}: cannot be read ({error.strerror}); give a readable file") from None
    if not text.strip():
        raise ProblemFileError(f"{path}: the file is empty; write {layout}")
    try:
        return parse_json(text)
    except json.JSONDecodeError as error:
        remedy = "correct it there"
        if error.msg == "Extra data":  # a second document after the first
            remedy = "if these are JSON lines, give their format (--problems.format mbpp; in other commands --format mbpp)"
        raise ProblemFileError(
            f"{path}: malformed JSON at line {error.lineno}, column {error.colno}: {error.msg}; {remedy}"
        ) from None


def parse_json(text: str) -> Any:
    """Parses JSON like json.loads, but also raises JSONDecodeError for integers that are too long and for values that are
    nested too deeply."""
    try:
        return json.loads(text)
    except RecursionError:
        raise json.JSONDecodeError("nested too deeply", text, 0) from None
    except json.JSONDecodeError:
        raise
    except ValueError as error:
        raise json.JSONDecodeError(str(error).partition(";")[0], text, 0) from None


def _problem(raw: Any, index: int, path: Path, form: type[_Entry] = _Entry) -> Problem:
    where = f"{path}: {_name(raw, index)}"
    if not isinstance(raw, dict):
        raise ProblemFileError(f"{where}: expected an object, found {kind_of(raw)}; write {_LAYOUT}")
    try:
        entry = form.model_validate(raw)
    except ValidationError as error:
        raise ProblemFileError(f"{where}, {_schema_fault(error)}") from None
    for fault in _faults(entry):
        raise ProblemFileError(f"{where}, {fault}")
    fields: dict[str, Any] = {n: tuple(v) if isinstance(v, list) else v for n, v in entry}
    for name in _TESTS:
        fields[name] = tuple(t if isinstance(t, str) else OutputTest(**dict(t)) for t in fields[name])
    return Problem(**fields)


def write_problems(file: Path, problems: Iterable[Problem]) -> Path:
    """Writes a problem file, with one problem per line, and returns its path. Raises ProblemFileError for a problem that it cannot hold."""
    lines = ",\n".join(json.dumps(entry_of(problem)) for problem in problems)
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(f'{{"problems": [\n{lines}\n]}}\n', "utf-8")
    return file


def entry_of(problem: Problem) -> dict[str, Any]:
    """Returns a problem as an element of a problem file. Raises ProblemFileError if the file cannot hold it: one of its
    tests compares outputs as the tester of a contest does, or it lacks what `load_problems` asks for."""
    entry: dict[str, Any] = {}
    for name, field in _Entry.model_fields.items():
        value = getattr(problem, name)
        if name in _TESTS:
            value = [_test_entry(problem.id, test) for test in value]
        elif isinstance(value, Limits):
            value = value.model_dump(exclude_unset=True)
        value = list(value) if isinstance(value, tuple) else value
        if field.is_required() or value != field.default:
            entry[name] = value
    _problem(entry, 0, Path(f"problem {problem.id}"))
    return entry


def _test_entry(problem: str, test: Test) -> str | dict[str, Any]:
    if isinstance(test, str):
        return str(test)
    if type(test) is not OutputTest or test.stdout is None:
        raise ProblemFileError(
            f"problem {problem}: its tests compare outputs in the way of its data set, which a problem file cannot express"
        )
    given = {"stdin": test.stdin, "code": test.code}
    return {name: text for name, text in given.items() if text} | {"stdout": test.stdout}


def _name(raw: Any, index: int) -> str:
    has_id = isinstance(raw, dict) and isinstance(raw.get("id"), str) and raw["id"]
    return f"problem {raw['id']!r} (index {index})" if has_id else f"problem at index {index}"


def _schema_fault(error: ValidationError) -> str:
    first = min(error.errors(include_url=False), key=lambda fault: fault["type"] != "extra_forbidden")
    field, place = (
        str(first["loc"][0]),
        "".join(f"[{part}]" for part in first["loc"][1:] if isinstance(part, int)),
    )
    if first["type"] == "extra_forbidden" and field in _TESTS:
        return f"field {field + place!r}: unknown key {first['loc'][-1]!r}; give some of stdin, code, stdout"
    if first["type"] == "extra_forbidden" and len(first["loc"]) == 1:
        return (
            f"field {field!r}: unknown field; remove it, or correct its name to one of {', '.join(_EXPECTED)}"
        )
    if field == "limits" and len(first["loc"]) > 1:
        inner = first["loc"][1]
        fault = "unknown" if first["type"] == "extra_forbidden" else first["msg"]
        return f"field 'limits', key {inner!r}: {fault}; expected {_EXPECTED[field]}"
    if first["type"] == "missing":
        if field in _TESTS and len(first["loc"]) > 1:
            return f"field {field + place!r}: key 'stdout': missing; add the expected output"
        return f"field {field!r}: missing; add {_EXPECTED[field]}"
    return f"field {field + place!r}: found {kind_of(first['input'])}; expected {field!r} to be {_EXPECTED[field]}"


def kind_of(value: Any) -> str:
    """Returns the kind of a JSON value in words, such as "a list" or "an empty string"."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "a boolean"
    names = {dict: "an object", list: "a list", str: "a string", int: "a number", float: "a number"}
    empty = "an empty " if value in ("", [], {}) else None
    name = names.get(type(value), f"a {type(value).__name__}")
    return empty + name.split(" ")[1] if empty else name


def _faults(entry: _Entry) -> Iterator[str]:
    """Yields the faults that the schema cannot detect: Python that does not parse, a reference solution that does not
    define the function, and tests that are not for programs in the entry's language."""
    tests = [(f"{field}[{i}]", test) for field in _TESTS for i, test in enumerate(getattr(entry, field))]
    asserts = [(place, test) for place, test in tests if isinstance(test, str)]
    if entry.language != "python":
        for place, _ in asserts:
            yield (
                f"field '{place}': a string is a test in Python, and the program is in {entry.language}; expected an object, "
                'such as {"code": "print(f(2))", "stdout": "4"}'
            )
        return
    if asserts and not entry.function_signature and type(entry) is _Entry:
        yield f"field 'function_signature': found an empty string; expected {_EXPECTED['function_signature']}"
        return
    if entry.function_signature:
        signature = parse_signature(entry.function_signature)
        if signature is None:
            found = textwrap.shorten(entry.function_signature, 80)
            yield f"field 'function_signature': no function in {found!r}; expected {_EXPECTED['function_signature']}"
            return
        if entry.reference_solution:
            yield from _reference_faults(entry.reference_solution, signature.name)
    for name, test in asserts:
        place = f"field '{name}'"
        try:
            tree = parse(test, most_chars=len(test))
        except SyntaxError as error:
            yield f"{place}: not valid Python ({_syntax(error)}); expected a test such as 'assert f(2) == 4'"
            continue
        if not tree.body:
            yield f"{place}: holds no statement; expected a test such as 'assert f(2) == 4'"
        if (loose := unchecked(tree)) is not None:
            shown = textwrap.shorten(loose, 80)
            yield f"{place}: {shown!r} checks nothing, so every program passes; expected an assert, such as 'assert f(2) == 4'"


def _reference_faults(reference: str, function: str) -> Iterator[str]:
    try:
        defined = names_defined(parse(reference, most_chars=len(reference)))
    except SyntaxError as error:
        yield f"field 'reference_solution': not valid Python ({_syntax(error)}); correct it"
        return
    if function not in defined:
        yield (
            f"field 'reference_solution': defines no function {function!r}, which function_signature names; "
            "use the same name in both"
        )


def names_defined(tree: ast.Module) -> set[str]:
    """Returns the names that the module's functions, classes, assignments and imports bind, at any depth."""
    names: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            names.add(node.name)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            names.add(node.id)
        elif isinstance(node, ast.alias):
            names.add(node.asname or node.name)
    return names


def _syntax(error: SyntaxError) -> str:
    return f"line {error.lineno}: {error.msg}" if error.lineno else error.msg
