"""How a data test and the program that it is about speak: calls in, copies out. `Server` is the program's end, `Caller` the
test's.

    {"o": operation, "f": name or number, "a": args, "k": kwargs, "w": numbers of the args and kwargs,
     "y": numbers of objects to let go of}
        -> {"v": value} or {"x": [names of the exception's classes, text]}, with {"w": [[number, value]]} of what was given and
           is changed; or {"big": why}

| operation | of | does |
|---|---|---|
| call | a name | calls it; what a class makes stays here |
| name | a name | gives its value |
| method, get | an object | calls a method, reads an attribute: the first argument names it |
| invoke | an object | calls it |
| len, bool, text, repr, int, float, item, iter | an object | as the builtin of that name does; text is str, item is [] |
| base | an object of a plain type's subclass | as a value of that type |
| take, drain | an iterator | one item, or up to so many: [items, whether it goes on] |
"""

import itertools
import socket
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from typing import Any
from weakref import WeakValueDictionary

from . import copies, kernel, streams
from .data_tests import DataTest, NotData
from .errors import Fatal, ProgramGone, ProgramLied, ValueTooLarge, describe, of_reading
from .framing import MAX_VALUE, Frames, FrameTooLarge, send_frame
from .pure import METHODS
from .values import ATOMS, CONTAINERS, base_value
from .walk import Foreign, NotPlain, ProgramRaised

ASKING, TESTING = b"asking", b"testing"
"""What a test's process calls itself while it waits for the program, or reads what it sent; and else. The supervisor looks when
a limit is passed: what the program makes the test do is the program's."""
MOST_TAKEN = 1 << 16
"""Items of one answer."""
SINGLE = 1000
"""Items of an iterator that are asked for one by one."""
MOST_WATCHED = 100
"""Arguments whose changes a test sees: the last ones."""
_OF_OBJECTS: dict[str, Callable[..., Any]] = {
    "len": len,
    "bool": bool,
    "text": str,
    "repr": repr,
    "int": int,
    "float": float,
    "item": lambda value, key: value[key],
    "get": getattr,
    "method": lambda value, name, *args, **kwargs: getattr(value, name)(*args, **kwargs),
    "invoke": lambda value, *args, **kwargs: value(*args, **kwargs),
}
OF_PLAIN = frozenset(name for names in METHODS.values() for name in names)
"""Methods of plain values: an object without a name in the test could answer them as it likes."""
UNOBSERVED = tuple(
    type(iter(kind))
    for kind in ([], (), "", {}, {}.keys(), {}.values(), {}.items(), set(), range(0), reversed([]), b"")
)
"""Iterators that may be read ahead: nobody can see how far they are."""


# ---------------------------------------------------------------- the program's end


