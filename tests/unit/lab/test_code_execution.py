"""Demonstrations of the code execution game: each flaw has the outcome that it claims."""

import io
from collections import Counter
from contextlib import redirect_stdout
from random import Random

import pytest

from lab.code_execution import Execution, execution_demonstration, program_that
from lab.grammar import Kind, code
from lab.problems import toy_specs

SPECS = [spec for kind in Kind for spec in [s for s in toy_specs("train") if s.kind is kind][:25]]
"""Every kind alike."""


def outcome(program: str) -> Execution:
    """What becomes of a program; the programs are this repository's own."""
    try:
        compiled = compile(program, "demonstration", "exec")
    except SyntaxError:
        return Execution.SYNTAX
    printed = io.StringIO()
    try:
        with redirect_stdout(printed):
            exec(compiled, {})
    except Exception:
        return Execution.RUNTIME
    return Execution.PRINTS if printed.getvalue().endswith("\n") else Execution.SILENT


@pytest.mark.parametrize("execution", Execution)
def test_a_program_ends_as_asked(execution: Execution) -> None:
    for seed, spec in enumerate(SPECS * 8):
        program = program_that(execution, spec, Random(seed))
        assert outcome(program) is execution, program


@pytest.mark.parametrize(
    ("execution", "kinds"),
    [
        (Execution.SYNTAX, {"SyntaxError", "IndentationError"}),
        (Execution.RUNTIME, {"NameError", "UnboundLocalError", "TypeError", "IndexError"}),
    ],
)
def test_errors_are_of_several_kinds(execution: Execution, kinds: set[str]) -> None:
    seen = Counter()
    for seed, spec in enumerate(SPECS * 4):
        try:
            exec(compile(program_that(execution, spec, Random(seed)), "demonstration", "exec"), {})
        except Exception as error:
            seen[type(error).__name__] += 1
    assert set(seen) == kinds
    assert min(seen.values()) >= 10


def test_a_program_without_flaw_is_the_reference_and_a_print() -> None:
    for spec in SPECS:
        program = execution_demonstration(spec, Random(0), flawed=0)
        function, call = program.split("print(")
        assert function == code(spec)
        assert call.startswith("f(") and call.endswith("))\n")


def test_shares_of_the_flaws() -> None:
    specs, rng = toy_specs("train"), Random(2)
    seen = Counter(outcome(execution_demonstration(rng.choice(specs), rng, 0.6)) for _ in range(2000))
    for execution in Execution:
        expected = 800 if execution is Execution.PRINTS else 400
        assert seen[execution] == pytest.approx(expected, abs=80)


def test_all_programs_may_be_flawed() -> None:
    seen = {outcome(execution_demonstration(spec, Random(n), 1)) for n, spec in enumerate(SPECS)}
    assert Execution.PRINTS not in seen
