"""Mutable containers that program and test share: each end has its own, and what one changes the other sees.

Only one end runs at a time, so it is enough that each message carries what changed since the last one. A pair of
containers has one number. It ends as soon as one end holds its own no longer: nobody there could see a change.
"""

import collections
import io
import operator
import sys
import types
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Kind:
    """How containers of one class are taken apart and filled, by methods that no subclass can override."""

    parts: Callable[[Any], list]
    fill: Callable[[Any, list], None]
    head: Callable[[Any], Any] = lambda value: None
    """What it is made with, beside its parts."""
    by_value: bool = False
    """Its parts are new objects each time."""


def _set_items(value: list, parts: list) -> None:
    list.__setitem__(value, slice(None), parts)


def _pairs(base: Any) -> Kind:
    """Of a kind of dict: its keys, then its values."""

    def fill(value: dict, parts: list) -> None:
        half = len(parts) // 2
        # Hashing may ask the other end: before any change.
        new = dict(zip(parts[:half], parts[half:], strict=True))
        base.clear(value)
        for key, item in new.items():
            base.__setitem__(value, key, item)

    return Kind(lambda value: [*base.keys(value), *base.values(value)], fill)


def _set_members(value: set, parts: list) -> None:
    new = set(parts)  # hashing may ask the other end: before any change
    set.clear(value)
    set.update(value, new)


def _set_bytes(value: bytearray, parts: list) -> None:
    bytearray.__setitem__(value, slice(None), parts[0])


def _set_queue(value: collections.deque, parts: list) -> None:
    collections.deque.clear(value)
    collections.deque.extend(value, parts)


def _file_parts(value: Any) -> list:
    return [None, 0] if value.closed else [value.getvalue(), value.tell()]


def _set_file(value: Any, parts: list) -> None:
    if parts[0] is None:
        value.close()
        return
    value.seek(0)
    value.truncate()
    value.write(parts[0])
    value.seek(parts[1])


def _set_names(value: Any, parts: list) -> None:
    _PAIRS.fill(vars(value), parts)


_PAIRS = _pairs(dict)
_FILE = Kind(_file_parts, _set_file, by_value=True)
KINDS: dict[type, Kind] = {
    list: Kind(lambda value: list(list.__iter__(value)), _set_items),
    dict: _PAIRS,
    set: Kind(lambda value: list(set.__iter__(value)), _set_members),
    bytearray: Kind(lambda value: [bytes(value)], _set_bytes, by_value=True),
    collections.deque: Kind(
        lambda value: list(collections.deque.__iter__(value)), _set_queue, lambda value: value.maxlen
    ),
    collections.Counter: _PAIRS,
    collections.OrderedDict: _pairs(collections.OrderedDict),
    collections.defaultdict: Kind(_PAIRS.parts, _PAIRS.fill, lambda value: value.default_factory),
    types.SimpleNamespace: Kind(lambda value: _PAIRS.parts(vars(value)), _set_names),
    io.StringIO: _FILE,
    io.BytesIO: _FILE,
}
"""In both processes the same classes."""


def base_of(value: Any) -> type | None:
    """The class of KINDS that it is of, or derives from."""
    return next((base for base in type(value).__mro__ if base in KINDS), None)


def kind_of(value: Any) -> Kind:
    """Raise KeyError where it is no container."""
    return KINDS[base_of(value)]


def begin(value: Any, kind: type, head: Any) -> None:
    """Make it an empty container, by the constructor that no subclass can override."""
    if kind is collections.deque:
        collections.deque.__init__(value, (), head)
    elif kind is collections.defaultdict:
        collections.defaultdict.__init__(value, head)
    else:
        kind.__init__(value)


def _same(old: list, new: list, kind: Kind) -> bool:
    if kind.by_value:
        return old == new
    return len(old) == len(new) and all(map(operator.is_, old, new))


def _complete_kinds() -> None:
    """With a class of `random`, which the zygote loads in its own way."""
    import random

    generator = random.Random
    if generator not in KINDS:
        KINDS[generator] = Kind(
            lambda value: [generator.getstate(value)],
            lambda value, parts: generator.setstate(value, parts[0]),
            by_value=True,
        )


_holder: dict[int, list] = {0: []}
_ALONE = sys.getrefcount(_holder[0])
"""References to a container that nothing but one dict holds."""


class Mirrors:
    """The containers of one end that have a twin at the other.

    Args:
        first: 0 or 1. Each end gives its own numbers, even or odd.
    """

    def __init__(self, first: int) -> None:
        _complete_kinds()
        self.values: dict[int, Any] = {}
        self._numbers: dict[int, int] = {}
        self._kinds: dict[int, Kind] = {}
        self._parts: dict[int, list] = {}
        """As both ends knew them last."""
        self._first = self._next = first

    def is_own(self, number: int) -> bool:
        return number & 1 == self._first

    def number_of(self, value: Any) -> int | None:
        return self._numbers.get(id(value))

    def add(self, value: Any, kind: type, number: int | None = None) -> int:
        """Its number: a new one, or the other end's."""
        if number is None:
            number, self._next = self._next, self._next + 2
        self.values[number], self._kinds[number] = value, KINDS[kind]
        self._numbers[id(value)] = number
        return number

    def mark(self) -> int:
        """To be given to `undo`."""
        return self._next

    def undo(self, mark: int) -> None:
        """Forget the containers of a message that was not sent."""
        for number in range(mark, self._next, 2):
            self.forget(number)

    def forget(self, number: int) -> None:
        if (value := self.values.pop(number, None)) is not None:
            del self._numbers[id(value)], self._kinds[number]
            self._parts.pop(number, None)

    def known(self, number: int, parts: list) -> None:
        """Both ends have these parts."""
        self._parts[number] = parts

    def is_known(self, number: int, parts: list) -> bool:
        """Whether both ends have them."""
        return _same(self._parts[number], parts, self._kinds[number])

    def fill(self, number: int, parts: list) -> None:
        """Do to the container what the other end did to its own."""
        self._kinds[number].fill(self.values[number], parts)
        self._parts[number] = self._kinds[number].parts(self.values[number])

    def changes(self) -> list[tuple[int, list]]:
        """(number, parts) of what this end changed since both knew it."""
        changed = []
        for number, value in self.values.items():
            kind = self._kinds[number]
            parts = kind.parts(value)
            if not _same(self._parts[number], parts, kind):
                self._parts[number] = parts
                changed.append((number, parts))
        return changed

    def give_up(self) -> list[int]:
        """Forget what nothing here refers to any longer; their numbers."""
        given_up: list[int] = []
        found = True
        while found:
            found = False
            for number in list(self.values):
                if sys.getrefcount(self.values[number]) == _ALONE:
                    self.forget(number)
                    given_up.append(number)
                    found = True
        return given_up
