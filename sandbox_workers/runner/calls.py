"""The protocol between a data test and the program under test. Calls go to the program, and copies of the results come
back. `Server` is the program's end, `Caller` the test's end.

    {"o": operation, "f": name or number, "a": args, "k": kwargs, "y": numbers of objects to release,
     "w": numbers under which the args, the kwargs and the result are watched, "u": numbers that are watched no longer}
        -> {"v": value} or {"x": [names of the exception's classes, text]}, with {"w": [[number, value, whether its parts are
           the same objects]]} of the watched values that have changed, "n": the numbers of those before this request that the
           program keeps, "s": the numbers of those that are the result, and, if some have changed, "d": the numbers of those
           that it has kept until now; or {"big": reason}

| operation | target | effect |
|---|---|---|
| call | a name | calls it; an object that a class creates stays in the program |
| name | a name | returns its value |
| method, get | an object | calls a method, reads an attribute; the first argument is its name |
| invoke | an object | calls it |
| len, bool, text, repr, int, float, item, iter | an object | applies the builtin of that name; text is str, item is [] |
| base | an object of a subclass of a plain type | returns its value as that type |
| take, drain | an iterator | returns one item, or up to the requested number: [items, whether it goes on] |
"""

import operator
import socket
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from typing import Any
from weakref import WeakValueDictionary

from . import copies, streams
from .data_tests import DataTest, NotData
from .errors import Fatal, ProgramGone, ProgramLied, ValueTooLarge, describe, of_reading
from .framing import MAX_VALUE, Frames, FrameTooLarge, send_frame
from .pure import METHODS
from .values import ATOMS, CONTAINERS, base_value
from .walk import Foreign, ObjectCompared, ProgramRaised
from .watching import ProgramValues, TestValues

MOST_TAKEN = 1 << 16
"""Largest number of items in one answer."""
SINGLE = 1000
"""Number of items of an iterator that are requested one by one. After them it is read ahead."""
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
"""Methods of plain values. A test may call them on an object only if it names the object's class, because any other
object could answer them as it likes."""
UNOBSERVED = tuple(
    type(iter(kind))
    for kind in ([], (), "", {}, {}.keys(), {}.values(), {}.items(), set(), range(0), reversed([]), b"")
)
"""Types of iterators that may be read ahead, because a program cannot see how far they have been read."""
# ---------------------------------------------------------------- the program's end


class Server:
    """Answers a test's requests in the program's process. `names` are the program's global names and their values."""

    def __init__(self, connection: socket.socket, names: dict[str, Any]) -> None:
        self._connection, self._names = connection, names
        self._objects: dict[int, Any] = {}
        self._numbers: dict[int, int] = {}
        """Number of each object that is kept, by its id. An object has only one number."""
        self._values = ProgramValues(self._encoded)
        self._next = 0

    def serve(self) -> None:
        """Answers requests until the test is gone, which raises EOFError or OSError."""
        frames = Frames(self._connection.recv, MAX_VALUE)
        while True:
            reply = self._answer(frames.next())
            streams.flush()
            try:
                send_frame(self._connection, reply, MAX_VALUE)
            except (FrameTooLarge, RecursionError, MemoryError) as error:
                send_frame(self._connection, {"big": type(error).__name__})
            del reply  # it may refer to parts of what is watched

    def _answer(self, request: dict) -> dict:
        for number in request.get("y", ()):
            self._numbers.pop(id(self._objects.pop(number, self)), None)
        self._values.forget(request.get("u", ()))
        kept, numbers = self._values.kept(), request.get("w", ())
        try:
            args = [copies.decode(value, self._known) for value in request.get("a", ())]
            kwargs = {name: copies.decode(value, self._known) for name, value in request.get("k", {}).items()}
            for number, value in zip(numbers, (*args, *kwargs.values()), strict=False):
                self._values.add(number, value)
            result = self._perform(request, args, kwargs)
            reply = {"v": self._encoded(result)}
            if numbers:
                reply["s"] = self._values.numbers_of(result)
                self._values.add(numbers[-1], result)
        except BaseException as error:
            reply = _raised(error)
        reply |= self._values.changes(kept)
        if kept:
            reply["n"] = kept
        return reply

    def _perform(self, request: dict, args: list, kwargs: dict) -> Any:
        operation, target = request["o"], request["f"]
        if operation == "call":
            called = self._names[target]
            value = called(*args, **kwargs)
            return _Kept(value) if isinstance(called, type) and not copies.is_plain(value) else value
        if operation == "name":
            value = self._names[target]
            return _Kept(value) if isinstance(value, type) else value
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
        """Returns the message of a value that cannot be copied completely."""
        if isinstance(value, dict):
            items = copies.encode([[*item] for item in dict.items(value)], self._outside)
            return {"m": [*self._number(value), items]}
        return self._hand_over(value)

    def _hand_over(self, value: Any) -> dict:
        """Returns the message of an object, which holds its number. For an object of a subclass of a plain type, the
        message also holds its value as that type."""
        known = self._number(value)
        base = base_value(value) if type(value) not in CONTAINERS and type(value) not in ATOMS else None
        return {"h": known} if base is None else {"b": [*known, copies.encode(base[0], self._outside)]}

    def _number(self, value: Any) -> list:
        """Returns the object's number, by which it is kept, and the name of its class."""
        if (number := self._numbers.get(id(value))) is None:
            self._next += 1
            number = self._numbers[id(value)] = self._next
            self._objects[number] = value
        return [number, type(value).__name__]


