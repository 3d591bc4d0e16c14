"""The JSON of values of plain types other than atoms and containers: [tag, body]."""

import array
import datetime
import decimal
import fractions
import importlib
import sys
from collections.abc import Callable
from typing import Any

BY_TEXT = frozenset(
    "uuid:UUID zoneinfo:ZoneInfo ipaddress:IPv4Address ipaddress:IPv6Address ipaddress:IPv4Network "  # noqa: SIM905
    "pathlib:PurePosixPath pathlib:PureWindowsPath pathlib:PosixPath".split()
)
"""Classes whose objects are fully described by their text, as module:name."""


def by_text(value: Any) -> list | None:
    """Returns [tag, body] of an object of one of these classes, otherwise None."""
    kind = type(value)
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
    if zone is None:
        return value.isoformat()
    packed = by_text(zone)
    if type(zone) is datetime.timezone:
        tag, pack, _ = PLAIN[datetime.timezone]
        packed = [tag, pack(zone)]
    return (
        value.isoformat() if packed is None else [value.replace(tzinfo=None).isoformat(), value.fold, packed]
    )


def _read_datetime(body: Any) -> datetime.datetime:
    if type(body) is str:
        return datetime.datetime.fromisoformat(body)
    text, fold, (tag, zone) = body
    return datetime.datetime.fromisoformat(text).replace(tzinfo=READERS[tag](zone), fold=fold)


def _read_int(body: str) -> int:
    return int(body, 16)


PLAIN: dict[type, tuple[str, Callable[[Any], Any], Callable[[Any], Any]]] = {
    int: ("I", hex, _read_int),
    bytes: ("b", bytes.hex, bytes.fromhex),
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
    datetime.time: ("time", datetime.time.isoformat, datetime.time.fromisoformat),
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
    **{tag: read for tag, _, read in PLAIN.values()},
}
"""Functions from JSON, by tag."""
