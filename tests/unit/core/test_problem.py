import pytest

from tests.playing import a_problem as problem


@pytest.mark.parametrize(
    ("signature", "name"),
    [
        ("def f(n):", "f"),
        ("def  two_sum (xs, t) -> list:", "two_sum"),
        ("async def g(x)", "g"),
        ("def _h2(", "_h2"),
    ],
)
def test_the_entry_point_is_the_name_in_the_signature(signature, name):
    assert problem(function_signature=signature).entry_point == name


@pytest.mark.parametrize("signature", ["", "f(n)", "def (n):", "def 2f(n)"])
def test_a_signature_without_a_name_is_an_error_that_names_the_problem(signature):
    with pytest.raises(ValueError, match="problem double"):
        _ = problem(function_signature=signature).entry_point


def test_evaluation_uses_hidden_tests_where_there_are_any():
    assert problem().evaluation_tests == problem().baseline_tests
    assert problem(hidden_tests=("assert f(3) == 6",)).evaluation_tests == ("assert f(3) == 6",)


def test_a_preamble_stands_before_the_program_and_behind_what_python_wants_first():
    with_helper = problem(preamble="import math\n\ndef twice(n): return n * 2\n")
    for imports in ("from __future__ import annotations", "from __future__ import (\n    annotations,\n)"):
        program = f"{imports}\ndef f(n: Unknown): return math.floor(twice(n))"
        names: dict = {}
        exec(compile(with_helper.in_harness(program), "program", "exec", dont_inherit=True), names)
        assert names["f"](2) == 4
    assert problem().in_harness(program) == program
