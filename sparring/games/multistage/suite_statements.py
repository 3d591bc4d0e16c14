"""Finds the tests in a discriminator's answer. It reads the statements in the syntax tree of the answer's code, so a test
may be anywhere in the code. Pure; nothing is executed.

Tests are assertions (`assert`, unittest's assertEqual and similar methods) and, if calls are wanted, calls of the problem's
function. They are found at any depth and in loops over literal lists, also by enumerate, zip and items. They may use names to which a literal or the
function's result was assigned before, and arguments such as `[0] * 3` and `range(5)`; these are replaced by their values.
Tests that pytest would parametrise, fixtures and doctests are not found.

If the code does not parse, it is read in parts, one per top-level statement. If a part does not parse, it is read without
its last lines, which are then read one by one.
"""

import ast
import copy
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from sparring.core.source import is_literal, literal, parse
from sparring.games.parsing import code_blocks

MOST_TESTS = 256
"""Maximum number of tests that are read from an answer."""
_MOST_STATEMENTS = 1_000
"""Maximum number of statements that are read, including those of unrolled loops. It bounds the work for any answer."""
_CHARS_OF_STATEMENT = 200
"""A longer statement counts as several statements: one more for each further so many characters."""
_MOST_CHARS, _MOST_NAMES = 400, 20
"""Maximum length of a value that replaces a name, and maximum number of names that are replaced in one statement."""
_MOST_EXPONENT, _MOST_BASE = 64, 1 << 64
"""Largest exponent and base, by absolute value, of a power that is computed."""
_CUT_OFF = 8
"""Maximum number of tries to parse a part; each try leaves out one more of the last lines."""
_ALIAS = "candidate"
"""The function's name in HumanEval's check(candidate)."""

Names = Mapping[str, ast.expr]
"""The values of names: literals, and calls of the problem's function."""


class Found(NamedTuple):
    test: ast.expr | None
    """The expression that is asserted about the function, or a call of the function; None if the source is no test in the
    requested form."""
    source: str
    """The source as it was written."""


def tests_in(text: str, entry_point: str, *, wants_calls: bool) -> Iterator[Found]:
    """Yields the tests of an answer in order: what is asserted about the function or, if `wants_calls`, calls of the
    function.

    Text that was meant as a test but is none is also yielded: an assertion that is not Python, or one about something
    else. In an answer without code blocks, as models with marker tokens write, this is every line that is no test.

    Args:
        entry_point: the function's name.
    """
    blocks = code_blocks(text)
    reader = _Reader(entry_point, wants_calls, is_bare=blocks == [text])
    for block in blocks:
        yield from reader.block(block)


def split_assertion(test: ast.expr, entry_point: str) -> tuple[ast.expr | None, ast.expr | None]:
    """Returns the call in an assertion and the expression of its expected value, which is None if the assertion does not
    state one: `f(1) == 2` and `abs(f(1) - 2) < 0.1` give f(1) and 2, `not f(1)` gives f(1) and False, `f(1) > 2` gives f(1) and
    None.

    If an assertion has different calls of the function, both results are None. If it has no call of the function but the
    form `g(1) == 2`, the call of the other function is returned.
    """
    calls = {ast.dump(call): call for call in calls_of(entry_point, test)}
    if len(calls) > 1:
        return None, None
    match test:
        case ast.Compare(left=left, ops=[ast.Eq() | ast.Is()], comparators=[right]):
            if _is_call(left, entry_point) or (not calls and isinstance(left, ast.Call)):
                return left, right
            if _is_call(right, entry_point):
                return right, left
        case (
            ast.Compare(
                left=ast.Call(
                    func=ast.Name(id="abs"), args=[ast.BinOp(left=left, op=ast.Sub(), right=right)]
                ),
                ops=[ast.Lt() | ast.LtE()],
            )
            | ast.Call(func=ast.Attribute(attr="isclose") | ast.Name(id="isclose"), args=[left, right])
        ) if _is_call(left, entry_point):
            return left, right
        case ast.UnaryOp(op=ast.Not(), operand=operand) if _is_call(operand, entry_point):
            return operand, ast.Constant(False)
        case ast.Call() if _is_call(test, entry_point):
            return test, ast.Constant(True)
    return next(iter(calls.values()), None), None