class Server:
    """names: the program's."""

    def __init__(self, connection: socket.socket, names: dict[str, Any]) -> None:
        self._connection, self._names = connection, names
        self._objects: dict[int, Any] = {}
        self._numbers: dict[int, int] = {}
        """By id: an object that is kept has one number."""
        self._watched: deque[tuple[int, Any, str]] = deque(maxlen=MOST_WATCHED)
        """What was given to the program, which may keep it: (number, value, what it was when it was last told)."""
        self._next = 0

    def serve(self) -> None:
        """Until the test is gone: EOFError, OSError."""
        frames = Frames(self._connection.recv, MAX_VALUE)
        while True:
            reply = self._answer(frames.next())
            streams.flush()
            try:
                send_frame(self._connection, reply, MAX_VALUE)
            except (FrameTooLarge, RecursionError, MemoryError) as error:
                send_frame(self._connection, {"big": type(error).__name__})

    def _answer(self, request: dict) -> dict:
        for number in request.get("y", ()):
            self._numbers.pop(id(self._objects.pop(number)), None)
        try:
            args = [copies.decode(value, self._known) for value in request.get("a", ())]
            kwargs = {name: copies.decode(value, self._known) for name, value in request.get("k", {}).items()}
            if "w" in request:
                self._watch(request["w"], (*args, *kwargs.values()))
            reply = {"v": self._encoded(self._perform(request, args, kwargs))}
        except BaseException as error:
            reply = _raised(error)
        if changed := self._changed():
            reply["w"] = changed
        return reply

    def _watch(self, numbers: Sequence[int], given: Sequence[Any]) -> None:
        """Remember what they are, by its text: nan is the same there."""
        for number, value in zip(numbers, given, strict=True):
            if type(value) not in ATOMS:
                self._watched.append((number, value, repr(self._encoded(value))))

    def _changed(self) -> list:
        changed = []
        for index, (number, value, was) in enumerate(self._watched):
            now = self._encoded(value)
            if (text := repr(now)) != was:
                self._watched[index] = number, value, text
                changed.append([number, now])
        return changed

    def _perform(self, request: dict, args: list, kwargs: dict) -> Any:
        operation, target = request["o"], request["f"]
        if operation == "call":
            called = self._names[target]
            value = called(*args, **kwargs)
            return _Kept(value) if isinstance(called, type) and called is not type else value
        if operation == "name":
            return self._names[target]
        value = self._objects[target]
        if operation == "base":
            return base_value(value)[0]  # type: ignore[index]
        if operation == "iter":
            return _Kept(iter(value))
        if operation in ("take", "drain"):
            return _take(value, args[0], operation == "drain")
        return _OF_OBJECTS[operation](value, *args, **kwargs)

    def _encoded(self, value: Any) -> Any:
        if type(value) is _Kept:
            return self._hand_over(value.value)
        try:
            return copies.encode(value, self._outside)
        except RecursionError:
            return self._hand_over(value)

    def _known(self, tag: str, body: Any) -> Any:
        return self._names[body] if tag == "n" else self._objects[body[0]]

    def _outside(self, value: Any) -> dict:
        """What cannot be copied whole."""
        if isinstance(value, dict):
            return {"m": copies.encode([[*item] for item in dict.items(value)], self._outside)}
        return self._hand_over(value)

    def _hand_over(self, value: Any) -> dict:
        """The object's number. Of a subclass of a plain type its base's value goes along."""
        if (number := self._numbers.get(id(value))) is None:
            self._next += 1
            number = self._numbers[id(value)] = self._next
            self._objects[number] = value
        known = [number, type(value).__name__]
        base = base_value(value) if type(value) not in CONTAINERS and type(value) not in ATOMS else None
        return {"h": known} if base is None else {"b": [*known, copies.encode(base[0], self._outside)]}


class _Kept:
    """What is handed over as an object, whatever it is."""

    def __init__(self, value: Any) -> None:
        self.value = value


def _take(iterator: Any, count: int, every: bool) -> list:
    """One item, or as many as asked for if all are wanted or if reading ahead shows nowhere."""
    items: list[Any] = []
    for _ in range(min(count, MOST_TAKEN) if every or isinstance(iterator, UNOBSERVED) else 1):
        try:
            items.append(next(iterator))
        except StopIteration:
            return [items, False]
    return [items, True]


def _raised(error: BaseException) -> dict:
    return {"x": [[cls.__name__ for cls in type(error).__mro__], describe(error)]}


# ---------------------------------------------------------------- the test's end


