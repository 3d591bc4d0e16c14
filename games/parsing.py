"""From a completion's text to a program. Pure; nothing is executed."""

from core.answers import extract_program
from core.problem import Problem

__all__ = ["extract_program", "read_program"]


def read_program(text: str, problem: Problem) -> str:
    """Return the program in an answer to the problem: in its language, and of its function if it asks for one."""
    try:
        entry_point = problem.entry_point
    except ValueError:  # it asks for a whole program
        entry_point = None
    return extract_program(text, language=problem.language, entry_point=entry_point)
