"""The JSON of values of plain types other than atoms and containers: [tag, body]."""

import array
import datetime
import decimal
import fractions
import importlib
import sys
from collections.abc import Callable
from typing import Any

from .values import PLAIN_TYPES

BY_TEXT = frozenset(
    "uuid:UUID zoneinfo:ZoneInfo ipaddress:IPv4Address ipaddress:IPv6Address ipaddress:IPv4Network "  # noqa: SIM905
    "pathlib:PurePosixPath pathlib:PureWindowsPath pathlib:PosixPath".split()
)
"""Classes whose objects are fully described by their text, as module:name."""


def by_text(value: Any) -> list | None:
    """Returns [tag, body] of an object of one of these classes, or of a class of plain values; otherwise None."""
    kind = type(value)
    if kind is type and value in PLAIN_TYPES:
        return ["class", value.__name__]
    name = f"{kind.__module__}:{kind.__qualname__}"
    if name not in BY_TEXT or getattr(sys.modules.get(kind.__module__), kind.__qualname__, None) is not kind:
        return None
    return ["text", [name, str(value)]]


def _read_text(body: list) -> Any:
    if body[0] not in BY_TEXT:
        raise ValueError("no class that its text makes")
    module, _, name = body[0].partition(":")
    return getattr(importlib.import_module(module), name)(body[1])


def _read_decimal(text: str) -> decimal.Decimal:
    number = decimal.Decimal(text)
    if number.is_snan():  # a signalling NaN raises in the reader's comparisons
        raise ValueError("signalling NaN")
    return number


def _pack_datetime(value: datetime.datetime) -> Any:
    """Returns the JSON of a datetime, with its zone as a separate part if the zone is more than an offset."""
    zone = value.tzinfo
    packed = by_text(zone)
    if type(zone) is datetime.timezone:
        tag, pack, _ = PLAIN[datetime.timezone]
        packed = [tag, pack(zone)]
    text = value.isoformat() if packed is None else value.replace(tzinfo=None).isoformat()
    return [text, value.fold, packed]


def _read_datetime(body: Any) -> datetime.datetime:
    text, fold, packed = body
    value = datetime.datetime.fromisoformat(text).replace(fold=fold)
    return value if packed is None else value.replace(tzinfo=READERS[packed[0]](packed[1]))


def _read_int(body: str) -> int:
    return int(body, 16)


PLAIN: dict[type, tuple[str, Callable[[Any], Any], Callable[[Any], Any]]] = {
    int: ("I", hex, _read_int),
    bytes: ("b", bytes.hex, bytes.fromhex),
    bytearray: ("B", bytearray.hex, bytearray.fromhex),
    memoryview: ("view", lambda value: value.tobytes().hex(), lambda body: memoryview(bytes.fromhex(body))),
    array.array: (
        "array",
        lambda value: [value.typecode, value.tolist()],
        lambda body: array.array(str(body[0]), body[1]),
    ),
    complex: ("c", lambda value: [value.real, value.imag], lambda body: complex(*body)),
    range: (
        "range",
        lambda value: [hex(part) for part in (value.start, value.stop, value.step)],
        lambda body: range(*map(_read_int, body)),
    ),
    fractions.Fraction: (
        "F",
        lambda value: [hex(value.numerator), hex(value.denominator)],
        lambda body: fractions.Fraction(*map(_read_int, body)),
    ),
    decimal.Decimal: ("D", str, _read_decimal),
    datetime.date: ("date", datetime.date.isoformat, datetime.date.fromisoformat),
    datetime.datetime: ("datetime", _pack_datetime, _read_datetime),
    datetime.time: (
        "time",
        lambda value: [value.isoformat(), value.fold],
        lambda body: datetime.time.fromisoformat(body[0]).replace(fold=body[1]),
    ),
    datetime.timedelta: (
        "timedelta",
        lambda value: [value.days, value.seconds, value.microseconds],
        lambda body: datetime.timedelta(*body),
    ),
    datetime.timezone: (
        "tz",
        lambda value: [value.utcoffset(None).total_seconds(), value.tzname(None)],
        lambda body: datetime.timezone(datetime.timedelta(seconds=body[0]), body[1]),
    ),
    type(NotImplemented): ("N", lambda value: None, lambda body: NotImplemented),
    type(...): ("...", lambda value: None, lambda body: ...),
}
"""Class: (tag, function to JSON, function from JSON)."""
READERS: dict[str, Callable[[Any], Any]] = {
    "text": _read_text,
    "class": {kind.__name__: kind for kind in PLAIN_TYPES}.__getitem__,
    **{tag: read for tag, _, read in PLAIN.values()},
}
"""Functions from JSON, by tag."""
