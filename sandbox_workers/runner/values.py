"""What may travel between a program and its test: exact plain types, never pickle.

A subclass of a plain type is reduced to its base data by the *base class's* methods, so an overridden
`__eq__` or `__iter__` stays behind. Everything else travels as a handle: the object stays where it lives.
"""

import datetime
import decimal
import enum
import fractions
from collections.abc import Callable
from typing import Any

ATOMS = (bool, int, float, str, type(None))
MAX_DEPTH = 150
BIG_INT = 1 << 62
MAX_REPR = 4000
"""Characters of a value's repr."""


PLAIN_TYPES = (bool, int, float, complex, str, bytes, bytearray, list, tuple, set, frozenset, dict)
"""Classes that are the same on both sides."""


class NotPlain(TypeError):
    """The value is not of the exact plain types."""


class TooLong(ValueError):
    """The repr exceeds MAX_REPR characters."""


class Codec:
    """Encode and decode values of one end; remembers the objects that it handed out as handles.

    Args:
        make_remote: builds the local stand-in of the other end's object from (id, type name).
        remote_id: the id of such a stand-in, or None for any other object.
    """

    def __init__(
        self, make_remote: Callable[[int, str], Any], remote_id: Callable[[Any], int | None]
    ) -> None:
        self.objects: dict[int, Any] = {}
        self._ids: dict[int, int] = {}
        self._make_remote = make_remote
        self._remote_id = remote_id

    def encode(self, value: Any, depth: int = 0) -> Any:
        """Raise ValueError for nesting beyond MAX_DEPTH."""
        if depth > MAX_DEPTH:
            raise ValueError("value nested too deeply")
        kind = type(value)
        if kind is int and abs(value) > BIG_INT:
            return {"I": hex(value)}
        if kind in ATOMS:
            return value
        if kind is list:
            return self._items(value, depth)
        if kind is tuple:
            return {"t": self._items(value, depth)}
        if kind is set or kind is frozenset:
            return {"s": self._items(value, depth), "f": kind is frozenset}
        if kind is dict:
            return {"d": [[self.encode(k, depth + 1), self.encode(v, depth + 1)] for k, v in value.items()]}
        if kind in _ENCODERS:
            return _ENCODERS[kind](value)
        if kind is type and value in PLAIN_TYPES:
            return {"p": value.__name__}
        if (remote := self._remote_id(value)) is not None:
            return {"r": remote}
        reduced = reduce_to_base(value)
        return self._handle(value) if reduced is None else self.encode(reduced, depth + 1)

    def _items(self, values: Any, depth: int) -> list:
        return [self.encode(value, depth + 1) for value in values]

    def _handle(self, value: Any) -> dict:
        number = self._ids.setdefault(id(value), len(self._ids))
        self.objects[number] = value
        return {"h": number, "n": type(value).__name__[:80]}

    def decode(self, message: Any) -> Any:
        """Raise some Exception on anything that `encode` does not produce."""
        if type(message) is list:
            return [self.decode(item) for item in message]
        if type(message) is not dict:
            return message
        if "t" in message:
            return tuple(map(self.decode, message["t"]))
        if "s" in message:
            return (frozenset if message.get("f") else set)(map(self.decode, message["s"]))
        if "d" in message:
            return {self.decode(key): self.decode(value) for key, value in message["d"]}
        if "r" in message:
            return self.objects[message["r"]]
        if "h" in message:
            return self._make_remote(int(message["h"]), str(message["n"]))
        ((tag, body),) = message.items()
        return _DECODERS[tag](body)


def reduce_to_base(value: Any) -> Any | None:
    """The base data of an instance of a subclass, by methods that the subclass cannot override; None for
    others."""
    kind = type(value)
    if issubclass(kind, enum.Enum):
        return None
    if issubclass(kind, int):
        return int.__add__(value, 0)
    if issubclass(kind, float):
        return float.__add__(value, 0.0)
    if issubclass(kind, str):
        return "".join(str.__iter__(value))
    if issubclass(kind, dict):
        return dict(dict.items(value))
    for base in (list, tuple, set, frozenset):
        if issubclass(kind, base):
            return base(base.__iter__(value))
    return None


def _decode_decimal(text: str) -> decimal.Decimal:
    number = decimal.Decimal(text)
    if number.is_snan():  # a signalling NaN raises in the reader's comparisons
        raise ValueError("signalling NaN")
    return number


_ENCODERS: dict[type, Callable[[Any], dict]] = {
    bytes: lambda value: {"b": value.hex()},
    bytearray: lambda value: {"B": value.hex()},
    complex: lambda value: {"c": [value.real, value.imag]},
    fractions.Fraction: lambda value: {"F": [hex(value.numerator), hex(value.denominator)]},
    decimal.Decimal: lambda value: {"D": str(value)},
    datetime.date: lambda value: {"y": value.isoformat()},
    datetime.datetime: lambda value: {"T": value.isoformat()},
}
_DECODERS: dict[str, Callable[[Any], Any]] = {
    "p": {cls.__name__: cls for cls in PLAIN_TYPES}.__getitem__,
    "I": lambda body: int(body, 16),
    "b": bytes.fromhex,
    "B": bytearray.fromhex,
    "c": lambda body: complex(*body),
    "F": lambda body: fractions.Fraction(int(body[0], 16), int(body[1], 16)),
    "D": _decode_decimal,
    "y": datetime.date.fromisoformat,
    "T": datetime.datetime.fromisoformat,
}


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
    if (
        kind is int and abs(value) >> 13288
    ):  # 4000 digits: repr() itself refuses 4300 and is quadratic on the way
        raise TooLong(f"an int of more than {MAX_REPR} digits")
    if kind in ATOMS or kind in (
        bytes,
        bytearray,
        complex,
        datetime.date,
        datetime.datetime,
        decimal.Decimal,
    ):
        return repr(value)
    if kind is fractions.Fraction:
        return f"Fraction({_repr(value.numerator, depth)}, {_repr(value.denominator, depth)})"
    if kind not in (list, tuple, set, frozenset, dict):
        raise NotPlain(f"not a plain value: {kind.__name__}")
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
