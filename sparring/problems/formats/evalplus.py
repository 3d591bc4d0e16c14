"""Reads MBPP+ and HumanEval+. They have inputs without outputs: the expected output is what the reference solution returns.

The hidden tests are all inputs, base and plus, as in the official score. Each test contains the reference solution and runs
it. These tests are therefore code (sparring.core.verdict.Verdict.isolation): a program that searches its interpreter for the reference
solution can find it.

JSON has neither tuples nor sets nor complex numbers. For MBPP+, the arguments in `assertion`, which are Python, show the
original types of an input: for example, a list becomes a tuple, at any depth, if the argument in its place is a tuple.

Not implemented: for four ambiguous tasks (Mbpp/164, 295, 558, 581), EvalPlus also accepts other answers than the
reference's.
"""

import ast
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from pydantic import Field

from sparring.core.problem import Problem
from sparring.core.source import literal, parse_or_none
from sparring.problems.formats.humaneval import Task, check_test, checked_signature, helpers
from sparring.problems.formats.records import Entry, problems_of

_PER_TEST = 10
"""Number of inputs per test. Each test contains the reference solution's source: with one input per test, a data set would
take hundreds of megabytes."""


class _Plus(Task):
    base_input: list[list[Any]] = Field(min_length=1, description="a list of lists of arguments")
    plus_input: list[list[Any]] = Field(default=[], description="a list of lists of arguments")
    atol: float = Field(default=0.0, ge=0, description="the absolute tolerance of floats, 0 or more")


class _MbppPlus(_Plus):
    assertion: str = Field(min_length=1, description="the base tests, as asserts")


class _HumanEvalPlus(_Plus):
    test: str = Field(default="", description="source that defines check(candidate)")


def mbpp_plus(rows: Iterable[Entry]) -> list[Problem]:
    """Reads MBPP+. The baseline tests are the asserts of `assertion`. Raises ProblemFileError."""
    return problems_of(rows, lambda entry: _mbpp_problem(entry, entry.validated(_MbppPlus)))


def humaneval_plus(rows: Iterable[Entry]) -> list[Problem]:
    """Reads HumanEval+. The baseline test is HumanEval's own test if the file has it; else the base inputs are the baseline
    tests. Raises ProblemFileError."""
    return problems_of(rows, lambda entry: _humaneval_problem(entry, entry.validated(_HumanEvalPlus)))


def _mbpp_problem(entry: Entry, task: _MbppPlus) -> Problem:
    tree = parse_or_none(task.assertion)
    asserts = [node for node in tree.body if isinstance(node, ast.Assert)] if tree else []
    if tree is None or not asserts:
        raise entry.fault("assertion", "no asserts in it", "the base tests, as Python asserts")
    imports = [ast.unparse(node) for node in tree.body if isinstance(node, ast.Import | ast.ImportFrom)]
    examples = [arguments for node in asserts if (arguments := _arguments(node, task.entry_point))]
    try:
        inputs = [_typed_input(values, examples) for values in task.base_input + task.plus_input]
    except (TypeError, ValueError) as error:
        raise entry.fault("plus_input", f"unlike the assertion's arguments ({error})", "such ones") from None
    return Problem(
        id=task.task_id,
        description=task.prompt.strip().strip('"').strip(),
        function_signature=checked_signature(entry, task.prompt + task.canonical_solution, task.entry_point),
        baseline_tests=tuple("\n".join([*imports, ast.unparse(node)]) for node in asserts),
        reference_solution=task.prompt + task.canonical_solution,
        preamble=helpers(task.prompt, task.entry_point),
        hidden_tests=tuple(_differential_tests(task, inputs, _comparison(asserts, task.entry_point))),
    )


def _humaneval_problem(entry: Entry, task: _HumanEvalPlus) -> Problem:
    comparison = _ROOT if task.task_id == "HumanEval/32" else _EQUAL
    base = tuple(_differential_tests(task, task.base_input, comparison))
    plus = tuple(_differential_tests(task, task.plus_input, comparison))
    return Problem(
        id=task.task_id,
        description=task.prompt.strip(),
        function_signature=checked_signature(entry, task.prompt + task.canonical_solution, task.entry_point),
        baseline_tests=(check_test(task, task.test),) if task.test.strip() else base,
        reference_solution=task.prompt + task.canonical_solution,
        preamble=helpers(task.prompt, task.entry_point),
        hidden_tests=base + plus,
    )


