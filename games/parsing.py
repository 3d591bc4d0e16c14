"""From a completion's text to a program. Pure; nothing is executed."""

import re

FENCE = re.compile(r"(?:```[\w+]*|^[ \t]*```[^\n`]*)[ \t\r]*\n(.*?)(?:```|\Z)", re.DOTALL | re.MULTILINE)
"""A block; at the beginning of a line anything may stand behind its opening (```python title="a.py")."""


def extract_program(text: str) -> str:
    """The last fenced code block, or the whole text where there is none."""
    blocks = FENCE.findall(text)
    return blocks[-1] if blocks else text


def code_blocks(text: str) -> list[str]:
    """All fenced code blocks of an answer in order, or the whole text if there is none."""
    return FENCE.findall(text) or [text]
