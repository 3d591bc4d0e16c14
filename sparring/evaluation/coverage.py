"""Line and branch coverage of a Python program by tests that run in the sandbox.

The program is instrumented in its syntax tree: coverage.py would have to be installed in every kind of sandbox. As with
coverage.py, a line counts if a statement or an `except` begins there, docstrings excepted, and a branch is one of the two
outcomes of an `if`, a `while` or a `for` (`while True` has none). Unlike coverage.py, it sees the branches of an `if` that
is written on one line. Not covered: branches of `match`, comprehensions and `try`.
"""

import ast
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sparring.core.interfaces import Sandbox
from sparring.core.problem import Problem
from sparring.core.verdict import Limits
from sparring.games.judging import judged

_SEEN, _LINE, _TEST, _LOOP, _COVERED = (f"coverage_{name}" for name in ("seen", "line", "test", "loop", "of"))
_HEAD = f"""\
{_SEEN} = set()
def {_LINE}(line):
    {_SEEN}.add((line, None))
def {_TEST}(line, value):
    value = bool(value)
    {_SEEN}.add((line, value))
    return value
def {_LOOP}(line, values):
    for value in values:
        {_SEEN}.add((line, True))
        yield value
    {_SEEN}.add((line, False))
def {_COVERED}(test):
    try:
        exec(test, globals())
    except Exception:
        pass
    return sorted({_SEEN}, key=str)
"""


@dataclass(frozen=True, kw_only=True, slots=True)
class Coverage:
    """Shares from 0 to 1."""

    lines: float
    branches: float | None
    """None if the program has no branches."""


async def coverage(
    problem: Problem, tests: Sequence[str], sandbox: Sandbox, limits: Limits
) -> Coverage | None:
    """Returns what the tests cover of the problem's reference solution together; None if the sandbox failed. Without tests,
    it is what an import of the program covers. limits: unless the problem states its own.

    Raises SyntaxError if the reference does not parse.
    """
    source, places = instrumented(problem.reference_solution)
    calls = [f"{_COVERED}({str(test)!r})" for test in tests or ("",)]
    verdicts = await judged(
        sandbox.judge(problem.in_harness(source), calls, limits=problem.limits_over(limits))
    )
    if verdicts is None:
        return None
    found = {place for verdict in verdicts if verdict.value for place in ast.literal_eval(verdict.value)}
    branches = {(line, outcome) for line, outcome in places if outcome is not None}
    lines = places - branches
    return Coverage(
        lines=len(lines & found) / len(lines),
        branches=len(branches & found) / len(branches) if branches else None,
    )


def instrumented(source: str) -> tuple[str, set[tuple[int, bool | None]]]:
    """Returns (program that records what runs, all places of the source): (line, None) for a line, and (line, outcome) for a
    branch. Raises SyntaxError."""
    tree, places = ast.parse(source), _Places()
    changed = places.visit(tree)
    futures = [node for node in changed.body if _is_future(node)]
    rest = [node for node in changed.body if not _is_future(node)]
    ran = [ast.Expr(_call(_LINE, ast.Constant(node.lineno))) for node in futures]
    changed.body = [*futures, *ast.parse(_HEAD).body, *ran, *rest]
    return ast.unparse(ast.fix_missing_locations(changed)) + "\n", places.found


def _is_future(node: ast.stmt) -> bool:
    return isinstance(node, ast.ImportFrom) and node.module == "__future__"


class _Places(ast.NodeTransformer):
    """Records the places of a tree, and adds a call before each statement and around each condition and loop."""

    def __init__(self) -> None:
        self.found: set[tuple[int, bool | None]] = set()

    def generic_visit(self, node: ast.AST) -> ast.AST:
        super().generic_visit(node)
        for field in ("body", "orelse", "finalbody"):
            block = getattr(node, field, None)
            if isinstance(block, list):  # the body of a lambda is an expression
                setattr(node, field, [each for statement in block for each in self._recorded(statement)])
        if isinstance(node, ast.ExceptHandler):
            self.found.add((node.lineno, None))
            node.body.insert(0, ast.Expr(_call(_LINE, ast.Constant(node.lineno))))
        if isinstance(node, ast.If | ast.While) and not isinstance(node.test, ast.Constant):
            node.test = self._branch(_TEST, node.lineno, node.test)
        if isinstance(node, ast.For):
            node.iter = self._branch(_LOOP, node.lineno, node.iter)
        return node

    def _recorded(self, statement: ast.stmt) -> list[ast.stmt]:
        docstring = isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)
        if docstring or isinstance(statement, ast.Global | ast.Nonlocal):  # not executed
            return [statement]
        self.found.add((statement.lineno, None))
        if _is_future(statement):
            return [statement]
        return [ast.Expr(_call(_LINE, ast.Constant(statement.lineno))), statement]

    def _branch(self, name: str, line: int, value: Any) -> ast.expr:
        self.found |= {(line, True), (line, False)}
        return _call(name, ast.Constant(line), value)


def _call(name: str, *arguments: ast.expr) -> ast.Call:
    return ast.Call(ast.Name(name, ast.Load()), list(arguments), [])
