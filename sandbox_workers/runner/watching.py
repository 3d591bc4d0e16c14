"""Keeps the values of a data test equal to the program's copies of them: if the program changes a copy, the test's value
is changed, too. Both ends say, by counting references, which of these values they still keep. The others are forgotten.

`ProgramValues` is the program's end, `TestValues` the test's end. The fields of requests and answers are in calls.py.
"""

import itertools
import operator
import sys
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Sequence, Set
from types import MappingProxyType
from typing import Any

from . import copies
from .data_tests import NotData
from .values import ATOMS
from .walk import ObjectCompared

MOST_WATCHED = 500
"""Largest number of arguments and results that a test and the program both keep. A test that exceeds it cannot be judged on
copies: each of these values is compared with its copy after each call."""
VIEWS = (
    *(type(view()) for kind in ({}, OrderedDict()) for view in (kind.keys, kind.values, kind.items)),
    MappingProxyType,
)
_CHANGEABLE = (list, dict, set, deque, bytearray, tuple, *VIEWS)


def may_change(value: Any) -> bool:
    """Returns whether a value, or an item of it, may be changed in place."""
    return isinstance(value, _CHANGEABLE) and not (
        type(value) is tuple and ATOMS.issuperset(map(type, value))
    )


def is_shared(box: Iterable, held: Set[int] = frozenset()) -> bool:
    """Returns whether anything else than this container refers to one of its items, or to a part of one, that may change.

    Args:
        held: ids of parts to which one further reference is known.
    """
    for item in box:
        if not may_change(item):
            continue
        if sys.getrefcount(item) > _ALONE + (id(item) in held):
            return True
        if not ATOMS.issuperset(map(type, _parts(item))) and is_shared(_parts(item), held):
            return True
    return False


def changeable_parts(value: Any) -> list[Any]:
    """Returns the containers in a value, at all depths, each once."""
    found, seen = [value], {id(value)}
    for part in found:  # it grows
        if not ATOMS.issuperset(map(type, _parts(part))):
            inner = {id(item): item for item in _parts(part) if may_change(item) and id(item) not in seen}
            found += inner.values()
            seen |= inner.keys()
    return found[1:]


def _parts(value: Any) -> Iterable:
    """Returns what may change in a container, by no method of a subclass."""
    if isinstance(value, dict):
        return dict.values(value)
    return next(kind for kind in _CHANGEABLE if isinstance(value, kind)).__iter__(value)


def _count() -> int:
    for item in [[]]:
        return sys.getrefcount(item)
    return 0


_ALONE = _count()
"""Number of references to an item to which only its container refers, while `is_shared` looks at it."""


_Watched = tuple[list, str, list, list | None]
"""[value]; and as they were when the value was last sent to the test: the text of its encoding, in which nan equals nan, the
containers in it, and its items if it is a list of constants."""


# ---------------------------------------------------------------- the program's end


class ProgramValues:
    """The values of which the test has copies and which the program may change, by number. `encode` encodes a value."""

    def __init__(self, encode: Callable[[Any], Any]) -> None:
        self._encode = encode
        self._watched: dict[int, _Watched] = {}

    def forget(self, numbers: Iterable[int]) -> None:
        for number in numbers:
            self._watched.pop(number, None)

    def kept(self) -> list[int]:
        """Returns the numbers of the values that the program keeps, and forgets the others."""
        self._watched = {number: known for number, known in self._watched.items() if _is_kept(known)}
        return list(self._watched)

    def add(self, number: int, value: Any) -> None:
        if may_change(value):
            known = next((known for known in self._watched.values() if known[0][0] is value), None)
            self._watched[number] = known or self._seen([value])

    def numbers_of(self, value: Any) -> list[int]:
        return [number for number, known in self._watched.items() if known[0][0] is value]

    def changes(self, kept: Sequence[int]) -> dict[str, Any]:
        """Returns the fields of an answer that tell of changes; none if nothing has changed.

        Args:
            kept: Numbers of the values that the program kept before this request.
        """
        if not (changed := self._changed()):
            return {}
        return {"w": changed, "d": [number for number in kept if not _is_kept(self._watched[number])]}

    def _seen(self, box: list) -> "_Watched":
        value = box[0]
        # few lists of constants are changed
        items = [*value] if type(value) is list and ATOMS.issuperset(map(type, value)) else None
        return box, repr(self._encode(value)), changeable_parts(value), items

    def _changed(self) -> list:
        changed = []
        for number, (box, was, before, items) in self._watched.items():
            value = box[0]
            if items is not None and len(items) == len(value) and all(map(operator.is_, items, value)):
                continue
            now = self._encode(value)
            if repr(now) != was:
                self._watched[number] = seen = self._seen(box)
                parts = seen[2]
                same = len(parts) >= len(before) and all(map(operator.is_, before, parts))
                changed.append([number, now, same])
        return changed


