"""From a completion's text to a program. Pure; nothing is executed."""

from core.answers import extract_program, without_thinking
from core.fences import OTHER_LANGUAGES, PROSE, fenced_blocks
from core.problem import Problem

__all__ = ["code_blocks", "extract_program", "read_program"]


def read_program(text: str, problem: Problem) -> str:
    """Return the program in an answer to the problem: in its language, and of its function if it asks for one."""
    try:
        entry_point = problem.entry_point
    except ValueError:  # it asks for a whole program
        entry_point = None
    return extract_program(text, language=problem.language, entry_point=entry_point)


def code_blocks(text: str) -> list[str]:
    """Return the fenced blocks of an answer that may be Python, in its order, or the whole text if it has no block."""
    text = without_thinking(text)
    blocks = [block for block in fenced_blocks(text) if not block.inline] or fenced_blocks(text)
    if not blocks:
        return [text]
    return [block.content for block in blocks if block.language not in OTHER_LANGUAGES | PROSE]