def is_equation(test: ast.expr, entry_point: str) -> bool:
    """Returns whether an assertion has the form `call == literal`. If it calls the function, the left side must be the
    only such call."""
    return (
        isinstance(test, ast.Compare)
        and isinstance(test.left, ast.Call)
        and [*map(type, test.ops)] == [ast.Eq]
        and is_literal(test.comparators[0])
        and [node for node in ast.walk(test) if _is_call(node, entry_point)] in ([], [test.left])
    )


def calls_of(entry_point: str, node: ast.AST) -> list[ast.Call]:
    """Returns the calls of the function in an expression or statement; of nested calls, only the outermost."""
    if _is_call(node, entry_point):
        return [node]  # type: ignore[list-item]
    return [call for child in ast.iter_child_nodes(node) for call in calls_of(entry_point, child)]


def _is_call(node: ast.AST, entry_point: str) -> bool:
    return isinstance(node, ast.Call) and getattr(node.func, "id", None) == entry_point


class _Reader:
    def __init__(self, entry_point: str, wants_calls: bool, is_bare: bool) -> None:
        """is_bare: whether the answer has no code blocks."""
        self._entry_point, self._wants_calls, self._is_bare = entry_point, wants_calls, is_bare
        self._left, self._tests_left = _MOST_STATEMENTS, MOST_TESTS
        self._defined: set[str] = set()
        """Names of the functions and classes that the answer defines."""

    def block(self, code: str) -> Iterator[Found]:
        names: dict[str, ast.expr] = {}
        try:
            yield from self._module(code, names)
        except SyntaxError:
            for part in _top_level_parts(code):
                yield from self._part(part, names)

    def _part(self, part: str, names: dict[str, ast.expr]) -> Iterator[Found]:
        """Reads a part of the code. Most parts that do not parse are at the end of an answer that was cut off; they parse
        without their last lines."""
        lines = textwrap.dedent(part).splitlines()
        for end in range(len(lines), max(0, len(lines) - _CUT_OFF), -1):
            try:
                yield from self._module("\n".join(lines[:end]), names)
            except SyntaxError:
                continue
            lines = lines[end:]
            break
        for line in lines:
            yield from self._line(line, names)

    def _line(self, line: str, names: dict[str, ast.expr]) -> Iterator[Found]:
        stripped = line.strip()
        try:
            yield from self._module(stripped, names)
        except SyntaxError:
            is_meant = stripped.startswith("assert") or self._entry_point + "(" in stripped
            if is_meant or (self._is_bare and not line[:1].isspace()):
                yield Found(None, stripped)

    def _module(self, code: str, names: dict[str, ast.expr]) -> Iterator[Found]:
        """Yields the tests in code that parses. Raises SyntaxError before anything is yielded."""
        body = parse(code).body
        self._lines = code.splitlines()
        yield from self._statements(body, names, top=True)

    def _statements(
        self, body: Sequence[ast.stmt], names: dict[str, ast.expr], *, top: bool
    ) -> Iterator[Found]:
        """Yields the tests in statements.

        Args:
            names: values of names; the statements' assignments change them.
            top: whether these are the statements of the module.
        """
        self._defined |= {s.name for s in body if isinstance(s, ast.FunctionDef | ast.ClassDef)}
        for statement in body:
            lines = self._lines[statement.lineno - 1 : statement.end_lineno]
            self._left -= 1 + sum(map(len, lines)) // _CHARS_OF_STATEMENT
            if self._left < 0 or self._tests_left <= 0:
                return
            try:
                yield from list(self._statement(statement, names, top))
            except (ValueError, ArithmeticError, RecursionError):
                # an integer too long to be written down, an expression too deep
                yield self._found(None, statement)

    def _found(self, test: ast.expr | None, statement: ast.stmt) -> Found:
        self._tests_left -= 1
        lines = self._lines[statement.lineno - 1 : statement.end_lineno]
        return Found(test, "\n".join(lines).strip())

    def _statement(self, statement: ast.stmt, names: dict[str, ast.expr], top: bool) -> Iterator[Found]:
        """Yields the tests in a statement. names: names that the statement changes are removed, or get a new value."""
        match statement:
            case (
                ast.FunctionDef(name=name, args=parameters, body=body)
                | ast.AsyncFunctionDef(name=name, args=parameters, body=body)
            ):
                if name != self._entry_point:  # else the model solves the problem itself
                    yield from self._statements(body, _without(names, _changed(parameters)), top=False)
                return
            case ast.ClassDef(body=body):
                yield from self._statements(body, dict(names), top=False)
                return
            case (
                ast.Assign(targets=[target], value=value)
                | ast.AnnAssign(target=target, value=ast.expr() as value)
            ):
                value, changed = self._replaced(value, names), _changed(statement)
                calls = calls_of(self._entry_point, value) if self._wants_calls else []
                yield from (self._found(call, statement) for call in calls)
                for name in changed:
                    names.pop(name, None)
                names |= _bound(target, value, self._entry_point)
                return
        for name in _changed(statement):
            names.pop(name, None)
        match statement:
            case ast.For(target=target, iter=items, body=body, orelse=at_end):
                for bound in _bindings(target, _listed(self._replaced(items, names))):
                    yield from self._statements(body, names | bound, top=False)
                yield from self._statements(at_end, dict(names), top=False)
            case ast.Assert(test=value) | ast.Expr(value=value):
                value = self._replaced(value, names)
                asserted = value if isinstance(statement, ast.Assert) else _unittest_assertion(value)
                for test in self._tests(value, asserted, top):
                    yield self._found(test, statement)
            case _:
                fields = (getattr(statement, field, []) for field in ("body", "orelse", "finalbody"))
                for inner in (*fields, *(h.body for h in getattr(statement, "handlers", []))):
                    yield from self._statements(inner, dict(names), top=False)

    def _tests(self, value: ast.expr, asserted: ast.expr | None, top: bool) -> Sequence[ast.expr | None]:
        """Returns the tests in an assertion or an expression statement. None stands for code that was probably meant as
        a test but is none in the requested form.

        Args:
            value: the expression.
            asserted: what it asserts; None if it is no assertion.
            top: whether the statement is one of the module.
        """
        calls = calls_of(self._entry_point, value)
        if self._wants_calls and calls:
            return calls
        if asserted is not None:
            # inside functions, an assertion may be about anything
            return [None if self._wants_calls else asserted] if calls or top else []
        if not top or (not calls and not self._is_bare) or _is_aside(value, self._defined):
            return []
        # a call of another function was probably meant as a test
        return [value if self._wants_calls and isinstance(value, ast.Call) else None]

    def _replaced(self, node: ast.expr, names: Names) -> ast.expr:
        """Returns the expression with names replaced by their values, and with the function called by its own name."""
        return _Replace(self._entry_point, names).visit(copy.deepcopy(node))


