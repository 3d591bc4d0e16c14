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
| `{"s": [start, stop, step]}` `{"p": dict}` `{"w": [name, dict]}` | slice; read-only view of a dict; its keys, values or items |
| `{"u": [class, value]}` | a wrapper of the library around one value: WRAPPERS |
| `{"v": [tag, body]}` | a value of another plain type: plain.py |
"""

import collections
import gc
import types
from collections.abc import Callable
from typing import Any

from . import library, mirrors, plain, remote
from .errors import Refused, describe
from .permits import is_permitted
from .standins import NUMBER, Method, class_number, number_of
from .values import ATOMS, base_value

NOT_INT = ATOMS - {int}
MOST_DIGITS = 1 << 13_000
"""Beyond about as many bits JSON's own way to write an int is refused by the interpreter."""
WRAPPERS = {
    "collections:UserList": "data",
    "collections:UserDict": "data",
    "collections:UserString": "data",
    "collections:ChainMap": "maps",
}
"""Class: the attribute that holds the value."""


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
            return self._container(value, kind)
        return self._other(value, kind)

    def items(self, values: Any) -> list:
        kinds = set(map(type, values))
        if kinds <= NOT_INT or (kinds == {int} and max(values) < MOST_DIGITS and min(values) > -MOST_DIGITS):
            return list(values)
        encode = self.encode
        return [encode(value) for value in values]

    def _container(self, value: Any, kind: type, cls: list | None = None) -> Any:
        number = None
        if self.shared:
            if (number := self.mirrors.number_of(value)) is not None:
                return {"=": number}
            number = self.mirrors.add(value, kind)
        elif kind is list and cls is None:
            return self.items(value)
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
        if (number := number_of(value)) is not None:
            return {"r": number}
        if issubclass(kind, BaseException):
            return self._exception(value)
        if isinstance(value, library.FUNCTIONS) and (function := library.function_name(value)) is not None:
            return {"B": function}
        name = library.class_name(kind)
        if (message := plain.named(name, value)) is not None:
            return {"v": message}
        if name in WRAPPERS:
            return {"u": [name, self.encode(getattr(value, WRAPPERS[name]))]}
        return self._handle(value)

    def _handle(self, value: Any) -> Any:
        kind = type(value)
        body = [self.number(value), self._described_class(kind)]
        if (base := mirrors.base_of(value)) is not None:
            return self._container(value, base, body)
        if (reduced := base_value(value)) is not None:
            body.append(self.encode(reduced[0]))
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

    def _class(self, cls: type) -> Any:
        if (number := class_number(cls)) is not None:
            return {"r": number}
        name = library.class_name(cls)
        return {"K": name} if name is not None else {"c": self._described_class(cls)}

    def _described_class(self, cls: type) -> list:
        """[number], or [number, description] the first time."""
        number = self.number(cls)
        if number in self._described:
            return [number]
        self._described.add(number)
        return [number, remote.describe_class(cls, self._class)]

    def _method(self, value: types.MethodType | Method) -> Any:
        if (number := number_of(value.__self__)) is not None:
            return {"g": [number, value.__name__]}
        return self._handle(value)

    def _view(self, view: Any) -> Any:
        holders = [holder for holder in gc.get_referents(view) if isinstance(holder, dict)]
        if len(holders) != 1:
            return self._handle(view)
        return {"w": [type(view).__name__.rpartition("_")[2], self.encode(holders[0])]}

    def _exception(self, error: BaseException) -> Any:
        own = BaseException.__getattribute__(error, "__dict__")
        if NUMBER in own:
            return {"r": own[NUMBER]}
        kind = type(error)
        slots = [
            name
            for name in dir(kind)
            if name[:1] != "_" and isinstance(getattr(kind, name, None), types.MemberDescriptorType)
        ]
        attributes = {name: value for name in slots if (value := getattr(error, name, None)) is not None}
        attributes |= {name: value for name, value in own.items() if name[:1] != "_" or name == "__notes__"}
        cls = self._class(kind)
        return {
            "e": [
                None if "K" in cls and self.role == "program" else self.number(error),
                cls,
                self._safe(error.args),
                describe(error),
                self._safe(attributes),
                self._safe(error.__cause__),
                True if error.__context__ is error.__cause__ else self._safe(error.__context__),
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
        kind = mirrors.base_of(container)
        value = kind()
        mirrors.KINDS[kind].fill(value, self.pending[id(container)][1])
        return value

    def _bound(self, number: int, name: str) -> Any:
        """A method of an object of this end; of a test's, one that a program may call."""
        holder = self.objects[number]
        if self.role == "test" and not is_permitted(holder, "method", (name,)):
            raise Refused
        return getattr(holder, name)

    def _unwrap(self, body: list) -> Any:
        cls = library.class_named(body[0])
        value = cls.__new__(cls)
        setattr(value, WRAPPERS[body[0]], self.decode(body[1]))
        return value


def _tagged(tag: str, pack: Callable[[Any], Any]) -> Callable[[Codec, Any], Any]:
    return lambda codec, value: {"v": [tag, pack(value)]}


_VIEWS = [
    type(view)
    for empty in ({}, collections.OrderedDict())
    for view in (empty.keys(), empty.values(), empty.items())
]
_VIEW = {"keys": dict.keys, "values": dict.values, "items": dict.items}
_ENCODERS: dict[type, Callable[[Codec, Any], Any]] = {
    tuple: lambda codec, value: {"t": codec.items(value)},
    frozenset: lambda codec, value: {"z": codec.items(value)},
    slice: lambda codec, value: {"s": codec.items((value.start, value.stop, value.step))},
    types.MappingProxyType: lambda codec, value: {"p": codec.encode(value.copy())},
    types.MethodType: Codec._method,
    Method: Codec._method,
    **dict.fromkeys(_VIEWS, Codec._view),
    **{kind: _tagged(tag, pack) for kind, (tag, pack, _) in plain.PLAIN.items()},
}
_DECODERS: dict[str, Callable[[Codec, Any], Any]] = {
    "t": lambda codec, body: tuple(map(codec.decode, body)),
    "z": lambda codec, body: frozenset(map(codec.decode, body)),
    "m": lambda codec, body: codec._make(*body),
    "=": Codec._again,
    "h": lambda codec, body: codec.remotes.object(*body),
    "r": lambda codec, body: codec.objects[body],
    "g": lambda codec, body: codec._bound(*body),
    "c": lambda codec, body: codec.remotes.class_of(*body),
    "K": lambda codec, body: library.class_named(body),
    "B": lambda codec, body: library.function_named(body),
    "e": lambda codec, body: codec.remotes.exception(body),
    "s": lambda codec, body: slice(*map(codec.decode, body)),
    "p": lambda codec, body: types.MappingProxyType(codec.decode(body)),
    "w": lambda codec, body: _VIEW[body[0]](codec.decode(body[1])),
    "u": Codec._unwrap,
    "v": lambda codec, body: plain.READERS[body[0]](body[1]),
}
