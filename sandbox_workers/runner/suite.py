"""One test as code: what its names mean, when it sees what the program changed, what of it is run.

A free name of a test is the program's unless a library has it: `sorted`, `math`, `Counter` are the library's, whatever
a program calls so. But a test that asks for nothing else asks the program for that.
"""

import ast
import builtins
import contextlib
import importlib
import symtable
import sys
import types
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass
from typing import Any

from .data_tests import ORACLES
from .errors import is_from_program
from .library import is_in_library
from .peer import Peer
from .permits import TEST
from .values import plain_repr

USUAL = (  # noqa: SIM905
    "math collections itertools functools heapq bisect re string operator random copy json datetime "
    "decimal fractions statistics typing"
).split()
"""Modules that a test may use, and whose functions and classes, as if it had imported them: the programs that tests are
written with have."""
COMPARING = ("assert", "isclose")
"""How functions that compare their arguments are called, or begin to be."""


class NeverAsked(Exception):
    """A test that says nothing of the program."""


@dataclass(frozen=True, slots=True)
class Suite:
    """A test that was read."""

    code: types.CodeType
    is_expression: bool
    """A single expression: its value is wanted."""
    free: frozenset[str]
    """Names that it uses and does not define."""
    called: frozenset[str]
    """Of these, those that it uses in another way than `name.attribute`."""
    only_loads: bool = False
    """`pass`, which asks no more than that the program can be loaded."""
    in_classes: frozenset[str] = frozenset()
    """Of these, those that the body of a class statement uses: the interpreter does not ask a namespace for them."""


def read(source: str) -> Suite:
    """Raises SyntaxError, ValueError, RecursionError or MemoryError if it cannot be read."""
    tree = ast.parse(source, "test.py")
    table = symtable.symtable(source, "test.py", "exec")
    free, in_classes = _free_names(table), _names_in_classes(table)
    nodes = list(ast.walk(tree))
    called = free
    if not free.isdisjoint(USUAL):
        whole = {id(node.value) for node in nodes if isinstance(node, ast.Attribute)}
        called = {node.id for node in nodes if isinstance(node, ast.Name) and id(node) not in whole} & free
    is_expression = len(tree.body) == 1 and isinstance(tree.body[0], ast.Expr)
    if any(map(_holds, nodes)):
        tree = ast.fix_missing_locations(_Seams().visit(tree))
    compiled: Any = ast.Expression(tree.body[0].value) if is_expression else tree
    code = compile(compiled, "test.py", "eval" if is_expression else "exec", dont_inherit=True)
    only_loads = all(isinstance(statement, ast.Pass) for statement in tree.body)
    return Suite(
        code, is_expression, frozenset(free), frozenset(called), only_loads, frozenset(in_classes & free)
    )


def _free_names(table: symtable.SymbolTable) -> set[str]:
    """Of the module and all within it."""
    at_top = table.get_type() == "module"
    names = {
        symbol.get_name()
        for symbol in table.get_symbols()
        if symbol.is_referenced() and (at_top or symbol.is_global())
    }
    for child in table.get_children():
        names |= _free_names(child)
    if at_top:
        names -= {
            symbol.get_name()
            for symbol in table.get_symbols()
            if symbol.is_assigned() or symbol.is_imported()
        }
    return names


def _names_in_classes(table: symtable.SymbolTable) -> set[str]:
    own = {symbol.get_name() for symbol in table.get_symbols() if symbol.is_global()}
    return set().union(
        own if table.get_type() == "class" else (), *map(_names_in_classes, table.get_children())
    )


# ---------------------------------------------------------------- when changes are seen

BEFORE, AFTER, SEE = "__before__", "__after__", "__see__"


def _holds(node: ast.AST) -> bool:
    """Whether a program that is called in one operand could change what a later operand says."""
    if isinstance(node, ast.Compare):
        if any(isinstance(operator, ast.Is | ast.IsNot) for operator in node.ops):
            return False
        operands = [node.left, *node.comparators]
    elif isinstance(node, ast.Call):
        name = getattr(node.func, "attr", None) or getattr(node.func, "id", "")
        if not name.startswith(COMPARING):
            return False
        operands = list(node.args)
    else:
        return False
    parts = [part for operand in operands for part in ast.walk(operand) if isinstance(part, ast.BinOp)]
    return any(_may_change(held) for held in (operands, *([part.left, part.right] for part in parts)))


