"""The lists, dicts, sets and other changeable values that a program and a data test both have, by number. If the program
changes one, the test's is changed, too.

A container is sent with its contents for the first time, later only by its number. With each answer the program's end sends the
contents of the containers that have changed. Numbers that the test gives are even, those that the program gives are odd.
"""

import operator
import sys
from collections import Counter, OrderedDict, deque
from collections.abc import Callable, Iterable
from types import MappingProxyType
from typing import Any

from .errors import NotData
from .values import ATOMS
from .walk import ObjectCompared

MOST_KNOWN = 100_000
"""Largest number of containers that the program and the test both have. Each is looked at after each call."""
_VIEWS = (
    *(type(view()) for kind in ({}, OrderedDict()) for view in (kind.keys, kind.values, kind.items)),
    MappingProxyType,
)
_ITEMS = (type({}.items()), type(OrderedDict().items()))
_PLAIN = frozenset((list, dict, OrderedDict, Counter, set, deque, bytearray, *_VIEWS))


def is_container(value: Any) -> bool:
    """Returns whether the value can be changed, is copied, and is no dict that creates missing items."""
    kind = type(value)
    return kind in _PLAIN or (issubclass(kind, list | dict | set) and not hasattr(kind, "__missing__"))


class Containers:
    """The containers of one end."""

    def __init__(self, first: int) -> None:
        """first: the smallest number that this end gives."""
        self.next = first
        """The next number that this end gives."""
        self._objects: dict[int, list[Any]] = {}
        """The objects of each number: one at the program's end. At the test's end there may be several, which are equal."""
        self._numbers: dict[int, int] = {}
        """Numbers by the ids of the objects."""
        self._were: dict[int, list[Any]] = {}
        """What the program's containers held after the last call, by number."""
        self._sent: set[int] = set()
        """Numbers that may be sent without contents."""
        self._open: set[int] = set()
        """Numbers of the containers whose contents are being encoded."""
        self._changes: list[tuple[int, Any]] = []
        """(number, what the program's container has become), for changes that the test does not see yet."""

    def message(self, value: Any, encode: Callable[[], Any]) -> dict:
        """Returns the message of a container. encode: returns the message of its contents. Raises RecursionError if the
        container holds itself."""
        if (number := self._numbers.get(id(value))) is None:
            number, self.next = self.next, self.next + 2
            self._add(number, value)
        elif number in self._open:
            raise RecursionError("a value that holds itself")
        elif number in self._sent:
            return {"r": [number]}
        self._open.add(number)
        try:
            contents = encode()
        finally:
            self._open.discard(number)
        self._sent.add(number)
        return {"r": [number, contents]}

    def read(self, body: list, decode: Callable[[Any], Any], *, at_once: bool = True) -> Any:
        """Returns the container of a message.

        Args:
            at_once: True if it is the object that this end has already, if there is one. Otherwise contents make a new one.

        Raises:
            ValueError, TypeError, KeyError, IndexError: it is no such message.
        """
        number, *contents = body
        if contents:
            value = decode(contents[0])
            if not (is_container(value) or isinstance(value, dict)):
                raise ValueError("no container")
            if number not in self._objects or not at_once:
                self._add(number, value)
            self._sent.add(number)
        return self._objects[number][-1]

    def forget(self, numbers: Iterable[int]) -> None:
        for number in numbers:
            for value in self._objects.pop(number, ()):
                self._numbers.pop(id(value), None)
            self._were.pop(number, None)
            self._sent.discard(number)

    def clear(self) -> None:
        """Empties all containers: some may hold themselves, and no collector runs for them."""
        for value in [value for values in self._objects.values() for value in values]:
            if not isinstance(value, _VIEWS):
                value.clear()

    def _add(self, number: int, value: Any) -> None:
        self._objects.setdefault(number, []).append(value)
        self._numbers[id(value)] = number

    # ------------------------------------------------------------ the program's end

    def changed(self) -> list[tuple[int, Any]]:
        """Returns (number, container) of the containers that have changed since the last call, or since `note`."""
        found = []
        for number, (value,) in self._objects.items():
            now, were = _items(value), self._were.get(number)
            self._were[number] = now
            if were is not None and not _are_alike(now, were):
                found.append((number, value))
        return found

    def note(self) -> None:
        """Notes what the containers hold that are new."""
        for number in self._objects.keys() - self._were.keys():
            self._were[number] = _items(self._objects[number][0])

    def send_contents(self) -> None:
        """Has the next messages hold contents, because the test may not see all changes yet."""
        self._sent.clear()

    # ------------------------------------------------------------ the test's end

    def unused(self) -> list[int]:
        """Forgets the objects to which nothing else refers, and returns the numbers that have none left. Raises NotData if too
        many are left."""
        for number, values in self._objects.items():
            used = []
            for value in values:
                if sys.getrefcount(value) > _ALONE:
                    used.append(value)
                else:
                    del self._numbers[id(value)]
            self._objects[number] = used
        gone = [number for number, values in self._objects.items() if not values]
        self.forget(gone)
        if len(self._objects) > MOST_KNOWN:
            raise NotData(
                f"more than {MOST_KNOWN} lists, dicts and sets that the program and the test both have"
            )
        return gone

    def receive(self, changes: list[list], decode: Callable[[Any], Any]) -> bool:
        """Notes changes, which `see_changes` makes. Returns whether there are any of containers that the test still has."""
        received = [(number, decode(contents)) for number, contents in changes]
        known = [(number, now) for number, now in received if number in self._objects]
        self._changes += known
        return bool(known)

    def see_changes(self) -> None:
        """Makes the changes that were received."""
        changes, self._changes = self._changes, []
        for number, now in changes:
            for value in self._objects.get(number, ()):
                _fill(value, now)


def _count() -> int:
    return next(sys.getrefcount(value) for value in [[]])


_ALONE = _count()
"""Number of references to a container to which only its list refers, while `unused` looks at it."""


def _items(value: Any) -> list[Any]:
    """Returns what a container holds, by no method of a subclass."""
    if isinstance(value, dict):
        base = OrderedDict if isinstance(value, OrderedDict) else dict
        return [*base.keys(value), *base.values(value)]
    if isinstance(value, MappingProxyType):
        return [*value, *value.values()]
    if type(value) in _ITEMS:
        return [part for item in value for part in item]
    base = next((kind for kind in (list, set) if isinstance(value, kind)), type(value))
    return [*base.__iter__(value)]


def _are_alike(now: list[Any], were: list[Any]) -> bool:
    """Returns whether these are the same objects, or equal constants."""
    return len(now) == len(were) and (
        all(map(operator.is_, now, were))
        or all(
            one is other or (type(one) is type(other) and type(one) in ATOMS and one == other)
            for one, other in zip(now, were, strict=True)
        )
    )


def _fill(value: Any, now: Any) -> None:
    """Changes a container to what the program's has become. It is changed in place, because the test may have several names
    for it."""
    if type(value) is not type(now):
        raise ObjectCompared("the program makes an object of an argument")
    if isinstance(value, _VIEWS):
        raise NotData(f"a change of a {type(value).__name__}")
    value.clear()
    if isinstance(value, dict):
        for key, item in now.items():
            value[key] = item
    elif isinstance(value, set):
        value.update(now)
    else:
        value.extend(now)
