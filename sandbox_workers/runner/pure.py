"""The parts of Python that a data test may use: functions and classes that compute a value and do nothing else."""

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

from .errors import NotData

_WORDS = (
    "abs all any ascii bin bool bytearray bytes chr complex dict divmod enumerate filter float frozenset hex int isinstance "
    "iter len list map max min next oct ord pow range repr reversed round set slice sorted str sum tuple zip"
)
BUILTINS: dict[str, Any] = {name: getattr(builtins, name) for name in _WORDS.split()}


def _type(value: Any, /) -> type:
    if (kind := type(value)) in CLASSES:
        return kind
    raise NotData(f"type of a {kind.__name__}")


def _len(value: Any, /) -> int:
    """Returns the length. An object of the program is asked here and not by its __len__, which list() and others would
    call, too."""
    measure = getattr(type(value), "measure", None)
    return len(value) if measure is None else measure(value)


BUILTINS |= {"type": _type, "len": _len}
EXCEPTIONS = {
    name: value
    for name, value in vars(builtins).items()
    if isinstance(value, type) and issubclass(value, Exception)
}


def _copy(value: Any, /) -> Any:
    return copy.copy(_checked(value))


def _deepcopy(value: Any, /) -> Any:
    return copy.deepcopy(_checked(value))


def _checked(value: Any) -> Any:
    """Returns the value. Raises NotData if it holds something else than values of CLASSES, which alone decide how they are
    copied."""
    parts = [value]
    for part in parts:  # it grows
        if type(part) not in CLASSES or isinstance(part, Exception):
            raise NotData(f"a copy of a {type(part).__name__}")
        if isinstance(part, dict):
            parts += [*part, *part.values()]
        elif isinstance(part, list | tuple | set | frozenset | collections.deque):
            parts += part
    return value


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
MODULES["copy"] = {"copy": _copy, "deepcopy": _deepcopy}
RANDOM = frozenset("choice choices gauss randint random randrange sample uniform".split())  # noqa: SIM905
"""Methods of the test's own random generator. `seed` is not among them, because it would also seed the program's."""
IGNORED = frozenset(("typing", "__future__"))
"""Modules that a test may import, but may use only in annotations."""
ANYWHERE = {
    name: value
    for module in ("math", "collections", "itertools", "functools", "fractions", "decimal", "copy", "heapq")
    for name, value in MODULES[module].items()
    if callable(value) and not hasattr(builtins, name)
}
"""Functions and classes that need no import, if the program does not define the name."""
ORACLES = frozenset(
    (  # noqa: SIM905
        "Counter OrderedDict defaultdict deque Decimal Fraction isclose isnan isinf sqrt floor ceil gcd lcm comb perm prod "
        "factorial fsum mean median permutations combinations product chain accumulate reduce partial deepcopy"
    ).split()
)
"""Names of what tests compare with. If a program could define them, it would decide the comparison."""
LIBRARY: dict[str, Any] = {
    **{name: ANYWHERE[name] for name in ORACLES & ANYWHERE.keys()},
    **EXCEPTIONS,
    **dict.fromkeys((*MODULES, "random")),
    **BUILTINS,
}
"""Names that mean the same in any test, even if a program defines them. See `shadowing` for the tests in which a
program's name is meant nevertheless."""
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
"""Methods that change a value. A change of a copy would not be a change of the program's value, nor the reverse."""
METHODS[bool] = METHODS[int]
METHODS[collections.Counter] |= METHODS[dict]
METHODS[collections.defaultdict] |= METHODS[dict]
METHODS[collections.OrderedDict] |= METHODS[dict]
METHODS[datetime.datetime] |= METHODS[datetime.date]
CLASSES = frozenset((*METHODS, *EXCEPTIONS.values(), datetime.timezone, type(None)))
"""Classes of the values that a test may compute. Only these may be copied and asked for: the class of any other object,
such as `type` itself, would let a test make objects with methods of its own."""
CALLED = CLASSES | {
    value for names in (LIBRARY, *MODULES.values()) for value in names.values() if isinstance(value, type)
}
"""Classes that a test may call."""
CLOCKS = frozenset(("now", "today", "utcnow", "fromtimestamp", "utcfromtimestamp"))
