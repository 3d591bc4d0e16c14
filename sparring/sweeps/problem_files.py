"""Writes the problem files of a sweep: folds for cross-validation, nested parts for a data-size series.

A data-size series keeps the recipe's held-out problems. Cross-validation divides the training problems, so it does not
touch the recipe's held-out problems.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

from configs.schema import Config
from sparring.core.problem import Problem
from sparring.core.seeding import derive_seed
from sparring.problems.formats.columns import FIELDS
from sparring.sweeps.spec import SweepError

_FIELDS = (*FIELDS, "other_solutions", "wrong_solutions")


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
    """Writes problems in our own format, and returns the path. Raises SweepError for problems that the format cannot
    hold."""
    entries = []
    for problem in problems:
        tests = (*problem.baseline_tests, *problem.hidden_tests)
        signed = problem.language == "python" and problem.function_signature and problem.reference_solution
        framed = problem.preamble or problem.epilogue  # which the format does not have
        if not signed or framed or not all(isinstance(test, str) for test in tests):
            raise SweepError(
                f"problem {problem.id}: folds and sizes are for Python functions with a reference solution and assert "
                "tests, to which the data set's harness adds nothing; divide other data sets by hand, and give a recipe for "
                "each part"
            )
        limits = problem.limits.model_dump(exclude_unset=True) if problem.limits is not None else None
        entries.append({field: getattr(problem, field) for field in _FIELDS} | {"limits": limits})
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps({"problems": entries}), "utf-8")
    return str(file.resolve())


def keys_of(
    train: str, held_out: str, models: Mapping[str, Path], kept: Mapping[str, Any] = MappingProxyType({})
) -> dict[str, Any]:
    """Returns the config keys of a run on these files.

    Args:
        models: directories of the embedded models, by policy. The name `embedded` would be refused, since these models
            solve only the embedded problems, and here the problems are in a file.
        kept: other keys of problems, such as failing_references.
    """
    named = {f"{role}.model": str(path) for role, path in models.items()}
    aside = {"kind": "file", "file": held_out}
    return {"problems": {"kind": "file", "file": train, "held_out": aside, **kept}} | named


def embedded_models(config: Config) -> dict[str, Path]:
    """Returns the directories of the embedded models that the config names; makes those that do not exist."""
    from configs.sections import EMBEDDED
    from sparring.embedded.teaching import ensure_embedded

    roles = [role for role in config.policies if config.policy(role).model == EMBEDDED]
    return ensure_embedded(roles, config.game, config.warm_start) if roles else {}
