"""Held-out problems never in training: found again by what they say, or by how they are solved.

Finds what differs in case, blanks, punctuation, comments and quotes. A paraphrase is not found.
"""

import ast
import re
import unicodedata
from collections import defaultdict
from collections.abc import Iterator, Sequence

from core.problem import Problem
from core.source import parse


def normalised(text: str) -> str:
    """Words and numbers in lower case with one blank between."""
    return " ".join(re.findall(r"[^\W_]+", unicodedata.normalize("NFKC", text).casefold()))


def contaminated(train: Sequence[Problem], held_out: Sequence[Problem]) -> list[tuple[str, str, str]]:
    """(id of a training problem, id of a held-out one, reason) of every such pair, in the order of `train`."""
    known: dict[tuple[str, str], list[str]] = defaultdict(list)
    for problem in held_out:
        for mark in _marks(problem):
            known[mark].append(problem.id)
    found: dict[tuple[str, str], str] = {}
    for problem in train:
        for mark in _marks(problem):
            for held_out_id in known.get(mark, ()):
                found.setdefault((problem.id, held_out_id), f"same {mark[0]}")
    return [(train_id, held_out_id, reason) for (train_id, held_out_id), reason in found.items()]


def drop_contaminated(
    train: Sequence[Problem], held_out: Sequence[Problem]
) -> tuple[list[Problem], list[Problem]]:
    """(kept, dropped) of the training problems, each in the order given."""
    dirty = {train_id for train_id, _, _ in contaminated(train, held_out)}
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
