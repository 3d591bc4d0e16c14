"""The toy problems in Lua, as text; tests/integration/test_lua_problems.py runs them."""

from collections import Counter
from random import Random

import pytest

from lab.grammar import Kind, Op, Spec, describe
from lab.lua import (
    BREAKS,
    lua_code,
    lua_demonstration,
    lua_problems,
    lua_specs,
    lua_tests,
)
from lab.problems import toy_problems
from sparring.core.verdict import OutputTest

SQUARES = Spec(
    kind=Kind.LIST_TO_INT, filters=(Op("ge", 3),), transform=Op("sq"), collect="sum", post=Op("mod", 5)
)
SOURCES = {
    SQUARES: (
        "function f(xs)\n  local r = 0\n  for _, x in ipairs(xs) do\n    if x >= 3 then\n      r = r + x * x\n"
        "    end\n  end\n  return r % 5\nend\n"
    ),
    Spec(kind=Kind.STR_TO_STR, filters=(Op("notb"),), transform=Op("dup"), collect="rev"): (
        'function f(s)\n  local r = ""\n  for c in s:gmatch(".") do\n    if c ~= "b" then\n'
        "      r = c .. c .. r\n    end\n  end\n  return r\nend\n"
    ),
}


@pytest.mark.parametrize("spec", SOURCES, ids=describe)
def test_source_reads_as_intended(spec: Spec) -> None:
    assert lua_code(spec) == SOURCES[spec]


def test_what_a_test_prints_is_never_empty() -> None:
    """A function without a return prints an empty line."""
    doubled = Spec(kind=Kind.STR_TO_STR, filters=(Op("isa"),), transform=Op("dup"), collect="list")
    evens = Spec(kind=Kind.LIST_TO_LIST, filters=(Op("even"),), collect="list")
    assert lua_tests(SQUARES, [[3, 1]]) == (OutputTest(code="print(f({3, 1}))\n", stdout="4\n"),)
    assert lua_tests(doubled, ["b"]) == (OutputTest(code='print(("%q"):format(f("b")))\n', stdout='""\n'),)
    assert lua_tests(evens, [[1], [2, 4]]) == (
        OutputTest(code='print("{" .. table.concat(f({1}), ", ") .. "}")\n', stdout="{}\n"),
        OutputTest(code='print("{" .. table.concat(f({2, 4}), ", ") .. "}")\n', stdout="{2, 4}\n"),
    )


def test_problems_are_those_in_python_in_lua() -> None:
    for split, count in (("train", 400), ("held_out", 120)):
        problems = lua_problems(split)
        assert len(problems) == count and problems == lua_problems(split)
        for spec, problem, twin in zip(lua_specs(split), problems, toy_problems(split), strict=False):
            assert problem.id == twin.id.replace("p", "lua")
            assert (problem.description, problem.language) == (twin.description, "lua")
            assert problem.reference_solution == lua_code(spec)
            assert problem.reference_solution.startswith(problem.function_signature + "\n")
            tests = problem.baseline_tests + problem.hidden_tests
            assert (len(problem.baseline_tests), len(set(tests))) == (3, 11)
            assert "ython" not in problem.description + problem.reference_solution


def test_demonstrations_are_as_flawed_as_asked() -> None:
    specs, rng = lua_specs("train"), Random(1)
    assert all(lua_demonstration(spec, rng, 0.0, 0.0) == lua_code(spec) for spec in specs)
    misread = sum(lua_demonstration(spec, rng, 1.0, 0.0) != lua_code(spec) for spec in specs)
    assert 0.4 <= misread / len(specs) <= 0.8  # the others have nothing that can be misread
    broken = sum(lua_demonstration(spec, rng, 0.0, 0.3) != lua_code(spec) for spec in specs)
    assert 0.2 <= broken / len(specs) <= 0.4


@pytest.mark.parametrize("name", BREAKS)
def test_each_mistake_is_made_somewhere(name: str) -> None:
    changed = Counter(BREAKS[name](source) != source for source in map(lua_code, lua_specs("train")))
    assert changed[True] >= 10
