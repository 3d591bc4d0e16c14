"""Values as JSON, between a program and its test: by value where that says all, else as a number. Never pickle.

| message | value |
|---|---|
| an atom; a list | itself; a list that nobody needs to find again |
| `{"t": items}` `{"z": items}` | tuple; frozenset |
| `{"m": [kind, number, head, parts, class]}` | a container that both ends have from now on; see mirrors.py |
| `{"=": number}` | such a container, met before |
| `{"h": [number, class]}` `{"h": [number, class, base]}` | the sender's object; with the plain value that it is, too |
| `{"r": number}` | the receiver's own object |
| `{"c": [number, description]}` `{"c": [number]}` | the sender's class, described once |
| `{"K": "module:name"}` | a class that both ends import |
| `{"B": "module:name"}` | a function of HARMLESS modules of the library |
| `{"g": [number, name]}` | a method of the receiver's object |
| `{"e": [number, class, args, text, attributes, cause, context, hidden]}` | an exception |
| `{"w": [name, dict]}` | a view of a dict |
| `{"u": [class, attribute, value]}` | a wrapper of the library around one value: WRAPPERS |
| `{"v": [tag, body]}` | a value of another plain type: PLAIN, BY_TEXT |
"""

import collections
import datetime
import decimal
import enum
import fractions
import gc
import importlib
import re
import sys
import types
from collections.abc import Callable
from typing import Any

from . import mirrors, remote
from .values import ATOMS, LIBRARY, base_value

NOT_INT = ATOMS - {int}
MOST_DIGITS = 1 << 13_000
"""Beyond about as many bits JSON's own way to write an int is refused by the interpreter."""


