"""Plain values: which values are plain, and how a plain value is written as text."""

import collections
import datetime
import decimal
import fractions
import sys
from typing import Any

ATOMS = frozenset((bool, int, float, str, type(None)))
BY_REPR = ATOMS | {bytes, bytearray, complex, datetime.date, datetime.datetime, decimal.Decimal}
"""Classes whose repr describes the value fully and calls no code of a program."""
MAX_DEPTH = 150
MAX_REPR = 4000
"""Largest number of characters of a value's repr."""
PLAIN_TYPES = (bool, int, float, complex, str, bytes, bytearray, list, tuple, set, frozenset, dict)
"""Classes that are the same in the program's process and in the test's."""
CONTAINERS = (list, tuple, set, frozenset, dict)


class NotPlain(TypeError):
    """Raised if a value is not of exactly the plain types."""


class TooLong(ValueError):
    """Raised if a repr exceeds MAX_REPR characters."""


def base_value(value: Any) -> tuple[Any] | None:
    """Returns (the plain value,) for an object of a subclass of a plain type, by methods that the subclass cannot
    override, or for a number of numpy; otherwise None."""
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
    """Returns a deterministic repr: dicts keep their order, sets are sorted by the repr of their members.

    Raises:
        NotPlain: the value is or contains a handle or any other object that is not plain.
        TooLong: the repr has more than MAX_REPR characters.
    """
    text = _repr(value, 0)
    if len(text) > MAX_REPR:
        raise TooLong(f"repr of more than {MAX_REPR} characters")
    return text


def _repr(value: Any, depth: int) -> str:
    kind = type(value)
    if depth > MAX_DEPTH:
        raise NotPlain("value nested too deeply")
    # 4000 digits: repr() itself refuses 4300, and takes quadratic time for fewer
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
    """Joins with commas, and stops as soon as the result must be too long, because nested values grow fast."""
    kept, length = [], 0
    for part in parts:
        length += len(part) + 2
        if length > MAX_REPR + 2:
            raise TooLong(f"repr of more than {MAX_REPR} characters")
        kept.append(part)
    return ", ".join(kept)
