"""What the multi-stage game says to its players: one message per reasoning stage, one for a suite."""

import ast
import re
from collections.abc import Sequence
from dataclasses import replace

from core.episode import Outcome
from core.interfaces import Message
from core.problem import Problem
from core.source import parse
from core.stages import REASONING_STAGES, ReasoningStage
from games.multistage.rules import MultistageRules
from games.prompts import ATTACK, END, PROBLEM, STAGE_MARKERS, TESTS
from games.turns import again_message

_SOLVE = """Solve this problem{how}.

Problem: {description}
{signature}
{instruction}"""

_ATTACK = """Write tests that expose mistakes in {whose} to solve this problem.

Problem: {description}
Signature: {signature}
{program}
Write at most {count} tests, one per line, in one ```python block, each of the form
{form}
with literal arguments only. Prefer inputs on which a plausible but wrong program fails: boundaries, empty
inputs, negative numbers, ties. Every test must hold for a correct solution; no two tests may be the same."""


def solve(problem: Problem, stage: ReasoningStage) -> Message:
    """To the generator at first. stage: the first one played."""
    full = _SOLVE.format(
        how=" step by step" if stage.number < len(REASONING_STAGES) else "",
        description=problem.description,
        signature=f"Signature: {problem.function_signature}\n" if problem.function_signature else "",
        instruction=stage.instruction,
    )
    return Message(brief=problem.description, full=full, marks=(PROBLEM, STAGE_MARKERS[stage.number - 1]))


def go_on(stage: ReasoningStage) -> Message:
    """To the generator, of a later stage."""
    return Message(brief="", full=stage.instruction, marks=("", STAGE_MARKERS[stage.number - 1]))


def again(outcomes: Sequence[Outcome]) -> Message:
    """To the generator, of a program that failed some of these tests."""
    return replace(again_message(outcomes), marks=("", STAGE_MARKERS[-1]))


def closing(stage: ReasoningStage) -> str:
    """The marker with which a model that has markers ends the stage."""
    return END if stage.number == len(STAGE_MARKERS) else STAGE_MARKERS[stage.number]


def attack(problem: Problem, rules: MultistageRules, program: str | None = None) -> Message:
    """To the discriminator. program: the one that it is to break; None: it is told of the problem alone."""
    form = "{}(1, 2)" if rules.test_format == "input_only" else "assert {}(1, 2) == 3"
    shown = None if program is None else _bare(program)[: rules.shown_chars]
    full = _ATTACK.format(
        whose="programs that try" if shown is None else "the program below, which tries",
        program="" if shown is None else f"Program:\n```python\n{shown}\n```\n",
        description=problem.description,
        signature=problem.function_signature,
        count=rules.max_tests,
        form=form.format(problem.entry_point),
    )
    brief = problem.description if shown is None else f"{problem.description}\n{shown}"
    return Message(brief=brief, full=full, marks=(ATTACK, TESTS))


def _bare(program: str) -> str:
    """What one player wrote and the other reads, without comments and docstrings, in which it could speak to it; nor can it
    end the block that it stands in. In ASCII, of which no character takes more than a token."""
    try:
        tree = parse(program)
        for node in ast.walk(tree):
            if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
                node.value = ast.Constant(...)
        program = ast.unparse(tree)
    except (SyntaxError, ValueError, RecursionError):  # no Python, or a string that unparse cannot write
        program = re.sub("#.*", "", program)  # and of strings what comes after such a sign
    return program.encode("ascii", "backslashreplace").decode().replace("```", "")