class _Replace(ast.NodeTransformer):
    def __init__(self, entry_point: str, names: Names) -> None:
        self._entry_point, self._names, self._left = entry_point, names, _MOST_NAMES

    def visit_Name(self, node: ast.Name) -> ast.expr:
        if node.id not in self._names or self._left == 0:
            return node
        self._left -= 1
        return self._names[node.id]

    def _with_own_names(self, node: ast.expr) -> ast.expr:
        outer = self._names
        self._names = _without(outer, _changed(node))
        self.generic_visit(node)
        self._names = outer
        return node

    visit_Lambda = visit_GeneratorExp = visit_ListComp = visit_SetComp = visit_DictComp = _with_own_names

    def visit_Call(self, node: ast.Call) -> ast.expr:
        self.generic_visit(node)
        match node.func:
            case (
                ast.Name(id=name)  # candidate(1)
                | ast.Attribute(value=ast.Name(), attr=name)  # solution.f(1)
                | ast.Attribute(
                    value=ast.Call(func=ast.Name(), args=[], keywords=[]), attr=name
                )  # Solution().f(1)
            ) if name in (self._entry_point, _ALIAS):
                node.func = ast.Name(self._entry_point, ast.Load())
                return node
        return _sequence(node) or node

    def visit_BinOp(self, node: ast.BinOp) -> ast.expr:
        self.generic_visit(node)
        return _computed(node) or node

    def visit_Subscript(self, node: ast.Subscript) -> ast.expr:
        self.generic_visit(node)
        return _item(node) or node


