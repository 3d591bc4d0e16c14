"""Demonstrations for the code execution game: the function of a toy problem, and a line that prints a result.

The game rewards programs that run and print, whether or not the result is right. So the flawed demonstrations print
nothing, are not valid Python, or raise an error.
"""

import re
from collections.abc import Callable
from enum import StrEnum
from random import Random

from lab.grammar import Kind, Spec, code, describe
from lab.lessons import Lesson, lesson_of
from lab.problems import toy_specs
from lab.sampling import bland_input
from lab.settings import WarmUp
from sparring.games.programs.code_execution import CodeExecutionRules


class Execution(StrEnum):
    """The outcome of running a program."""

    PRINTS = "prints"
    SILENT = "silent"
    """The program runs without an error and prints nothing."""
    SYNTAX = "syntax"
    """The program is not valid Python: a colon, a bracket or an indentation is missing."""
    RUNTIME = "runtime"
    """The program raises: an unknown name, a wrong argument, an index out of range."""


def execution_demonstration(spec: Spec, rng: Random, flawed: float) -> str:
    """Returns a program for the Spec's problem. With probability `flawed` it does not run and print; the three kinds of
    flaw are equally likely."""
    each = flawed / 3
    ends = (Execution.SILENT, Execution.SYNTAX, Execution.RUNTIME, Execution.PRINTS)
    return program_that(
        rng.choices(ends, (each, each, each, max(0.0, 1 - (each + each + each))))[0], spec, rng
    )


def program_that(execution: Execution, spec: Spec, rng: Random) -> str:
    """Returns the Spec's function with a call on a bland input, changed so that the program ends with `execution`."""
    function, call = code(spec), f"f({bland_input(spec, rng)!r})"
    if execution is Execution.SILENT:
        return function + rng.choice(["", f"{call}\n"])
    if execution is Execution.RUNTIME:
        return rng.choice(_RUNTIME_FLAWS)(spec, function, call)
    program = f"{function}print({call})\n"
    return rng.choice(_SYNTAX_FLAWS)(program, rng) if execution is Execution.SYNTAX else program


def _without_colon(program: str, rng: Random) -> str:
    lines = program.splitlines()
    position = rng.choice(_headers(lines))
    lines[position] = lines[position].removesuffix(":")
    return _joined(lines)


def _without_bracket(program: str, rng: Random) -> str:
    return program.removesuffix(")\n") + "\n"


def _without_indentation(program: str, rng: Random) -> str:
    lines = program.splitlines()
    position = rng.choice(_headers(lines)) + 1
    lines[position] = lines[position].removeprefix("    ")
    return _joined(lines)


def _headers(lines: list[str]) -> list[int]:
    return [number for number, line in enumerate(lines) if line.endswith(":")]


def _joined(lines: list[str]) -> str:
    return "".join(f"{line}\n" for line in lines)


_SYNTAX_FLAWS: tuple[Callable[[str, Random], str], ...] = (
    _without_colon,
    _without_bracket,
    _without_indentation,
)


def _unknown_name(spec: Spec, function: str, call: str) -> str:
    """Removes the line that initialises the result. If there is no such line, the call uses the function's parameter,
    which is undefined outside the function."""
    without = re.sub(r"^    r = .*\n", "", function, count=1, flags=re.M)
    if without != function:
        return f"{without}print({call})\n"
    return f"{function}print(f({spec.kind.parameter}))\n"


def _wrong_argument(spec: Spec, function: str, call: str) -> str:
    return f"{function}print(f({'None' if spec.kind is Kind.INT_TO_INT else '3'}))\n"


def _no_argument(spec: Spec, function: str, call: str) -> str:
    return f"{function}print(f())\n"


def _index_out_of_range(spec: Spec, function: str, call: str) -> str:
    """Indexes the result with 9: an int cannot be indexed, and every list or string that f returns is shorter."""
    return f"{function}print({call}[9])\n"


_RUNTIME_FLAWS: tuple[Callable[[Spec, str, str], str], ...] = (
    _unknown_name,
    _wrong_argument,
    _no_argument,
    _index_out_of_range,
)


def lesson(rules: CodeExecutionRules, role: str, settings: WarmUp) -> Lesson:
    specs = toy_specs("train")

    def example(rng: Random) -> tuple[str, str]:
        spec = rng.choice(specs)
        return describe(spec), execution_demonstration(spec, rng, settings.misconceptions)

    return lesson_of(example)
