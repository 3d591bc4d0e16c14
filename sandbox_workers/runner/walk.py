"""Evaluates a data test node by node on copies of what the program returns. No line of the test's author and no object
of the program's author ever runs here."""

import ast
import collections
import operator
import weakref
from collections import ChainMap
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field
from typing import Any

from .data_tests import DataTest, NotData, not_data
from .pure import ANYWHERE, CALLED, EXCEPTIONS, IGNORED, LIBRARY, METHODS, MODULES, MUTATING, RANDOM
from .values import plain_repr

_BINARY: dict[type, Callable[[Any, Any], Any]] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv, ast.Mod: operator.mod, ast.Pow: operator.pow, ast.LShift: operator.lshift,
    ast.RShift: operator.rshift, ast.BitOr: operator.or_, ast.BitAnd: operator.and_, ast.BitXor: operator.xor,
    ast.MatMult: operator.matmul,
}  # fmt: skip
_UNARY: dict[type, Callable[[Any], Any]] = {
    ast.USub: operator.neg, ast.UAdd: operator.pos, ast.Not: operator.not_, ast.Invert: operator.invert,
}  # fmt: skip
_COMPARED: dict[type, Callable[[Any, Any], bool]] = {
    ast.Eq: operator.eq, ast.NotEq: operator.ne, ast.Lt: operator.lt, ast.LtE: operator.le, ast.Gt: operator.gt,
    ast.GtE: operator.ge, ast.Is: operator.is_, ast.IsNot: operator.is_not,
    ast.In: lambda a, b: a in b, ast.NotIn: lambda a, b: a not in b,
}  # fmt: skip
_TAKES_ALL = frozenset(
    map(id, (list, tuple, set, frozenset, bytes, bytearray, sorted, sum, max, min, collections.Counter))
)
"""Functions that read their argument to its end."""
_LOOKS_INTO = frozenset(map(id, (isinstance, dict)))
"""Functions that ask for more of their argument than a copy has."""
_WRITES = frozenset(map(id, (str, repr, ascii)))
"""Functions that make a text of their argument. The text of an iterator or a function would show an address."""


class ObjectCompared(TypeError):
    """Raised if an object of the program stands where a plain value is compared."""


