"""What a test that is data may use of Python: functions and classes that compute a value and do nothing else."""

import bisect
import builtins
import collections
import copy
import datetime
import decimal
import fractions
import functools
import heapq
import itertools
import json
import math
import operator
import string
from typing import Any

_WORDS = (
    "abs all any ascii bin bool bytearray bytes chr complex dict divmod enumerate filter float frozenset hex int isinstance "
    "iter len list map max min next oct ord pow range repr reversed round set slice sorted str sum tuple zip"
)
BUILTINS: dict[str, Any] = {name: getattr(builtins, name) for name in _WORDS.split()}


def _type(value: Any, /) -> type:
    return type(value)


BUILTINS["type"] = _type
EXCEPTIONS = {
    name: value
    for name, value in vars(builtins).items()
    if isinstance(value, type) and issubclass(value, Exception)
}
_PURE: dict[str, tuple[Any, str]] = {
    "math": (math, " ".join(name for name in vars(math) if not name.startswith("_"))),
    "collections": (collections, "Counter OrderedDict defaultdict deque"),
    "itertools": (
        itertools,
        "accumulate chain combinations combinations_with_replacement groupby islice pairwise permutations product repeat "
        "takewhile zip_longest",
    ),
    "functools": (functools, "reduce"),
    "fractions": (fractions, "Fraction"),
    "decimal": (decimal, "Decimal"),
    "datetime": (datetime, "date datetime time timedelta timezone"),
    "copy": (copy, "copy deepcopy"),
    "string": (
        string,
        "ascii_letters ascii_lowercase ascii_uppercase digits hexdigits octdigits printable punctuation whitespace",
    ),
    "heapq": (heapq, "nlargest nsmallest"),
    "bisect": (bisect, "bisect bisect_left bisect_right"),
    "operator": (operator, "add itemgetter mul sub"),
    "json": (json, "dumps loads"),
}
MODULES: dict[str, dict[str, Any]] = {
    name: {word: getattr(module, word) for word in words.split() if hasattr(module, word)}
    for name, (module, words) in _PURE.items()
}
RANDOM = frozenset("choice choices gauss randint random randrange sample uniform".split())  # noqa: SIM905
"""Methods of the test's own generator; a `seed` would be the program's, too."""
IGNORED = frozenset(("typing", "__future__"))
"""Modules that may be imported, of which nothing is used but in annotations."""
ANYWHERE = {
    name: value
    for module in ("math", "collections", "itertools", "functools", "fractions", "decimal", "copy", "heapq")
    for name, value in MODULES[module].items()
    if callable(value) and not hasattr(builtins, name)
}
"""Functions and classes that are there without an import, if the program has no such name."""
ORACLES = frozenset(
    (  # noqa: SIM905
        "Counter OrderedDict defaultdict deque Decimal Fraction isclose isnan isinf sqrt floor ceil gcd lcm comb perm prod "
        "factorial fsum mean median permutations combinations product chain accumulate reduce partial deepcopy"
    ).split()
)
"""What tests compare with: a program's own would decide."""
LIBRARY: dict[str, Any] = {
    **{name: ANYWHERE[name] for name in ORACLES & ANYWHERE.keys()},
    **EXCEPTIONS,
    **dict.fromkeys((*MODULES, "random")),
    **BUILTINS,
}
"""What a name means in any test, whatever a program calls so: see `shadowing`."""
METHODS: dict[type, frozenset[str]] = {
    kind: frozenset(name for name in vars(kind) if not name.startswith("_")) - {"format", "format_map"}
    for kind in (
        *(str, bytes, bytearray, int, float, complex, bool, list, tuple, set, frozenset, dict, range),
        *(collections.Counter, collections.OrderedDict, collections.deque, collections.defaultdict),
        *(
            fractions.Fraction,
            decimal.Decimal,
            datetime.date,
            datetime.datetime,
            datetime.time,
            datetime.timedelta,
        ),
    )
}
MUTATING = frozenset(
    (  # noqa: SIM905
        "add append appendleft clear difference_update discard extend extendleft insert intersection_update move_to_end "
        "pop popitem popleft remove reverse rotate setdefault sort subtract symmetric_difference_update update"
    ).split()
)
"""Methods that change a value: a copy's change would not be the program's, nor the other way round."""
METHODS[bool] = METHODS[int]
METHODS[collections.Counter] |= METHODS[dict]
METHODS[collections.defaultdict] |= METHODS[dict]
METHODS[collections.OrderedDict] |= METHODS[dict]
METHODS[datetime.datetime] |= METHODS[datetime.date]
CLOCKS = frozenset(("now", "today", "utcnow", "fromtimestamp", "utcfromtimestamp"))
