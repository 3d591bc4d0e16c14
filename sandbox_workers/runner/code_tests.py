"""Code tests run in the program's interpreter and module, after the program, as if they stood at the end of its file.
They mean exactly what they mean in Python, but a program that looks for its test can find it."""

import ast
import builtins
import dis
import importlib
import inspect
import symtable
import sys
import traceback
import types
from collections.abc import Callable, Iterable, Iterator, Set
from dataclasses import dataclass
from typing import Any

from .values import plain_repr

PROGRAM_FILE, TEST_FILE = "program.py", "test.py"
TEST = "__main__"
"""Name of a test's module."""
MODULES = ("program", "solution")
"""Names by which a test may import the program."""
USUAL = (  # noqa: SIM905
    "math collections itertools functools heapq bisect re string operator random copy json datetime "
    "decimal fractions statistics typing"
).split()
"""Modules that a test may use without importing them, together with their functions and classes. The programs that come
with the tests have usually imported them."""


OF_EVERY_MODULE = frozenset(
    "__builtins__ __name__ __doc__ __file__ __loader__ __spec__ __package__".split()  # noqa: SIM905
)
"""Names that every module has."""


_DEFINITIONS = (
    ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Import, ast.ImportFrom, ast.Assign, ast.AnnAssign,
)  # fmt: skip


class NeverAsked(Exception):
    """Raised if the test does not use the program."""


@dataclass(frozen=True, slots=True)
class CodeTest:
    """A code test that was read."""

    code: types.CodeType
    is_expression: bool
    """True if the test is a single expression, whose value is wanted."""
    free: frozenset[str]
    """Names that the test uses and does not define."""
    bound: frozenset[str]
    """Names of its module that the test defines or may define."""
    mentioned: frozenset[str]
    """Names by which the test may refer to the program or to a name that it defines: in variables, imports and strings."""
    only_loads: bool
    """True if the test is only `pass`: it checks no more than that the program can be loaded."""
    acts: bool
    """True if it does more than to define what pytest or unittest would run."""


def read(source: str) -> CodeTest:
    """Reads a test.

    Raises:
        SyntaxError, ValueError, RecursionError, MemoryError: the test cannot be read.
    """
    tree = ast.parse(source, TEST_FILE)
    _assert_status(tree.body)
    used, bound = _names(symtable.symtable(source, TEST_FILE, "exec"))
    is_expression = len(tree.body) == 1 and isinstance(tree.body[0], ast.Expr)
    compiled: Any = ast.Expression(tree.body[0].value) if is_expression else tree
    return CodeTest(
        code=compile(compiled, TEST_FILE, "eval" if is_expression else "exec", dont_inherit=True),
        is_expression=is_expression,
        free=frozenset(used - bound),
        bound=frozenset(bound),
        mentioned=frozenset(used - bound).union(filter(None, map(_mentioned, ast.walk(tree)))),
        only_loads=all(isinstance(statement, ast.Pass) for statement in tree.body),
        acts=any(map(_acts, tree.body)),
    )


def _acts(statement: ast.stmt) -> bool:
    match statement:
        case ast.Expr(value=ast.Constant()) | ast.If(test=ast.Compare(left=ast.Name(id="__name__"))):
            return False
        case _:
            return not isinstance(statement, _DEFINITIONS)


def _assert_status(body: list[ast.stmt]) -> None:
    """Replaces a final `sys.exit(main())`, guarded by an `if` or not, with an assertion that the status is 0 or None.
    That the interpreter ends with success proves nothing, because a program could end it."""
    match body:
        case [*_, ast.If(body=inner)]:
            _assert_status(inner)
        case [*_, ast.Expr(value=ast.Call() as ended) as last] | [
            *_,
            ast.Raise(exc=ast.Call() as ended) as last,
        ]:
            if (
                ast.unparse(ended.func) in ("sys.exit", "exit", "quit", "SystemExit")
                and not ended.keywords
                and len(ended.args) < 2
            ):
                status = ended.args[0] if ended.args else ast.Constant(None)
                passes = ast.Assert(ast.UnaryOp(ast.Not(), status))
                body[-1] = ast.fix_missing_locations(ast.copy_location(passes, last))


def _mentioned(node: ast.AST) -> str | None:
    match node:
        case ast.alias(name=name) | ast.ImportFrom(module=str(name)) | ast.Constant(value=str(name)):
            return name.partition(".")[0]
        case _:
            return None


