"""Draws Specs and inputs at random, always from a given random.Random, so that seeds determine everything."""

from dataclasses import replace
from random import Random

from lab.grammar import (
    BOUNDARY_FILTERS,
    NUMBER_FILTERS,
    NUMBER_TRANSFORMS,
    POSTS,
    STRING_FILTERS,
    STRING_TRANSFORMS,
    Kind,
    Op,
    Spec,
    code,
    operations,
)

Input = int | str | list[int]
"""The only argument of f."""

_KIND_WEIGHTS = {
    Kind.LIST_TO_INT: 38,
    Kind.LIST_TO_LIST: 20,
    Kind.INT_TO_INT: 20,
    Kind.STR_TO_INT: 10,
    Kind.STR_TO_STR: 12,
}
_TO_INT = ("sum", "count", "max", "min", "first", "last")
_TO_LIST = ("list", "rev", "sort", "run")
_TO_STR = ("list", "rev")

LARGE = range(100, 1000)

_PROBES_EDGE, _PROBES_BLAND, _SAME_OUTPUT_LIMIT = 20, 10, 15


def random_spec(rng: Random) -> Spec:
    """Returns a random Spec of any kind. It may be near-constant (see `is_near_constant`)."""
    kind = rng.choices(list(_KIND_WEIGHTS), list(_KIND_WEIGHTS.values()))[0]
    if kind is Kind.INT_TO_INT:
        return _random_branch(rng)
    if kind.takes_str:
        return _random_string_spec(kind, rng)
    return _random_list_spec(kind, rng)


def enlarged(spec: Spec, rng: Random) -> Spec:
    """Returns the Spec with random large numbers as the constants of its boundary filters."""
    large = (
        replace(op, constant=rng.choice(LARGE)) if op.name in BOUNDARY_FILTERS else op for op in spec.filters
    )
    return replace(spec, filters=tuple(large))


def _random_list_spec(kind: Kind, rng: Random) -> Spec:
    wanted = rng.choices([0, 1, 2], [15, 60, 25])[0]
    filters: list[Op] = []
    while len(filters) < wanted:
        candidate = rng.choice(operations(NUMBER_FILTERS))
        if not filters or candidate.name != filters[0].name:
            filters.append(candidate)
    transform = _maybe(rng, 0.5, operations(NUMBER_TRANSFORMS))
    if kind is Kind.LIST_TO_LIST:
        return Spec(kind=kind, filters=tuple(filters), transform=transform, collect=rng.choice(_TO_LIST))
    collect = rng.choice(_TO_INT)
    if collect == "count":
        transform = None
    post = _maybe(rng, 0.4, operations(POSTS))
    return Spec(kind=kind, filters=tuple(filters), transform=transform, collect=collect, post=post)


def _random_branch(rng: Random) -> Spec:
    filters = [rng.choice(operations(NUMBER_FILTERS))]
    second = _maybe(rng, 0.3, operations(NUMBER_FILTERS))
    if second and second.name != filters[0].name:
        filters.append(second)
    transforms = operations(NUMBER_TRANSFORMS)
    transform, otherwise = rng.choice(transforms), rng.choice(transforms)
    while otherwise == transform:
        otherwise = rng.choice(transforms)
    post = _maybe(rng, 0.35, operations(POSTS))
    return Spec(
        kind=Kind.INT_TO_INT, filters=tuple(filters), transform=transform, post=post, otherwise=otherwise
    )


def _random_string_spec(kind: Kind, rng: Random) -> Spec:
    if kind is Kind.STR_TO_INT:
        filters = (rng.choice(operations(STRING_FILTERS)),)
        return Spec(kind=kind, filters=filters, collect="count", post=_maybe(rng, 0.6, operations(POSTS)))
    chosen = _maybe(rng, 0.75, operations(STRING_FILTERS))
    transform = _maybe(rng, 0.6, operations(STRING_TRANSFORMS))
    return Spec(
        kind=kind, filters=(chosen,) if chosen else (), transform=transform, collect=rng.choice(_TO_STR)
    )


