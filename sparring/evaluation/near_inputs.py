"""Draws inputs that are close to the inputs of a problem's own tests, as a fuzzer does that knows nothing else about the
problem."""

import ast
from collections.abc import Callable
from random import Random
from typing import Any

from sparring.core.problem import Problem
from sparring.core.source import literal, literal_calls


def near_inputs(problem: Problem) -> Callable[[Random], str] | None:
    """Returns a function that draws calls of the problem's function: a call in a baseline test with one value changed a
    little, emptied or repeated, such as "f([3, -1])" for "f([3, 1])". None if no baseline test calls it with literals."""
    calls = [call for test in problem.baseline_asserts for call in _calls(test, problem.entry_point)]
    if not calls:
        return None

    def draw(rng: Random) -> str:
        arguments = list(rng.choice(calls))
        place = rng.randrange(len(arguments))
        arguments[place] = _near(arguments[place], rng)
        return f"{problem.entry_point}({', '.join(map(literal, arguments))})"

    return draw


def _calls(test: str, entry_point: str) -> list[list[Any]]:
    """Returns the arguments of each call of the function that has only positional literals, and at least one."""
    calls = [c for c in literal_calls(test, entry_point) if c.args and not c.keywords]
    return [[ast.literal_eval(argument) for argument in call.args] for call in calls]


def _near(value: Any, rng: Random) -> Any:
    """Returns another value of the same type, or the value itself if its type has no close values here."""
    if isinstance(value, bool):
        return not value
    if isinstance(value, int | float):
        return rng.choice([value + 1, value - 1, -value, value * 2, type(value)(0)])
    if isinstance(value, str | bytes | list | tuple):
        return _near_sequence(value, rng)
    if isinstance(value, dict) and value:
        key = rng.choice(list(value))
        return value | {key: _near(value[key], rng)}
    if isinstance(value, set) and value:
        return value ^ {rng.choice(sorted(value, key=repr))}
    return value


def _near_sequence(values: Any, rng: Random) -> Any:
    at = rng.randrange(len(values) + 1)
    rest = values[at + 1 :]
    kinds = [values[:at] + rest, values[: at + 1] + values[at:], values[::-1], values[:0]]
    if isinstance(values, list | tuple) and at < len(values):
        kinds += [type(values)([*values[:at], _near(values[at], rng), *rest]) for _ in range(4)]
    return rng.choice(kinds)
