"""Decides which tests are data tests. A data test calls names of the program with plain values and checks the results
by pure functions. It is evaluated (walk.py), never executed.

A test that needs more is a code test. `read` decides this (NotData) by the text alone, so a program cannot influence
it.
"""

import ast
import builtins
import functools
import re
from collections.abc import Set
from dataclasses import dataclass

from .errors import NotData
from .pure import ANYWHERE, BUILTINS, CLOCKS, EXCEPTIONS, IGNORED, LIBRARY, MODULES, RANDOM

MOST_CHARS_OF_CODE = 20_000
"""Largest length of a test that does not begin with a call of a name, characters."""
MOST_CHARS_REMEMBERED = 500
_LONG_IMPORT = re.compile(r"\b(?:import|from)\b[\w.\s\\]{300}")
_CALLS_AT_ONCE = re.compile(r"\s*+(?:import \w++\s*+)?(?:assert\b|\w+ =)?[\s(]*+\w++ *+\(")


_LEFT_OUT = frozenset(("annotation", "returns", "ctx", "op", "ops"))
_IMPURE_BUILTINS = vars(builtins).keys() - BUILTINS.keys() - EXCEPTIONS.keys()


_STATEMENTS = (
    ast.Assert, ast.Expr, ast.Assign, ast.AnnAssign, ast.AugAssign, ast.For, ast.If, ast.Pass, ast.FunctionDef,
    ast.Return, ast.Import, ast.ImportFrom, ast.Try, ast.Break, ast.Continue, ast.Raise,
)  # fmt: skip
_EXPRESSIONS = (
    ast.Constant, ast.List, ast.Tuple, ast.Set, ast.Dict, ast.Name, ast.Attribute, ast.Call, ast.Compare, ast.BoolOp,
    ast.BinOp, ast.UnaryOp, ast.IfExp, ast.Subscript, ast.Slice, ast.ListComp, ast.SetComp, ast.DictComp,
    ast.GeneratorExp, ast.Lambda, ast.Starred, ast.JoinedStr, ast.FormattedValue,
)  # fmt: skip
_PARTS = (
    ast.Module, ast.arguments, ast.arg, ast.keyword, ast.comprehension, ast.alias, ast.ExceptHandler, ast.expr_context,
    ast.operator, ast.unaryop, ast.cmpop, ast.boolop,
)  # fmt: skip
_TAKE_FUNCTIONS = frozenset(
    "filter map max min reduce sorted sort takewhile groupby accumulate nlargest nsmallest".split()  # noqa: SIM905
)
"""Functions that may be given a function of the test or of the program."""
_ALWAYS_ALLOWED = frozenset((
    ast.Module, ast.Assert, ast.Expr, ast.Assign, ast.Constant, ast.List, ast.Tuple, ast.Set, ast.Dict, ast.BoolOp, ast.BinOp,
    ast.UnaryOp, ast.keyword, ast.alias,
))  # fmt: skip


@dataclass(frozen=True, slots=True)
class DataTest:
    """A data test that was read."""

    source: str
    tree: ast.Module
    is_expression: bool
    """True if the test is a single expression, whose value is wanted."""
    free: frozenset[str]
    """Names that the test uses and does not define."""
    with_literals: frozenset[str]
    """Free names that the test calls with arguments that contain no calls."""
    only_loads: bool
    """True if the test is only `pass`: it checks no more than that the program can be loaded."""
    keeps: bool
    """True if arguments contain names that the test defines, or if the test may keep results. What a program does to these
    values could be seen later."""


def read_often(source: str) -> DataTest:
    """Reads a test as `read` does. Short tests are remembered: many programs have the same tests."""
    return _remembered(source) if len(source) <= MOST_CHARS_REMEMBERED else read(source)


@functools.lru_cache(500)
def _remembered(source: str) -> DataTest:
    return read(source)


