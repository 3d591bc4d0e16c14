"""Seeded bugs: small changes to the syntax tree of a correct Python program.

OPERATORS names the kinds of changes. Not covered: changes of several places at once, and changes of names and calls.
A mutant is not always a bug (`x >= 1` for `x > 0`): `non_equivalent` keeps the mutants that behave differently from the
reference solution in the sandbox.
"""

import ast
import asyncio
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from random import Random

from sparring.core.interfaces import Sandbox
from sparring.core.problem import Problem
from sparring.core.seeding import derive_seed
from sparring.core.verdict import Limits, Test, Verdict
from sparring.games.judging import judged

_EVERY = 10_000
"""Limit on the mutants of one program, so large that all of them are made."""
_PROBES = 40


@dataclass(frozen=True, kw_only=True, slots=True)
class Mutant:
    """Example: Mutant(source="def f(x):\\n    return x - 1\\n", operator="arithmetic", line=2)."""

    source: str
    operator: str
    line: int
    """Line of the change in the original source."""


def mutants(source: str, limit: int, rng_seed: int) -> list[Mutant]:
    """Returns at most `limit` distinct mutants, chosen at random and sorted by line.

    Each mutant parses, and its syntax tree differs from the source's. Raises SyntaxError if the source does not parse.
    """
    tree = ast.parse(source)
    seen = {ast.dump(tree)}
    found: list[Mutant] = []
    for edit in [edit for node in ast.walk(tree) for edit in _edits(node)]:
        try:
            changed = edit.applied(tree)
            shape = ast.dump(ast.parse(changed))
        except (SyntaxError, ValueError):  # no program, such as a `try` without its handler
            continue
        if shape not in seen:
            seen.add(shape)
            found.append(Mutant(source=changed, operator=edit.operator, line=edit.line))
    chosen = Random(rng_seed).sample(found, min(limit, len(found)))
    return sorted(chosen, key=lambda mutant: mutant.line)


async def non_equivalent(
    problem: Problem,
    candidates: Sequence[Mutant],
    sandbox: Sandbox,
    probes: Sequence[Test] = (),
    limits: Limits | None = None,
) -> list[Mutant]:
    """Returns the mutants whose results differ from the reference solution's on a baseline test, hidden test or probe.

    probes: further tests; for a call such as "f([1, -1])", the values are compared. Tests that the reference fails are
    not used. A mutant that the sandbox could not judge is left out. Raises SandboxFailure if the sandbox could not judge
    the reference.
    """
    language, limits = problem.language, problem.limits_over(limits or Limits())
    tests = list(dict.fromkeys([*problem.baseline_tests, *problem.hidden_tests, *probes]))
    reference = problem.in_harness(problem.reference_solution)
    expected = await sandbox.judge(reference, tests, limits=limits, language=language)
    telling = [(test, verdict) for test, verdict in zip(tests, expected, strict=True) if verdict.passed]

    async def differs(mutant: Mutant) -> bool:
        """Runs 1, 2, 4 ... tests until a result differs, since a mutant that never ends takes its time limit on each test."""
        source, begin, size = problem.in_harness(mutant.source), 0, 1
        while part := telling[begin : begin + size]:
            asks = [test for test, _ in part]
            verdicts = await judged(sandbox.judge(source, asks, limits=limits, language=language))
            if verdicts is None:
                return False
            if [_seen(verdict) for verdict in verdicts] != [_seen(verdict) for _, verdict in part]:
                return True
            begin, size = begin + size, 2 * size
        return False

    bugs = await asyncio.gather(*map(differs, candidates))
    return [mutant for mutant, bug in zip(candidates, bugs, strict=True) if bug]


async def seeded_bugs(
    problem: Problem,
    sandbox: Sandbox,
    limits: Limits,
    *,
    count: int,
    operators: Sequence[str] | None = None,
    probe: Callable[[Random], Test] | None = None,
) -> list[Mutant]:
    """Draws `count` mutants of the reference solution, seeded by the problem's id, and returns the ones that are bugs.

    Args:
        operators: names in OPERATORS; None: all.
        probe: draws an input, such as "f([1, -1])", that may expose a bug in addition to the problem's own tests.

    Raises SandboxFailure, as `non_equivalent` does.
    """
    seed = derive_seed("bugs", problem.id)
    rng, every = Random(seed), mutants(problem.reference_solution, _EVERY, seed)
    candidates = [mutant for mutant in every if operators is None or mutant.operator in operators]
    candidates = rng.sample(candidates, min(count, len(candidates)))
    probes = list(dict.fromkeys(probe(rng) for _ in range(_PROBES))) if probe else []
    return await non_equivalent(problem, candidates, sandbox, probes, limits)


def _seen(verdict: Verdict) -> tuple[bool, str | None]:
    return verdict.passed, verdict.value


@dataclass(frozen=True, kw_only=True, slots=True)
class _Edit:
    """The change of one field of one node to another value."""

    operator: str
    node: ast.AST
    field: str
    value: object
    line: int

    def applied(self, tree: ast.AST) -> str:
        """Returns the source of the tree with the edit, and leaves the tree unchanged. Raises ValueError if the edited tree
        cannot be written as source."""
        before = getattr(self.node, self.field)
        setattr(self.node, self.field, self.value)
        try:
            return ast.unparse(tree) + "\n"
        finally:
            setattr(self.node, self.field, before)


