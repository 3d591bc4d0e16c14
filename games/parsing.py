"""From a completion's text to a program. Pure; nothing is executed."""

import re

FENCE = re.compile(r"```[a-zA-Z0-9_]*\n(.*?)(?:```|\Z)", re.DOTALL)


def extract_program(text: str) -> str:
    """The last fenced code block, or the whole text where there is none."""
    blocks = FENCE.findall(text)
    return blocks[-1] if blocks else text