class Foreign:
    """A value that stays in the program. A test may ask for its attributes and call its methods."""

    __slots__ = ()

    def get_attribute(self, name: str) -> Any:
        raise NotImplementedError

    def call_method(self, name: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        raise NotImplementedError

    def items(self) -> list[Any]:
        """Returns all items of an iteration."""
        raise NotImplementedError

    def _decides(self, *others: Any) -> Any:
        """Refuses an operation. With a value of the test, the object's methods would decide what the test wants to find
        out. With another object they mean what they mean in Python, so the test is a code test."""
        if others and all(isinstance(other, Foreign) for other in others):
            raise NotData("an operation between objects of the program's")
        raise ObjectCompared("the program gave an object where a plain value is due")

    __contains__ = __lt__ = __le__ = __gt__ = __ge__ = __hash__ = _decides  # pyright: ignore
    __add__ = __sub__ = __mul__ = __truediv__ = __floordiv__ = __mod__ = __pow__ = __matmul__ = _decides
    __radd__ = __rsub__ = __rmul__ = __rtruediv__ = __rfloordiv__ = __rmod__ = __rpow__ = __rmatmul__ = (
        _decides
    )
    __and__ = __or__ = __xor__ = __lshift__ = __rshift__ = __rand__ = __ror__ = __rxor__ = _decides
    __neg__ = __pos__ = __invert__ = __abs__ = __round__ = __index__ = __complex__ = _decides
    __divmod__ = __rdivmod__ = __trunc__ = __floor__ = __ceil__ = __reversed__ = __bytes__ = _decides


class _Return(Exception):
    """Ends a function. Its argument is the returned value."""


class _Break(Exception):
    pass


class _Continue(Exception):
    pass


class ProgramRaised(Exception):
    """Raised if the program raised an exception. It holds the names of the exception's class and of that class's bases,
    and the text."""

    def __init__(self, names: Sequence[str], text: str) -> None:
        super().__init__(text)
        self.names = names

    def __repr__(self) -> str:
        raise NotData("repr of an exception")


@dataclass(slots=True, eq=False)
class Function:
    """A function that the test defines."""

    node: ast.FunctionDef | ast.Lambda
    scope: ChainMap[str, Any]
    defaults: tuple[Any, ...]
    walk: "Walk"

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.walk.call(self, args, kwargs)


@dataclass(slots=True)
class Walk:
    """One evaluation of a test.

    Args:
        program: returns what stands for a name of the program. It raises KeyError if the program has no such name, and
            NotData if copies of its values would not do.
    """

    test: DataTest
    program: Callable[[str], Any]
    shadowing: Set[str] = frozenset()
    """Names of the library that mean the program's functions in this test."""
    see_changes: Callable[[], None] = lambda: None
    """Applies to the test's own values what the program has done to its copies. It is called after each
    comparison: if it were called earlier only, `f(data) == sorted(data)` could be forged."""
    _comparing: int = 0
    _cyclic: list[ChainMap[str, Any]] = field(default_factory=list)
    """Scopes that may hold what refers to them: functions, and errors with their tracebacks."""
    _generators: list[weakref.ref] = field(default_factory=list)
    """Unfinished ones refer to their scopes, too."""
    _random: Any = None

    def run(self) -> str | None:
        """Runs the test. Returns None, or the repr of the value of a single expression."""
        import random  # already loaded by zygote._import_random

        self._random = random.Random(self.test.source)
        scope: ChainMap[str, Any] = ChainMap({})
        self._cyclic.append(scope)
        try:
            return self._run(scope)
        finally:  # the next test shall have the memory, and no collector runs for it
            for generator in filter(None, (reference() for reference in self._generators)):
                generator.close()
            for each in self._cyclic:
                each.maps[0].clear()

    def _run(self, scope: ChainMap[str, Any]) -> str | None:
        if self.test.is_expression:
            statement: Any = self.test.tree.body[0]
            return plain_repr(self.value(statement.value, scope))
        self._body(self.test.tree.body, scope)
        for name, item in list(scope.maps[0].items()):
            if isinstance(item, Function) and name.startswith("test") and not item.node.args.args:
                item()
        return None

    # ------------------------------------------------------------ statements

    def _body(self, statements: Sequence[ast.stmt], scope: ChainMap[str, Any]) -> None:
        for statement in statements:
            self._see()
            self._statement(statement, scope)
        self._see()

    def _see(self) -> None:
        if not self._comparing:
            self.see_changes()

    def _statement(self, node: ast.stmt, scope: ChainMap[str, Any]) -> None:
        match node:
            case ast.Assert(test=test, msg=message):
                if not self.value(test, scope):
                    raise AssertionError(*([self.value(message, scope)] if message else ()))
            case ast.Expr(value=value):
                self.value(value, scope)
            case ast.Assign(targets=targets, value=value):
                found = self.value(value, scope)
                for target in targets:
                    self._assign(target, found, scope)
            case ast.AnnAssign(target=target, value=value):
                if value is not None:
                    self._assign(target, self.value(value, scope), scope)
            case ast.AugAssign(target=ast.Name(id=name), op=op, value=value):
                before = self._name(name, scope)
                if isinstance(before, list | set | dict | bytearray | collections.deque):
                    raise not_data(node, "a change of a value")
                scope[name] = _BINARY[type(op)](before, self.value(value, scope))
            case ast.For(target=target, iter=iterable, body=body, orelse=orelse):
                self._for(target, iterable, body, orelse, scope)
            case ast.If(test=test, body=body, orelse=orelse):
                self._body(body if self.value(test, scope) else orelse, scope)
            case ast.FunctionDef(name=name):
                scope[name] = self._function(node, scope)
            case ast.Return(value=value):
                raise _Return(None if value is None else self.value(value, scope))
            case ast.Try():
                self._try(node, scope)
            case ast.Raise(exc=error):
                self._raise(error, scope)
            case ast.Break():
                raise _Break
            case ast.Continue():
                raise _Continue
            case ast.Import(names=names):
                for alias in names:
                    scope[alias.asname or alias.name] = self._module(alias.name)
            case ast.ImportFrom(module=module, names=names):
                for alias in names:
                    if module not in IGNORED:
                        scope[alias.asname or alias.name] = self._module(module or "").names[alias.name]

    def _for(
        self,
        target: ast.expr,
        iterable: ast.expr,
        body: list[ast.stmt],
        orelse: list[ast.stmt],
        scope: ChainMap[str, Any],
    ) -> None:
        for item in self.value(iterable, scope):
            self._assign(target, item, scope)
            try:
                self._body(body, scope)
            except _Break:
                return
            except _Continue:
                continue
        self._body(orelse, scope)

    def _try(self, node: ast.Try, scope: ChainMap[str, Any]) -> None:
        try:
            try:
                self._body(node.body, scope)
            except (_Return, _Break, _Continue, ObjectCompared, NotData):
                raise
            except Exception as error:
                handler = next((h for h in node.handlers if _catches(h, error)), None)
                if handler is None:
                    raise
                if handler.name:
                    scope[handler.name] = error
                    self._cyclic.append(scope)
                self._body(handler.body, scope)
            else:
                self._body(node.orelse, scope)
        finally:
            self._body(node.finalbody, scope)

    def _raise(self, error: ast.expr | None, scope: ChainMap[str, Any]) -> None:
        if isinstance(error, ast.Call):
            raise EXCEPTIONS[error.func.id](*(self.value(arg, scope) for arg in error.args))  # type: ignore[attr-defined]
        raise EXCEPTIONS[error.id]  # type: ignore[union-attr]

    def _assign(self, target: ast.expr, value: Any, scope: ChainMap[str, Any]) -> None:
        match target:
            case ast.Name(id=name):
                scope[name] = value
            case ast.Starred(value=inner):
                self._assign(inner, list(value), scope)
            case ast.Tuple(elts=targets) | ast.List(elts=targets):
                for inner, item in zip(targets, _unpacked(targets, list(value)), strict=True):
                    self._assign(inner, item, scope)

    # ------------------------------------------------------------ expressions

    def value(self, node: ast.expr, scope: ChainMap[str, Any]) -> Any:
        match node:
            case ast.Constant(value=value):
                return value
            case ast.Name(id=name):
                return self._name(name, scope)
            case ast.Call():
                return self._call(node, scope)
            case ast.Compare():
                return self._compare(node, scope)
            case ast.List(elts=items):
                return self._items(items, scope)
            case ast.Tuple(elts=items):
                return tuple(self._items(items, scope))
            case ast.Set(elts=items):
                return set(self._items(items, scope))
            case ast.Dict(keys=keys, values=values):
                made: dict[Any, Any] = {}
                for key, value in zip(keys, values, strict=True):
                    if key is not None:
                        found = self.value(key, scope)
                        made[found] = self.value(value, scope)
                    elif isinstance(given := self.value(value, scope), Foreign):
                        raise not_data(node, "** of an object")
                    else:
                        made = {**made, **given}
                return made
            case ast.UnaryOp(op=op, operand=operand):
                return _UNARY[type(op)](self.value(operand, scope))
            case ast.BinOp(left=left, op=op, right=right):
                first, second = self.value(left, scope), self.value(right, scope)
                if isinstance(op, ast.Mod) and isinstance(first, str | bytes):
                    _written(second)
                return _BINARY[type(op)](first, second)
            case ast.BoolOp(op=op, values=values):
                ends = isinstance(op, ast.Or)
                for operand in values[:-1]:
                    if bool(found := self.value(operand, scope)) is ends:
                        return found
                    self._see()
                return self.value(values[-1], scope)
            case ast.IfExp(test=test, body=body, orelse=orelse):
                return self.value(body if self.value(test, scope) else orelse, scope)
            case ast.Subscript(value=of, slice=key):
                return self.value(of, scope)[self.value(key, scope)]
            case ast.Slice(lower=lower, upper=upper, step=step):
                return slice(
                    *(None if part is None else self.value(part, scope) for part in (lower, upper, step))
                )
            case ast.Attribute(value=of, attr=name):
                return _attribute(self.value(of, scope), name)
            case ast.ListComp(elt=element, generators=generators):
                return list(self._made(element, generators, scope))
            case ast.SetComp(elt=element, generators=generators):
                return set(self._made(element, generators, scope))
            case ast.GeneratorExp(elt=element, generators=generators):
                made = self._made(element, generators, scope, iter(self.value(generators[0].iter, scope)))
                self._generators.append(weakref.ref(made))
                return made
            case ast.DictComp(key=key, value=value, generators=generators):
                return dict(self._made(ast.Tuple([key, value], ast.Load()), generators, scope))
            case ast.Lambda():
                return self._function(node, scope)
            case ast.JoinedStr(values=parts):
                return "".join(self.value(part, scope) for part in parts)
            case ast.FormattedValue(value=value, conversion=conversion):
                found = _written(self.value(value, scope))
                return {ord("r"): repr, ord("a"): ascii}.get(conversion, str)(found)
        raise not_data(node, type(node).__name__)

    def _items(self, nodes: Sequence[ast.expr], scope: ChainMap[str, Any]) -> list[Any]:
        items: list[Any] = []
        for node in nodes:
            if isinstance(node, ast.Starred):
                items.extend(self.value(node.value, scope))
            else:
                items.append(self.value(node, scope))
        return items

    def _compare(self, node: ast.Compare, scope: ChainMap[str, Any]) -> bool:
        self._comparing += 1
        try:
            return self._compared(node, scope)
        finally:
            self._comparing -= 1
            self._see()

    def _compared(self, node: ast.Compare, scope: ChainMap[str, Any]) -> bool:
        left, holds = self.value(node.left, scope), True
        for op, other in zip(node.ops, node.comparators, strict=True):
            right = self.value(other, scope)
            if not (holds := _COMPARED[type(op)](left, right)):
                return holds
            left = right
        return holds

    def _made(
        self,
        element: ast.expr,
        generators: Sequence[ast.comprehension],
        scope: ChainMap[str, Any],
        items: Iterable[Any] | None = None,
    ) -> Iterator[Any]:
        """Yields the items of a comprehension. Those of the first loop are given if they are found before it begins."""
        first, *rest = generators
        inner = scope.new_child()
        for item in self.value(first.iter, scope) if items is None else items:
            self._assign(first.target, item, inner)
            if all(self.value(test, inner) for test in first.ifs):
                if rest:
                    yield from self._made(element, rest, inner)
                else:
                    yield self.value(element, inner)

    def _name(self, name: str, scope: ChainMap[str, Any]) -> Any:
        if name in scope:
            return scope[name]
        if name not in self.shadowing:
            if name in LIBRARY:
                return self._module(name) if name in MODULES or name == "random" else LIBRARY[name]
            if name in ANYWHERE:
                return ANYWHERE[name]
        try:
            return self.program(name)
        except KeyError:
            if name in ANYWHERE:  # the reference has imported it by this name, and the program needs not
                return ANYWHERE[name]
            raise NameError(f"name {name!r} is not defined") from None

    def _module(self, name: str) -> "Module":
        if name == "random":
            return Module({word: getattr(self._random, word) for word in RANDOM})
        return Module(MODULES.get(name, {}))

    def _function(self, node: ast.FunctionDef | ast.Lambda, scope: ChainMap[str, Any]) -> Function:
        self._cyclic.append(scope)
        return Function(
            node, scope, tuple(self.value(default, scope) for default in node.args.defaults), self
        )

    def _call(self, node: ast.Call, scope: ChainMap[str, Any]) -> Any:
        owner = self.value(node.func.value, scope) if isinstance(node.func, ast.Attribute) else None
        foreign = isinstance(owner, Foreign)
        if foreign:
            function = None
        elif isinstance(node.func, ast.Attribute):
            function = _attribute(owner, node.func.attr)  # its owner is evaluated once, as in Python
        else:
            function = self.value(node.func, scope)
        args = self._items(node.args, scope)
        kwargs = {str(keyword.arg): self.value(keyword.value, scope) for keyword in node.keywords}
        if foreign:
            return owner.call_method(node.func.attr, args, kwargs)
        if args and isinstance(args[0], Foreign):
            if id(function) in _LOOKS_INTO:
                raise NotData(f"{function.__name__} of an object")
            if id(function) in _TAKES_ALL:
                args[0] = args[0].items()
        if id(function) in _WRITES and args:
            _written(args[0])
        if isinstance(function, type) and function not in CALLED:
            raise NotData(f"a call of the class {function.__name__}")
        return function(*args, **kwargs)

    def call(self, function: Function, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        node = function.node
        names = [argument.arg for argument in node.args.args]
        if len(args) > len(names):
            raise TypeError(f"{len(args)} arguments for {len(names)}")
        given = dict(zip(names[len(names) - len(function.defaults) :], function.defaults, strict=True))
        given |= dict(zip(names, args, strict=False)) | kwargs
        if set(given) != set(names):
            raise TypeError(f"arguments {sorted(given)} for {names}")
        inner = function.scope.new_child(given)
        try:
            if isinstance(node, ast.Lambda):
                return self.value(node.body, inner)
            self._body(node.body, inner)
        except _Return as returned:
            return returned.args[0]
        except RecursionError:  # Python goes deeper
            raise NotData("functions of the test that call each other too deeply") from None
        return None


@dataclass(frozen=True, slots=True)
class Module:
    """A module of the library, with only the names that a test may use."""

    names: Mapping[str, Any]


def _attribute(value: Any, name: str) -> Any:
    if isinstance(value, Module):
        if name not in value.names:
            raise NotData(f".{name} of a module")
        return value.names[name]
    if isinstance(value, Foreign):
        return value.get_attribute(name)
    kind = value if isinstance(value, type) else type(value)
    if name in METHODS.get(kind, ()) and name not in MUTATING:
        return getattr(value, name)
    raise NotData(f".{name} of a {kind.__name__}")


def _written(value: Any) -> Any:
    """Returns the value, of which a text is to be made. Raises NotData if the text would show more than the value."""
    parts: list[Any] = [value]
    for part in parts:
        if isinstance(part, BaseException):
            parts += part.args
        elif isinstance(part, dict):
            parts += [*part, *part.values()]
        elif isinstance(part, list | tuple | set | frozenset | collections.deque):
            parts += part
        elif part is not None and not isinstance(part, Foreign | type) and type(part) not in METHODS:
            raise NotData(f"the text of a {type(part).__name__}")
    return value


def _catches(handler: ast.ExceptHandler, error: Exception) -> bool:
    if handler.type is None:
        return True
    kinds = handler.type.elts if isinstance(handler.type, ast.Tuple) else [handler.type]
    wanted = {kind.id for kind in kinds if isinstance(kind, ast.Name)}
    if isinstance(error, ProgramRaised):
        return not wanted.isdisjoint(error.names)
    return not wanted.isdisjoint(cls.__name__ for cls in type(error).__mro__)


def _unpacked(targets: Sequence[ast.expr], items: list[Any]) -> list[Any]:
    starred = next((i for i, target in enumerate(targets) if isinstance(target, ast.Starred)), None)
    if starred is None:
        if len(items) != len(targets):
            raise ValueError(f"{len(items)} values to unpack into {len(targets)}")
        return items
    behind = len(targets) - starred - 1
    if len(items) < len(targets) - 1:
        raise ValueError(f"{len(items)} values to unpack into {len(targets)}")
    return [*items[:starred], items[starred : len(items) - behind], *items[len(items) - behind :]]
