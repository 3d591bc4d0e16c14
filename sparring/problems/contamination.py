"""Removes held-out problems from the training problems. Two problems are the same if their descriptions or their reference
solutions are equal after normalisation.

Differences in case, blanks, punctuation, comments and quotes are ignored. Paraphrases are not found.
"""

import ast
import re
import unicodedata
from collections.abc import Iterator, Sequence

from sparring.core.problem import Problem
from sparring.core.source import parse


def normalised(text: str) -> str:
    """Returns the words and numbers of a text in lower case, separated by single blanks."""
    return " ".join(re.findall(r"[^\W_]+", unicodedata.normalize("NFKC", text).casefold()))


def drop_contaminated(
    train: Sequence[Problem], held_out: Sequence[Problem]
) -> tuple[list[Problem], list[Problem]]:
    """Splits the training problems into (kept, dropped), each in the given order."""
    known = {mark for problem in held_out for mark in _marks(problem)}
    dirty = {problem.id for problem in train if not known.isdisjoint(_marks(problem))}
    return [p for p in train if p.id not in dirty], [p for p in train if p.id in dirty]


def _marks(problem: Problem) -> Iterator[tuple[str, str]]:
    """Yields the non-empty texts that a training problem must not share with a held-out problem."""
    if description := normalised(problem.description):
        yield "description", description
    if solution := _normalised_solution(problem.reference_solution, problem.language):
        yield "reference solution", solution


def _normalised_solution(source: str, language: str) -> str:
    """Returns Python without comments and in a uniform layout; removes all blanks from other languages."""
    if language == "python":
        try:
            return ast.unparse(parse(source, most_chars=len(source)))
        except (SyntaxError, ValueError, RecursionError):
            pass
    return "".join(source.split())