def _computed(node: ast.BinOp) -> ast.expr | None:
    """Returns the value of an operation on literals, such as 2 + 3, [0] * 3, 1 / 3 and 10**9, as an expression; None if the
    node is something else, or the value is too long."""
    try:
        match ast.literal_eval(node.left), node.op, ast.literal_eval(node.right):
            case int() | float() as a, ast.Add() | ast.Sub() | ast.Mult() as op, int() | float() as b:
                value = a + b if isinstance(op, ast.Add) else a - b if isinstance(op, ast.Sub) else a * b
            case int() | float() as a, ast.Div(), int() | float() as b:
                value = a / b
            case int() | float() as a, ast.FloorDiv(), int() | float() as b:
                value = a // b
            case int() | float() as a, ast.Mod(), int() | float() as b:
                value = a % b
            case int() | float() as a, ast.Pow(), int() as b if (
                abs(b) <= _MOST_EXPONENT and abs(a) <= _MOST_BASE
            ):
                value = a**b
            case str() | list() | tuple() as a, ast.Add(), str() | list() | tuple() as b if type(a) is type(
                b
            ):
                value = a + b  # type: ignore[operator]
            case str() | list() | tuple() as a, ast.Mult(), int() as b if len(a) * b <= _MOST_CHARS:
                value = a * b
            case _:
                return None
        return _written(value)
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError, ArithmeticError):
        return None


def _item(node: ast.Subscript) -> ast.expr | None:
    """Returns an item of a literal, such as case[0] of a loop over literal cases, as an expression; None if the node is
    something else."""
    try:
        return _written(ast.literal_eval(node.value)[ast.literal_eval(node.slice)])
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError, LookupError):
        return None


def _sequence(node: ast.Call) -> ast.expr | None:
    """Returns the value of range(...), list(...), tuple(...) or set(...) of literals as an expression; None if the call is
    another one, or the value is too long."""
    try:
        values = [ast.literal_eval(argument) for argument in node.args]
        match getattr(node.func, "id", ""), values:
            case "range", [int(), *_] if len(found := range(*values)) <= _MOST_CHARS:
                return _written([*found])
            case "list" | "tuple" | "set" as name, [list() | tuple() | str() as items] if not node.keywords:
                return _written({"list": list, "tuple": tuple, "set": set}[name](items))
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError, OverflowError):
        return None
    return None


def _written(value: object) -> ast.expr | None:
    """Returns the value as an expression; None if the expression is too long."""
    source = literal(value)
    return ast.parse(source, mode="eval").body if len(source) <= _MOST_CHARS else None


