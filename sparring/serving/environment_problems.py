"""The problems of the environments for other trainers (openenv.py, verifiers_env.py)."""

from collections.abc import Mapping

from configs.sections import EMBEDDED, ProblemFormat
from sparring.core.problem import Problem
from sparring.embedded.problems import embedded_problems
from sparring.games.rules import Rules
from sparring.problems.formats import load_dataset
from sparring.runtime.problem_sets import playable


def environment_problems(
    dataset: str, format: ProblemFormat, fields: Mapping[str, str], split: str | None, rules: Rules
) -> list[Problem]:
    """Returns the problems of a data set that the game can play, and names the others; the reference solutions are not
    yet run.

    Args:
        dataset: a path, or "embedded".
        format, fields, split: see `load_dataset`; not used for the embedded problems.

    Raises:
        SparringError: the data set is unusable, or the game can play none of its problems.
    """
    if dataset == EMBEDDED:
        problems = embedded_problems("train")
    else:
        problems = load_dataset(dataset, format, fields=fields, split=split)
    return playable(problems, dataset, rules, leave_out=True)
