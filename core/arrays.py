"""Numbers of which there is one for each token, without a Python object for each: the driver receives, joins and hands on
the tokens of a whole step.

`array` and not numpy, for two that are equal are equal in one word, as two dataclasses that hold them then are.
"""

from array import array
from typing import Any

IDS, FLOATS, FLAGS = "i", "d", "b"
"""Type codes: token ids, double precision, 0 or 1."""


def hold(owner: Any, **codes: str) -> None:
    """For a dataclass's __post_init__: make arrays of these fields' values where they are none.

    Raises TypeError, OverflowError: a value is no such number.
    """
    for name, code in codes.items():
        values = getattr(owner, name)
        if not isinstance(values, array):
            object.__setattr__(owner, name, array(code, values))