_SWAPS: dict[type[ast.AST], tuple[type[ast.AST], ...]] = {
    ast.Lt: (ast.LtE, ast.GtE),
    ast.LtE: (ast.Lt, ast.Gt),
    ast.Gt: (ast.GtE, ast.LtE),
    ast.GtE: (ast.Gt, ast.Lt),
    ast.Eq: (ast.NotEq,),
    ast.NotEq: (ast.Eq,),
    ast.In: (ast.NotIn,),
    ast.NotIn: (ast.In,),
    ast.Is: (ast.IsNot,),
    ast.IsNot: (ast.Is,),
    ast.Add: (ast.Sub, ast.Mult),
    ast.Sub: (ast.Add,),
    ast.Mult: (ast.Add, ast.FloorDiv),
    ast.Div: (ast.Mult, ast.FloorDiv),
    ast.FloorDiv: (ast.Mult, ast.Div),
    ast.Mod: (ast.FloorDiv, ast.Mult),
    ast.Pow: (ast.Mult,),
    ast.USub: (ast.UAdd,),
    ast.And: (ast.Or,),
    ast.Or: (ast.And,),
}
"""The operators that replace each operator: first the boundary case, then the opposite."""

_RETURNED = (None, 0, 1)
"""Constants that replace a returned value. 0 and 1 also cover False and True, which are equal to them."""
_KEPT = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Import, ast.ImportFrom, ast.Pass)
"""Statements that are not removed: without them a program hardly runs, or does not change."""


def _edits(node: ast.AST) -> Iterator[_Edit]:
    """Yields every change of the node's own fields."""
    for operator, make in _MAKERS.items():
        for field, value, place in make(node):
            yield _Edit(
                operator=operator, node=node, field=field, value=value, line=getattr(place, "lineno", 1)
            )


_Change = tuple[str, object, ast.AST]
"""(field, its new value, the node that gives the line of the change)."""


def _comparisons(node: ast.AST) -> Iterator[_Change]:
    if isinstance(node, ast.Compare):
        for i, op in enumerate(node.ops):
            for swap in _SWAPS[type(op)]:
                yield "ops", [*node.ops[:i], swap(), *node.ops[i + 1 :]], node


def _arithmetic(node: ast.AST) -> Iterator[_Change]:
    if isinstance(node, ast.BinOp | ast.AugAssign | ast.UnaryOp):
        for swap in _SWAPS.get(type(node.op), ()):
            yield "op", swap(), node


def _booleans(node: ast.AST) -> Iterator[_Change]:
    if isinstance(node, ast.BoolOp):
        yield "op", _SWAPS[type(node.op)][0](), node


def _constants(node: ast.AST) -> Iterator[_Change]:
    if isinstance(node, ast.Constant) and type(node.value) is int:
        yield "value", node.value + 1, node
        yield "value", node.value - 1, node


def _conditions(node: ast.AST) -> Iterator[_Change]:
    if isinstance(node, ast.If | ast.While | ast.IfExp):
        yield "test", _negated(node.test), node
    if isinstance(node, ast.comprehension):
        for i, test in enumerate(node.ifs):
            yield "ifs", [*node.ifs[:i], _negated(test), *node.ifs[i + 1 :]], test


def _negated(test: ast.expr) -> ast.expr:
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        return test.operand
    return ast.UnaryOp(ast.Not(), test)


def _statements(node: ast.AST) -> Iterator[_Change]:
    for field in ("body", "orelse", "finalbody"):
        block = getattr(node, field, None)
        if not isinstance(block, list):  # the body of a lambda
            continue
        for i, statement in enumerate(block):
            if not isinstance(statement, _KEPT) and not _is_text(statement):
                rest = [*block[:i], *block[i + 1 :]]
                yield field, rest or [ast.Pass()], statement


def _is_text(statement: ast.stmt) -> bool:
    return isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)


def _returns(node: ast.AST) -> Iterator[_Change]:
    if isinstance(node, ast.Return) and node.value is not None:
        for constant in _RETURNED:
            yield "value", ast.Constant(constant), node


def _slices(node: ast.AST) -> Iterator[_Change]:
    """Yields slices with one end moved inward by one, or removed, and without the step. The operator `constant` moves ends
    that are numbers outward."""
    if isinstance(node, ast.Slice):
        one = ast.Constant(1)
        if node.lower is not None:
            yield "lower", None, node
        yield "lower", ast.BinOp(node.lower, ast.Add(), one) if node.lower else one, node
        if node.upper is not None:
            yield "upper", None, node
        end = ast.BinOp(node.upper, ast.Sub(), one) if node.upper else ast.UnaryOp(ast.USub(), one)
        yield "upper", end, node
        if node.step is not None:
            yield "step", None, node


_MAKERS: dict[str, Callable[[ast.AST], Iterator[_Change]]] = {
    "comparison": _comparisons,
    "arithmetic": _arithmetic,
    "boolean": _booleans,
    "constant": _constants,
    "condition": _conditions,
    "statement": _statements,
    "return": _returns,
    "slice": _slices,
}
OPERATORS = tuple(_MAKERS)
