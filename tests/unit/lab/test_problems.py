"""The toy problem set: what it holds, and what its demonstrations show."""

import ast
import os
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest

from lab.grammar import BOUNDARY_FILTERS, Kind, Op, Spec, code, describe, structure
from lab.lua import lua_problems
from lab.misconceptions import MISCONCEPTIONS
from lab.prediction import prediction_problems
from lab.problems import UNSEEN_STRUCTURE, toy_problems, toy_specs, with_random_tests
from lab.settings import WarmUp
from lab.traces import clean_trace, discriminator_suite, flawed_trace

ROOT = Path(__file__).parents[3]
SPLITS = ("train", "held_out")

SQUARES = Spec(
    kind=Kind.LIST_TO_INT, filters=(Op("ge", 3),), transform=Op("sq"), collect="sum", post=Op("mod", 5)
)


LISTS = Spec(kind=Kind.LIST_TO_INT, collect="sum")
MISUNDERSTOOD = {
    "forgets the final modulo, floor or cap": replace(LISTS, post=Op("mod", 5)),
    "takes the first for the last": replace(LISTS, collect="last"),
    "reads 'at least' as 'above'": replace(LISTS, filters=(Op("ge", 3),)),
    "adds instead of subtracting": replace(LISTS, transform=Op("sub", 2)),
    "reads 'at most' as 'below'": replace(LISTS, filters=(Op("odd"), Op("le", 4))),
    "forgets to reverse": Spec(kind=Kind.STR_TO_STR, filters=(Op("vowel"),), collect="rev"),
    "takes any divisor for 2": replace(LISTS, filters=(Op("div", 3),), collect="max"),
    "doubles instead of squaring": replace(LISTS, transform=Op("sq"), post=Op("add", 1)),
    "forgets to sort": Spec(kind=Kind.LIST_TO_LIST, collect="sort"),
    "drops the sign instead of negating": Spec(kind=Kind.LIST_TO_LIST, collect="run", transform=Op("neg")),
}
"""For each misconception, a Spec on which it strikes and no other does."""


SETS = """
import hashlib
from random import Random
from lab import grid_tasks, lua, prediction, problems

def hashed(texts):
    return hashlib.sha256(repr(texts).encode()).hexdigest()[:16]

for make in (
    problems.toy_problems, lua.lua_problems, grid_tasks.grid_problems, prediction.prediction_problems
):
    sets = [make("train"), make("held_out")]
    said = [
        (p.id, p.description, p.baseline_tests, p.hidden_tests, p.reference_solution, p.other_solutions)
        for part in sets for p in part
    ]
    print(make.__name__, *map(len, sets), hashed(said))
rng = Random(4)
taught = [prediction.author_demonstration(topic, rng, 0.3) for topic in prediction.prediction_topics("train")]
print("taught", hashed([taught, [prediction.opponent_demonstration(rng, 0.3) for _ in range(50)]]))
"""
KNOWN = """\
toy_problems 1000 200 c5e263cfe04c62de
lua_problems 400 120 b581e829f02d42c3
grid_problems 200 60 b83717ee3d12d011
prediction_problems 300 60 13cdc83087647b36
"""


def test_they_are_the_same_in_any_process(capsys):
    """And what is taught of them, whatever strings hash to; all published figures were measured on these problems."""
    environment = {**os.environ, "PYTHONHASHSEED": "0"}
    command = [sys.executable, "-c", SETS]
    there = subprocess.run(command, check=False, cwd=ROOT, env=environment, capture_output=True, text=True)
    exec(SETS, {})
    here = capsys.readouterr().out
    assert (there.stdout, there.stderr) == (here, "") and here.startswith(KNOWN)


@pytest.mark.parametrize(
    "make",
    [toy_problems, lambda split: toy_problems(split, "large"), lua_problems, prediction_problems],
    ids=["toy", "with large numbers", "lua", "prediction"],
)
def test_held_out_is_unseen(make):
    train, held_out = make("train"), make("held_out")
    for field in ("description", "reference_solution"):
        seen = {getattr(problem, field) for problem in train}
        assert len(seen) == len(train)
        assert seen.isdisjoint(getattr(problem, field) for problem in held_out)


