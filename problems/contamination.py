"""Held-out problems never in training: found again by what they say, or by how they are solved.

Finds what differs in case, blanks, punctuation, comments and quotes. A paraphrase is not found.
"""

import ast
import re
import unicodedata
from collections.abc import Iterator, Sequence

from core.problem import Problem
from core.source import parse


def normalised(text: str) -> str:
    """Words and numbers in lower case with one blank between."""
    return " ".join(re.findall(r"[^\W_]+", unicodedata.normalize("NFKC", text).casefold()))


def drop_contaminated(
    train: Sequence[Problem], held_out: Sequence[Problem]
) -> tuple[list[Problem], list[Problem]]:
    """(kept, dropped) of the training problems, each in the order given."""
    known = {mark for problem in held_out for mark in _marks(problem)}
    dirty = {problem.id for problem in train if not known.isdisjoint(_marks(problem))}
    return [p for p in train if p.id not in dirty], [p for p in train if p.id in dirty]


def _marks(problem: Problem) -> Iterator[tuple[str, str]]:
    """What two problems must not share; nothing that is empty."""
    if description := normalised(problem.description):
        yield "description", description
    if solution := _normalised_solution(problem.reference_solution, problem.language):
        yield "reference solution", solution


def _normalised_solution(source: str, language: str) -> str:
    """Python without comments and in one layout; other languages without any blanks."""
    if language == "python":
        try:
            return ast.unparse(parse(source, most_chars=len(source)))
        except (SyntaxError, ValueError, RecursionError):
            pass
    return "".join(source.split())