class Codec:
    """One end's encoder and decoder, and what it must remember for them.

    Args:
        ask: sends a request about an object of the other end: (number, operation, args, kwargs) -> its answer.
        role: "program" or "test".
    """

    def __init__(self, ask: Callable[..., Any], role: str) -> None:
        self.ask, self.role = ask, role
        self.mirrors = mirrors.Mirrors(int(role == "program"))
        self.objects: dict[int, Any] = {}
        """What the other end has as a number."""
        self._numbers: dict[int, int] = {}
        self._next = 0
        self._described: set[int] = set()
        self.remotes = remote.Remotes(self, strict=role == "test")
        self.pending: dict[int, tuple[Any, list]] = {}
        """By id: own containers that the other end changed, and their parts since, not to be seen yet."""
        self.shared = True
        """Whether containers are to have twins."""

    # ------------------------------------------------------------ encoding

    def encode(self, value: Any) -> Any:
        """Raise RecursionError for values nested too deeply."""
        kind = type(value)
        if kind in ATOMS and (kind is not int or -MOST_DIGITS < value < MOST_DIGITS):
            return value
        if (encoder := _ENCODERS.get(kind)) is not None:
            return encoder(self, value)
        if kind in mirrors.KINDS:
            return self._container(value, kind, None)
        return self._other(value, kind)

    def items(self, values: Any) -> list:
        kinds = set(map(type, values))
        if kinds <= NOT_INT or (kinds == {int} and max(values) < MOST_DIGITS and min(values) > -MOST_DIGITS):
            return list(values)
        encode = self.encode
        return [encode(value) for value in values]

    def _container(self, value: Any, kind: type, cls: Any) -> Any:
        if not self.shared and kind is list and cls is None:
            return self.items(value)
        if self.shared:
            if (number := self.mirrors.number_of(value)) is not None:
                return {"=": number}
            number = self.mirrors.add(value, kind)
        else:
            number = None
        how = mirrors.KINDS[kind]
        parts = how.parts(value)
        if number is not None:
            self.mirrors.known(number, parts)
        if id(value) in self.pending:
            parts = self.pending[id(value)][1]
        message = [kind.__name__, number, self.encode(how.head(value)), self.items(parts)]
        return {"m": message if cls is None else [*message, cls]}

    def _other(self, value: Any, kind: type) -> Any:
        if isinstance(value, type):
            return self._class(value)
        if (number := remote.number_of(value)) is not None:
            return {"r": number}
        if issubclass(kind, BaseException):
            return self._exception(value)
        if isinstance(value, _FUNCTIONS) and (function := library_function(value)) is not None:
            return {"B": function}
        name = library_name(kind)
        if name == "array:array":
            return {"v": ["array", [value.typecode, value.tolist()]]}
        if name in BY_TEXT:
            return {"v": ["text", [name, str(value)]]}
        if name in WRAPPERS:
            return {"u": [name, self.encode(getattr(value, WRAPPERS[name]))]}
        if name is not None and issubclass(kind, enum.Enum) and value.name in kind.__members__:
            return {"v": ["member", [name, value.name]]}
        return self._handle(value)

    def _handle(self, value: Any) -> Any:
        kind = type(value)
        body = [self.number(value), self.encode_class(kind)]
        if (base := mirrors.base_of(value)) is not None:
            return self._container(value, base, body)
        if (plain := base_value(value)) is not None:
            body.append(self.encode(plain[0]))
        return {"h": body}

    def number(self, value: Any) -> int:
        """Of an object of this end that the other may ask about from now on."""
        number = self._numbers.get(id(value))
        if number is None:
            self._next += 1
            number = self._numbers[id(value)] = self._next
            self.objects[number] = value
        return number

    def release(self, numbers: list[int]) -> None:
        """The other end has let go of these objects."""
        for number in numbers:
            if number not in self._described and (value := self.objects.pop(number, None)) is not None:
                del self._numbers[id(value)]

    def encode_class(self, cls: type) -> list:
        """[number], or [number, description] the first time."""
        number = self.number(cls)
        if number in self._described:
            return [number]
        self._described.add(number)
        return [number, remote.describe_class(cls, self._class)]

    def _class(self, cls: type) -> Any:
        if (number := remote.class_number(cls)) is not None:
            return {"r": number}
        name = library_name(cls)
        return {"K": name} if name is not None else {"c": self.encode_class(cls)}

    def _method(self, value: types.MethodType) -> Any:
        if (number := remote.number_of(value.__self__)) is not None:
            return {"g": [number, value.__name__]}
        return self._handle(value)

    def _view(self, view: Any) -> Any:
        holders = [holder for holder in gc.get_referents(view) if isinstance(holder, dict)]
        if len(holders) != 1:
            return self._handle(view)
        return {"w": [type(view).__name__.rpartition("_")[2], self.encode(holders[0])]}

    def _exception(self, error: BaseException) -> Any:
        own = BaseException.__getattribute__(error, "__dict__")
        if remote.NUMBER in own:
            return {"r": own[remote.NUMBER]}
        slots = [
            name
            for name in dir(type(error))
            if name[:1] != "_" and isinstance(getattr(type(error), name, None), _SLOT)
        ]
        attributes = {name: value for name in slots if (value := getattr(error, name, None)) is not None}
        attributes |= {name: value for name, value in own.items() if name[:1] != "_" or name == "__notes__"}
        context = True if error.__context__ is error.__cause__ else error.__context__
        cls = self._class(type(error))
        return {
            "e": [
                None if "K" in cls and self.role == "program" else self.number(error),
                cls,
                self._safe(error.args),
                remote.describe(error),
                self._safe(attributes),
                self._safe(error.__cause__),
                context if context is True else self._safe(context),
                error.__suppress_context__,
            ]
        }

    def _safe(self, value: Any) -> Any:
        """None for what cannot be encoded: an error's arguments shall not hide the error."""
        mark = self.mirrors.mark()
        try:
            return self.encode(value)
        except Exception:
            self.mirrors.undo(mark)
            return None

    # ------------------------------------------------------------ decoding

    def decode(self, message: Any) -> Any:
        """Raise some Exception on anything that `encode` does not produce."""
        kind = type(message)
        if kind is dict:
            ((tag, body),) = message.items()
            return _DECODERS[tag](self, body)
        if kind is list:
            return self.parts(message)
        return message

    def parts(self, messages: list) -> list:
        if set(map(type, messages)) <= ATOMS:
            return messages
        decode = self.decode
        return [decode(message) for message in messages]

    def _make(self, name: str, number: int | None, head: Any, parts: list, cls: list | None = None) -> Any:
        kind = next(kind for kind in mirrors.KINDS if kind.__name__ == name)
        value = kind() if cls is None else self.remotes.object(*cls)
        mirrors.begin(value, kind, self.decode(head))
        if number is None:
            mirrors.KINDS[kind].fill(value, self.parts(parts))
            return value
        self.mirrors.add(value, kind, number)
        self.mirrors.known(number, [])
        self.mirrors.fill(number, self.parts(parts))
        return value

    def _again(self, number: int) -> Any:
        container = self.mirrors.values[number]
        if id(container) not in self.pending:
            return container
        value = mirrors.make(mirrors.base_of(container), None)
        mirrors.kind_of(container).fill(value, self.pending[id(container)][1])
        return value

    def _decode_view(self, body: list) -> Any:
        return getattr(dict, body[0])(self.decode(body[1]))

    def _unwrap(self, body: list) -> Any:
        cls = library_class(body[0])
        value = cls.__new__(cls)
        setattr(value, WRAPPERS[body[0]], self.decode(body[1]))
        return value


