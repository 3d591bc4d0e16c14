"""The toy problems in Lua: the same Specs, tested by what a program prints.

A test prints a list as `{1, 4}` and a string as `"ab"`, so an `f` that returns nothing never prints the expected
output.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from random import Random

from lab.grammar import COLLECTIONS, Kind, Spec, describe
from lab.lessons import Lesson, lesson_of
from lab.misconceptions import misconceive
from lab.problems import SEED, Split, toy_problems, toy_specs
from lab.sampling import Input, bland_input, edge_input, run_reference
from lab.settings import WarmUp
from sparring.core.problem import Problem
from sparring.core.verdict import OutputTest
from sparring.games.programs.unit_tests import UnitTestsRules

SIZES: Mapping[Split, int] = {"train": 400, "held_out": 120}
BASELINE_TESTS, HIDDEN_TESTS = 3, 8

_STRING_FILTERS = {
    "vowel": 'c:find("[aeiou]")',
    "cons": 'c:find("[^aeiou]")',
    "digit": 'c:find("%d")',
    "upper": 'c:find("%u")',
    "lower": 'c:find("%l")',
}
_STRING_TRANSFORMS = {"up": "c:upper()", "low": "c:lower()", "dup": "c .. c"}

_APPEND = ("r[#r + 1] = {e}",)
_LIST_COLLECTIONS: Mapping[str, tuple[str, tuple[str, ...], tuple[str, ...], str]] = {
    "sum": ("local r = 0", ("r = r + {e}",), (), "r"),
    "count": ("local r = 0", ("r = r + 1",), (), "r"),
    "max": ("local r = {}", _APPEND, ("table.sort(r)",), "r[#r] or 0"),
    "min": ("local r = {}", _APPEND, ("table.sort(r)",), "r[1] or 0"),
    "first": ("local r = {}", _APPEND, (), "r[1] or 0"),
    "last": ("local r = {}", _APPEND, (), "r[#r] or 0"),
    "list": ("local r = {}", _APPEND, (), "r"),
    "rev": ("local r = {}", ("table.insert(r, 1, {e})",), (), "r"),
    "sort": ("local r = {}", _APPEND, ("table.sort(r)",), "r"),
    "run": ("local r, t = {}, 0", ("t = t + {e}", "r[#r + 1] = t"), (), "r"),
}
"""For each key of COLLECTIONS: the start, the update for an element {e}, the lines after the loop, and the result."""
_STRING_UPDATES = {"list": "r = r .. {e}", "rev": "r = {e} .. r"}
assert _LIST_COLLECTIONS.keys() == COLLECTIONS.keys()


def lua_code(spec: Spec) -> str:
    """Returns the source code of the reference solution in Lua 5.4. For ASCII strings it returns the same as
    `grammar.code(spec)`."""
    lines = _branch_lines(spec) if spec.kind is Kind.INT_TO_INT else _loop_lines(spec)
    return "".join(f"{line}\n" for line in (f"function f({spec.kind.parameter})", *_indented(lines), "end"))


def _branch_lines(spec: Spec) -> list[str]:
    then, otherwise = _expression(spec.transformed(spec.transform)), spec.transformed(spec.otherwise)
    value = f"{_condition(spec)} and {then} or {_expression(otherwise)}"
    if spec.post is None:
        return [f"return {value}"]
    return [f"local r = {value}", f"return {_expression(spec.returned)}"]


def _loop_lines(spec: Spec) -> list[str]:
    start, update, after, result = _LIST_COLLECTIONS[spec.collect]
    if spec.kind is Kind.STR_TO_STR:
        start, update = 'local r = ""', (_STRING_UPDATES[spec.collect],)
    element = _expression(spec.transformed(spec.transform))
    if spec.kind.takes_str and spec.transform:
        element = _STRING_TRANSFORMS[spec.transform.name]
    work = [line.replace("{e}", element) for line in update]
    if spec.filters:
        work = [f"if {_condition(spec)} then", *_indented(work), "end"]
    elements = 'c in s:gmatch(".")' if spec.kind.takes_str else "_, x in ipairs(xs)"
    lines = [start, f"for {elements} do", *_indented(work), "end", *after]
    if spec.post is None:
        return [*lines, f"return {result}"]
    finish = [] if result == "r" else [f"r = {result}"]
    return [*lines, *finish, f"return {_expression(spec.returned)}"]


def _condition(spec: Spec) -> str:
    table = _STRING_FILTERS if spec.kind.takes_str else {}
    conditions = zip(spec.filters, spec.conditions, strict=True)
    return " and ".join(table.get(op.name) or _expression(python) for op, python in conditions)


def _expression(python: str) -> str:
    """Translates a Python expression of the grammar (on numbers, or a comparison of strings) into Lua."""
    return re.sub(r"\b(abs|min|max)\(", r"math.\1(", python).replace("!=", "~=")


def _indented(lines: Sequence[str]) -> list[str]:
    return [f"  {line}" for line in lines]


def lua_call(argument: Input) -> str:
    """Returns the call of f as Lua source. Example: lua_call([1, -2]) == "f({1, -2})"."""
    return f"f({_literal(argument)})"


def _literal(value: Input) -> str:
    """Returns the value as a Lua literal. Strings must not contain quotes or backslashes."""
    if isinstance(value, list):
        return f"{{{', '.join(map(str, value))}}}"
    return f'"{value}"' if isinstance(value, str) else str(value)


def lua_tests(spec: Spec, inputs: Sequence[Input]) -> tuple[OutputTest, ...]:
    """Returns one test per input; the Python reference solution computes the expected outputs."""
    outputs = run_reference(spec, list(inputs))
    return tuple(
        OutputTest(code=_printing(spec, lua_call(given)), stdout=f"{_literal(expected)}\n")
        for given, expected in zip(inputs, outputs, strict=True)
    )


def _printing(spec: Spec, call: str) -> str:
    printed = {
        "int": call,
        "str": f'("%q"):format({call})',
        "list": f'"{{" .. table.concat({call}, ", ") .. "}}"',
    }
    return f"print({printed[spec.kind.output_type]})\n"


def lua_specs(split: Split) -> tuple[Spec, ...]:
    """Returns the Specs of `lua_problems(split)`, in the same order."""
    return toy_specs(split)[: SIZES[split]]


def lua_problems(split: Split) -> list[Problem]:
    """Returns the first SIZES[split] toy problems of the split, in Lua."""
    python = toy_problems(split)[: SIZES[split]]
    return [_problem(spec, twin) for spec, twin in zip(lua_specs(split), python, strict=True)]


def _problem(spec: Spec, twin: Problem) -> Problem:
    """Returns the Lua problem. All its inputs are distinct, so no hidden test is a baseline test."""
    rng = Random(f"{SEED} lua {twin.id}")
    wanted = [
        bland_input,
        *[edge_input] * (BASELINE_TESTS - 1),
        *[bland_input, edge_input] * (HIDDEN_TESTS // 2),
    ]
    inputs: list[Input] = []
    for draw in wanted:
        while (argument := draw(spec, rng)) in inputs:
            pass
        inputs.append(argument)
    tests = lua_tests(spec, inputs)
    return Problem(
        id=twin.id.replace("p", "lua"),
        description=describe(spec),
        function_signature=f"function f({spec.kind.parameter})",
        baseline_tests=tests[:BASELINE_TESTS],
        reference_solution=lua_code(spec),
        difficulty=twin.difficulty,
        tags=twin.tags,
        hidden_tests=tests[BASELINE_TESTS:],
        language="lua",
    )


def lua_demonstration(spec: Spec, rng: Random, misconceptions: float, broken: float) -> str:
    """Returns a flawed program: each misconception that applies is made with probability `misconceptions`, and with
    probability `broken` the program contains a Lua mistake (see BREAKS)."""
    for stage in range(1, 6):
        spec = misconceive(spec, stage, rng, misconceptions)
    source = lua_code(spec)
    if rng.random() >= broken:
        return source
    return rng.choice([changed for change in BREAKS.values() if (changed := change(source)) != source])


def _without_last(text: str) -> Callable[[str], str]:
    def change(source: str) -> str:
        before, _, after = source.rpartition(text)
        return before + after

    return change


BREAKS: Mapping[str, Callable[[str], str]] = {
    "missing end": _without_last("end\n"),
    "missing then or do": lambda source: re.sub(r" (then|do)$", "", source, count=1, flags=re.M),
    "no return": lambda source: re.sub(r"^  return .*\n", "", source, flags=re.M),
    "unequal as in Python": lambda source: source.replace("~=", "!="),
    "in-place sum as in Python": lambda source: re.sub(r"\b([rt]) = \1 \+ ", r"\1 += ", source),
    "unknown variable": lambda source: source.replace("ipairs(xs)", "ipairs(x)").replace(
        "s:gmatch", "str:gmatch"
    ),
    "misspelt parameter": lambda source: re.sub(r"^function f\(\w+\)", "function f(a)", source),
}
"""Syntax and run-time mistakes by name; each function returns the source unchanged if the mistake does not apply to it."""


def lesson(rules: UnitTestsRules, role: str, settings: WarmUp) -> Lesson:
    flawed = settings.misconceptions
    pairs = list(zip(lua_problems("train"), lua_specs("train"), strict=True))

    def example(rng: Random) -> tuple[str, str]:
        problem, spec = rng.choice(pairs)
        return problem.description, lua_demonstration(spec, rng, flawed, flawed / 4)

    return lesson_of(example)
