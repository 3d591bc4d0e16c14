"""Analyses a piece of a model's answer as Python: the names that it defines and needs. Nothing is executed."""

import ast
import builtins
import re
import textwrap
from collections.abc import Set
from enum import IntEnum
from functools import cached_property

from sparring.core.source import MOST_CHARS, parse_or_none

_DEFINITIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
_BUILTINS = frozenset(dir(builtins)) | {"__name__", "__file__"}
_TEST = re.compile(r"(?:^|_)tests?(?:_|$)|^Test|Tests?$")


class Rank(IntEnum):
    """The degree to which a snippet looks like the requested program."""

    EXPRESSIONS = 0
    """The snippet only holds expressions without a call, such as an example of an output: 3."""
    NO_PYTHON = 1
    STATEMENTS = 2
    PROGRAM = 3
    """The snippet defines a function or a class, or reads the standard input."""


class Snippet:
    """A piece of text as Python."""

    def __init__(self, text: str) -> None:
        """Parses the text. If the text is Python only without its common indentation, the indentation is removed."""
        self.text, self.tree = text, parse_or_none(text, most_chars=MOST_CHARS)
        if self.tree is None and len(text) <= MOST_CHARS and text[:1].isspace():
            dedented = textwrap.dedent(text)
            self.tree = parse_or_none(dedented, most_chars=MOST_CHARS)
            self.text = text if self.tree is None else dedented

    @cached_property
    def nodes(self) -> list[ast.AST]:
        return list(ast.walk(self.tree)) if self.tree else []

    @cached_property
    def functions(self) -> set[str]:
        """Names of functions, methods and classes that have a body."""
        named = {n.name for n in self.nodes if isinstance(n, _DEFINITIONS) and not _is_stub(n)}
        lambdas = [n for n in self.nodes if isinstance(n, ast.Assign) and isinstance(n.value, ast.Lambda)]
        return named | {name.id for n in lambdas for name in n.targets if isinstance(name, ast.Name)}

    @cached_property
    def binds(self) -> set[str]:
        """Names that the snippet binds in the module."""
        names: set[str] = set()
        left: list[ast.AST] = [*self.tree.body] if self.tree else []
        while left:
            node = left.pop()
            if isinstance(node, _DEFINITIONS):
                names.add(node.name)
            elif not isinstance(node, ast.Lambda):
                names |= _bound(node)
                left += ast.iter_child_nodes(node)
        return names

    @cached_property
    def needs(self) -> set[str]:
        """Names that the snippet reads but does not bind in any scope, without Python's builtins."""
        bound: set[str] = set().union(*map(_bound, self.nodes)) if self.nodes else set()
        read = {n.id for n in self.nodes if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Load)}
        return read - bound - _BUILTINS

    @property
    def is_tests(self) -> bool:
        """Whether the snippet only tests functions that are defined elsewhere."""
        outer = [node.name for node in self.tree.body if isinstance(node, _DEFINITIONS)] if self.tree else []
        named = bool(outer) and all(_TEST.search(name) for name in outer)
        return named and (bool(self.needs) or any(isinstance(node, ast.Assert) for node in self.nodes))

    @property
    def only_defines(self) -> bool:
        """Whether the snippet consists of definitions, imports and assignments only."""
        kinds = (*_DEFINITIONS, ast.Import, ast.ImportFrom, ast.Assign, ast.AnnAssign)
        return self.tree is not None and all(isinstance(node, kinds) for node in self.tree.body)

    @property
    def begins_with_a_tag(self) -> bool:
        """Whether a definition follows a line that is no statement of a program, such as `python` or `[BEGIN]`."""
        match self.tree.body if self.tree else []:
            case [ast.Expr(value=ast.Name() | ast.List(elts=[ast.Name()])), *rest]:
                return any(isinstance(node, _DEFINITIONS) for node in rest)
        return False

    def helpers(self, read: Set[str]) -> str:
        """Returns the text without the module's assertions, calls of print, and assignments to names that neither the rest
        nor `read` uses. In a block before the program, these may be about an earlier, wrong version."""
        body = self.tree.body if self.tree else []
        kept = {node for node in body if not _is_check(node) and not _assigned(node)}
        used = set(read).union(*map(_read, kept))
        for node in reversed(body):
            if _assigned(node) & used:
                kept.add(node)
                used |= _read(node)
        if len(kept) == len(body):
            return self.text
        try:
            return ast.unparse(ast.Module([node for node in body if node in kept], [])) + "\n"
        except RecursionError:
            return self.text

    @property
    def reads_input(self) -> bool:
        for node in self.nodes:
            match node:
                case ast.Attribute(attr="stdin") | ast.Call(func=ast.Name(id="input")):
                    return True
                case ast.Call(func=ast.Name(id="open"), args=[ast.Constant(value=0 | "/dev/stdin"), *_]):
                    return True
        return False

    @cached_property
    def rank(self) -> Rank:
        if self.tree is None:
            return Rank.NO_PYTHON
        if (self.functions and not self.is_tests) or self.reads_input:
            return Rank.PROGRAM
        acts = (not isinstance(n, ast.Expr) or isinstance(n.value, ast.Call) for n in self.tree.body)
        return Rank.STATEMENTS if any(acts) else Rank.EXPRESSIONS


def _read(node: ast.AST) -> set[str]:
    """Returns the names that a statement reads, at any depth."""
    return {n.id for n in ast.walk(node) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Load)}


def _assigned(node: ast.stmt) -> set[str]:
    """Returns the names that an assignment binds; empty for other statements, and if it changes an object."""
    if not isinstance(node, ast.Assign | ast.AnnAssign):
        return set()
    targets = node.targets if isinstance(node, ast.Assign) else [node.target]
    parts = [n for target in targets for n in ast.walk(target)]
    if any(isinstance(n, ast.Attribute | ast.Subscript) for n in parts):
        return set()
    return {n.id for n in parts if isinstance(n, ast.Name)}


def _is_check(node: ast.stmt) -> bool:
    match node:
        case ast.Assert() | ast.Expr(value=ast.Call(func=ast.Name(id="print"))):
            return True
    return False


def _is_stub(node: ast.AST) -> bool:
    """Returns whether a definition has no body: it only gives the name and parameters of a function or of methods."""
    match node:
        case ast.FunctionDef(body=body) | ast.AsyncFunctionDef(body=body):
            return all(_is_stub(inner) for inner in body)
        case ast.ClassDef(body=body):
            functions = [inner for inner in body if isinstance(inner, _DEFINITIONS)]
            return bool(functions) and all(_is_stub(inner) for inner in body)
    match node:
        case ast.Pass() | ast.Expr(value=ast.Constant()):
            return True
        case ast.Raise(
            exc=ast.Name(id="NotImplementedError") | ast.Call(func=ast.Name(id="NotImplementedError"))
        ):
            return True
    return False


def _bound(node: ast.AST) -> set[str]:
    """Returns the names that the node itself binds, in any scope."""
    match node:
        case ast.Name(id=name, ctx=ast.Store()) | ast.arg(arg=name):
            return {name}
        case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
            return {name}
        case ast.alias(name=name, asname=other):
            return {other or name.partition(".")[0]}
        case ast.ExceptHandler(name=str(name)) | ast.MatchAs(name=str(name)) | ast.MatchStar(name=str(name)):
            return {name}
        case ast.MatchMapping(rest=str(name)):
            return {name}
    return set()