def _may_change(operands: Sequence[ast.expr]) -> bool:
    """Whether one of them calls, and one after it is computed."""
    calls = [any(isinstance(part, ast.Call) for part in ast.walk(operand)) for operand in operands]
    computed = [any(isinstance(part, ast.Name) for part in ast.walk(operand)) for operand in operands]
    return any(calls[i] and any(computed[i + 1 :]) for i in range(len(operands)))


class _Seams(ast.NodeTransformer):
    """Within a comparison the test's containers are as they were when it began, as far as a program has changed them:
    else `f(data) == sorted(data)` could be forged."""

    depth = 0

    def visit(self, node: ast.AST) -> Any:
        holds = _holds(node)
        self.depth += holds
        node = self.generic_visit(node)
        if holds:
            level = ast.Constant(self.depth)
            began = ast.Call(ast.Name(BEFORE, ast.Load()), [level], [])
            value = ast.BoolOp(ast.Or(), [began, node])
            node = ast.Call(ast.Name(AFTER, ast.Load()), [level, value], [])
            self.depth -= 1
        see = ast.Expr(ast.Call(ast.Name(SEE, ast.Load()), [], []))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            node.body.insert(ast.get_docstring(node) is not None, see)
        elif isinstance(node, ast.ExceptHandler):  # an error has ended the comparison
            node.body.insert(0, see)
        elif isinstance(node, ast.With | ast.AsyncWith):
            return [node, see]
        return node


def _seams(peer: Peer) -> dict[str, Callable]:
    def before(level: int) -> None:
        if level == 1:
            peer.see_changes()
        peer.holding = level

    def after(level: int, value: Any) -> Any:
        peer.holding = level - 1
        if not peer.holding:
            peer.see_changes()
        return value

    return {BEFORE: before, AFTER: after, SEE: peer.see_changes}


# ---------------------------------------------------------------- what names mean


class Namespace(dict):
    """A test's module. What is missing is looked up where it is used: a program's variables change."""

    def __init__(self, suite: Suite, names: Set[str], modules: Mapping[str, str], peer: Peer) -> None:
        super().__init__(_seams(peer), __name__=TEST, __builtins__=builtins)
        wanted = suite.free.intersection(names)
        librarys = {name for name in wanted if _is_librarys(name, suite)}
        self._programs = names if librarys == wanted else names - librarys
        self._modules, self._in_classes = modules, suite.in_classes
        self._peer = peer

    def __missing__(self, name: str) -> Any:
        if name in self._programs:
            value = self._peer.program_name(name)
            if name in self._in_classes or name in self._peer.known:
                self[name] = value
            return value
        if not hasattr(builtins, name):
            if (module := self._modules.get(name)) is not None and is_in_library(module):
                return self.setdefault(name, importlib.import_module(module))
            if (value := _of_library(name)) is not None:
                return self.setdefault(name, value)
        raise KeyError(name)

    def __contains__(self, name: object) -> bool:
        return super().__contains__(name) or name in self._programs

    def get(self, name: str, default: Any = None) -> Any:
        try:
            return self[name]
        except KeyError:
            return default


def _is_librarys(name: str, suite: Suite) -> bool:
    return hasattr(builtins, name) or name in ORACLES or (name in USUAL and name not in suite.called)


def _of_library(name: str) -> Any:
    """A usual module, or a function or class of one; None where there is none of that name."""
    if name[:1] == "_":
        return None
    if name in USUAL:
        return importlib.import_module(name)
    for module in USUAL:
        value = getattr(importlib.import_module(module), name, None)
        if callable(value):
            return value
    return None


class _Module(types.ModuleType):
    """A module whose names are a namespace's."""

    def __init__(self, name: str, names: dict) -> None:
        super().__init__(name)
        super().__setattr__("_names", names)

    def __getattribute__(self, name: str) -> Any:
        if name == "__dict__":
            return super().__getattribute__("_names")
        return super().__getattribute__(name)

    def __getattr__(self, name: str) -> Any:
        try:
            return super().__getattribute__("_names")[name]
        except KeyError:
            raise AttributeError(name) from None

    def __setattr__(self, name: str, value: Any) -> None:
        super().__getattribute__("_names")[name] = value