def _bound(target: ast.expr, value: ast.expr, entry_point: str) -> dict[str, ast.expr]:
    """Returns the names to which an assignment gives a literal, or a call of the function with literals."""
    match target, value:
        case ast.Name(id=name), _:
            calls = _is_call(value, entry_point) and all(
                is_literal(part)
                for part in [*value.args, *(k.value for k in value.keywords)]  # type: ignore[attr-defined]
            )
            if (calls or is_literal(value)) and len(ast.unparse(value)) <= _MOST_CHARS:
                return {name: value}
        case (
            (ast.Tuple(elts=targets) | ast.List(elts=targets)),
            (ast.Tuple(elts=values) | ast.List(elts=values)),
        ):
            if len(targets) == len(values):
                pairs = zip(targets, values, strict=True)
                return {k: v for one, part in pairs for k, v in _bound(one, part, entry_point).items()}
    return {}


_CHANGING = frozenset(
    (
        *("append", "extend", "insert", "remove", "pop", "clear", "sort", "reverse"),
        *("update", "setdefault", "popitem", "add", "discard"),
        *("difference_update", "intersection_update", "symmetric_difference_update"),
    )
)
"""Methods that change a list, dictionary or set."""


def _changed(node: ast.AST) -> set[str]:
    """Returns the names that may have another value, or a changed object, after this code: the names that it assigns or
    deletes, its parameters, and the names of objects that it changes in place."""
    found = set()
    for part in ast.walk(node):
        match part:
            case ast.Name(id=name, ctx=ast.Store() | ast.Del()) | ast.arg(arg=name):
                found.add(name)
            case ast.Call(func=ast.Attribute(attr=method) as changed) if method in _CHANGING:
                found.add(_owner(changed))
            case (ast.Subscript() | ast.Attribute()) as changed if not isinstance(changed.ctx, ast.Load):
                found.add(_owner(changed))
    return found


def _owner(node: ast.expr) -> str:
    """Returns the name with which an expression such as xs[0].items begins; "" if it does not begin with a name."""
    while isinstance(node, ast.Subscript | ast.Attribute):
        node = node.value
    return getattr(node, "id", "")


def _without(names: Names, dropped: set[str]) -> dict[str, ast.expr]:
    return {name: value for name, value in names.items() if name not in dropped}


def _listed(items: ast.expr, depth: int = 2) -> ast.expr:
    """Returns enumerate(...) and zip(...) of literal lists, and {...}.items(), as a list of tuples; other expressions as they
    are. depth: how deeply they may be in one another; each level takes time in proportion to all."""
    match items:
        case _ if not depth:
            return items
        case ast.Call(func=ast.Attribute(value=ast.Dict(keys=keys, values=values), attr="items"), args=[]):
            if None in keys:  # {**other}
                return items
            pairs = {ast.dump(key): (key, value) for key, value in zip(keys, values, strict=True) if key}
            columns = [[pair[i] for pair in pairs.values()] for i in (0, 1)]
        case ast.Call(func=ast.Name(id="zip"), args=[_, *_] as args):
            columns = [_elements(argument, depth - 1) for argument in args]
        case ast.Call(
            func=ast.Name(id="enumerate"),
            args=[of, *first],
            keywords=[] | [ast.keyword(arg="start")] as keywords,
        ) if (elements := _elements(of, depth - 1)) is not None:
            match [*first, *(keyword.value for keyword in keywords)] or [ast.Constant(0)]:
                case [ast.Constant(value=int(start))]:
                    columns = [[ast.Constant(start + i) for i in range(len(elements))], elements]
                case _:
                    return items
        case _:
            return items
    lists = [column for column in columns if column is not None]
    if len(lists) < len(columns):
        return items
    return ast.List([ast.Tuple([*row], ast.Load()) for row in zip(*lists, strict=False)], ast.Load())


def _elements(items: ast.expr, depth: int) -> list[ast.expr] | None:
    """Returns the elements of a literal list or tuple, or of one of the calls that `_listed` knows; None for others."""
    listed = _listed(items, depth)
    return listed.elts if isinstance(listed, ast.List | ast.Tuple) and is_literal(listed) else None


