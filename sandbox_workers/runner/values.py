"""Plain values: what they are, and the text of one."""

import collections
import datetime
import decimal
import fractions
import sys
from typing import Any

ATOMS = frozenset((bool, int, float, str, type(None)))
BY_REPR = ATOMS | {bytes, bytearray, complex, datetime.date, datetime.datetime, decimal.Decimal}
"""Classes whose repr says all, and calls nothing of a program's."""
MAX_DEPTH = 150
MAX_REPR = 4000
"""Characters of a value's repr."""
PLAIN_TYPES = (bool, int, float, complex, str, bytes, bytearray, list, tuple, set, frozenset, dict)
"""Classes that are the same on both sides."""
CONTAINERS = (list, tuple, set, frozenset, dict)


class NotPlain(TypeError):
    """The value is not of the exact plain types."""


class TooLong(ValueError):
    """The repr exceeds MAX_REPR characters."""


def base_value(value: Any) -> tuple[Any] | None:
    """(the plain value) that an instance of a subclass is, by methods which the subclass cannot override, or a number of
    numpy's."""
    kind = type(value)
    if (
        isinstance(value, getattr(sys.modules.get("numpy"), "generic", ()))
        and type(value.item()) in PLAIN_TYPES
    ):
        return (value.item(),)
    if issubclass(kind, int):
        return (int.__add__(value, 0),)
    if issubclass(kind, float):
        return (float.__add__(value, 0.0),)
    if issubclass(kind, str):
        return ("".join(str.__iter__(value)),)
    if issubclass(kind, bytes):
        return (bytes.__getitem__(value, slice(None)),)
    for base in (collections.OrderedDict, dict):
        if issubclass(kind, base):
            return (dict(base.items(value)),)
    for base in (list, tuple, set, frozenset):
        if issubclass(kind, base):
            return (base(base.__iter__(value)),)
    return None


def plain_repr(value: Any) -> str:
    """A deterministic repr: dicts in their order, sets sorted by the repr of their members.

    Raises:
        NotPlain: a handle, or any object of another type, at any depth.
        TooLong: more than MAX_REPR characters.
    """
    text = _repr(value, 0)
    if len(text) > MAX_REPR:
        raise TooLong(f"repr of more than {MAX_REPR} characters")
    return text


def _repr(value: Any, depth: int) -> str:
    kind = type(value)
    if depth > MAX_DEPTH:
        raise NotPlain("value nested too deeply")
    # 4000 digits: repr() itself refuses 4300 and is quadratic on the way
    if kind is int and abs(value) >> 13288:
        raise TooLong(f"an int of more than {MAX_REPR} digits")
    if kind in BY_REPR:
        return repr(value)
    if kind is fractions.Fraction:
        return f"Fraction({_repr(value.numerator, depth)}, {_repr(value.denominator, depth)})"
    if kind not in CONTAINERS:
        reduced = base_value(value)
        if reduced is None:
            raise NotPlain(f"not a plain value: {kind.__name__}")
        return _repr(reduced[0], depth)
    if len(value) > MAX_REPR:
        raise TooLong(f"{len(value)} items")
    if kind is dict:
        return "{" + _join(f"{_repr(k, depth + 1)}: {_repr(v, depth + 1)}" for k, v in value.items()) + "}"
    items = (_repr(item, depth + 1) for item in value)
    if kind is list:
        return "[" + _join(items) + "]"
    if kind is tuple:
        return "(" + _join(items) + (",)" if len(value) == 1 else ")")
    body = "{" + _join(sorted(items)) + "}" if value else ""
    if kind is set:
        return body or "set()"
    return f"frozenset({body})"


def _join(parts: Any) -> str:
    """Join with commas, stopping as soon as the whole must be too long: nested values grow fast."""
    kept, length = [], 0
    for part in parts:
        length += len(part) + 2
        if length > MAX_REPR + 2:
            raise TooLong(f"repr of more than {MAX_REPR} characters")
        kept.append(part)
    return ", ".join(kept)
