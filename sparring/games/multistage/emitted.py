"""Reads the tests of a suite from a discriminator's completion. Pure; nothing is executed."""

import ast
import builtins
import inspect
import re
from collections.abc import Container, Iterable
from contextlib import suppress
from dataclasses import dataclass, field, replace

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

_MOST_EXAMPLES = 20
"""Maximum number of a problem's own tests that tell the types of arguments without annotation."""


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
    """Reason why the test is not run: "parse", "literal", "contract", "size" or "shown" (docs/games.md explains them);
    empty if it is run."""
    inputs: frozenset[str] = field(default=frozenset(), compare=False)
    """Keys of the test's calls, by which duplicates are found. A call has the same key whether or not its arguments are
    named, and whether an argument that equals the parameter's default is given or left out."""

    @property
    def identity(self) -> str:
        """Key of the test among the tests of its suite that are run."""
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
        shown: the `shown_calls` of the prompt. A test that has no other calls has the fault "shown".
    """
    reader = _Calls(problem)
    found = tests_in(text, problem.entry_point, wants_calls=test_format == "input_only")
    read = [_read_test(test, reader, test_format, limits) for test in found]
    return [
        replace(test, fault="shown") if not test.fault and all(key in shown for key in test.inputs) else test
        for test in read
    ]


def distinct(tests: Iterable[EmittedTest]) -> list[EmittedTest]:
    """Returns the tests without those that share a call with an earlier one. If they were kept, a discriminator could
    write one good test several times, each time together with another call, and be paid each time."""
    found, seen = [], set[str]()
    for test in tests:
        if seen.isdisjoint(test.inputs):
            found.append(test)
            seen |= test.inputs
    return found


def shown_calls(prompt: str, problem: Problem, limits: InputLimits) -> frozenset[str]:
    """Returns the keys (`EmittedTest.inputs`) of the calls of the problem's function in a prompt. Calls that are longer
    than a test may be (`limits.chars`) are left out."""
    reader, found = _Calls(problem), set[str]()
    for start in re.finditer(rf"\b{re.escape(problem.entry_point)}\(", prompt):
        line = prompt[start.start() :][: limits.chars].partition("\n")[0]
        for end in re.finditer(r"\)", line):
            if calls := literal_calls(line[: end.end()], problem.entry_point):
                with suppress(ValueError, RecursionError):  # `f(**{"x": 1})`, which is no test either
                    found.add(reader.read(calls[0]).key)
                break
    return frozenset(found)


def _read_test(found: Found, reader: "_Calls", test_format: str, limits: InputLimits) -> EmittedTest:
    test, written = found
    if test is None:
        return EmittedTest(source=written, fault="parse")
    wants_call = test_format == "input_only"
    if test_format == "strict" and not is_equation(test, reader.entry_point):
        return _any_assert(test, written, reader, limits)
    call_node, expected_node = (test, None) if wants_call else split_assertion(test, reader.entry_point)
    if test_format == "relabel" and expected_node is not None and not is_literal(expected_node):
        expected_node = None  # the reference's output takes its place
    if not isinstance(call_node, ast.Call):
        return EmittedTest(source=written, fault="parse")
    try:
        expected = literal(ast.literal_eval(expected_node)) if expected_node is not None else None
        call = reader.read(call_node)
        if getattr(call_node.func, "id", None) != reader.entry_point or call.calls_itself:
            raise ValueError
        asserted = "" if wants_call else ast.unparse(ast.Assert(test))
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
        return EmittedTest(source=written, fault="literal")
    source = f"assert {call.text} == {expected}" if expected is not None else asserted or call.text
    fault, inputs = _fault(source, [call], limits), frozenset([call.key])
    return EmittedTest(source=source, call=call.text, expected=expected, fault=fault, inputs=inputs)


def _any_assert(test: ast.expr, written: str, reader: "_Calls", limits: InputLimits) -> EmittedTest:
    """Reads an assertion of any form. Its identity is its calls alone, since the rest of the assertion is no input."""
    calls = calls_of(reader.entry_point, test)
    try:
        source = ast.unparse(ast.Assert(test))
    except (ValueError, RecursionError):  # an integer too long to print, an expression too deep
        return EmittedTest(source=written, fault="parse")
    if not calls:  # the assertion would test something that only the reference has
        return EmittedTest(source=source, fault="contract")
    try:
        read = [reader.read(call) for call in calls]
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
        return EmittedTest(source=source, fault="literal")
    called = ", ".join(sorted({call.text for call in read}))
    inputs = frozenset(call.key for call in read)
    return EmittedTest(source=source, call=called, fault=_fault(source, read, limits), inputs=inputs)


@dataclass(frozen=True, slots=True)
class _Call:
    """A call of the function under test."""

    text: str
    """Canonical source: arguments are positional if the signature allows it; keywords are in alphabetical order."""
    key: str
    """See EmittedTest.inputs."""
    values: list[object]
    """Values of the literals among the arguments, and among the arguments of calls in them."""
    fits: bool
    """Whether the arguments fit the signature."""
    calls_itself: bool
    """Whether an argument is a call of the function, as in `f(f(1))`."""


class _Calls:
    """Reads calls of the function under test."""

    def __init__(self, problem: Problem) -> None:
        self.entry_point = problem.entry_point
        function = parse_signature(problem.function_signature)
        self._signature = _signature(function) if function is not None else None
        self._known: dict[str, list[object]] = {}
        """For each parameter without annotation, its values in the problem's own tests."""
        open_names = {
            name
            for name, parameter in (self._signature.parameters.items() if self._signature else ())
            if parameter.annotation is None
        }
        for test in problem.baseline_asserts[:_MOST_EXAMPLES] if open_names else ():
            for call in literal_calls(test, self.entry_point):
                with suppress(ValueError, TypeError):
                    for name, node in self._bound(call).arguments.items():
                        if name in open_names and isinstance(node, ast.expr):
                            self._known.setdefault(name, []).append(ast.literal_eval(node))

    def read(self, call: ast.Call) -> _Call:
        """Reads a call of the function.

        Raises ValueError, or what ast.literal_eval raises, if an argument is neither a literal nor a call of the function.
        """
        positional, named = list(call.args), {str(keyword.arg): keyword.value for keyword in call.keywords}
        fits, parameters = True, dict[int, inspect.Parameter]()
        try:
            bound = self._bound(call)
        except TypeError:
            fits = self._signature is None
        else:
            positional, named = list(bound.args), bound.kwargs
            of_name = bound.signature.parameters
            parameters = {id(node): of_name[name] for name, node in bound.arguments.items()}
        texts: list[str] = []
        keys: list[str] = []
        values: list[object] = []
        calls_itself = False
        nodes = [*(("", node) for node in positional), *((f"{n}=", named[n]) for n in sorted(named))]
        for prefix, node in nodes:
            parameter = parameters.get(id(node))
            name = f"{parameter.name}=" if parameter is not None else prefix
            if isinstance(node, ast.Call) and calls_of(self.entry_point, node) == [node]:
                inner = self.read(node)
                calls_itself, fits = True, fits and inner.fits
                texts.append(prefix + inner.text)
                keys.append(name + inner.key)
                values += inner.values
                continue
            if not is_literal(node):
                raise ValueError
            value = ast.literal_eval(node)
            fits = fits and (parameter is None or self._takes(parameter, value))
            texts.append(prefix + literal(value))
            if parameter is None or literal(value) != _default(parameter):
                keys.append(name + literal(value))
            values.append(value)
        text, key = (f"{self.entry_point}({', '.join(parts)})" for parts in (texts, keys))
        return _Call(text, key, values, fits, calls_itself)

    def _bound(self, call: ast.Call) -> inspect.BoundArguments:
        """Returns the call's arguments, nodes of the syntax tree, by parameter. Raises ValueError for `f(**options)`, TypeError
        if the arguments do not fit the signature, or there is none."""
        named = {str(keyword.arg): keyword.value for keyword in call.keywords}
        if "None" in named:
            raise ValueError
        if self._signature is None:
            raise TypeError
        return self._signature.bind(*call.args, **named)

    def _takes(self, parameter: inspect.Parameter, value: object) -> bool:
        if literal(value) == _default(parameter):
            return True
        # None says nothing of the type that else is taken
        known = {_type(one) for one in self._known.get(parameter.name, ()) if one is not None}
        return _type(value) in known if known else _matches(value, parameter.annotation)


