"""Warm-start texts of the code execution game: an embedded problem's function, and a line that prints a result.

The game asks whether a program runs and prints, not whether it is right. So the flaws here are of that kind:
programs that print nothing, that are no Python, that break as they run.
"""

import re
from collections.abc import Callable
from enum import StrEnum
from random import Random

from embedded.grammar import Kind, Spec, code, describe
from embedded.lessons import Lesson, lesson_of
from embedded.problems import embedded_specs
from embedded.sampling import bland_input
from embedded.settings import WarmStartSettings
from games.programs.code_execution import CodeExecutionRules


class Execution(StrEnum):
    """What becomes of a program."""

    PRINTS = "prints"
    SILENT = "silent"
    """It runs, and prints nothing."""
    SYNTAX = "syntax"
    """No Python: a colon, a bracket or an indentation is missing."""
    RUNTIME = "runtime"
    """It raises: an unknown name, a wrong argument, an index out of range."""


def execution_demonstration(spec: Spec, rng: Random, flawed: float) -> str:
    """A program about the Spec's problem; with probability `flawed` one that does not run and print, each way as likely."""
    each = flawed / 3
    ends = (Execution.SILENT, Execution.SYNTAX, Execution.RUNTIME, Execution.PRINTS)
    return program_that(
        rng.choices(ends, (each, each, each, max(0.0, 1 - (each + each + each))))[0], spec, rng
    )


def program_that(execution: Execution, spec: Spec, rng: Random) -> str:
    """The Spec's function with a call of it on a bland input, spoilt so that it ends as `execution` says."""
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
    """The result is never set, or where there is none: the function's parameter is used outside of it."""
    without = re.sub(r"^    r = .*\n", "", function, count=1, flags=re.M)
    if without != function:
        return f"{without}print({call})\n"
    return f"{function}print(f({spec.kind.parameter}))\n"


def _wrong_argument(spec: Spec, function: str, call: str) -> str:
    return f"{function}print(f({'None' if spec.kind is Kind.INT_TO_INT else '3'}))\n"


def _no_argument(spec: Spec, function: str, call: str) -> str:
    return f"{function}print(f())\n"


def _index_out_of_range(spec: Spec, function: str, call: str) -> str:
    """An int has no index at all; no list or string that f returns is as long."""
    return f"{function}print({call}[9])\n"


_RUNTIME_FLAWS: tuple[Callable[[Spec, str, str], str], ...] = (
    _unknown_name,
    _wrong_argument,
    _no_argument,
    _index_out_of_range,
)


def lesson(rules: CodeExecutionRules, role: str, settings: WarmStartSettings) -> Lesson:
    specs = embedded_specs("train")

    def example(rng: Random) -> tuple[str, str]:
        spec = rng.choice(specs)
        return describe(spec), execution_demonstration(spec, rng, settings.misconceptions)

    return lesson_of(example)