def _is_kept(known: "_Watched") -> bool:
    """Returns whether the program refers to the value or to a part of it."""
    return isinstance(known[0][0], VIEWS) or is_shared(known[0], frozenset(map(id, known[2])))


# ---------------------------------------------------------------- the test's end


class TestValues:
    """The values of a test of which the program has copies."""

    __test__ = False  # pytest

    def __init__(self) -> None:
        self._numbers = itertools.count()
        self._given: dict[int, list] = {}
        """[value] of the test, by the number under which the program's copy is watched."""
        self._unwatched: list[int] = []
        self.begin(keeps=False)

    def begin(self, *, keeps: bool) -> None:
        """Prepares for the next test.

        Args:
            keeps: True if it may keep arguments or results.
        """
        self.on = keeps
        self._unwatched += self._given
        self._given = {}
        self._twins: list[list[list]] = []
        """Groups of [value]; those of a group are one object of the program, and several of the test."""
        self._changes: list[tuple[Any, Any, bool]] = []
        """(a value of the test, what the program's copy has become, whether its parts are the same objects), for changes that
        the test does not see yet."""

    def forget_twins(self) -> None:
        """Forgets values that are several of the test and one of the program, if the test keeps only one of them."""
        alive = ([box for box in group if is_shared(box)] for group in self._twins)
        self._twins = [group for group in alive if len(group) > 1]

    def new_numbers(self, count: int) -> list[int]:
        return list(itertools.islice(self._numbers, count))

    def forgotten(self) -> list[int]:
        """Returns the numbers of values that the test no longer keeps, and forgets them."""
        gone = [number for number, box in self._given.items() if not is_shared(box)]
        for number in gone:
            del self._given[number]
        gone += self._unwatched
        self._unwatched = []
        return gone

    def now(self, value: Any) -> Any:
        """Returns what the program has made of a value, even if the test does not see the change yet."""
        return next((changed for known, changed, _ in reversed(self._changes) if known is value), value)

    def receive(
        self,
        numbers: Sequence[int],
        given: Sequence[Any],
        reply: dict,
        decode: Callable[[Any], Any],
    ) -> bool:
        """Notes the changes that an answer tells of, which `see_changes` makes. Returns whether there are any.

        Args:
            numbers: Numbers of the values that the request has given, and of its result.
        """
        self._keep(reply.get("n", ()))
        for number, value in zip(numbers, given, strict=False):
            if not isinstance(value, copies.Copied):  # the program gets itself what is watched already
                self._given[number] = self._box_of(value)
        has_changed = False
        for number, changed, same in reply.get("w", ()):
            value = self._given.get(number, [None])[0]
            if not may_change(value):  # it belongs to an earlier test, or is an object
                continue
            if self._has_copies(value, reply.get("d", ())):
                raise NotData("a change of a value of which the program has two copies")
            for copy in self._copies_of(value):
                self._changes.append((copy, decode(changed), bool(same)))
            has_changed = True
        return has_changed

    def add_result(self, number: int, result: Any, same: Sequence[int]) -> None:
        """Notes a result. same: numbers of the values that are the same object of the program."""
        self._given[number] = box = self._box_of(result)
        for other in same:
            if other in self._given and self._given[other] is not box:
                self._join(self._given[other], box)

    def see_changes(self) -> None:
        """Makes the changes that the program has made since the last call."""
        while self._changes:
            value, changed, same = self._changes.pop(0)
            if not same and _has_reordered(value, changed):
                continue
            if not same and is_shared(_parts(value)):
                raise NotData("a part of an argument is replaced, to which the test refers elsewhere")
            if _holds_twice(value) and not _begins_alike(value, changed):
                raise NotData("a change of a list that a value holds twice")
            _fill(value, changed)

    def _box_of(self, value: Any) -> list:
        """Returns [value], one for each object: two boxes of an object would each be a reference to it."""
        boxes = itertools.chain(self._given.values(), *self._twins)
        return next((box for box in boxes if box[0] is value), [value])

    def _has_copies(self, value: Any, dropped: Sequence[int]) -> bool:
        """Returns whether the program has a second copy of the value. dropped: numbers that it kept until this request."""
        return sum(box[0] is value and number not in dropped for number, box in self._given.items()) > 1

    def _join(self, *boxes: list) -> None:
        """Notes that the values are one object of the program."""
        joined = [group for group in self._twins if any(box is one for box in group for one in boxes)]
        self._twins = [group for group in self._twins if not any(group is one for one in joined)]
        self._twins.append(list({id(box): box for group in (*joined, boxes) for box in group}.values()))

    def _copies_of(self, value: Any) -> list[Any]:
        """Returns the value, and the others that are the same object of the program."""
        groups = [group for group in self._twins if any(box[0] is value for box in group)]
        return [box[0] for box in groups[0]] if groups else [value]

    def _keep(self, kept: Sequence[int]) -> None:
        """Forgets the values that the program does not keep."""
        if len(kept) > MOST_WATCHED:
            raise NotData(f"more than {MOST_WATCHED} values that the program and the test keep")
        before, self._given = self._given, {}
        for number in kept:
            if may_change((box := before.get(number, [None]))[0]):
                self._given[number] = box
            else:
                self._unwatched.append(number)