# ---------------------------------------------------------------- classes that both ends have


def library_name(cls: type) -> str | None:
    """ "module:name" of a class of the standard library; None for any other."""
    module, name = cls.__module__, cls.__qualname__
    if module.partition(".")[0] not in LIBRARY:
        return None
    found: Any = sys.modules.get(module)
    for part in name.split("."):
        found = getattr(found, part, None)
    return f"{module}:{name}" if found is cls else None


def library_class(text: str) -> type:
    module, _, name = text.partition(":")
    if module.partition(".")[0] not in LIBRARY or "__" in module:
        raise ValueError("no module of the library")
    found: Any = importlib.import_module(module)
    for part in name.split("."):
        found = getattr(found, part)
    if not isinstance(found, type):
        raise TypeError("no class")
    return found


def library_function(value: Any) -> str | None:
    """ "module:name" of a function that both ends have and a test may hand to a program; None for any other."""
    holder = getattr(value, "__objclass__", None)
    module = holder.__module__ if holder is not None else getattr(value, "__module__", None)
    name = (
        f"{holder.__qualname__}.{value.__name__}"
        if holder is not None
        else getattr(value, "__qualname__", "")
    )
    if module not in HARMLESS or "." in name.removeprefix("str.") or value.__name__ in HARMFUL:
        return None
    return f"{module}:{name}" if _found(module, name) is value else None


def read_function(text: str) -> Any:
    module, _, name = text.partition(":")
    value = _found(module, name)
    if module not in HARMLESS or value is None or library_function(value) != text:
        raise ValueError("no function of the library")
    return value


def _found(module: str, name: str) -> Any:
    found: Any = sys.modules.get(module)
    for part in name.split("."):
        found = getattr(found, part, None)
    return found


HARMLESS = frozenset(
    "builtins math cmath operator _operator functools _functools itertools statistics random _random heapq _heapq bisect "  # noqa: SIM905
    "_bisect string re decimal _decimal fractions datetime _datetime collections _collections time copy textwrap".split()
)
"""Modules of the library whose functions a test may hand to a program."""
HARMFUL = frozenset(
    "eval exec compile open getattr setattr delattr hasattr vars globals locals dir __import__ input print breakpoint "  # noqa: SIM905
    "__build_class__ attrgetter methodcaller sleep".split()
)
_FUNCTIONS = (types.BuiltinFunctionType, types.FunctionType, types.MethodDescriptorType)


# ---------------------------------------------------------------- plain types beside the atoms and containers


def _tagged(tag: str, pack: Callable[[Any], Any]) -> Callable[[Codec, Any], Any]:
    return lambda codec, value: {"v": [tag, pack(value)]}


def _read_decimal(text: str) -> decimal.Decimal:
    number = decimal.Decimal(text)
    if number.is_snan():  # a signalling NaN raises in the reader's comparisons
        raise ValueError("signalling NaN")
    return number


def _read_zone(body: list) -> datetime.timezone:
    return datetime.timezone(datetime.timedelta(seconds=body[0]), body[1])


def _read_array(body: list) -> Any:
    import array

    return array.array(str(body[0]), body[1])


def _read_member(body: list) -> Any:
    return library_class(body[0])[body[1]]  # type: ignore[index]


def _read_text(body: list) -> Any:
    if body[0] not in BY_TEXT:
        raise ValueError("no class that its text makes")
    return library_class(body[0])(body[1])