class _Kept:
    """Marks a value that is sent as an object, whatever its type is."""

    def __init__(self, value: Any) -> None:
        self.value = value


def _take(iterator: Any, count: int, every: bool) -> list:
    """Returns one item and whether the iterator goes on. It returns up to `count` items if all are wanted, or if the
    program cannot see that they are read ahead."""
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
        """Number of requests so far."""
        self.fatal: BaseException | None = None
        self.values = TestValues()
        self.begin(None, False)
        self._handles: WeakValueDictionary[int, Handle] = WeakValueDictionary()
        self._dropped: set[int] = set()

    def begin(self, test: DataTest | None, plain: bool) -> None:
        """Prepares for the next test.

        Args:
            test: the test, or None if it could not be read.
            plain: True if the reference returned only values and iterators and did not change its arguments. Then the
                test may ask nothing more of this program's objects.
        """
        self.plain = plain
        self.more_than_results = False
        """True if the test asked for something of an object of the program, or if the program has changed an argument."""
        self._log: list[tuple[list[int], dict]] = []
        """All requests' numbers and answers, if values of the test may be changed."""
        self._replayed: Iterator[tuple[list[int], dict]] | None = None
        self.named: Set[str] = frozenset() if test is None else test.free
        """Names of the program that the test uses. Objects of classes with these names may have methods that plain
        values have, too."""
        self.values.begin(keeps=test is not None and test.keeps)

    def ask(
        self,
        operation: str,
        target: Any,
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] = {},
    ) -> Any:
        """Sends a request to the program and returns the answer.

        Raises:
            ProgramRaised: the program raised an exception.
            ObjectCompared: the program returned an object, but a plain value is due.
            NotData: the test must be judged as code.
            Fatal: the program is lost, or a value is too large.
        """
        if self.fatal is not None:
            raise self.fatal
        given = (*args, *kwargs.values())
        self.values.forget_twins()
        if self._replayed is not None:
            return self._replay(given)
        self.asked += 1
        if operation in _OF_OBJECTS:
            if self.plain:
                raise ObjectCompared("the program returned an object where a plain value is due")
            self.more_than_results = True
        request: dict[str, Any] = {"o": operation, "f": target}
        if self._dropped:
            request["y"], self._dropped = list(self._dropped), set()
        try:
            request["a"] = [copies.encode(self.values.now(value), _refer) for value in args]
            if gone := self.values.forgotten():
                request["u"] = gone
            if self.values.on:
                request["w"] = self.values.new_numbers(len(given) + 1)
            if kwargs:
                request["k"] = {name: copies.encode(self.values.now(v), _refer) for name, v in kwargs.items()}
        except RecursionError:
            raise NotData("a value nested too deeply to pass to the program") from None
        try:
            return self._answer(request, given)
        except Fatal as error:
            self.fatal = error
            raise

    def again(self) -> bool:
        """Returns whether the test must be evaluated a second time, with the same answers, and prepares for it. If the
        program has changed values of the test, the test must pass in two ways.

        With `plain`, it must pass with the changes, and with its own values unchanged. Otherwise a program that clears its
        argument would pass `r = f(xs)`, `assert r == sorted(xs)` by returning an empty list. Without `plain`, it must pass
        if it sees the changes only after each comparison, and if it sees them at once, as in Python."""
        if not any("w" in reply for _, reply in self._log):
            return False
        self._replayed = iter(self._log)
        return True

    def _replay(self, given: Sequence[Any]) -> Any:
        numbers, reply = next(self._replayed or iter(()), ([], None))
        if reply is None or len(numbers) != len(given) + 1:
            raise ObjectCompared("the test goes another way after the program has changed what it was given")
        return self._read(lambda: self._result(numbers, given, reply))

    def _answer(self, request: dict, given: Sequence[Any]) -> Any:
        try:
            send_frame(self._connection, request, MAX_VALUE)
        except FrameTooLarge as error:
            raise NotData(f"a value too large to pass to the program: {error}") from None
        except OSError:
            raise ProgramGone("the program's process ended") from None

        def result() -> Any:
            reply = self.frames.next()
            if "big" in reply:
                raise ValueTooLarge(str(reply["big"]))
            numbers = request.get("w", [])
            request.clear()  # it may refer to parts of the test's values: see is_shared
            if self.values.on:
                self._log.append((numbers, reply))
            return self._result(numbers, given, reply)

        return self._read(result)

    def _read(self, result: Callable[[], Any]) -> Any:
        """Returns a result. An error in what the program has sent is the program's."""
        try:
            return result()
        except (NotData, ObjectCompared, ValueTooLarge, ProgramRaised):
            raise
        except Exception as error:
            raise of_reading(error) from None

    def _result(self, numbers: Sequence[int], given: Sequence[Any], reply: dict) -> Any:
        """Returns the result in an answer, after the changes that it tells of."""
        again = self._replayed is not None
        if not (again and self.plain):
            if self.values.receive(numbers, given, reply, self._decoded):
                self.more_than_results |= not self.plain
            if self.plain or again:
                self.values.see_changes()
        names, text = reply.get("x", ((), ""))
        if names:
            raise ProgramRaised([str(name) for name in names], str(text))
        result = self._decoded(reply["v"])
        if numbers:
            self.values.add_result(numbers[-1], result, reply.get("s", ()))
        return result

    def _decoded(self, value: Any) -> Any:
        return copies.decode(value, self._stands_for)

    def _stands_for(self, tag: str, body: Any) -> Any:
        number, kind, *base = body
        if tag not in ("h", "b", "m") or type(number) is not int or type(kind) is not str:
            raise ProgramLied("no such value")
        value = [self._decoded(base[0])] if tag != "h" else []
        if tag == "m":
            copied = copies.Copied(value[0])
            copied.original = self._stands_for("h", body[:2])
            return copied
        if value and self.plain:
            return value[0]
        if (handle := self._handles.get(number)) is None:
            handle = self._handles[number] = Handle(self, number, kind)
            self._dropped.discard(number)  # the program has not been told that it was dropped
        handle.is_derived = bool(value)
        handle.fixed = [
            base for base in value if ATOMS.issuperset(map(type, base if type(base) is tuple else value))
        ]
        return handle

    def drop(self, number: int) -> None:
        self._dropped.add(number)


