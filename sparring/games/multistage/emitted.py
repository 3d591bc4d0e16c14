"""Reads the tests of a suite from a discriminator's completion. Pure; nothing is executed."""

import ast
import cmath
import inspect
import re
from collections.abc import Container
from contextlib import suppress
from dataclasses import dataclass, replace

from pydantic import Field

from sparring.core.problem import Problem
from sparring.core.settings import Settings
from sparring.core.source import is_literal, literal, literal_calls, parse_signature
from sparring.games.multistage.suite_statements import (
    Found,
    calls_of,
    is_equation,
    split_assertion,
    tests_in,
)


class InputLimits(Settings):
    """Limits on the size of a test's input, so that a test cannot fail programs by being expensive."""

    chars: int = Field(default=400, gt=0)
    """Maximum number of characters of a test's source."""
    items: int = Field(default=100, ge=0)
    """Maximum number of items of any list, tuple, set or dict."""
    abs_int: int = Field(default=10**9, ge=0)
    string: int = Field(default=200, ge=0)
    """Maximum number of characters of any string."""


@dataclass(frozen=True, kw_only=True, slots=True)
class EmittedTest:
    """One test of a suite as the discriminator wrote it.

    Example: EmittedTest(source="assert f([1,2])==3", call="f([1, 2])", expected="3", fault="")
    """

    source: str
    call: str = ""
    """The call in canonical form; for an assertion that is no equation, all its calls in canonical form, sorted. Empty if
    the calls could not be read."""
    expected: str | None = None
    """repr of the expected value; None if the test states none."""
    fault: str = ""
    """Why the test is not run: "parse", "literal", "contract", "size" or "shown"; empty if it can be run."""

    @property
    def identity(self) -> str:
        """Key of the test. Tests with the same key are duplicates: they call the function with the same arguments."""
        return self.call or self.source


def parse_suite(
    text: str,
    problem: Problem,
    *,
    test_format: str,
    limits: InputLimits,
    shown: Container[str] = (),
) -> list[EmittedTest]:
    """Returns the tests of a discriminator's answer, in order.

    They are read from the syntax tree of the answer's code blocks (`suite_statements.tests_in`), so they may be in
    functions, classes and loops, and have several lines.

    Args:
        test_format: "strict" reads any assertion about the results of calls with literal arguments; "relabel" reads the
            calls in assertions, and keeps the written expected value to compare it with the reference's output;
            "input_only" reads calls.
        shown: the `shown_calls` of the prompt. A test that repeats one of them has the fault "shown".
    """
    wants_calls = test_format == "input_only"
    found = tests_in(text, problem.entry_point, wants_calls=wants_calls)
    read = [_read_test(test, problem, test_format, limits) for test in found]
    return [replace(test, fault="shown") if not test.fault and test.call in shown else test for test in read]


def shown_calls(prompt: str, problem: Problem, limits: InputLimits) -> frozenset[str]:
    """Returns the calls of the problem's function in a prompt, in canonical form, as far as they are short enough for a test."""
    found = set[str]()
    for start in re.finditer(rf"\b{re.escape(problem.entry_point)}\(", prompt):
        line = prompt[start.start() :][: limits.chars].partition("\n")[0]
        for end in re.finditer(r"\)", line):
            if calls := literal_calls(line[: end.end()], problem.entry_point):
                with suppress(ValueError):  # `f(**{"x": 1})`, which is no test either
                    found.add(_read_call(calls[0], problem).text)
                break
    return frozenset(found)


def _read_test(found: Found, problem: Problem, test_format: str, limits: InputLimits) -> EmittedTest:
    test, written = found
    if test is None:
        return EmittedTest(source=written, fault="parse")
    wants_call = test_format == "input_only"
    if test_format == "strict" and not is_equation(test, problem.entry_point):
        return _any_assert(test, written, problem, limits)
    call_node, expected_node = (test, None) if wants_call else split_assertion(test, problem.entry_point)
    if test_format == "relabel" and expected_node is not None and not is_literal(expected_node):
        expected_node = None  # the reference's output takes its place
    if not isinstance(call_node, ast.Call):
        return EmittedTest(source=written, fault="parse")
    try:
        expected = literal(ast.literal_eval(expected_node)) if expected_node is not None else None
        call = _read_call(call_node, problem)
        if getattr(call_node.func, "id", None) != problem.entry_point or call.calls_itself:
            raise ValueError
        asserted = "" if wants_call else ast.unparse(ast.Assert(test))
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
        return EmittedTest(source=written, fault="literal")
    source = f"assert {call.text} == {expected}" if expected is not None else asserted or call.text
    return EmittedTest(source=source, call=call.text, expected=expected, fault=_fault(source, [call], limits))