def read(source: str) -> DataTest:
    """Reads a test.

    Raises:
        NotData: the test is a code test.
        SyntaxError, ValueError, RecursionError, MemoryError: the test is not valid Python.
    """
    if len(source) > MOST_CHARS_OF_CODE and not _CALLS_AT_ONCE.match(source):
        raise NotData(f"{len(source)} characters that do not begin with a call")
    if _LONG_IMPORT.search(source):  # the parser takes quadratic time for `import a.a.a…`
        raise NotData("an import of a long name")
    tree = ast.parse(source, "test.py")
    nodes, parents = _without_annotations(tree)
    functions = {node.name for node in nodes if type(node) is ast.FunctionDef}
    bound, imported, used, caught = set(functions), set(), set(), set()
    for node in nodes:
        if type(node) not in _ALWAYS_ALLOWED:
            _check(node, functions)
        match node:
            case ast.Name(id=name, ctx=context):
                (used if type(context) is ast.Load else bound).add(name)
            case ast.arg(arg=name):
                bound.add(name)
            case ast.ExceptHandler(type=kind, name=name):
                bound |= {name} if name else set()
                caught |= (
                    {part.id for part in ast.walk(kind) if isinstance(part, ast.Name)} if kind else set()
                )
            case ast.alias(name=name, asname=other):
                imported.add(other or name)
    if caught & bound:
        raise NotData("except of a variable")
    imported -= bound
    used -= bound | imported
    if not_pure := used & _IMPURE_BUILTINS:
        raise NotData(", ".join(sorted(not_pure)))
    calls, assigns = _arguments(nodes, parents, bound, used - LIBRARY.keys())
    of_program = sum(not _is_library_function(call.func, imported) for call, _ in calls)
    later = of_program > 1 or any(type(node) in _REPEAT for node in nodes)
    with_literals = {call.func.id for call, has in calls if type(call.func) is ast.Name and not has & _CALL}
    return DataTest(
        source=source,
        tree=tree,
        is_expression=len(tree.body) == 1 and isinstance(tree.body[0], ast.Expr),
        free=frozenset(used),
        with_literals=frozenset(with_literals & used),
        only_loads=all(isinstance(statement, ast.Pass) for statement in tree.body),
        keeps=(assigns and later)
        or any(
            (has & _BOUND and (has & _PROGRAMS or not _is_library_function(call.func, imported)))
            or (has & _CALL and type(call.func) is ast.Name and call.func.id in bound)
            for call, has in calls
        ),
    )


def _without_annotations(tree: ast.AST) -> tuple[list[ast.AST], list[int]]:
    """Returns the nodes of the tree except those of annotations, and except operators and contexts, parents first; and the
    index of each node's parent. This takes a third of the time of ast.walk."""
    nodes, parents = [tree], [0]
    for index, node in enumerate(nodes):  # it grows
        for field in node._fields:
            if field in _LEFT_OUT:
                continue
            value = getattr(node, field, None)
            if type(value) is list:
                nodes += [item for item in value if isinstance(item, ast.AST)]
            elif isinstance(value, ast.AST):
                nodes.append(value)
        parents += [index] * (len(nodes) - len(parents))
    return nodes, parents


_REPEAT = frozenset((ast.For, ast.comprehension, ast.FunctionDef, ast.Lambda))
"""Nodes in which one call may be made several times."""
_CALL, _BOUND, _PROGRAMS, _OWN_CALL = 1, 2, 4, 8
"""What the arguments of a call hold: a call; a name that the test defines; a name of the program; a call of something else
than a function of the library."""


def _arguments(
    nodes: list[ast.AST], parents: list[int], bound: Set[str], programs: Set[str]
) -> tuple[list[tuple[ast.Call, int]], bool]:
    """Returns the calls, each with what its arguments hold, and whether a call's result may be kept until a later call: it
    is assigned, or both stand in one expression. Each node is looked at once: calls may be nested deeply."""
    holds, given, calls, assigns = [0] * len(nodes), [0] * len(nodes), [], False
    for index in range(len(nodes) - 1, 0, -1):  # children before their parents
        node, parent, has = nodes[index], nodes[parents[index]], holds[index]
        assigns |= has & _CALL and type(node) in (ast.Assign, ast.AnnAssign, ast.For)
        if type(node) is ast.Call:
            calls.append((node, given[index]))
            is_library = type(node.func) is ast.Name and node.func.id in LIBRARY
            has |= _CALL if is_library else _CALL | _OWN_CALL
        elif type(node) is ast.Name:
            has |= _BOUND * (node.id in bound) | _PROGRAMS * (node.id in programs)
        elif type(node) is ast.BinOp and type(node.op) is ast.Mult:
            has |= _BOUND  # [[0] * 2] * 2 is a list that holds another one twice
        assigns |= has & holds[parents[index]] & _OWN_CALL and not isinstance(parent, ast.stmt | ast.Module)
        holds[parents[index]] |= has
        if type(parent) is ast.Call and node is not parent.func:
            given[parents[index]] |= has
    return calls, bool(assigns)


def _is_library_function(called: ast.expr, imported: Set[str]) -> bool:
    """Returns whether it is a function of a module that the test imports, such as `json.dumps`."""
    return (
        isinstance(called, ast.Attribute)
        and isinstance(called.value, ast.Name)
        and called.value.id in imported
    )


