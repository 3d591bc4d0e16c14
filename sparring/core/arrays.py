"""Arrays of one number per token. They avoid one Python object per token, since the rollout actors and the learners
concatenate, send and receive all tokens of a training step.

These are `array.array` and not numpy arrays: `==` on two of them gives one bool, so dataclasses that hold them compare too.
"""

from __future__ import annotations

import pickle
from array import array
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # commands that only read a configuration need not wait for numpy's import
    import numpy as np

IDS, FLOATS, FLAGS = "i", "d", "b"
"""Type codes of `array`: token ids; double-precision floats; flags that are 0 or 1."""


def hold(owner: Any, **codes: str) -> None:
    """Converts the fields of a dataclass to arrays, unless they are arrays already. Called in `__post_init__`.

    Args:
        codes: type code by field name.

    Raises TypeError or OverflowError if a value does not fit the type code.
    """
    for name, code in codes.items():
        values = getattr(owner, name)
        if not isinstance(values, array):
            object.__setattr__(owner, name, array(code, values))


def sealed(value: Any) -> np.ndarray:
    """Pickles a value into one array of bytes. Ray passes such an array on, and returns it from its object store, without
    a copy, so a process that only holds the array does not pay for unpickling the value; `opened` does that."""
    import numpy as np

    return np.frombuffer(pickle.dumps(value), dtype=np.uint8)


def opened(seal: np.ndarray) -> Any:
    return pickle.loads(seal.data)