def _names(table: symtable.SymbolTable) -> tuple[set[str], set[str]]:
    """Returns (global names that are used, global names that are defined) in the scope of a table and in all scopes
    inside it."""
    at_top = table.get_type() == "module"
    used, bound = set(), set()
    for symbol in table.get_symbols():
        if at_top or symbol.is_global():
            used |= {symbol.get_name()} if symbol.is_referenced() else set()
            bound |= {symbol.get_name()} if symbol.is_assigned() or symbol.is_imported() else set()
    for child in table.get_children():
        used_there, bound_there = _names(child)
        used |= used_there
        bound |= bound_there
    return used, bound


def run(test: CodeTest, module: types.ModuleType) -> str | None:
    """Executes statements and returns None, or evaluates a single expression and returns the repr of its value.

    Afterwards the names that the test defined are removed from the module, and the standard streams are restored: the
    next test of the job finds the program without them.

    Raises:
        NeverAsked: the test uses nothing of the program.
    """
    names = module.__dict__
    programs = {
        name for name in names.keys() - OF_EVERY_MODULE if not isinstance(names[name], types.ModuleType)
    }
    if not test.is_expression and test.mentioned.isdisjoint(programs.union(MODULES)) and not test.only_loads:
        raise NeverAsked("the test never uses the program")
    before = {name: names[name] for name in test.bound & names.keys()}
    streams = sys.stdin, sys.stdout, sys.stderr
    lent = {
        name: value
        for name in test.free - names.keys() - vars(builtins).keys()
        if (value := _of_library(name)) is not None
    }
    names.update(lent, __name__=TEST)
    try:
        if test.is_expression:
            return plain_repr(eval(test.code, names))
        if "unittest" in test.code.co_names:
            import unittest

            unittest.main = lambda *args, **kwargs: None  # all cases are run below
        exec(test.code, names)
        defined = {name: names[name] for name in names if name in test.bound}
        if not _run_collected(defined, module, _referred(test.code)) and not test.acts:
            raise NotRun("no test function was run: fixtures are not given, or all are skipped")
        return None
    finally:
        for name in test.bound | lent.keys():
            names.pop(name, None)
        names.update(before, __name__="program")
        sys.stdin, sys.stdout, sys.stderr = streams


def is_programs(error: BaseException) -> bool:
    """Returns whether the program raised the error: whether, of the traceback's frames in the program's or the test's
    file, the innermost is in the program's."""
    files = [frame.f_code.co_filename for frame, _ in traceback.walk_tb(error.__traceback__)]
    innermost = next((file for file in reversed(files) if file in (PROGRAM_FILE, TEST_FILE)), TEST_FILE)
    return innermost == PROGRAM_FILE


def _of_library(name: str) -> Any:
    """Returns a usual module, or a function or class of a usual module; None if there is none of this name."""
    if name[:1] == "_":
        return None
    if name in USUAL:
        return importlib.import_module(name)
    for module in USUAL:
        found = importlib.import_module(module)
        value = getattr(found, name, None)
        if callable(value) and name in getattr(found, "__all__", (name,)):
            return value
    return None


# ---------------------------------------------------------------- as pytest and unittest collect


class NotRun(Exception):
    """Raised if a test consists of functions of which none would be run: it would pass whatever the program does."""


def _run_collected(defined: dict[str, Any], module: types.ModuleType, referred: Set[str]) -> bool:
    """Runs test functions and classes, and what pytest and unittest call around them. Returns False if there are some and none
    was run.

    Args:
        defined: what the test defines, by name.
        referred: names that the test's own code uses. A function that needs arguments and is used there is a helper.
    """
    hooks, names = types.SimpleNamespace(**defined), vars(module)
    before = set(names)
    for name in ("setUpModule", "setup_module"):
        _around(hooks, name, module)
    added = names.keys() - before
    try:
        return _run_items(defined, hooks, referred)
    finally:
        for name in ("teardown_module", "tearDownModule"):
            _around(hooks, name, module)
        for name in added:
            names.pop(name, None)


def _run_items(defined: dict[str, Any], hooks: types.SimpleNamespace, referred: Set[str]) -> bool:
    collected = ran = 0
    for item in defined.values():
        if getattr(item, "__module__", None) != TEST:
            continue
        if isinstance(item, types.FunctionType) and item.__name__.startswith("test"):
            if _wants_more(item) and item.__name__ in referred:
                continue
            collected += 1
            for arguments in _rows(item):
                _call(item, arguments, hooks, "function")
                ran += 1
        elif isinstance(item, type):
            of_class = _run_class(item)
            collected, ran = collected + of_class[0], ran + of_class[1]
    return ran > 0 or not collected


