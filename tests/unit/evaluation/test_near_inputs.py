"""Inputs near those of a problem's own tests."""

import ast
from dataclasses import replace
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparring.core.problem import Problem
from sparring.core.source import literal
from sparring.evaluation.near_inputs import near_inputs
from tests.recorded import DOUBLE

VALUES = st.recursive(
    st.booleans() | st.integers(-99, 99) | st.floats(-9, 9) | st.text("ab", max_size=4),
    lambda inner: (
        st.lists(inner, max_size=3) | st.tuples(inner) | st.dictionaries(st.text("k", max_size=2), inner)
    ),
    max_leaves=6,
)


def problem(*tests: str) -> Problem:
    return replace(DOUBLE, function_signature="def f(x, y=0):", baseline_tests=tests)


@given(st.lists(VALUES, min_size=1, max_size=2), st.integers())
def test_one_argument_changes_and_keeps_its_type(arguments, seed):
    near = near_inputs(problem(f"assert f({', '.join(map(literal, arguments))}) == 1"))
    assert near is not None
    call = ast.parse(near(Random(seed)), mode="eval").body
    assert isinstance(call, ast.Call) and ast.unparse(call.func) == "f"
    changed = [ast.literal_eval(argument) for argument in call.args]
    assert [type(value) for value in changed] == [type(value) for value in arguments]
    assert sum(repr(a) != repr(b) for a, b in zip(arguments, changed, strict=True)) <= 1


def test_edges_of_a_list_of_numbers_are_among_them():
    near = near_inputs(problem("assert f([3, 1]) == 4"))
    assert near is not None
    rng = Random(0)
    drawn = {near(rng) for _ in range(200)}
    assert {"f([])", "f([1])", "f([1, 3])", "f([3, 3, 1])", "f([0, 1])", "f([3, -1])"} <= drawn


@pytest.mark.parametrize(
    "test", ["assert f(g(1)) == 2", "assert g(1) == 2", "f(", "assert f(x=1) == 1", "f()"]
)
def test_without_a_call_with_literals_there_is_nothing_near(test):
    assert near_inputs(problem(test)) is None
