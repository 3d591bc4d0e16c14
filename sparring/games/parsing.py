"""Extracts programs and code blocks from the text of a completion. Pure; nothing is executed."""

from sparring.core.answers import extract_program, last_block, without_thinking
from sparring.core.fences import OTHER_LANGUAGES, PROSE, fenced_blocks
from sparring.core.problem import Problem


def read_program(text: str, problem: Problem) -> str:
    """Returns the program in an answer to the problem. The problem gives the program's language and, if it asks for a
    function, the function's name."""
    try:
        entry_point = problem.entry_point
    except ValueError:  # the problem asks for a whole program
        entry_point = None
    return extract_program(text, language=problem.language, entry_point=entry_point)


def read_move(text: str) -> str:
    """Returns the move that an answer names, in lower case, without the model's thinking, a block's fence and the marks of
    Markdown around it."""
    return last_block(text).strip().strip("`*. ").lower()


def code_blocks(text: str) -> list[str]:
    """Returns the fenced blocks of an answer that may be Python, in order; the whole text if it has no block."""
    text = without_thinking(text)
    blocks = [block for block in fenced_blocks(text) if not block.inline] or fenced_blocks(text)
    if not blocks:
        return [text]
    return [block.content for block in blocks if block.language not in OTHER_LANGUAGES | PROSE]
