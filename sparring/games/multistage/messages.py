"""The messages of the multi-stage game: one per reasoning stage, and one that asks for a suite."""

import ast
import re
from collections.abc import Sequence
from dataclasses import replace

from sparring.core.episode import Outcome
from sparring.core.interfaces import Message
from sparring.core.problem import Problem
from sparring.core.source import is_literal, literal_calls, parse, parse_or_none, parse_signature
from sparring.core.stages import REASONING_STAGES, ReasoningStage
from sparring.games.multistage.rules import MultistageRules
from sparring.games.prompts import ATTACK, END, PROBLEM, STAGE_MARKERS, TESTS
from sparring.games.turns import again_message

_SOLVE = """Solve this problem{how}.

Problem: {description}
{signature}
{instruction}"""

_ATTACK = """Write tests that expose mistakes in {whose} to solve this problem. Do not solve the problem.

Problem: {description}
Signature: {signature}
{program}
Write {count} different tests, one per line, in one ```python block, and nothing else. Choose inputs on which a plausible
but wrong program fails: boundaries, empty inputs, negative numbers, ties. Every test must hold for a correct solution.
Write literal arguments of the same types as in this example of a test, which is not to be repeated:
{form}"""


_OPENING = re.compile(r"""[^(]*\([\[({]*['"]?""")
"""Matches a test up to the characters that show the type of its first argument, such as a list of tuples."""


def solve(problem: Problem, stage: ReasoningStage) -> Message:
    """Returns the first message to the generator. stage: the first stage that is played."""
    full = _SOLVE.format(
        how=" step by step" if stage.number < len(REASONING_STAGES) else "",
        description=problem.description,
        signature=f"Signature, to be kept exactly: {problem.function_signature}\n"
        * bool(problem.function_signature),
        instruction=stage.instruction,
    )
    marks = PROBLEM, STAGE_MARKERS[stage.number - 1]
    return Message(brief=problem.description, full=full, marks=marks, begins=_begins(stage))


def go_on(stage: ReasoningStage) -> Message:
    """Returns the message to the generator for a later stage."""
    marks = "", STAGE_MARKERS[stage.number - 1]
    return Message(brief="", full=stage.instruction, marks=marks, begins=_begins(stage))


def _begins(stage: ReasoningStage) -> str:
    """Returns how the answer begins: in the last stage, with the opening fence of the program's code block."""
    return "```python\n" if stage == REASONING_STAGES[-1] else ""


def again(outcomes: Sequence[Outcome]) -> Message:
    """Returns the message that shows the generator the tests that its program failed, among these."""
    return replace(again_message(outcomes), marks=("", STAGE_MARKERS[-1]))


def closing(stage: ReasoningStage) -> str:
    """Returns the marker with which a model with marker tokens ends the stage."""
    return END if stage.number == len(STAGE_MARKERS) else STAGE_MARKERS[stage.number]


def attack(problem: Problem, rules: MultistageRules, program: str | None = None) -> Message:
    """Returns the message to the discriminator. program: the program that the suite is to break; None: the message holds
    the problem alone.

    The answer begins with the example test and the first characters of another one, up to those that show the type of its
    first argument. If the answer did not begin with the example, a small model would copy the example from the prompt.
    If it did not begin with the characters, the model would write numbers for arguments of any type.
    """
    writes_inputs = rules.test_format == "input_only"
    example = example_test(problem, with_value=not writes_inputs)
    shown = None if program is None else _bare(program)[: rules.shown_chars]
    full = _ATTACK.format(
        whose="programs that try" if shown is None else "the program below, which tries",
        program="" if shown is None else f"Program:\n```python\n{shown}\n```\n",
        description=problem.description,
        signature=problem.function_signature,
        count=rules.max_tests,
        form=example,
    )
    brief = problem.description if shown is None else f"{problem.description}\n{shown}"
    opening = _OPENING.match(example)[0]  # type: ignore[index]
    begins = f"```python\n{example}\n{opening}" if parse_or_none(example) else f"```python\n{opening}"
    return Message(brief=brief, full=full, marks=(ATTACK, TESTS), begins=begins)


def without_example(answer: str, begins: str) -> str:
    """Returns the answer to `attack` without the example test with which it begins. begins: see Message."""
    given, _, _ = begins.rpartition("\n")
    return "```python" + answer.removeprefix(given) if answer.startswith(begins) else answer


