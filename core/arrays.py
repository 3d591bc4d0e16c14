"""Numbers of which there is one for each token, without a Python object for each: who plays and who learns joins, sends and
receives the tokens of a whole step.

`array` and not numpy, for two that are equal are equal in one word, as two dataclasses that hold them then are.
"""

from __future__ import annotations

import pickle
from array import array
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # who reads a configuration need not wait for it
    import numpy as np

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


def sealed(value: Any) -> np.ndarray:
    """A value as one array of bytes, which Ray hands on, and gives back from its object store, without a copy: whoever has
    it knows that it is there, and pays for it only where it is opened."""
    import numpy as np

    return np.frombuffer(pickle.dumps(value), dtype=np.uint8)


def opened(seal: np.ndarray) -> Any:
    return pickle.loads(seal.data)