def _bindings(target: ast.expr, items: ast.expr) -> Iterator[dict[str, ast.expr]]:
    """Yields the values of a loop's names in each iteration; a single iteration without names if they are not known."""
    if isinstance(items, ast.List | ast.Tuple) and is_literal(items):
        yield from (_bound(target, item, "") for item in items.elts)
    else:
        yield {}


def _is_aside(value: ast.expr, defined: set[str]) -> bool:
    """Returns whether an expression statement was not meant as a test: a string, print(...), a method call such as
    unittest.main(), or a call of something that the answer defines."""
    match value:
        case ast.Constant(value=str()):
            return True
        case ast.Call(func=ast.Attribute()):
            return True
        case ast.Call(func=ast.Name(id=name)):
            return name == "print" or name in defined
    return False


_COMPARISONS: dict[str, type[ast.cmpop]] = {
    "assertEqual": ast.Eq, "assertEquals": ast.Eq, "assertListEqual": ast.Eq, "assertTupleEqual": ast.Eq,
    "assertDictEqual": ast.Eq, "assertSetEqual": ast.Eq, "assertSequenceEqual": ast.Eq,
    "assertMultiLineEqual": ast.Eq, "assertNotEqual": ast.NotEq, "assertIs": ast.Is, "assertIn": ast.In,
    "assertNotIn": ast.NotIn, "assertGreater": ast.Gt, "assertGreaterEqual": ast.GtE, "assertLess": ast.Lt,
    "assertLessEqual": ast.LtE,
}  # fmt: skip


_OF_UNITTEST = (
    *("first", "second", "a", "b", "expr1", "expr2", "expr", "obj", "member", "container", "places"),
    *("list1", "list2", "tuple1", "tuple2", "seq1", "seq2", "set1", "set2", "d1", "d2"),
)
"""Names of the arguments of unittest's methods, in their order."""


def _unittest_assertion(value: ast.expr) -> ast.expr | None:
    """Returns what a call of a unittest method asserts, as an expression; None if it is no such call."""
    match value:
        case ast.Call(func=ast.Attribute(attr=name) | ast.Name(id=name), args=args, keywords=keywords):
            named = {str(keyword.arg): keyword.value for keyword in keywords}
            given = [*args, *(named[n] for n in _OF_UNITTEST if n in named)]
            one, two, places, _, delta = [*given, *[None] * 5][:5]
            if one is None:
                return None
            if name in _COMPARISONS and two is not None:
                return ast.Compare(one, [_COMPARISONS[name]()], [two])
            if name == "assertAlmostEqual" and two is not None:
                difference = ast.BinOp(one, ast.Sub(), two)
                if (delta := named.get("delta", delta)) is not None:
                    return ast.Compare(_called("abs", difference), [ast.LtE()], [delta])
                rounded = _called("round", difference, places or ast.Constant(7))
                return ast.Compare(rounded, [ast.Eq()], [ast.Constant(0)])
            if name in ("assertTrue", "assertFalse"):
                return one if name == "assertTrue" else ast.UnaryOp(ast.Not(), one)
            if name in ("assertIsNone", "assertIsNotNone"):
                op = ast.Is() if name == "assertIsNone" else ast.IsNot()
                return ast.Compare(one, [op], [ast.Constant(None)])
    return None


def _called(name: str, *arguments: ast.expr) -> ast.Call:
    return ast.Call(ast.Name(name, ast.Load()), [*arguments], [])


_GOES_ON = ("else", "elif", "except", "finally", ")", "]", "}", "'''", '"""')


def _top_level_parts(code: str) -> Iterator[str]:
    """Yields the code in parts, each of which begins with a line that is not indented and begins a statement."""
    part: list[str] = []
    for line in code.splitlines():
        begins = line[:1].strip() and not line.startswith(_GOES_ON)
        if begins and part:
            yield "\n".join(part)
            part = []
        part.append(line)
    if part:
        yield "\n".join(part)