def test_unseen_structures_are_tagged():
    trained = {structure(spec) for spec in toy_specs("train")}
    held_out = list(zip(toy_specs("held_out"), toy_problems("held_out"), strict=True))
    unseen = [problem for spec, problem in held_out if structure(spec) not in trained]
    assert unseen == [problem for _, problem in held_out if UNSEEN_STRUCTURE in problem.tags]
    assert len(unseen) == 122
    assert not any(UNSEEN_STRUCTURE in problem.tags for problem in toy_problems("train"))


def test_references_pass_their_own_tests():
    for problem in toy_problems("train") + toy_problems("held_out"):
        namespace: dict = {}
        exec(problem.reference_solution, namespace)
        exec("\n".join(problem.baseline_tests + problem.hidden_tests), namespace)


def test_clean_trace_reads_as_intended():
    assert describe(SQUARES) == "Return the sum of the at least 3 numbers in xs, each squared, modulo 5."
    assert clean_trace(SQUARES) == (
        "go through xs, keep at least 3, take each squared, add up, then modulo 5\n",
        "1. keep x >= 3\n2. map x * x\n3. sum\n4. post r % 5\n",
        "for x in xs: if x >= 3: sum x * x; return r % 5\n",
        "xs may be empty; x >= 3; returns int\n",
        "def f(xs):\n    r = 0\n    for x in xs:\n        if x >= 3:\n            r += x * x\n    return r % 5\n",
    )


def test_every_misconception_has_its_case():
    assert [misconception.summary for misconception in MISCONCEPTIONS] == list(MISUNDERSTOOD)


@pytest.mark.parametrize("misconception", MISCONCEPTIONS, ids=lambda misconception: misconception.summary)
def test_a_misconception_changes_the_trace_exactly_from_its_stage_on(misconception):
    spec = MISUNDERSTOOD[misconception.summary]
    believed = misconception.distort(spec)
    before, since = slice(0, misconception.stage - 1), slice(misconception.stage - 1, 5)
    flawed = flawed_trace(spec, Random(0), probability=1.0)
    assert flawed[before] == clean_trace(spec)[before]
    assert flawed[since] == clean_trace(believed)[since]
    assert flawed[misconception.stage - 1] != clean_trace(spec)[misconception.stage - 1]
    assert flawed[4] != code(spec)


def test_a_misread_number_is_misread_from_the_first_stage_on():
    *_, source = misread = flawed_trace(SQUARES, Random(0), probability=0.0, misreading=1.0)
    assert "at least 4" in misread[0] and "x >= 4" in source and source.endswith("return r % 5\n")
    specs = [spec for spec in toy_specs("train") if flawed_trace(spec, Random(0), 0, 1) != clean_trace(spec)]
    numbered = [s for s in toy_specs("train") if any(op.name in BOUNDARY_FILTERS for op in s.filters)]
    assert specs == numbered


@pytest.mark.parametrize("split", SPLITS)
def test_where_numbers_are_large_each_problem_names_one_and_hidden_tests_alone_see_it_misread(split):
    problems, specs = toy_problems(split, "large"), toy_specs(split, "large")
    assert len(problems) == len(toy_problems(split))
    seen = {"baseline_tests": 0, "hidden_tests": 0}
    for problem, spec in zip(problems, specs, strict=True):
        assert re.search(r"(above|below|at least|at most) [1-9]\d\d\b", problem.description)
        for tests in seen:
            right, wrong = {}, {}
            exec(problem.reference_solution, right)
            exec("\n".join(getattr(problem, tests)), right)
            exec(flawed_trace(spec, Random(0), 0.0, misreading=1.0)[-1], wrong)
            seen[tests] += fails(getattr(problem, tests), wrong)
    assert seen["baseline_tests"] < 0.05 * len(specs) and seen["hidden_tests"] > 0.9 * len(specs)


def fails(tests: tuple[str, ...], namespace: dict) -> bool:
    try:
        exec("\n".join(tests), namespace)
    except AssertionError:
        return True
    return False


def test_a_good_suite_tries_a_large_number_that_the_problem_names():
    for spec in toy_specs("train", "large")[:200]:
        inputs = inputs_of(discriminator_suite(spec, Random(1), tests=5, weak=0.0, invalid=0.0))
        number = inputs[0][0] if spec.kind.takes_list else inputs[0]
        assert number in [op.constant for op in spec.filters] and len({str(i) for i in inputs}) == 5