BY_TEXT = frozenset(
    (
        "uuid:UUID",
        "zoneinfo:ZoneInfo",
        "ipaddress:IPv4Address",
        "ipaddress:IPv6Address",
        "ipaddress:IPv4Network",
    )
) | {f"pathlib:{name}" for name in ("PurePosixPath", "PureWindowsPath", "PosixPath")}
"""Classes whose objects are what their text says."""
WRAPPERS = {"collections:UserList": "data", "collections:UserDict": "data", "collections:ChainMap": "maps"}
WRAPPERS["collections:UserString"] = "data"
"""Class: the attribute that holds the value."""
PLAIN: dict[type, tuple[str, Callable[[Any], Any], Callable[[Any], Any]]] = {
    bytes: ("b", bytes.hex, bytes.fromhex),
    complex: ("c", lambda value: [value.real, value.imag], lambda body: complex(*body)),
    range: (
        "range",
        lambda value: [hex(part) for part in (value.start, value.stop, value.step)],
        lambda body: range(*(int(part, 16) for part in body)),
    ),
    fractions.Fraction: (
        "F",
        lambda value: [hex(value.numerator), hex(value.denominator)],
        lambda body: fractions.Fraction(int(body[0], 16), int(body[1], 16)),
    ),
    decimal.Decimal: ("D", str, _read_decimal),
    datetime.date: ("date", datetime.date.isoformat, datetime.date.fromisoformat),
    datetime.datetime: ("datetime", datetime.datetime.isoformat, datetime.datetime.fromisoformat),
    datetime.time: ("time", datetime.time.isoformat, datetime.time.fromisoformat),
    datetime.timedelta: (
        "timedelta",
        lambda value: [value.days, value.seconds, value.microseconds],
        lambda body: datetime.timedelta(*body),
    ),
    datetime.timezone: (
        "tz",
        lambda value: [value.utcoffset(None).total_seconds(), value.tzname(None)],
        _read_zone,
    ),
    re.Pattern: ("re", lambda value: [value.pattern, value.flags], lambda body: re.compile(*body)),
    type(NotImplemented): ("N", lambda value: None, lambda body: NotImplemented),
    type(...): ("...", lambda value: None, lambda body: ...),
}
"""Class: (tag, to JSON, from JSON)."""
_SLOT = types.MemberDescriptorType
_READERS: dict[str, Callable[[Any], Any]] = {
    "I": lambda body: int(body, 16),
    "view": lambda body: memoryview(bytes.fromhex(body)),
    "array": _read_array,
    "member": _read_member,
    "text": _read_text,
    **{tag: read for tag, _, read in PLAIN.values()},
}
_VIEWS = [
    type(view)
    for empty in ({}, collections.OrderedDict())
    for view in (empty.keys(), empty.values(), empty.items())
]
_ENCODERS: dict[type, Callable[[Codec, Any], Any]] = {
    int: lambda codec, value: {"v": ["I", hex(value)]},
    tuple: lambda codec, value: {"t": codec.items(value)},
    frozenset: lambda codec, value: {"z": codec.items(value)},
    slice: lambda codec, value: {"s": codec.items((value.start, value.stop, value.step))},
    types.MappingProxyType: lambda codec, value: {"p": codec.encode(value.copy())},
    memoryview: lambda codec, value: {"v": ["view", value.tobytes().hex()]},
    types.MethodType: Codec._method,
    **dict.fromkeys(_VIEWS, Codec._view),
    **{kind: _tagged(tag, pack) for kind, (tag, pack, _) in PLAIN.items()},
}
_DECODERS: dict[str, Callable[[Codec, Any], Any]] = {
    "t": lambda codec, body: tuple(map(codec.decode, body)),
    "z": lambda codec, body: frozenset(map(codec.decode, body)),
    "m": lambda codec, body: codec._make(*body),
    "=": Codec._again,
    "h": lambda codec, body: codec.remotes.object(*body),
    "r": lambda codec, body: codec.objects[body],
    "g": lambda codec, body: getattr(codec.objects[body[0]], body[1]),
    "c": lambda codec, body: codec.remotes.class_of(*body),
    "K": lambda codec, body: library_class(body),
    "B": lambda codec, body: read_function(body),
    "e": lambda codec, body: codec.remotes.exception(*body),
    "s": lambda codec, body: slice(*map(codec.decode, body)),
    "p": lambda codec, body: types.MappingProxyType(codec.decode(body)),
    "w": Codec._decode_view,
    "u": Codec._unwrap,
    "v": lambda codec, body: _READERS[body[0]](body[1]),
}