def example_test(problem: Problem, *, with_value: bool) -> str:
    """Returns an example test of the problem's function, in the form that the tests of a suite have. Models copy what they
    are shown, so the function must accept the arguments of the example's call.

    The call is the first one with literal arguments in the problem's baseline tests; if there is none, it is made from the
    signature.

    Args:
        with_value: whether the example is an assertion with the expected value, or the call alone.
    """
    for test in problem.baseline_asserts:
        for call in literal_calls(test, problem.entry_point):
            rendered = ast.unparse(call)
            if not with_value:
                return rendered
            expected = _expected_in(test, rendered)
            return f"assert {rendered} == {expected or '<the right result>'}"
    call = f"{problem.entry_point}({', '.join(_placeholders(problem.function_signature))})"
    return f"assert {call} == <the right result>" if with_value else call


def _expected_in(test: str, call: str) -> str | None:
    """Returns the literal with which the test compares this call; None if there is none."""
    for node in ast.walk(parse(test)):
        match node:
            case ast.Compare(left=left, ops=[ast.Eq()], comparators=[ast.expr() as right]):
                if ast.unparse(left) == call and is_literal(right):
                    return ast.unparse(right)
    return None


_EXAMPLES = {"int": "3", "float": "2.5", "str": "'abc'", "bool": "True", "bytes": "b'abc'", "list": "[3, 1, 2]",
             "List": "[3, 1, 2]", "tuple": "(3, 1)", "Tuple": "(3, 1)", "dict": "{'a': 1}", "Dict": "{'a': 1}",
             "set": "{1, 2}", "Set": "{1, 2}"}  # fmt: skip
_ITEMS = {"int": "3, 1, 2", "str": "'b', 'a'", "float": "2.5, 0.5", "bool": "True, False"}


def _placeholders(signature: str) -> list[str]:
    """Returns an argument for each parameter without a default: a literal of the annotated type, else "<name>"."""
    function = parse_signature(signature)
    if function is None:
        return []
    parameters = function.args.posonlyargs + function.args.args
    required = parameters[: len(parameters) - len(function.args.defaults)]
    return [_literal_of(parameter.annotation) or f"<{parameter.arg}>" for parameter in required]


def _literal_of(annotation: ast.expr | None) -> str | None:
    """Returns a literal of the annotated type; None if the type is not among those below."""
    match annotation:
        case ast.Name(id=name):
            return _EXAMPLES.get(name)
        case ast.Subscript(value=ast.Name(id="list" | "List" | "set" | "Set" as name), slice=item):
            items = _ITEMS.get(getattr(item, "id", "")) or _literal_of(item)
            return items and (f"[{items}]" if name.lower() == "list" else f"{{{items}}}")
        case ast.Subscript(value=ast.Name(id="tuple" | "Tuple"), slice=ast.Tuple(elts=[first, second])):
            one, other = _literal_of(first), _literal_of(second)
            return one and other and f"({one}, {other})"
        case ast.Subscript(value=ast.Name(id="dict" | "Dict"), slice=ast.Tuple(elts=[key, value])):
            one, other = _literal_of(key), _literal_of(value)
            return one and other and f"{{{one}: {other}}}"
    return None


_DOES = (ast.Call, ast.Await, ast.Yield, ast.YieldFrom, ast.NamedExpr)


def _bare(program: str) -> str:
    """Returns a program of one player in the form in which the other player is shown it. Comments, annotations and unused
    strings are removed, since the author could put messages to the other player there. Code fences are removed, since
    they would end the code block in the prompt. The result is ASCII, in which no character takes more than one token."""
    try:
        tree = parse(program)
        for node in ast.walk(tree):
            match node:
                case ast.Expr(value=value) if not any(isinstance(part, _DOES) for part in ast.walk(value)):
                    node.value = ast.Constant(...)
                case ast.arg():
                    node.annotation = None
                case ast.FunctionDef() | ast.AsyncFunctionDef():
                    node.returns = None
                case ast.AnnAssign():
                    node.annotation = ast.Constant(...)
        program = ast.unparse(tree)
    except (SyntaxError, ValueError, RecursionError):  # no Python, or a string that unparse cannot write
        program = re.sub("#.*", "", program)  # this also removes the rest of a string after a "#"
    return program.encode("ascii", "backslashreplace").decode().replace("```", "")