def test_flawed_traces_are_mostly_but_not_always_wrong():
    specs = toy_specs("train")
    rng = Random(7)
    wrong = sum(flawed_trace(spec, rng, 0.65)[4] != code(spec) for spec in specs)
    applicable = sum(any(m.distort(spec) != spec for m in MISCONCEPTIONS) for spec in specs)
    assert 0.65 <= wrong / applicable <= 0.85
    assert all(flawed_trace(spec, rng, probability=0.0) == clean_trace(spec) for spec in specs[:50])


def inputs_of(suite: str) -> list:
    return [ast.literal_eval(line.removeprefix("f(").removesuffix(")")) for line in suite.splitlines()]


def test_suite_shares():
    rng = Random(11)

    def is_weak(inputs: list) -> bool:
        return all(isinstance(xs, list) and len(xs) <= 1 and all(x >= 7 for x in xs) for xs in inputs)

    def suites(count: int, **shares) -> list[list]:
        return [inputs_of(discriminator_suite(SQUARES, rng, tests=3, **shares)) for _ in range(count)]

    assert 0.87 <= sum(map(is_weak, suites(2000, weak=0.9, invalid=0.05))) / 2000 <= 0.93
    good = suites(200, weak=0, invalid=0)
    assert not any(map(is_weak, good))
    assert all(isinstance(given, list) for inputs in good for given in inputs)


@pytest.mark.parametrize("kind", list(Kind))
def test_an_invalid_suite_has_one_test_spoilt(kind):
    spec = next(spec for spec in toy_specs("train") if spec.kind is kind)
    expected = {"list": list, "int": int, "str": str}[kind.input_type]
    for seed in range(50):
        inputs = inputs_of(discriminator_suite(spec, Random(seed), tests=3, weak=0, invalid=1))
        strangers = [given for given in inputs if not isinstance(given, expected)]
        assert len(strangers) == 1 or len({repr(given) for given in inputs}) < 3


def test_where_outputs_are_to_be_computed_a_suite_gives_the_same_inputs_with_the_right_ones():
    shares = {"tests": 3, "weak": 0.5, "invalid": 0}
    for seed, spec in enumerate(toy_specs("train")[:200]):
        calls = discriminator_suite(spec, Random(seed), **shares)
        asserts = discriminator_suite(spec, Random(seed), **shares, computed=True)
        exec(f"{code(spec)}\n{asserts}", {})
        inputs = [line.split(" == ")[0] for line in asserts.splitlines()]
        assert inputs == [f"assert {line}" for line in calls.splitlines()]


def test_a_spoilt_suite_does_not_hold_for_its_outputs_either():
    spec = next(spec for spec in toy_specs("train") if spec.kind is Kind.INT_TO_INT)
    fails = 0
    for seed in range(50):
        suite = discriminator_suite(spec, Random(seed), tests=3, weak=0, invalid=1, computed=True)
        try:
            exec(f"{code(spec)}\n{suite}", {})
        except (AssertionError, TypeError):
            fails += 1
    assert fails >= 40  # what is copied may happen to give the same


@pytest.mark.parametrize(
    ("weak", "invalid", "said"),
    [(-0.1, 0.5, "weak_suites"), (0.5, -0.1, "invalid_suites"), (0.8, 0.3, "must sum to at most 1")],
)
def test_impossible_shares_are_refused(weak, invalid, said):
    with pytest.raises(ValueError, match=said):
        WarmUp(weak_suites=weak, invalid_suites=invalid)


def test_tests_can_share_a_blind_spot():
    blind = with_random_tests(toy_problems("train"), 6, at_boundaries=False)[:80]
    for problem, spec in zip(blind, toy_specs("train"), strict=False):
        edges = {op.constant for op in spec.filters if op.name in BOUNDARY_FILTERS}
        for test in problem.baseline_tests:
            given = ast.literal_eval(test.removeprefix("assert f(").split(") == ")[0])
            if not isinstance(given, str):
                assert edges.isdisjoint(given if isinstance(given, list) else [given])
    assert [p.id for p in blind] == [p.id for p in toy_problems("train")[:80]]
