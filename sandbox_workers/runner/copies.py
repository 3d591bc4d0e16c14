"""Values as JSON: a program and a data test exchange values only as copies. No object of one ever becomes an object of
the other.

| message | value |
|---|---|
| an atom; a list | itself |
| `{"t": items}` `{"s": items}` `{"z": items}` | tuple, set, frozenset |
| `{"d": pairs}` `{"o": pairs}` `{"c": pairs}` `{"p": pairs}` | dict, OrderedDict, Counter, mappingproxy |
| `{"i": pairs}` `{"k": items}` `{"l": items}` | items, keys and values of a dict |
| `{"m": [number, class, pairs]}` | an object that stays in the program: a dict that creates missing items; and its items |
| `{"q": [items, maxlen]}` | deque |
| `{"v": [tag, body]}` | a value of another plain type: plain.py |
| `{"h": [number, class]}` | an object that stays in the program |
| `{"b": [number, class, value]}` | an object that stays in the program, of a subclass of a plain type, and its value as that type |
| `{"n": name}` | a function or class of the program, by its name there |
"""

import collections
import enum
import types
from collections.abc import Callable
from typing import Any

from . import plain
from .errors import NotData
from .pure import METHODS
from .values import ATOMS, MAX_DEPTH, base_value

MOST_DIGITS = 1 << 13_000
"""Bound of ints: those of this size or above are not sent as JSON numbers, because the interpreter refuses to write
ints with many more digits."""
Outside = Callable[[Any], Any]


def encode(value: Any, outside: Outside, depth: int = 0) -> Any:
    """Returns the message of a value.

    Args:
        outside: returns the message of a value that is not plain, or raises.

    Raises:
        RecursionError: the value is nested too deeply.
    """
    kind = type(value)
    if kind in ATOMS and (kind is not int or -MOST_DIGITS < value < MOST_DIGITS):
        return value
    if depth > MAX_DEPTH:
        raise RecursionError("a value nested too deeply")
    deeper = depth + 1
    if kind is list:
        if _are_themselves(value):
            return value
        return [encode(item, outside, deeper) for item in value]
    if (tag := _ITEMS.get(kind)) is not None:
        return {tag: [encode(item, outside, deeper) for item in value]}
    if (tag := _PAIRS.get(kind)) is not None:
        items = value if tag == "i" else kind.items(value)
        return {tag: [[encode(k, outside, deeper), encode(v, outside, deeper)] for k, v in items]}
    if kind is collections.deque:
        return {"q": [[encode(item, outside, deeper) for item in value], value.maxlen]}
    if (known := plain.PLAIN.get(kind)) is not None:
        return {"v": [known[0], known[1](value)]}
    if (text := plain.by_text(value)) is not None:
        return {"v": text}
    keeps_more = issubclass(kind, enum.Enum) or (issubclass(kind, dict) and hasattr(kind, "__missing__"))
    if not keeps_more and (base := base_value(value)) is not None:
        return encode(base[0], outside, depth)
    return outside(value)


def is_plain(value: Any) -> bool:
    """Returns whether the value's class is plain itself, and no subclass of a plain class. Its items may be objects."""
    kind = type(value)
    return (
        kind in ATOMS or kind is list or kind is collections.deque or any(kind in known for known in _KNOWN)
    )


_ALIKE = ATOMS - {int}
"""Types of atoms whose values are always their own messages."""


def _are_themselves(items: list) -> bool:
    kinds = set(map(type, items))
    return kinds <= _ALIKE or (kinds == {int} and min(items) > -MOST_DIGITS and max(items) < MOST_DIGITS)


_ITEMS, _PAIRS = (
    {tuple: "t", set: "s", frozenset: "z"},
    {dict: "d", collections.OrderedDict: "o", collections.Counter: "c", types.MappingProxyType: "p"},
)
for _kind in ({}, collections.OrderedDict()):
    _ITEMS |= {type(_kind.keys()): "k", type(_kind.values()): "l"}
    _PAIRS[type(_kind.items())] = "i"
_KNOWN = (_ITEMS, _PAIRS, plain.PLAIN)


class Copied(dict):
    """The copy of a dict that creates missing items. The copy does not know how to create them."""

    original: Any
    """What stands for the dict when it is given back to the program."""

    def __missing__(self, key: Any) -> Any:
        raise NotData("an item that a dict makes up")

    def __repr__(self) -> str:
        raise NotData("the text of a dict that creates missing items")


METHODS[Copied] = METHODS[dict]


_READ: dict[str, Callable[[Any], Any]] = {
    "t": tuple,
    "s": set,
    "z": frozenset,
    "d": dict,
    "o": collections.OrderedDict,
    "c": lambda pairs: collections.Counter(dict(pairs)),
    "p": lambda pairs: types.MappingProxyType(dict(pairs)),
    "i": lambda pairs: dict(pairs).items(),
    "k": lambda items: dict.fromkeys(items).keys(),
    "l": lambda items: dict(enumerate(items)).values(),
}


_OF_PAIRS = frozenset(_PAIRS.values())


def decode(message: Any, outside: Callable[[str, Any], Any]) -> Any:
    """Returns the value of a message.

    Args:
        outside: returns what `{"h": body}`, `{"b": body}`, `{"m": body}` or `{"n": body}` stands for, given the tag and the
            body.

    Raises:
        ValueError, TypeError, KeyError: it is no such message.
    """
    kind = type(message)
    if kind is list:
        if ATOMS.issuperset(map(type, message)):  # saves most of the time for a large table
            return list(message)
        return [decode(item, outside) for item in message]
    if kind is not dict:
        return message
    ((tag, body),) = message.items()
    if tag in _OF_PAIRS:
        return _READ[tag]((decode(key, outside), decode(value, outside)) for key, value in body)
    if tag in _READ:
        return _READ[tag](decode(item, outside) for item in body)
    if tag == "q":
        return collections.deque((decode(item, outside) for item in body[0]), body[1])
    if tag == "v":
        return plain.READERS[body[0]](body[1])
    return outside(tag, body)