class _Variables(dict):
    """The program's module, as a dict that holds nothing."""

    def __init__(self, names: Set[str], peer: Peer) -> None:
        super().__init__()
        self.names, self._peer = names, peer

    def __missing__(self, name: str) -> Any:
        if name not in self.names:
            raise KeyError(name)
        return self._peer.ask(None, "name", (name,))

    def __setitem__(self, name: str, value: Any) -> None:
        self._peer.ask(None, "rename", (name, value))


class _Program(types.ModuleType):
    """What `import program` gives to a test."""

    def __init__(self, names: Set[str], peer: Peer) -> None:
        super().__init__("program")
        super().__setattr__("_variables", _Variables(names, peer))

    def __getattribute__(self, name: str) -> Any:
        variables = super().__getattribute__("_variables") if name != "_variables" else None
        if variables is None or not (name in variables.names or name in ("__dict__", "__all__")):
            return super().__getattribute__(name)
        if name == "__dict__":
            return variables
        return sorted(variables.names) if name == "__all__" else variables[name]

    def __setattr__(self, name: str, value: Any) -> None:
        self._variables[name] = value


# ---------------------------------------------------------------- running


def run(suite: Suite, names: Set[str], modules: Mapping[str, str], peer: Peer) -> str | None:
    """Run statements and return None, or evaluate a single expression and return the repr of its value.

    Raises:
        NeverAsked: a test that asked the program for nothing.
    """
    namespace = Namespace(suite, names, modules, peer)
    sys.modules[TEST] = _Module(TEST, namespace)
    sys.modules["program"] = sys.modules["solution"] = _Program(names, peer)
    if "unittest" in suite.code.co_names:
        import unittest

        unittest.main = lambda *args, **kwargs: None  # all cases are run below
    for name in suite.in_classes:
        with contextlib.suppress(KeyError):
            namespace[name]
    asked = peer.asked
    value = _evaluate(suite, namespace)
    if suite.is_expression:
        return value
    for name, item in list(namespace.items()):
        if getattr(item, "__module__", None) != TEST:
            continue
        if isinstance(item, types.FunctionType) and name.startswith("test") and not _wants_more(item):
            _call(item)
        elif isinstance(item, type):
            _run_class(item)
    if peer.asked == asked and not suite.only_loads:
        raise NeverAsked("the test never uses the program")
    return None


def _evaluate(suite: Suite, namespace: dict[str, Any]) -> str | None:
    if suite.is_expression:
        return plain_repr(eval(suite.code, namespace))
    exec(suite.code, namespace)
    return None


def _wants_more(function: Any) -> bool:
    """Whether a function or method of the test's own cannot be called as it is: a helper that is called like a test."""
    unbound = function.__func__ if type(function) is types.MethodType else function
    if type(unbound) is not types.FunctionType:
        return False
    code = unbound.__code__
    given = (function is not unbound) + len(unbound.__defaults__ or ())
    return code.co_argcount > given or code.co_kwonlyargcount > len(unbound.__kwdefaults__ or ())


def _call(function: Callable) -> None:
    result = function()
    if isinstance(result, types.CoroutineType):
        import asyncio

        asyncio.run(result)


def _run_class(cls: type) -> None:
    """As unittest or pytest would: a new object for each test method."""
    methods = [name for name in dir(cls) if name.startswith("test") and callable(getattr(cls, name))]
    unittest = sys.modules.get("unittest")
    if unittest is not None and issubclass(cls, unittest.TestCase):
        cls.setUpClass()
        for name in methods:
            case = cls(name)
            try:
                case.debug()
            except unittest.SkipTest as skipped:
                if is_from_program(skipped):
                    raise
        cls.tearDownClass()
        cls.doClassCleanups()
    elif cls.__name__.startswith("Test") and cls.__init__ is object.__init__ and methods:
        _around(cls, "setup_class", cls)
        for name in methods:
            case = cls()
            method = getattr(case, name)
            if _wants_more(method):
                continue
            _around(case, "setup_method", method)
            try:
                _call(method)
            finally:
                _around(case, "teardown_method", method)
        _around(cls, "teardown_class", cls)


def _around(case: Any, name: str, what: Any) -> None:
    """Before or after a method or class, which it may take."""
    around = getattr(case, name, None)
    if around is not None:
        around(*[what] * _wants_more(around))