def _default(parameter: inspect.Parameter) -> str | None:
    """Returns the source of a parameter's default value; None if it has none, or none that is a literal."""
    default = parameter.default
    is_known = isinstance(default, ast.expr) and is_literal(default)
    return literal(ast.literal_eval(default)) if is_known else None


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
    if isinstance(value, dict):
        parts: list[object] = [*value.keys(), *value.values()]
        return len(value) <= limits.items and all(_small_enough(p, limits) for p in parts)
    if isinstance(value, list | tuple | set | frozenset):
        return len(value) <= limits.items and all(_small_enough(p, limits) for p in value)
    return True


_PLAIN_NAMES = {"List": "list", "Dict": "dict", "Tuple": "tuple", "Set": "set"}
_BUILTIN_TYPES = {"int": int, "str": str, "float": (int, float), "bool": bool, "list": list, "dict": dict,
                  "tuple": tuple, "set": set, "bytes": bytes}  # fmt: skip


def _matches(value: object, annotation: ast.expr | None) -> bool:
    """Returns whether the value fits the annotation. Any value fits an annotation that is not known here."""
    match annotation:
        case ast.Constant(value=None):
            return value is None
        case ast.Name(id=name) if (of_name := _BUILTIN_TYPES.get(_PLAIN_NAMES.get(name, name))) is not None:
            is_number = name in ("int", "float")
            return isinstance(value, of_name) and not (is_number and isinstance(value, bool))
        case ast.BinOp(left=left, op=ast.BitOr(), right=right):
            return _matches(value, left) or _matches(value, right)
        case ast.Subscript(value=ast.Name(id=name), slice=inside):
            parts = inside.elts if isinstance(inside, ast.Tuple) else [inside]
            match _PLAIN_NAMES.get(name, name), value, parts:
                case "Optional", _, _:
                    return value is None or _matches(value, inside)
                case "Union", _, _:
                    return any(_matches(value, part) for part in parts)
                case ("list", list(), [part]) | ("set", set(), [part]):
                    return all(_matches(item, part) for item in value)
                case "dict", dict(), [of_names, of_items]:
                    return all(_matches(n, of_names) and _matches(i, of_items) for n, i in value.items())
                case "tuple", tuple(), [part] | [part, ast.Constant(value=builtins.Ellipsis)]:
                    return all(_matches(item, part) for item in value)
                case "tuple", tuple(), _:
                    return len(value) == len(parts) and all(map(_matches, value, parts))
                case "list" | "set" | "dict" | "tuple" as base, _, _:
                    return isinstance(value, _BUILTIN_TYPES[base])  # with other parts than it can have
    return True


def _type(value: object) -> type:
    """Returns the value's type; int and float count as one."""
    return int if type(value) is float else type(value)