def _maybe(rng: Random, probability: float, choices: list[Op]) -> Op | None:
    return rng.choice(choices) if rng.random() < probability else None


def bland_input(spec: Spec, rng: Random, at_boundaries: bool = True) -> Input:
    """Returns an input as a careless tester would choose it: never negative and never empty. Numbers are small; if the
    Spec's conditions have large numbers, they lie anywhere up to the largest of LARGE. Boundaries are rare, and are
    avoided unless `at_boundaries`."""
    avoided = () if at_boundaries else boundaries(spec)
    top = LARGE[-1] if has_large_numbers(spec) else 9
    if spec.kind.takes_list:
        numbers = [n for n in range(1, top + 1) if n not in avoided]
        return [rng.choice(numbers) for _ in range(rng.randint(2, 4))]
    if spec.kind.takes_str:
        return "".join(rng.choice("abcdeiot") for _ in range(rng.randint(2, 4)))
    return rng.choice([n for n in range(top + 1) if n not in avoided])


def edge_input(spec: Spec, rng: Random) -> Input:
    """Returns an input that is likely to show a mistake: empty, zero, negative, mixed case, or a constant of the Spec's
    filters."""
    if spec.kind.takes_str:
        return "".join(rng.choice("abeBAE1x") for _ in range(rng.randint(0, 4)))
    at = boundaries(spec)
    if has_large_numbers(spec):
        return _near(at, spec.kind, rng)
    if spec.kind is Kind.INT_TO_INT:
        return rng.choice([*range(-5, 10), *at * 4])
    if rng.random() < 0.1:
        return []
    numbers = [0, -1, -2, -3, *range(1, 10), *(at or [0]) * 4]
    return [rng.choice(numbers) for _ in range(rng.randint(1, 4))]


def _near(at: list[int], kind: Kind, rng: Random) -> Input:
    """Returns a number or a list of numbers; each lies at or beside one of `at` with probability 0.75."""

    def number() -> int:
        if rng.random() < 0.75:
            return rng.choice(at) + rng.choice((-1, 0, 0, 1))
        return rng.choice((-1, 0, rng.randint(1, LARGE[-1])))

    return number() if kind is Kind.INT_TO_INT else [number() for _ in range(rng.randint(0, 2))]


def aimed_inputs(spec: Spec, rng: Random, count: int) -> list[Input]:
    """Returns inputs at one of the Spec's boundaries and then at growing distance from it on both sides. If the input
    is a list, the number is the only element of the first list; random numbers may follow it in the others."""
    number = rng.choice(boundaries(spec))
    near = sorted(range(-count, count + 1), key=abs)[:count]
    if not spec.kind.takes_list:
        return [number + far for far in near]

    def company() -> list[int]:
        return [rng.randint(1, LARGE[-1]) for _ in range(rng.randint(0, 2))]

    return [[number + far, *(company() if far else ())] for far in near]


def has_large_numbers(spec: Spec) -> bool:
    return any(number in LARGE for number in boundaries(spec))


def boundaries(spec: Spec) -> list[int]:
    """Returns the constants of the Spec's boundary filters."""
    return [op.constant for op in spec.filters if op.name in BOUNDARY_FILTERS]


def run_reference(spec: Spec, inputs: list[Input]) -> list[Input]:
    """Returns the outputs of the Spec's reference solution. It is executed in this process, since the source is
    generated by this grammar and never by a model."""
    namespace: dict = {}
    exec(code(spec), namespace)
    return [namespace["f"](argument) for argument in inputs]


def is_near_constant(spec: Spec, rng: Random) -> bool:
    """Returns True if more than half of 30 random inputs give the same output: such a problem could be solved by
    guessing."""
    probes = [edge_input(spec, rng) for _ in range(_PROBES_EDGE)]
    probes += [bland_input(spec, rng) for _ in range(_PROBES_BLAND)]
    outputs = [repr(output) for output in run_reference(spec, probes)]
    return max(outputs.count(output) for output in outputs) > _SAME_OUTPUT_LIMIT
