"""Writes the problem files of a sweep: folds for cross-validation, nested parts for a data-size series.

A data-size series keeps the recipe's held-out problems. Cross-validation divides the training problems, so it does not
touch the recipe's held-out problems.
"""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

from sparring.core.problem import Problem
from sparring.core.seeding import derive_seed
from sparring.problems import loader
from sparring.sweeps.spec import SweepError


def shuffled(problems: Sequence[Problem], seed: int) -> list[Problem]:
    """Returns the problems in an order that depends on their ids and the seed alone."""
    return sorted(problems, key=lambda problem: derive_seed(seed, "part", problem.id))


def folds(problems: Sequence[Problem], count: int, seed: int) -> list[tuple[list[Problem], list[Problem]]]:
    """Returns the (training, validation) problems of each fold. Each problem is in the validation part of one fold.
    Raises SweepError."""
    if not 2 <= count <= len(problems):
        raise SweepError(f"--folds {count}: expected 2 to {len(problems)}, the number of problems")
    mixed = shuffled(problems, seed)
    parts = [mixed[i::count] for i in range(count)]
    return [([p for other in parts if other is not part for p in other], part) for part in parts]


def nested_parts(problems: Sequence[Problem], sizes: Sequence[int], seed: int) -> dict[int, list[Problem]]:
    """Returns the parts by size; each part holds the smaller ones. Raises SweepError."""
    if too_many := [size for size in sizes if not 1 <= size <= len(problems)]:
        raise SweepError(
            f"--sizes {too_many[0]}: expected 1 to {len(problems)}, the number of training problems"
        )
    mixed = shuffled(problems, seed)
    return {size: mixed[:size] for size in sorted(set(sizes))}


def write_problems(file: Path, problems: Iterable[Problem]) -> str:
    """Writes problems in our own format, and returns the path. Raises SweepError or ProblemFileError for problems that the
    format cannot hold."""
    problems = list(problems)
    for problem in problems:
        if not problem.reference_solution:
            raise SweepError(
                f"problem {problem.id}: folds and sizes are for problems with a reference solution; divide other data sets by "
                "hand, and give a recipe for each part"
            )
    loader.write_problems(file, problems)
    return str(file.resolve())


def keys_of(train: str, held_out: str, kept: Mapping[str, Any] = MappingProxyType({})) -> dict[str, Any]:
    """Returns the config keys of a run on these files.

    kept: other keys of problems, such as failing_references.
    """
    return {"problems": {"file": train, "held_out": {"kind": "file", "file": held_out}, **kept}}
