"""Warm-start texts for any problem: five reasoning stages and a test suite, read off what the problem already says.

Everything here restates the description, the signature, the tests and the reference solution's own syntax tree.
Nothing is run and nothing is invented: no complexity is claimed that the loops do not show. A reference that is not
Python is retold line by line.
"""

import ast
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from core.problem import Problem
from problems.loader import parse_signature

_MAX_EXAMPLES = 2
_EMPTY_NAMES = {ast.List: "empty list", ast.Dict: "empty dict", ast.Tuple: "empty tuple"}


@dataclass(frozen=True, slots=True)
class _Step:
    """One statement of the reference, in words and in pseudocode."""

    depth: int
    words: str
    pseudocode: str


def render_trace(problem: Problem) -> tuple[str, str, str, str, str]:
    """Informal, structured, pseudocode, constraints, code: each non-empty, each ends with a newline."""
    code = problem.reference_solution.rstrip("\n") + "\n"
    steps = list(_steps_of_source(code, problem.entry_point))
    return _informal(problem, steps), _structured(steps), _pseudocode(steps), _constraints(problem), code


def render_suite(problem: Problem, *, max_tests: int, input_only: bool = False) -> str:
    """The first `max_tests` baseline tests, one a line: asserts, or with `input_only` only their calls `f(...)`.

    Tests that do not fit on one line are left out, and so are repeated ones; the text may be empty.
    """
    if input_only:
        calls = (call for test in problem.baseline_asserts for call in _calls(test, problem.entry_point))
        lines = [ast.unparse(call) for call in calls]
    else:
        lines = [line for test in problem.baseline_asserts if (line := _one_line(test))]
    return "".join(f"{line}\n" for line in list(dict.fromkeys(lines))[:max_tests])


def _informal(problem: Problem, steps: Sequence[_Step]) -> str:
    lines = [" ".join(problem.description.split()), f"I write {problem.entry_point} with {_outline(steps)}."]
    examples = [text for test in problem.baseline_asserts if (text := _example(test, problem.entry_point))]
    lines += [f"For example, {text}." for text in examples[:_MAX_EXAMPLES]]
    return "".join(f"{line}\n" for line in lines)


def _outline(steps: Sequence[_Step]) -> str:
    loops = sum(step.pseudocode.startswith(("FOR", "WHILE")) for step in steps)
    branches = sum(step.pseudocode.startswith(("IF", "ELSE IF")) for step in steps)
    counted = [_count(loops, "loop", "loops"), _count(branches, "condition", "conditions")]
    return " and ".join(part for part in counted if part) or "straight-line code"


def _count(number: int, one: str, many: str) -> str:
    return "" if number == 0 else f"one {one}" if number == 1 else f"{number} {many}"


def _structured(steps: Sequence[_Step]) -> str:
    """A numbered outline: 1, 2, 2.1, 2.2, 3."""
    numbers: list[int] = []
    lines = []
    for step in steps:
        numbers = numbers[: step.depth + 1]
        numbers += [0] * (step.depth + 1 - len(numbers))
        numbers[step.depth] += 1
        lines.append(f"{'.'.join(map(str, numbers))}. {step.words}\n")
    return "".join(lines)


def _pseudocode(steps: Sequence[_Step]) -> str:
    return "".join(f"{'    ' * step.depth}{step.pseudocode}\n" for step in steps)


def _constraints(problem: Problem) -> str:
    signature = parse_signature(problem.function_signature)
    lines = []
    if signature:
        parameters = [_parameter(argument) for argument in _all_arguments(signature.args)]
        lines.append(f"inputs: {', '.join(parameters) or 'none'}")
        lines.append(f"returns: {ast.unparse(signature.returns) if signature.returns else 'any type'}")
    found = (
        corner for test in problem.baseline_asserts for corner in _corner_cases(test, problem.entry_point)
    )
    corners = list(dict.fromkeys(found))
    if corners:
        lines.append(f"must handle: {', '.join(corners)}")
    lines += _program_facts(problem)
    return "".join(f"{line}\n" for line in lines) or f"defines {problem.entry_point}\n"


def _all_arguments(arguments: ast.arguments) -> list[ast.arg]:
    extra = [argument for argument in (arguments.vararg, arguments.kwarg) if argument]
    return [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs, *extra]


def _parameter(argument: ast.arg) -> str:
    return (
        f"{argument.arg} is {ast.unparse(argument.annotation)}"
        if argument.annotation
        else f"{argument.arg} is any type"
    )


def _program_facts(problem: Problem) -> list[str]:
    """Invariants that the reference's syntax tree shows."""
    tree = _parse(problem.reference_solution)
    if tree is None:
        return []
    nodes = list(ast.walk(tree))
    facts = [f"loops nest {_loop_depth(tree)} deep"]
    if any(isinstance(node, ast.Call) and _is_name(node.func, problem.entry_point) for node in nodes):
        facts.append(f"{problem.entry_point} calls itself")
    raised = [ast.unparse(node.exc) for node in nodes if isinstance(node, ast.Raise) and node.exc]
    return facts + [f"raises {text}" for text in dict.fromkeys(raised)]


def _loop_depth(node: ast.AST) -> int:
    inner = max((_loop_depth(child) for child in ast.iter_child_nodes(node)), default=0)
    return inner + isinstance(node, ast.For | ast.AsyncFor | ast.While | ast.comprehension)


