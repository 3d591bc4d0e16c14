"""Splits the problems of one file into training problems and held-out problems."""

from collections.abc import Sequence

from sparring.core.problem import Problem
from sparring.core.seeding import derive_seed
from sparring.problems.loader import ProblemFileError


def split_problems(
    problems: Sequence[Problem], held_out_fraction: float, least: int = 1
) -> tuple[list[Problem], list[Problem]]:
    """Returns (train, held_out), each in the given order. The split depends on the problems' ids only.

    least: minimum number of held-out problems. Raises ProblemFileError if no problem would be left to train on.
    """
    if len(problems) <= least:
        raise ProblemFileError(
            f"{len(problems)} problem: none is left to train on when one is held out: add problems, or give "
            "--problems.held-out.file, or --no-evaluation.enabled"
        )
    count = max(least, round(len(problems) * held_out_fraction))
    if count >= len(problems):
        raise ProblemFileError(
            f"problems.held_out.fraction {held_out_fraction} of {len(problems)} problems leaves none to train on: "
            "add problems or lower the fraction"
        )
    by_hash = sorted(problems, key=lambda problem: derive_seed("held-out", problem.id))
    chosen = {problem.id for problem in by_hash[:count]}
    train = [problem for problem in problems if problem.id not in chosen]
    return train, [problem for problem in problems if problem.id in chosen]