def _referred(code: types.CodeType) -> frozenset[str]:
    """Returns the names that a code object and those inside it read."""
    inner = (part for part in code.co_consts if isinstance(part, types.CodeType))
    read = {
        found.argval
        for found in dis.get_instructions(code)
        if found.opname in ("LOAD_NAME", "LOAD_GLOBAL", "LOAD_DEREF")
    }
    return frozenset(read).union(*map(_referred, inner))


def _wants_more(function: Callable) -> bool:
    """Returns whether the function needs arguments that its decorators do not give."""
    empty = inspect.Parameter.empty
    variadic = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    parameters = inspect.signature(function, follow_wrapped=False).parameters.values()
    return any(part.default is empty and part.kind not in variadic for part in parameters)


def _rows(function: Callable) -> Iterator[dict[str, Any]]:
    """Yields the arguments of each call that pytest would make, but for fixtures: a function that wants one is not called."""
    marks = getattr(function, "pytestmark", [])
    if getattr(function, "__unittest_expecting_failure__", False) or _is_skipped(marks):
        return
    given: list[dict[str, Any]] = [{}]
    for mark in marks:
        if mark.name == "parametrize":
            told = dict(zip(("argnames", "argvalues"), mark.args, strict=False)) | mark.kwargs
            names, rows = told["argnames"], told["argvalues"]
            alone = isinstance(names, str) and "," not in names
            names = (
                [name.strip() for name in names.split(",") if name.strip()]
                if isinstance(names, str)
                else names
            )
            taken = []
            for row in rows:
                if type(row).__name__ == "ParameterSet":  # pytest.param
                    taken += [] if _is_skipped(row.marks) else [row.values]
                else:
                    taken.append((row,) if alone else row)
            given = [had | dict(zip(names, row, strict=True)) for had in given for row in taken]
    for arguments in given:
        try:
            inspect.signature(function, follow_wrapped=False).bind(**arguments)
        except TypeError:
            continue
        yield arguments


def _is_skipped(marks: Iterable[Any]) -> bool:
    """Returns whether pytest would skip a test with these marks, or expects it to fail."""
    for mark in marks:
        if mark.name in ("skip", "skipif", "xfail"):
            conditions = [*mark.args, *(v for k, v in mark.kwargs.items() if k == "condition")]
            if mark.name == "skip" or not conditions or any(conditions):
                return True
    return False


def _call(function: Callable, arguments: dict[str, Any], hooks: Any, kind: str) -> None:
    """Calls a test function or method between the set-up and the tear-down that `hooks` has for its kind."""
    _around(hooks, f"setup_{kind}", function)
    try:
        result = function(**arguments)
        if isinstance(result, types.CoroutineType):
            import asyncio

            asyncio.run(result)
    finally:
        _around(hooks, f"teardown_{kind}", function)


def _run_class(cls: type) -> tuple[int, int]:
    """Runs each test method on a new object. Returns (number of test methods, number of calls)."""
    methods = [name for name in dir(cls) if name.startswith("test") and callable(getattr(cls, name))]
    unittest = sys.modules.get("unittest")
    calls = 0
    if unittest is not None and issubclass(cls, unittest.TestCase):
        cls.setUpClass()
        for name in methods:
            if getattr(getattr(cls, name), "__unittest_expecting_failure__", False):
                continue
            try:
                cls(name).debug()
            except unittest.SkipTest as skipped:
                if is_programs(skipped):
                    raise
                continue
            calls += 1
        cls.tearDownClass()
        cls.doClassCleanups()
    elif cls.__name__.startswith("Test") and cls.__init__ is object.__init__ and methods:
        _around(cls, "setup_class", cls)
        for name in methods:
            for arguments in _rows(getattr(cls(), name)):
                case = cls()
                _call(getattr(case, name), arguments, case, "method")
                calls += 1
        _around(cls, "teardown_class", cls)
    else:
        return 0, 0
    return len(methods), calls


def _around(case: Any, name: str, what: Any) -> None:
    """Calls a set-up or tear-down method, if there is one, with the method or class if it takes an argument."""
    around = getattr(case, name, None)
    if around is not None:
        around(*[what] * _wants_more(around))