def shadowing(test: DataTest, names: Set[str], entry_point: str = "") -> frozenset[str]:
    """Returns the names of the library that mean the program's functions in this test.

    These are the program's names among those that need no import (ANYWHERE), and the entry point, if it is known.
    Otherwise, if the test uses nothing else of the program, these are the names that it calls with literals or, if
    there are none, all that it uses. `abs(median([1, 2]) - 1.5) < 1e-9` asks for `median`, never for `abs`.

    Args:
        names: names that the program defines.
        entry_point: name of the function that the problem asks for, or an empty string.
    """
    wanted = test.free & names
    without_import = frozenset(name for name in wanted if name in ANYWHERE and name not in LIBRARY)
    if entry_point:
        return without_import | test.free & {entry_point}
    if not wanted or any(name not in LIBRARY for name in wanted):
        return without_import
    return wanted & test.with_literals or wanted


def _check(node: ast.AST, functions: Set[str]) -> None:
    """Raises NotData if the node is not allowed in a data test."""
    if not isinstance(node, _STATEMENTS + _EXPRESSIONS + _PARTS):
        raise not_data(node, type(node).__name__)
    match node:
        case ast.Attribute(attr=name) if (
            name.startswith("_") or name in ("format", "format_map") or name in CLOCKS
        ):
            raise not_data(node, f".{name}")
        case ast.Name(id=name) if name.startswith("__"):
            raise not_data(node, name)
        case ast.Call():
            _check_call(node, functions)
        case ast.Compare(ops=operators, left=left, comparators=others):
            for operator_, right in zip(operators, others, strict=True):
                if isinstance(operator_, ast.Is | ast.IsNot) and not (
                    _is_singleton(left) or _is_singleton(right)
                ):
                    raise not_data(node, "is, of two values")
        case ast.FunctionDef(decorator_list=decorators, args=arguments):
            if (
                decorators
                or arguments.vararg
                or arguments.kwarg
                or arguments.kwonlyargs
                or arguments.posonlyargs
            ):
                raise not_data(node, "a function with more than plain arguments")
        case ast.Lambda(args=arguments):
            if arguments.vararg or arguments.kwarg or arguments.kwonlyargs or arguments.posonlyargs:
                raise not_data(node, "a lambda with more than plain arguments")
        case ast.Import(names=names):
            for alias in names:
                if alias.name not in MODULES and alias.name not in IGNORED and alias.name != "random":
                    raise not_data(node, f"import {alias.name}")
        case ast.ImportFrom(module=module, names=names, level=level):
            known = RANDOM if module == "random" else MODULES.get(module or "", ())
            if level or (module not in IGNORED and any(alias.name not in known for alias in names)):
                raise not_data(node, f"from {module} import")
        case ast.Subscript(ctx=ast.Store()) | ast.Attribute(ctx=ast.Store()):
            raise not_data(node, "a change of a part")
        case ast.ExceptHandler(type=kind) if kind is not None:
            kinds = kind.elts if isinstance(kind, ast.Tuple) else [kind]
            known = vars(builtins).keys() - EXCEPTIONS.keys()
            if not all(isinstance(k, ast.Name) and k.id not in known for k in kinds):
                raise not_data(node, "except")
        case ast.Raise(exc=error, cause=cause):
            named = error.func if isinstance(error, ast.Call) else error
            if cause is not None or not isinstance(named, ast.Name) or named.id not in EXCEPTIONS:
                raise not_data(node, "raise")
        case ast.FormattedValue(format_spec=spec) if spec is not None:
            raise not_data(node, "a format")
        case ast.comprehension(is_async=1):
            raise not_data(node, "async")


def _check_call(node: ast.Call, functions: Set[str]) -> None:
    """Raises NotData if the call is not allowed in a data test. A function may be passed only to functions of the
    library or of the test, because a program is given only data."""
    called = node.func
    if not isinstance(called, ast.Name | ast.Attribute):
        raise not_data(node, "a call of what has no name")
    name = called.id if isinstance(called, ast.Name) else called.attr
    given = [*node.args, *(keyword.value for keyword in node.keywords)]
    if any(keyword.arg is None for keyword in node.keywords):
        raise not_data(node, "**")
    if name == "isinstance" and not all(
        isinstance(part, ast.Tuple | ast.expr_context) or (isinstance(part, ast.Name) and part.id in BUILTINS)
        for kind in node.args[1:]
        for part in ast.walk(kind)
    ):
        raise not_data(node, "isinstance of what is no builtin")
    for value in given:
        is_function = isinstance(value, ast.Lambda) or (isinstance(value, ast.Name) and value.id in functions)
        if is_function and name not in _TAKE_FUNCTIONS and name not in functions:
            raise not_data(node, "a function that is handed over")


def _is_singleton(node: ast.expr) -> bool:
    known = isinstance(node, ast.Constant) and (node.value is None or isinstance(node.value, bool))
    return known or (isinstance(node, ast.Name) and node.id in BUILTINS)


def not_data(node: ast.AST, what: str) -> NotData:
    return NotData(f"line {getattr(node, 'lineno', 1)}: {what}")