class Caller:
    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self.frames = Frames(connection.recv, MAX_VALUE)
        self.asked = 0
        """Requests so far."""
        self.fatal: BaseException | None = None
        self._numbers = itertools.count()
        self.begin(None, False)
        self._handles: WeakValueDictionary[int, Handle] = WeakValueDictionary()
        self._dropped: list[int] = []

    def begin(self, test: DataTest | None, plain: bool) -> None:
        """Another test.

        plain: the reference gave nothing but values and iterators, and changed nothing that it was given. So no more is asked of
            this program's objects; and if it changes what it is given, the test is to pass as if it had not, too: see `again`.
        """
        self.plain = plain
        self.more_than_results = False
        """The program was asked for something of an object of its own, or has changed what it was given."""
        self._log: list[dict] = []
        """All answers, if an argument may be changed."""
        self._replayed: Iterator[dict] | None = None
        self._watches = test is not None and test.keeps
        """Arguments may be the test's own values, which are changed where the program changes its copies."""
        self.named: Set[str] = frozenset() if test is None else test.free
        """Names of the program's that the test uses: objects of such classes may have methods that plain values have, too."""
        self._given: dict[int, Any] = {}
        self._changes: list[tuple[Any, Any]] = []
        """(a value of the test's, what its copy has become), not yet seen."""

    def ask(
        self,
        operation: str,
        target: Any,
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] = {},
    ) -> Any:
        """Raises ProgramRaised, NotPlain, NotData and Fatal."""
        if self.fatal is not None:
            raise self.fatal
        if self._replayed is not None:
            return self._replay()
        self.asked += 1
        if operation in _OF_OBJECTS:
            if self.plain:
                raise NotPlain("the program returned an object where a plain value is due")
            self.more_than_results = True
        request: dict[str, Any] = {"o": operation, "f": target}
        if self._dropped:
            request["y"], self._dropped = self._dropped, []
        try:
            request["a"] = [copies.encode(self._now(value), _refer) for value in args]
            if self._watches and (args or kwargs):
                given = (*args, *kwargs.values())
                request["w"] = [next(self._numbers) for _ in given]
                self._given |= zip(request["w"], given, strict=True)
            if kwargs:
                request["k"] = {name: copies.encode(self._now(v), _refer) for name, v in kwargs.items()}
        except RecursionError:
            raise NotData("a value nested too deeply to pass to the program") from None
        kernel.set_name(ASKING)
        try:
            return self._answer(request)
        except Fatal as error:
            self.fatal = error
            raise
        finally:
            kernel.set_name(TESTING)

    def again(self) -> bool:
        """Whether the test is to be walked again, with the same answers, its own values as they were. Else a program that clears
        what it is given would pass `r = f(xs)`, `assert r == sorted(xs)` by an empty list."""
        if not (self.plain and self._log and any("w" in reply for reply in self._log)):
            return False
        self._replayed = iter(self._log)
        return True

    def _replay(self) -> Any:
        reply = next(self._replayed or iter(()), None)
        if reply is None:
            raise NotPlain("the test goes another way after the program has changed what it was given")
        return self._result(reply)

    def _answer(self, request: dict) -> Any:
        try:
            send_frame(self._connection, request, MAX_VALUE)
        except FrameTooLarge as error:
            raise NotData(f"a value too large to pass to the program: {error}") from None
        except OSError:
            raise ProgramGone("the program's process ended") from None
        try:
            reply = self.frames.next()
            if "big" in reply:
                raise ValueTooLarge(str(reply["big"]))
            self._take_changes(reply)
            if self._watches:
                self._log.append(reply)
            result = self._result(reply)
        except (NotData, ValueTooLarge, ProgramRaised):
            raise
        except Exception as error:
            raise of_reading(error) from None
        return result

    def _take_changes(self, reply: dict) -> None:
        for number, value in reply.get("w", ()):
            if number in self._given:  # else it is an earlier test's
                self._changes.append((self._given[number], copies.decode(value, self._stands_for)))
                self.more_than_results |= not self.plain

    def _result(self, reply: dict) -> Any:
        if "x" not in reply:
            return copies.decode(reply["v"], self._stands_for)
        names, text = reply["x"]
        raise ProgramRaised([str(name) for name in names], str(text))

    def _now(self, value: Any) -> Any:
        """What the program has made of it, though the test does not see it yet."""
        return next((changed for known, changed in reversed(self._changes) if known is value), value)

    def see_changes(self) -> None:
        while self._changes:
            _fill(*self._changes.pop(0))

    def _stands_for(self, tag: str, body: Any) -> Any:
        number, kind, *base = body
        if tag not in ("h", "b") or type(number) is not int or type(kind) is not str:
            raise ProgramLied("no such value")
        value = [copies.decode(base[0], self._stands_for)] if tag == "b" else []
        if value and self.plain:
            return value[0]
        if (handle := self._handles.get(number)) is None:
            handle = self._handles[number] = Handle(self, number, kind)
        handle.is_derived = bool(value)
        return handle

    def drop(self, number: int) -> None:
        self._dropped.append(number)


def _fill(value: Any, changed: Any) -> None:
    """Make a container what its copy has become, and what it holds likewise: the test may have names for the parts, too."""
    if type(value) is not type(changed):
        raise NotPlain("the program makes an object of an argument")
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
    elif isinstance(value, tuple) and len(value) == len(changed):
        for one, other in zip(value, changed, strict=True):
            _filled(one, other)


