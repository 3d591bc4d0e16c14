"""The toy problems in Python, made from a fixed seed, so that every process has the same problems.

Guaranteed: no description and no reference solution occurs in both training and held-out problems; about three fifths
of the held-out problems have a structure (see `grammar.structure`) that training never shows, and carry the tag
`unseen-structure`. Not guaranteed: some held-out problems behave like a training problem that is worded differently
("at least 4" and "above 3").
"""

from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from random import Random
from typing import Literal

from lab.grammar import Spec, code, describe, difficulty, signature, structure
from lab.sampling import (
    Input,
    bland_input,
    boundaries,
    edge_input,
    enlarged,
    has_large_numbers,
    is_near_constant,
    random_spec,
    run_reference,
)
from lab.settings import Numbers
from sparring.core.problem import Problem

Split = Literal["train", "held_out"]

SEED = 0
TRAIN_SIZE, HELD_OUT_SIZE = 1000, 200
UNSEEN_STRUCTURE = "unseen-structure"
"""Tag of the held-out problems whose structure does not occur in training."""


def toy_specs(split: Split, numbers: Numbers = "small") -> tuple[Spec, ...]:
    """Returns the Specs of a split's problems, in the same order."""
    specs = _all_specs(numbers)
    return specs[HELD_OUT_SIZE:] if split == "train" else specs[:HELD_OUT_SIZE]


@cache
def _all_specs(numbers: Numbers) -> tuple[Spec, ...]:
    """Returns the held-out Specs followed by the training Specs: their descriptions are distinct, and none is
    near-constant. With large numbers, each names at least one boundary."""
    rng = Random(SEED)
    seen: set[str] = set()
    specs: list[Spec] = []
    while len(specs) < HELD_OUT_SIZE + TRAIN_SIZE:
        spec = random_spec(rng)
        if numbers == "large":
            if not boundaries(spec):
                continue
            spec = enlarged(spec, rng)
        description = describe(spec)
        if description in seen:
            continue
        seen.add(description)
        if not is_near_constant(spec, Random(len(seen))):
            specs.append(spec)
    return tuple(specs)


def toy_problems(split: Split, numbers: Numbers = "small") -> list[Problem]:
    return list(_problems(split, numbers))


@cache
def _problems(split: Split, numbers: Numbers) -> tuple[Problem, ...]:
    first = HELD_OUT_SIZE if split == "train" else 0
    trained = {structure(spec) for spec in toy_specs("train", numbers)}
    return tuple(
        _problem(spec, number, unseen=structure(spec) not in trained)
        for number, spec in enumerate(toy_specs(split, numbers), start=first)
    )


def _problem(spec: Spec, number: int, *, unseen: bool) -> Problem:
    rng = Random(SEED * 1_000_003 + number)
    at_an_edge = bland_input if has_large_numbers(spec) else edge_input  # with large numbers: no edge
    baseline = [bland_input(spec, rng) for _ in range(3)] + [at_an_edge(spec, rng)]
    hidden = [bland_input(spec, rng) for _ in range(4)] + [edge_input(spec, rng) for _ in range(16)]
    tags = (spec.kind.value, spec.collect, UNSEEN_STRUCTURE if unseen else "")
    return Problem(
        id=f"p{number:05d}",
        description=describe(spec),
        function_signature=signature(spec),
        baseline_tests=asserts(spec, baseline),
        reference_solution=code(spec),
        difficulty=difficulty(spec),
        tags=tuple(tag for tag in tags if tag),
        hidden_tests=asserts(spec, hidden),
    )


def with_random_tests(problems: Sequence[Problem], count: int, at_boundaries: bool = True) -> list[Problem]:
    """Returns the training problems with `count` tests on random inputs in place of their baseline tests. The inputs
    are those of a careless tester, who ignores the problem. at_boundaries: see sampling.bland_input."""
    return [
        replace(
            problem,
            baseline_tests=asserts(spec, [bland_input(spec, rng, at_boundaries) for _ in range(count)]),
        )
        for problem, spec in zip(problems, toy_specs("train"), strict=True)
        for rng in (Random(f"random tests of {problem.id}"),)
    ]


def asserts(spec: Spec, inputs: list[Input]) -> tuple[str, ...]:
    outputs = run_reference(spec, inputs)
    return tuple(
        f"assert f({given!r}) == {expected!r}" for given, expected in zip(inputs, outputs, strict=True)
    )
