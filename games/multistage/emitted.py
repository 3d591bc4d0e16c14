"""From a discriminator's completion to the tests of a suite. Pure; nothing is executed."""

import ast
import cmath
from dataclasses import dataclass

from pydantic import Field

from core.problem import Problem
from core.settings import Settings
from core.source import is_literal, literal, parse_signature
from games.multistage.suite_statements import (
    Found,
    calls_of,
    is_equation,
    split_assertion,
    tests_in,
)


class InputLimits(Settings):
    """Cap on the size of a test's input, so that a test cannot win by being heavy."""

    chars: int = Field(default=400, gt=0)
    """Length of the call's source."""
    items: int = Field(default=100, ge=0)
    """Items of any list, tuple, set or dict."""
    abs_int: int = Field(default=10**9, ge=0)
    string: int = Field(default=200, ge=0)
    """Characters of any string."""


@dataclass(frozen=True, kw_only=True, slots=True)
class EmittedTest:
    """One test of a suite as the discriminator wrote it.

    Example: EmittedTest(source="assert f([1,2])==3", call="f([1, 2])", expected="3", fault="")
    """

    source: str
    call: str = ""
    """Canonical call with literal arguments; empty for a test that is no such call."""
    expected: str | None = None
    """repr of the expected value; None if the test states none."""
    fault: str = ""
    """Why the test is not even worth running: "parse", "literal", "contract", "size"; empty if it is fine."""

    @property
    def identity(self) -> str:
        """Two tests with one identity are duplicates."""
        return self.call or self.source


def parse_suite(text: str, problem: Problem, *, test_format: str, limits: InputLimits) -> list[EmittedTest]:
    """Read the tests of a discriminator's answer, in the order in which they stand there.

    They are read from the syntax tree of the answer's code blocks (`suite_statements.tests_in`), so they may stand in
    functions, classes and loops, and go over several lines.

    test_format: "strict" takes any assertion about the function, "relabel" the calls in assertions (the expected value
    that was written is kept to be compared with the reference's), "input_only" calls.
    """
    wants_calls = test_format == "input_only"
    found = tests_in(text, problem.entry_point, wants_calls=wants_calls)
    return [_read_test(test, problem, test_format, limits) for test in found]


def _read_test(found: Found, problem: Problem, test_format: str, limits: InputLimits) -> EmittedTest:
    test, written = found
    if test is None:
        return EmittedTest(source=written, fault="parse")
    wants_call = test_format == "input_only"
    if test_format == "strict" and not is_equation(test, problem.entry_point):
        return _any_assert(test, written, problem.entry_point, limits)
    call_node, expected_node = (test, None) if wants_call else split_assertion(test, problem.entry_point)
    if test_format == "relabel" and expected_node is not None and not is_literal(expected_node):
        expected_node = None  # the reference says what it is
    if not isinstance(call_node, ast.Call):
        return EmittedTest(source=written, fault="parse")
    try:
        arguments = [ast.literal_eval(a) for a in call_node.args]
        keywords = {k.arg: ast.literal_eval(k.value) for k in call_node.keywords}
        expected = literal(ast.literal_eval(expected_node)) if expected_node is not None else None
        if None in keywords or getattr(call_node.func, "id", None) != problem.entry_point:
            raise ValueError
        rendered = [literal(a) for a in arguments]
        rendered += [f"{name}={literal(value)}" for name, value in keywords.items()]
        asserted = "" if wants_call else ast.unparse(ast.Assert(test))
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
        return EmittedTest(source=written, fault="literal")
    call = f"{problem.entry_point}({', '.join(rendered)})"
    source = f"assert {call} == {expected}" if expected is not None else asserted or call
    values = [*arguments, *keywords.values()]
    if len(source) > limits.chars or not all(_small_enough(v, limits) for v in values):
        fault = "size"
    else:
        fault = "" if _fits_signature(arguments, problem) else "contract"
    return EmittedTest(source=source, call=call, expected=expected, fault=fault)


def _any_assert(test: ast.expr, written: str, entry_point: str, limits: InputLimits) -> EmittedTest:
    try:
        source = ast.unparse(ast.Assert(test))
    except (ValueError, RecursionError):  # an integer too long to print, an expression too deep
        return EmittedTest(source=written, fault="parse")
    if len(source) > limits.chars:
        return EmittedTest(source=written, fault="size")
    if not calls_of(entry_point, test):  # it would test something that only the reference has
        return EmittedTest(source=source, fault="contract")
    return EmittedTest(source=source)


def _small_enough(value: object, limits: InputLimits) -> bool:
    if isinstance(value, str | bytes):
        return len(value) <= limits.string
    if isinstance(value, int):
        return abs(value) <= limits.abs_int
    if isinstance(value, float | complex):  # infinity has no literal: its repr would not be the value
        return cmath.isfinite(value)
    if isinstance(value, dict):
        parts: list[object] = [*value.keys(), *value.values()]
        return len(value) <= limits.items and all(_small_enough(p, limits) for p in parts)
    if isinstance(value, list | tuple | set | frozenset):
        return len(value) <= limits.items and all(_small_enough(p, limits) for p in value)
    return True


_BUILTIN_TYPES = {"int": int, "str": str, "float": (int, float), "bool": bool, "list": list, "dict": dict,
                  "tuple": tuple, "set": set, "bytes": bytes}  # fmt: skip


def _fits_signature(arguments: list[object], problem: Problem) -> bool:
    """The input contract that the signature's annotations state; unknown annotations accept anything."""
    function = parse_signature(problem.function_signature)
    if function is None:
        return True
    parameters = function.args.posonlyargs + function.args.args
    if len(arguments) > len(parameters) and function.args.vararg is None:
        return False
    return all(_matches(value, p.annotation) for value, p in zip(arguments, parameters, strict=False))


def _matches(value: object, annotation: ast.expr | None) -> bool:
    match annotation:
        case ast.Name(id=name) if name in _BUILTIN_TYPES:
            exact_int = name != "int" or not isinstance(value, bool)
            return isinstance(value, _BUILTIN_TYPES[name]) and exact_int
        case ast.Subscript(value=ast.Name(id=("list" | "List" | "set")), slice=item):
            return isinstance(value, list | set) and all(_matches(v, item) for v in value)
    return True