# ------------------------------------------------------------ the types of an input before it was JSON


def _arguments(test: ast.Assert, name: str) -> list[Any] | None:
    """Returns the arguments of the first call of `name`, or None if they are not literals."""
    for node in ast.walk(test):
        if _is_call(node, name):
            try:
                return [ast.literal_eval(argument) for argument in node.args]  # type: ignore[attr-defined]
            except ValueError:
                return None
    return None


def _typed_input(values: Sequence[Any], examples: Sequence[Sequence[Any]]) -> list[Any]:
    return [
        _typed(value, [arguments[place] for arguments in examples if place < len(arguments)])
        for place, value in enumerate(values)
    ]


def _typed(value: Any, examples: Sequence[Any]) -> Any:
    """Converts a value to the type that the examples have in its place."""
    if isinstance(value, str) and examples and all(type(e) in (int, float, complex) for e in examples):
        return _number(value)
    if isinstance(value, dict):
        dicts = [e for e in examples if isinstance(e, dict)]
        inner = [item for e in dicts for item in e.values()]
        return {
            key: _typed(item, [e[key] for e in dicts if key in e] or inner) for key, item in value.items()
        }
    if not isinstance(value, list):
        return value
    alike = [e for e in examples if isinstance(e, list | tuple | set)]
    inner = [item for e in alike for item in e]
    items = [_typed(item, _in_place(alike, place) or inner) for place, item in enumerate(value)]
    return type(alike[0])(items) if alike else items


def _number(text: str) -> float | complex:
    try:
        return float(text)
    except ValueError:
        return complex(text)


def _in_place(examples: Sequence[Any], place: int) -> list[Any]:
    """Returns the containers at this index of the examples: (1, [2]) shows that the second element of a pair is a list."""
    found = [list(e)[place] for e in examples if len(e) > place]
    return [item for item in found if isinstance(item, list | tuple | set | dict)]


# ------------------------------------------------------------ tests

_SOURCE = """\
import math as _math
from copy import deepcopy as _copy

inf, nan = _math.inf, _math.nan
_reference = {{"__name__": "reference"}}
exec({reference!r}, _reference)

def _same(got, want, atol={atol!r}):
    if got == want:
        return True
    if isinstance(want, (int, float, complex)) and isinstance(got, (int, float, complex)):
        if want != want:
            return got != got
        atol = atol or (1e-6 if isinstance(want, (float, complex)) else 0)
        return bool(atol) and abs(got - want) <= atol + 1e-7 * abs(want)
    if type(got) is not type(want):
        return False
    if isinstance(want, (list, tuple)):
        return len(got) == len(want) and all(map(_same, got, want))
    if isinstance(want, dict):
        return got.keys() == want.keys() and all(_same(got[key], want[key]) for key in want)
    return False

for _input in {inputs}:
    _want = _reference[{name!r}](*_copy(_input))
    _got = {name}(*_copy(_input))
    assert {comparison}, "another value than the reference's"
"""
_EQUAL = "_same(_got, _want)"
_AS_SETS = "set(_got) == set(_want)"
_TRUTH = f"bool(_got) == bool(_want) if not isinstance(_want, bool) else {_EQUAL}"
_ROOT = f"{_EQUAL} or abs(sum(_c * _got**_i for _i, _c in enumerate(_input[0]))) <= 1e-4"
"""Accepts any root of the polynomial."""


def _comparison(asserts: Sequence[ast.Assert], name: str) -> str:
    """Returns the comparison that the base tests use: as sets, by truth (of match objects, which are no plain values), or by
    equality."""
    tests = [node.test for node in asserts]
    if all(isinstance(test, ast.Compare) and _is_call(test.left, "set") for test in tests):
        return _AS_SETS
    if all(_is_call(test.operand if isinstance(test, ast.UnaryOp) else test, name) for test in tests):
        return _TRUTH
    return _EQUAL


def _is_call(node: ast.AST, name: str) -> bool:
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == name


def _differential_tests(task: _Plus, inputs: Sequence[Sequence[Any]], comparison: str) -> Iterator[str]:
    for start in range(0, len(inputs), _PER_TEST):
        yield _SOURCE.format(
            reference=task.prompt + task.canonical_solution,
            atol=task.atol,
            inputs=literal(list(inputs[start : start + _PER_TEST])),
            name=task.entry_point,
            comparison=comparison,
        )