def _corner_cases(test: str, entry_point: str) -> Iterator[str]:
    """The corner cases among the arguments that a test passes, in words."""
    for node in (part for call in _calls(test, entry_point) for part in ast.walk(call)):
        match node:
            case ast.Constant(value=""):
                yield "empty string"
            case ast.Constant(value=0) if type(node.value) is int:
                yield "zero"
            case ast.UnaryOp(op=ast.USub(), operand=ast.Constant()):
                yield "negative numbers"
            case ast.List(elts=[]) | ast.Tuple(elts=[]) | ast.Dict(keys=[]):
                yield _EMPTY_NAMES[type(node)]


def _calls(test: str, entry_point: str) -> list[ast.Call]:
    """The test's calls of the function under test."""
    tree = _parse(test)
    calls = (node for node in ast.walk(tree) if isinstance(node, ast.Call)) if tree else ()
    return [call for call in calls if _is_name(call.func, entry_point)]


def _example(test: str, entry_point: str) -> str:
    """'f(2) gives 4' for 'assert f(2) == 4'; empty for tests of any other form."""
    match _parse(test):
        case ast.Module(
            body=[ast.Assert(test=ast.Compare(left=ast.Call() as call, ops=[ast.Eq()], comparators=[right]))]
        ):
            return (
                f"{ast.unparse(call)} gives {ast.unparse(right)}" if _is_name(call.func, entry_point) else ""
            )
    return ""


def _one_line(test: str) -> str:
    tree = _parse(test)
    if tree is None:
        return ""
    statements = [ast.unparse(statement) for statement in tree.body]
    return "" if any("\n" in statement for statement in statements) else "; ".join(statements)


def _steps_of_source(code: str, entry_point: str) -> Iterator[_Step]:
    tree = _parse(code)
    if tree is None:
        for line in filter(str.strip, code.splitlines()):
            yield _Step(0, line.strip(), line.strip())
    else:
        main = [node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name == entry_point]
        helpers = [node for node in tree.body if node not in main]
        yield from _steps(helpers + main, 0)


def _steps(body: Sequence[ast.stmt], depth: int) -> Iterator[_Step]:
    for node in body:
        if isinstance(node, ast.If):
            yield from _if_steps(node, depth, "if", "IF")
        elif not _does_nothing(node):
            yield _Step(depth, *_phrases(node))
            for label, inner in _inner_parts(node):
                if label:
                    yield _Step(depth, label, label)
                yield from _steps(inner, depth + 1)


def _if_steps(node: ast.If, depth: int, words: str, keyword: str) -> Iterator[_Step]:
    condition = ast.unparse(node.test)
    yield _Step(depth, f"{words} {condition}", f"{keyword} {condition} THEN")
    yield from _steps(node.body, depth + 1)
    match node.orelse:
        case []:
            return
        case [ast.If() as chained]:
            yield from _if_steps(chained, depth, "otherwise, if", "ELSE IF")
        case orelse:
            yield _Step(depth, "otherwise", "ELSE")
            yield from _steps(orelse, depth + 1)


def _phrases(node: ast.stmt) -> tuple[str, str]:
    """A statement without its inner statements: in words, and in pseudocode."""
    text = ast.unparse
    match node:
        case ast.FunctionDef(name=name, args=arguments):
            return f"define {name}({text(arguments)})", f"FUNCTION {name}({text(arguments)})"
        case ast.For(target=target, iter=source):
            return f"for each {text(target)} in {text(source)}", f"FOR EACH {text(target)} IN {text(source)}"
        case ast.While(test=test):
            return f"as long as {text(test)}", f"WHILE {text(test)}"
        case ast.Assign(targets=targets, value=value):
            names = ", ".join(map(text, targets))
            return f"let {names} be {text(value)}", f"SET {names} TO {text(value)}"
        case ast.AnnAssign(target=target, value=ast.expr() as value):
            return f"let {text(target)} be {text(value)}", f"SET {text(target)} TO {text(value)}"
        case ast.AugAssign(target=target, op=ast.Add(), value=value):
            return f"add {text(value)} to {text(target)}", f"ADD {text(value)} TO {text(target)}"
        case ast.AugAssign(target=target, value=value):
            return f"update {text(node)}", f"UPDATE {text(node)}"
        case ast.Return(value=value):
            result = text(value) if value else "nothing"
            return f"return {result}", f"RETURN {result}"
        case ast.Raise(exc=ast.expr() as error):
            return f"raise {text(error)}", f"RAISE {text(error)}"
        case ast.Break():
            return "leave the loop", "BREAK"
        case ast.Continue():
            return "go on with the next", "CONTINUE"
        case ast.Import() | ast.ImportFrom():
            return f"use {text(node)}", f"USE {text(node)}"
        case _:
            line = text(node).splitlines()[0].rstrip(":")
            return f"do {line}", line


def _inner_parts(node: ast.stmt) -> Iterator[tuple[str, list[ast.stmt]]]:
    """A statement's inner statements, each group under its label; the main group has none."""
    yield "", getattr(node, "body", [])
    for handler in getattr(node, "handlers", ()):
        yield f"on {ast.unparse(handler.type) if handler.type else 'any error'}", handler.body
    for case in getattr(node, "cases", ()):
        yield f"in case {ast.unparse(case.pattern)}", case.body
    for field, label in (("orelse", "when that ends normally"), ("finalbody", "in any case")):
        if body := getattr(node, field, []):
            yield label, body


def _does_nothing(node: ast.stmt) -> bool:
    """True for docstrings and declarations, which are no steps."""
    is_docstring = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    return is_docstring or isinstance(node, ast.Nonlocal | ast.Global)


def _is_name(node: ast.expr, name: str) -> bool:
    return isinstance(node, ast.Name) and node.id == name


def _parse(source: str) -> ast.Module | None:
    try:
        return ast.parse(source)
    except (SyntaxError, ValueError):
        return None
