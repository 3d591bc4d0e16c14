"""From a discriminator's completion to the tests of a suite. Pure; nothing is executed."""

import ast
import cmath
from dataclasses import dataclass

from pydantic import Field

from core.answers import last_block
from core.problem import Problem
from core.settings import Settings
from core.source import literal, parse


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
    """One line of a suite as the discriminator wrote it.

    Example: EmittedTest(source="assert f([1,2])==3", call="f([1, 2])", expected="3", fault="")
    """

    source: str
    call: str = ""
    """Canonical call with literal arguments; empty for a test that is no such call."""
    expected: str | None = None
    """repr of the expected value; None where the test is an input only."""
    fault: str = ""
    """Why the test is not even worth running: "parse", "literal", "contract", "size"; empty if it is fine."""

    @property
    def identity(self) -> str:
        """Two tests with one identity are duplicates."""
        return self.call or self.source


def parse_suite(
    text: str, problem: Problem, *, test_format: str, max_tests: int, limits: InputLimits
) -> list[EmittedTest]:
    """The first `max_tests` non-empty lines of the suite, each parsed.

    test_format: "strict" takes any assert, "relabel" asserts of the form `assert f(literals) == literal`,
    "input_only" bare calls `f(literals)`.
    """
    lines = [line.strip() for line in last_block(text).splitlines()]
    lines = [line for line in lines if line and not line.startswith(("#", "import ", "from "))]
    return [_parse_test(line, problem, test_format, limits) for line in lines[:max_tests]]


def _parse_test(line: str, problem: Problem, test_format: str, limits: InputLimits) -> EmittedTest:
    try:
        statements = parse(line).body
    except SyntaxError:
        return EmittedTest(source=line, fault="parse")
    if len(statements) != 1:
        return EmittedTest(source=line, fault="parse")
    call_node, expected_node = _split_assert(statements[0], wants_assert=test_format != "input_only")
    if call_node is None:
        if test_format == "strict" and isinstance(statements[0], ast.Assert):
            return _any_assert(line, statements[0], problem.entry_point, limits)
        return EmittedTest(source=line, fault="parse")
    try:
        arguments = [ast.literal_eval(a) for a in call_node.args]
        keywords = {k.arg: ast.literal_eval(k.value) for k in call_node.keywords}
        expected = literal(ast.literal_eval(expected_node)) if expected_node is not None else None
        if None in keywords or getattr(call_node.func, "id", None) != problem.entry_point:
            raise ValueError
        rendered = [literal(a) for a in arguments]
        rendered += [f"{name}={literal(value)}" for name, value in keywords.items()]
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
        return EmittedTest(source=line, fault="literal")
    call = f"{problem.entry_point}({', '.join(rendered)})"
    source = call if expected is None else f"assert {call} == {expected}"
    values = [*arguments, *keywords.values()]
    if len(source) > limits.chars or not all(_small_enough(v, limits) for v in values):
        fault = "size"
    else:
        fault = "" if _fits_signature(arguments, problem) else "contract"
    return EmittedTest(source=source, call=call, expected=expected, fault=fault)


def _any_assert(line: str, statement: ast.Assert, entry_point: str, limits: InputLimits) -> EmittedTest:
    if len(line) > limits.chars:
        return EmittedTest(source=line, fault="size")
    try:
        source = ast.unparse(statement)
    except (ValueError, RecursionError):  # an integer too long to print, an expression too deep
        return EmittedTest(source=line, fault="parse")
    called = {
        n.func.id for n in ast.walk(statement) if isinstance(n, ast.Call) and isinstance(n.func, ast.Name)
    }
    if entry_point not in called:  # it would test something that only the reference has
        return EmittedTest(source=line, fault="contract")
    return EmittedTest(source=source)


def _split_assert(statement: ast.stmt, *, wants_assert: bool) -> tuple[ast.Call | None, ast.expr | None]:
    """(call, expected) of `assert call == expected`, (call, None) of a bare `call`, else (None, None)."""
    if not wants_assert:
        is_call = isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call)
        return (statement.value, None) if is_call else (None, None)  # type: ignore[union-attr]
    match statement:
        case ast.Assert(test=ast.Compare(left=ast.Call() as call, ops=[ast.Eq()], comparators=[expected])):
            return call, expected
    return None, None


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
    try:
        function = ast.parse(problem.function_signature.rstrip().rstrip(":") + ": pass").body[0]
    except SyntaxError:
        return True
    if not isinstance(function, ast.FunctionDef):
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