def _any_assert(test: ast.expr, written: str, problem: Problem, limits: InputLimits) -> EmittedTest:
    """Reads an assertion of any form. Its identity is its calls alone, since the rest of the assertion is no input."""
    calls = calls_of(problem.entry_point, test)
    try:
        source = ast.unparse(ast.Assert(test))
    except (ValueError, RecursionError):  # an integer too long to print, an expression too deep
        return EmittedTest(source=written, fault="parse")
    if not calls:  # the assertion would test something that only the reference has
        return EmittedTest(source=source, fault="contract")
    try:
        read = [_read_call(call, problem) for call in calls]
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
        return EmittedTest(source=source, fault="literal")
    called = ", ".join(sorted({call.text for call in read}))
    return EmittedTest(source=source, call=called, fault=_fault(source, read, limits))


@dataclass(frozen=True, slots=True)
class _Call:
    """A call of the function under test."""

    text: str
    """Canonical source: arguments are positional if the signature allows it; keywords are in alphabetical order."""
    values: list[object]
    """Values of the literals among the arguments, and among the arguments of calls in them."""
    fits: bool
    """Whether the arguments fit the signature."""
    calls_itself: bool
    """Whether an argument is a call of the function, as in `f(f(1))`."""


def _read_call(call: ast.Call, problem: Problem) -> _Call:
    """Reads a call of the function under test.

    Raises ValueError, or what ast.literal_eval raises, if an argument is neither a literal nor a call of the function.
    """
    positional, named = list(call.args), {str(keyword.arg): keyword.value for keyword in call.keywords}
    if "None" in named:  # `**options`
        raise ValueError
    fits, parameters = True, dict[int, inspect.Parameter]()
    if (function := parse_signature(problem.function_signature)) is not None:
        try:
            bound = _signature(function).bind(*positional, **named)
        except TypeError:
            fits = False
        else:
            positional, named = list(bound.args), bound.kwargs
            of_name = bound.signature.parameters
            parameters = {id(node): of_name[name] for name, node in bound.arguments.items()}
    texts: list[str] = []
    values: list[object] = []
    calls_itself = False
    for prefix, node in [*(("", node) for node in positional), *((f"{n}=", named[n]) for n in sorted(named))]:
        if isinstance(node, ast.Call) and calls_of(problem.entry_point, node) == [node]:
            inner = _read_call(node, problem)
            calls_itself, fits = True, fits and inner.fits
            texts.append(prefix + inner.text)
            values += inner.values
            continue
        value = ast.literal_eval(node)
        parameter = parameters.get(id(node))
        fits = fits and (parameter is None or _takes(parameter, value))
        texts.append(prefix + literal(value))
        values.append(value)
    return _Call(f"{problem.entry_point}({', '.join(texts)})", values, fits, calls_itself)


def _signature(function: ast.FunctionDef | ast.AsyncFunctionDef) -> inspect.Signature:
    """Returns the signature of a function. The annotations and defaults in it are nodes of the syntax tree."""
    given, kinds = function.args, inspect.Parameter
    defaults = [kinds.empty] * (len(given.posonlyargs) + len(given.args) - len(given.defaults)) + [
        *given.defaults
    ]
    by_kind = [
        *((kinds.POSITIONAL_ONLY, argument) for argument in given.posonlyargs),
        *((kinds.POSITIONAL_OR_KEYWORD, argument) for argument in given.args),
    ]
    parameters = [
        kinds(argument.arg, kind, default=default, annotation=argument.annotation)
        for (kind, argument), default in zip(by_kind, defaults, strict=True)
    ]
    parameters += [kinds(a.arg, kinds.VAR_POSITIONAL) for a in filter(None, [given.vararg])]
    parameters += [
        kinds(a.arg, kinds.KEYWORD_ONLY, default=default or kinds.empty, annotation=a.annotation)
        for a, default in zip(given.kwonlyargs, given.kw_defaults, strict=True)
    ]
    parameters += [kinds(a.arg, kinds.VAR_KEYWORD) for a in filter(None, [given.kwarg])]
    return inspect.Signature(parameters)


def _fault(source: str, calls: list[_Call], limits: InputLimits) -> str:
    if len(source) > limits.chars or not all(_small_enough(v, limits) for call in calls for v in call.values):
        return "size"
    return "" if all(call.fits for call in calls) else "contract"


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


def _takes(parameter: inspect.Parameter, value: object) -> bool:
    may_be_none = isinstance(parameter.default, ast.Constant) and parameter.default.value is None
    return (value is None and may_be_none) or _matches(value, parameter.annotation)


def _matches(value: object, annotation: ast.expr | None) -> bool:
    """Returns whether the value fits the annotation. Any value fits an annotation that is not known here."""
    match annotation:
        case ast.Name(id=name) if name in _BUILTIN_TYPES:
            exact_int = name != "int" or not isinstance(value, bool)
            return isinstance(value, _BUILTIN_TYPES[name]) and exact_int
        case ast.Subscript(value=ast.Name(id=("list" | "List" | "set")), slice=item):
            return isinstance(value, list | set) and all(_matches(v, item) for v in value)
    return True