def _holds_twice(value: Any) -> bool:
    """Returns whether a container in the value is in it more than once."""
    parts = changeable_parts(value)
    return sum(may_change(item) for part in (value, *parts) for item in _parts(part)) > len(parts)


def _begins_alike(value: Any, changed: Any) -> bool:
    """Returns whether the containers in a value are unchanged, as far as both go."""
    pairs = zip(_parts(value), _parts(changed), strict=False)
    texts = ([repr(copies.encode(each, id)) for each in pair] for pair in pairs if may_change(pair[0]))
    return all(one == other for one, other in texts)


def _has_reordered(value: Any, changed: Any) -> bool:
    """Puts a list's items in another order if this is all that has changed, and returns whether it is."""
    if type(value) is not list or type(changed) is not list or len(value) != len(changed):
        return False
    places: dict[str, list[Any]] = {}
    for item in value:
        places.setdefault(repr(copies.encode(item, id)), []).append(item)
    found = [places.get(repr(copies.encode(item, id)), []) for item in changed]
    try:
        value[:] = [items.pop() for items in found]
    except IndexError:
        return False
    return True


def _fill(value: Any, changed: Any) -> None:
    """Changes a container, and the containers in it, to what its copy has become. They are changed in place, because
    the test may have names for the parts, too."""
    if type(value) is not type(changed):
        raise ObjectCompared("the program makes an object of an argument")
    if isinstance(value, dict):
        parts = {key: _filled(value.get(key), item) for key, item in changed.items()}
        value.clear()
        value.update(parts)
    elif isinstance(value, set):
        value.clear()
        value.update(changed)
    elif isinstance(value, list | deque):
        before = [*value, *[None] * (len(changed) - len(value))]
        items = [_filled(one, other) for one, other in zip(before, changed, strict=False)]
        value.clear()
        value.extend(items)
    elif isinstance(value, bytearray):
        value[:] = changed
    elif isinstance(value, tuple) and len(value) == len(changed):
        for one, other in zip(value, changed, strict=True):
            _filled(one, other)
    else:
        raise NotData(f"a change of a {type(value).__name__}")


def _filled(value: Any, changed: Any) -> Any:
    """Returns the value, changed in place, if both are containers of the same type. Otherwise returns `changed`."""
    if type(value) is not type(changed) or not isinstance(value, _CHANGEABLE):
        return changed
    if isinstance(value, tuple):  # the program may have put another in its place
        parts = tuple(map(_filled, value, changed)) if len(value) == len(changed) else changed
        return value if all(map(operator.is_, value, parts)) and len(value) == len(parts) else parts
    _fill(value, changed)
    return value