class Name(Foreign):
    """A function or class of the program, by its name there."""

    __slots__ = ("_caller", "name")

    def __init__(self, caller: Caller, name: str) -> None:
        self._caller, self.name = caller, name

    def __eq__(self, other: object) -> bool:
        return self._decides(other) if isinstance(other, Foreign) else False

    __hash__ = Foreign.__hash__

    def __call__(self, /, *args: Any, **kwargs: Any) -> Any:
        return self._caller.ask("call", self.name, args, kwargs)

    def __repr__(self) -> str:
        raise NotData("the text of a function, which shows an address")

    def get_attribute(self, name: str) -> Any:
        return self._caller.ask("name", self.name).get_attribute(name)

    def call_method(self, name: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        return self._caller.ask("name", self.name).call_method(name, args, kwargs)


class Handle(Foreign):
    """A reference to an object that stays in the program. The object decides no comparison: if its class is a subclass
    of a plain type, its value as that type is compared."""

    __slots__ = ("__weakref__", "_caller", "fixed", "is_derived", "items_read", "kind", "number")

    def __init__(self, caller: Caller, number: int, kind: str) -> None:
        self._caller, self.number, self.kind = caller, number, kind
        self.is_derived = False
        """True if its class is a subclass of a plain type."""
        self.fixed: list[Any] = []
        """[its value as that type], if it cannot change."""
        self.items_read: list[str] = []
        """Texts of the items that were read of it, if it is no iterator."""

    def __del__(self) -> None:
        self._caller.drop(self.number)

    def _ask(self, operation: str, *args: Any) -> Any:
        return self._caller.ask(operation, self.number, args)

    def hand_over(self) -> None:
        """Notes that the program gets the object back. It would be another value if copies of results had to do."""
        self._caller.more_than_results |= self.is_derived

    def _plainly(self, operation: str, kind: type) -> Any:
        answer = self._ask(operation)
        if type(answer) is not kind or (operation == "len" and answer < 0):
            raise self._not_plain()
        return answer

    def _not_plain(self) -> ObjectCompared:
        return ObjectCompared(f"not a plain value: {self.kind}")

    def get_attribute(self, name: str) -> Any:
        return self._ask("get", name)

    def call_method(self, name: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        if name in OF_PLAIN and self.kind not in self._caller.named:
            raise self._not_plain()
        return self._caller.ask("method", self.number, (name, *args), kwargs)

    def __call__(self, /, *args: Any, **kwargs: Any) -> Any:
        return self._caller.ask("invoke", self.number, args, kwargs)

    def measure(self) -> int:
        """Returns the length; see pure._len."""
        return self._plainly("len", int)

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
        while goes_on:  # a long iterator is read ahead after SINGLE items
            items, goes_on = iterator._ask("take" if taken < SINGLE else "drain", min(taken, SINGLE))
            self._compare(iterator, taken - 1, items, goes_on)
            yield from items
            taken += len(items)

    def _compare(self, iterator: "Handle", begin: int, items: list[Any], goes_on: bool) -> None:
        """Refuses a value with other items than when it was read before. The reference returned none, or an iterator."""
        if not self._caller.plain or iterator is self:
            return
        before = self.items_read
        for index, text in enumerate((repr(copies.encode(item, lambda _: None)) for item in items), begin):
            if index == len(before):
                before.append(text)
            elif before[index] != text:
                raise ObjectCompared(f"a {self.kind} that has other items when it is read again")
        if not goes_on and begin + len(items) < len(before):
            raise ObjectCompared(f"a {self.kind} that has fewer items when it is read again")

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
            self._compare(iterator, len(every), items, goes_on)
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
        return self._base() == (other._base() if isinstance(other, Handle) and other.is_derived else other)

    def __hash__(self) -> int:
        return hash(self._base()) if self.is_derived else self._decides()

    def _base(self) -> Any:
        return self.fixed[0] if self.fixed else self._ask("base")


def _by_value(operation: Callable[[Any, Any], Any], reflected: bool = False) -> Callable[[Handle, Any], Any]:
    """Returns the method of Handle for an operation with a plain value."""

    def method(self: Handle, other: Any) -> Any:
        if not self.is_derived or isinstance(other, Foreign):
            return self._decides(other)
        value = self._base()
        return operation(other, value) if reflected else operation(value, other)

    return method


for _name in "add sub mul truediv floordiv mod pow and or xor lshift rshift".split():  # noqa: SIM905
    _operation = getattr(operator, f"__{_name}__")
    setattr(Handle, f"__{_name}__", _by_value(_operation))
    setattr(Handle, f"__r{_name}__", _by_value(_operation, reflected=True))
for _name in ("lt", "le", "gt", "ge"):
    setattr(Handle, f"__{_name}__", _by_value(getattr(operator, _name)))


def _refer(value: Any) -> dict:
    if isinstance(value, Name):
        return {"n": value.name}
    if isinstance(value, copies.Copied):
        value = value.original
        value._caller.more_than_results = True
    if isinstance(value, Handle):
        value.hand_over()
        return {"h": [value.number, value.kind]}
    raise NotData(f"a {type(value).__name__} that the test hands to the program")