def _filled(value: Any, changed: Any) -> Any:
    """The value, filled, where both are containers of a kind; else what stands in its place now."""
    if type(value) is not type(changed) or not isinstance(value, (*CONTAINERS, deque)):
        return changed
    _fill(value, changed)
    return value


class _HasNone(ProgramRaised, TypeError):
    """Of an object without a length."""


class Name(Foreign):
    """What the program calls so: a function or a class."""

    __slots__ = ("_caller", "name")

    def __init__(self, caller: Caller, name: str) -> None:
        self._caller, self.name = caller, name

    def __call__(self, /, *args: Any, **kwargs: Any) -> Any:
        return self._caller.ask("call", self.name, args, kwargs)

    def get_attribute(self, name: str) -> Any:
        return self._caller.ask("name", self.name).get_attribute(name)

    def call_method(self, name: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        return self._caller.ask("name", self.name).call_method(name, args, kwargs)


class Handle(Foreign):
    """An object of the program's, which stays there. It decides no comparison: one of a plain type's subclass is its
    base's value there."""

    __slots__ = ("__weakref__", "_caller", "is_derived", "kind", "number")

    def __init__(self, caller: Caller, number: int, kind: str) -> None:
        self._caller, self.number, self.kind = caller, number, kind
        self.is_derived = False
        """From a plain type."""

    def __del__(self) -> None:
        self._caller.drop(self.number)

    def _ask(self, operation: str, *args: Any) -> Any:
        return self._caller.ask(operation, self.number, args)

    def _plainly(self, operation: str, kind: type) -> Any:
        answer = self._ask(operation)
        if type(answer) is not kind or (operation == "len" and answer < 0):
            raise self._not_plain()
        return answer

    def _not_plain(self) -> NotPlain:
        return NotPlain(f"not a plain value: {self.kind}")

    def get_attribute(self, name: str) -> Any:
        return self._ask("get", name)

    def call_method(self, name: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        if name in OF_PLAIN and self.kind not in self._caller.named:
            raise self._not_plain()
        return self._caller.ask("method", self.number, (name, *args), kwargs)

    def __call__(self, /, *args: Any, **kwargs: Any) -> Any:
        return self._caller.ask("invoke", self.number, args, kwargs)

    def __len__(self) -> int:
        seen = self._caller.more_than_results
        try:
            return self._plainly("len", int)
        except ProgramRaised as error:  # list() asks for it, and does without
            self._caller.more_than_results = seen
            raise _HasNone(error.names, str(error)) from None

    def __bool__(self) -> bool:
        return self._plainly("bool", bool)

    def __str__(self) -> str:
        return self._plainly("text", str)

    def __repr__(self) -> str:
        return self._plainly("repr", str)

    def __int__(self) -> int:
        return self._plainly("int", int)

    def __float__(self) -> float:
        return self._plainly("float", float)

    def __getitem__(self, key: Any) -> Any:
        return self._ask("item", key)

    def __iter__(self) -> Iterator[Any]:
        iterator = self._iterator()
        goes_on, taken = True, 1
        while goes_on:  # far into a long one it is read ahead
            items, goes_on = iterator._ask("take" if taken < SINGLE else "drain", min(taken, SINGLE))
            yield from items
            taken += len(items)

    def __next__(self) -> Any:
        items, _ = self._ask("take", 1)
        if not items:
            raise StopIteration
        return items[0]

    def __contains__(self, item: object) -> bool:
        return any(item is found or item == found for found in self)

    def items(self) -> list[Any]:
        iterator, every, goes_on = self._iterator(), [], True
        while goes_on:
            items, goes_on = iterator._ask("drain", MOST_TAKEN)
            every += items
        return every

    def _iterator(self) -> "Handle":
        iterator = self._ask("iter")
        if not isinstance(iterator, Handle):
            raise self._not_plain()
        return iterator

    def __eq__(self, other: object) -> bool:
        if other is None:
            return False
        if not self.is_derived:
            return self._decides(other)
        return self._ask("base") == (
            other._ask("base") if isinstance(other, Handle) and other.is_derived else other
        )

    __hash__ = Foreign.__hash__


def _refer(value: Any) -> dict:
    if isinstance(value, Name):
        return {"n": value.name}
    if isinstance(value, Handle):
        return {"h": [value.number, value.kind]}
    raise NotData(f"a {type(value).__name__} that the test hands to the program")
