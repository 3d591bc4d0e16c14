"""Stand-ins for the objects and classes of the other end; `standins` says what they do.

A class stands for a class, an instance for an instance, one for each: `type(x) is C`, `a is b` and `isinstance` mean
what they say. A stand-in has the special methods that the class behind it has, and no others. Where a class derives
from a plain type, its stand-in does, too: comparison, order and arithmetic are then the plain type's own, and only
what the plain type has not is asked for.

In the test's process (`strict`) a program's methods do not decide a comparison with the test's own values: order and
arithmetic are asked for only between two objects of the program, or, arithmetic, of a class that the test itself names.
"""

import contextlib
import types
import weakref
from collections.abc import Callable
from typing import Any

from . import standins
from .errors import mark_from_program, not_plain
from .library import class_named
from .standins import CLASS_NUMBER, NUMBER, PLAIN, ForeignClass, ForeignError, is_foreign

SINGLE, MOST_AT_ONCE = 64, 1000
"""Items of an iterator that are asked for one by one; most items asked for at once after that."""

_PAIRS = "add sub mul truediv floordiv mod divmod pow matmul lshift rshift and or xor".split()  # noqa: SIM905
_ARITHMETIC = {f"__{prefix}{name}__" for name in _PAIRS for prefix in ("", "r", "i")} - {"__idivmod__"}
_EQUAL = {"__eq__", "__ne__"}
_ORDER = {f"__{name}__" for name in ("lt", "le", "gt", "ge")}
_CONVERT = {
    f"__{name}__"
    for name in ("int", "float", "complex", "index", "round", "trunc", "floor", "ceil", "format", "bytes")
}
_TEXT = {"__str__", "__repr__"}
_OTHERS = (  # noqa: SIM905
    "call iter next len getitem setitem delitem contains bool hash enter exit neg pos abs invert reversed "
    "await aiter anext aenter aexit missing"
).split()
DUNDERS = frozenset(_ARITHMETIC | _EQUAL | _ORDER | _CONVERT | _TEXT | {f"__{name}__" for name in _OTHERS})
"""Special methods that a stand-in has where the class behind it has them."""
_TELLING = frozenset(
    name for name in (*dir(str), *dir(set)) if name.startswith(("is", "startswith", "endswith"))
)
"""Methods by which a text or a set says whether something is so."""
UNDECIDED = frozenset("call take fields __iter__ __next__ __len__ __await__ __aiter__ __anext__".split())  # noqa: SIM905
"""What functions and iterators of any kind are asked, whose answers decide nothing by themselves; and, by `get` and
`method`, these names."""
UNDECIDED_NAMES = frozenset(
    "send throw close __name__ __qualname__ __module__ __doc__ __code__ __defaults__ __kwdefaults__ "  # noqa: SIM905
    "__annotations__ __wrapped__ __dict__".split()
)


# ---------------------------------------------------------------- a class, as it is told to the other end


_METHODS = (
    types.FunctionType,
    classmethod,
    staticmethod,
    types.MethodDescriptorType,
    types.ClassMethodDescriptorType,
)
_mro = type.__dict__["__mro__"].__get__


def describe_class(cls: type, encode: Callable[[Any], Any]) -> dict:
    """What the other end needs to build a stand-in."""
    found: dict[str, Any] = {}
    for base in reversed(_mro(cls)):
        if base is not object:
            found |= base.__dict__
    special = [name for name in found if name in DUNDERS and found[name] is not getattr(object, name, None)]
    methods = [name for name, value in found.items() if name[:2] != "__" and isinstance(value, _METHODS)]
    description = {
        "n": cls.__name__,
        "q": cls.__qualname__,
        "m": str(cls.__module__),
        "b": [encode(base) for base in cls.__bases__],
        "s": [name for name in special if found[name] is not None],
        "f": methods,
    }
    if found.get("__hash__", 0) is None:
        description["u"] = True
    if isinstance(found.get("__doc__"), str):
        description["d"] = found["__doc__"]
    return description


_STAND_FOR = {
    kind.__name__: kind
    for kind in (
        types.FunctionType,
        types.GeneratorType,
        types.CoroutineType,
        types.AsyncGeneratorType,
        types.MethodType,
        types.BuiltinFunctionType,
    )
}
"""Classes that the builtins module does not name."""


def _library_class_of(description: dict) -> type | None:
    """What `isinstance` shall take it for: the library's class of that name."""
    module, name = description["m"], str(description["q"])
    try:
        found = _STAND_FOR.get(name) if module == "builtins" else class_named(f"{module}:{name}")
    except Exception:
        return None
    # What registers or decides membership, an abstract class, is not for a program to claim.
    return None if type(found) is not type or issubclass(found, (*PLAIN, bool, BaseException)) else found


def _new_class(metaclass: Any, name: str, bases: list, namespace: dict) -> type:
    try:
        return type.__new__(metaclass, name, tuple(bases), namespace)
    except TypeError:  # bases that agree only in the other end's company
        return type.__new__(metaclass, name, tuple(bases[:1]), namespace)


# ---------------------------------------------------------------- stand-ins


class Streams:
    """Items of the other end's iterators. One by one at first: how far a program has come may be a test's question.
    Many at once later."""

    def __init__(self, ask: Callable[..., Any], strict: bool) -> None:
        self._ask, self._strict = ask, strict
        self._ahead: dict[int, list] = {}
        """By iterator: items that were sent ahead, the next one last."""
        self._raising: set[int] = set()
        """Iterators whose last item is an error, to be raised."""
        self._running: tuple[int, int] = (-1, 0)
        """(the iterator that was asked last, how often in a row)"""

    def interrupt(self) -> None:
        """An iterator is no longer the only thing that runs."""
        self._running = (-1, 0)

    def forget(self, number: int) -> None:
        self._ahead.pop(number, None)

    def next(self, number: int) -> Any:
        ahead = self._ahead.setdefault(number, [])
        if not ahead:
            last, times = self._running
            times = times + 1 if last == number else 0
            items, error = self._ask(number, "take", (1 if times < SINGLE else MOST_AT_ONCE,))
            self._running = (number, times)
            if not items:
                raise StopIteration if error is None else error
            if error is not None:
                ahead.append(mark_from_program(error) if self._strict else error)
                self._raising.add(number)
            ahead.extend(reversed(items))
        if len(ahead) == 1 and number in self._raising:
            self._raising.discard(number)
            raise ahead.pop()
        return ahead.pop()


class Remotes:
    """The stand-ins of one end.

    Args:
        codec: decodes what descriptions hold, and asks the other end.
        strict: this end is a test's, and the other a program's.
    """

    def __init__(self, codec: Any, strict: bool) -> None:
        self._codec, self._strict = codec, strict
        self._classes: dict[int, type] = {}
        self._alive: dict[int, Callable[[], Any]] = {}
        self._streams = Streams(codec.ask, strict)
        self.dropped: set[int] = set()
        """Objects of the other end that this one has let go of."""
        self.named: set[type] = set()
        """Classes that the test itself names."""
        self.plain = False
        """Nothing is asked that an object of a program's own class alone can answer: it was not, of the reference."""
        self.asked_objects = False
        """Something of that kind was asked."""
        self.met = False
        """An object came that is neither plain nor a function."""
        self.refused = ""
        """What the program's object was not asked, since it would have decided a comparison."""

    def _known(self, number: int | None) -> Any:
        """The stand-in of an object; None where there is none."""
        alive = self._alive.get(number)
        return None if alive is None else alive()

    def _watch(self, number: int, value: Any) -> None:
        self.dropped.discard(number)  # met again before the other end heard of it
        try:
            self._alive[number] = weakref.ref(value, lambda _: self._drop(number))
        except TypeError:  # an int or a tuple, which nobody can watch
            self._alive[number] = lambda: value

    def _drop(self, number: int) -> None:
        self.dropped.add(number)
        self._alive.pop(number, None)
        self._streams.forget(number)

    # ------------------------------------------------------------ objects and exceptions, from messages

    def object(self, number: int, body: list, base: Any = None) -> Any:
        if (known := self._known(number)) is not None:
            return known
        cls = self.class_of(*body)
        self.met |= cls.__name__ != "function"
        plain = next((kind for kind in cls.__mro__ if kind in PLAIN), object)
        content = () if base is None else (self._codec.decode(base),)
        value = plain.__new__(cls, *content)
        object.__setattr__(value, NUMBER, number)
        self._watch(number, value)
        return value

    def exception(self, body: list) -> BaseException:
        number, cls, args, text, attributes, cause, context, hidden = body
        decode = self._codec.decode
        cls, args, attributes = decode(cls), decode(args), decode(attributes)
        error = _new_error(cls, args if type(args) is tuple else (str(text),))
        for name, value in (attributes if type(attributes) is dict else {}).items():
            with contextlib.suppress(AttributeError, TypeError):  # one that the constructor has set for good
                BaseException.__setattr__(error, name, value)
        if number is not None:
            if isinstance(known := self._known(number), BaseException):
                return known
            error.__dict__[NUMBER] = number
        if isinstance(cls, ForeignError):
            error.__dict__["_sandbox_text"] = str(text)
            if number is not None:
                self._watch(number, error)
        if self._strict:
            mark_from_program(error)  # also where it is returned, and the test raises it
        cause, context = decode(cause), decode(context)
        if isinstance(cause, BaseException):
            error.__cause__ = cause
        error.__context__ = cause if context is True else context
        error.__suppress_context__ = bool(hidden)
        return error

    # ------------------------------------------------------------ classes, from messages

    def class_of(self, number: int, description: dict | None = None) -> type:
        if description is None:
            return self._classes[number]
        bases = [base for reference in description["b"] if (base := self._base(reference)) is not None]
        namespace = {
            CLASS_NUMBER: number,
            "_ask": staticmethod(self._codec.ask),
            "__module__": str(description["m"]),
            "__qualname__": str(description["q"]),
            "__doc__": description.get("d"),
        }
        name, special = str(description["n"]), set(map(str, description["s"]))
        if any(issubclass(base, BaseException) for base in bases):
            special &= standins.SPECIAL_OF_ERRORS
            namespace |= standins.ERROR | {name: self._special(name) for name in special}
            cls = _new_class(ForeignError, name, bases, namespace)
        else:
            self._fill(namespace, description, special & DUNDERS, bases)
            cls = _new_class(ForeignClass, name, bases, namespace)
        self._classes[number] = cls
        return cls

    def _base(self, reference: Any) -> type | None:
        """What the stand-in derives from: of the library's classes, exceptions and plain types only."""
        base = self._codec.decode(reference)
        if not isinstance(base, type):
            raise TypeError("a base that is no class")
        if isinstance(base, ForeignClass) or issubclass(base, BaseException):
            return base
        return next((kind for kind in base.__mro__ if kind in PLAIN), None)

    def _fill(self, namespace: dict, description: dict, special: set[str], bases: list) -> None:
        """What objects of the class have."""
        plain = next((kind for base in bases for kind in base.__mro__ if kind in PLAIN), None)
        if plain is None:
            namespace |= standins.ROOT
            if (stands_for := _library_class_of(description)) is not None:
                namespace["__class__"] = property(lambda self: stands_for)
            if description["m"] == "builtins":
                namespace["__doc__"] = standins.OWN_DOC
        else:
            namespace["__getattr__"] = standins.get
        namespace |= {
            name: standins.MethodStub(name)
            for name in map(str, description["f"])
            if not (name in namespace or name.startswith(("__", "_sandbox")) or hasattr(plain, name))
        }
        for name in special:
            if plain is None or name in _TEXT or not hasattr(plain, name):
                namespace[name] = self._special(name)
        if description.get("u") and plain is None:
            namespace["__hash__"] = None
        elif "__eq__" in namespace:
            namespace.setdefault("__hash__", object.__hash__)
        if description["n"] == "function":
            namespace["__get__"] = standins.bind
        elif description["n"] == "coroutine":
            namespace["send"] = standins.send

    # ------------------------------------------------------------ what is asked, and what is not

    def _special(self, name: str) -> Callable[..., Any]:
        """A special method of a stand-in."""
        if name == "__next__":
            return lambda value: self._streams.next(standins.number(value))
        if name in standins.SPECIAL:
            return standins.SPECIAL[name]

        def ask(value: Any, *args: Any) -> Any:
            return standins.ask(value, name, args)

        def ask_for_objects(value: Any, *args: Any) -> Any:
            if all(map(is_foreign, args)):
                return ask(value, *args)
            self.refused = (
                f"{name} of a {type(value).__name__} of the program with a {type(args[0]).__name__}"
            )
            if name in _EQUAL:
                return NotImplemented
            if name in _ORDER:
                raise not_plain()
            return ask_for_named(value, *args)

        def ask_for_named(value: Any, *args: Any) -> Any:
            self._require_named(value)
            return ask(value, *args)

        ask.__name__ = ask_for_objects.__name__ = ask_for_named.__name__ = (
            name  # by which a bound one crosses
        )
        if self._strict and name in _EQUAL | _ORDER | _ARITHMETIC:
            return ask_for_objects
        return ask_for_named if self._strict and name in _CONVERT else ask

    def _require_named(self, value: Any) -> None:
        if self.named.isdisjoint(type(value).__mro__):
            raise not_plain()

    def asked(self, number: int | None, operation: str, args: tuple) -> None:
        """Take note of a request, and refuse one by which an object of a class that the test does not name would
        say of itself what a text or a set is asked for."""
        if operation != "take":
            self._streams.interrupt()
        if not self._strict:
            return
        name = args[0] if operation in ("get", "method") else None
        target = self._known(number)
        # What it says of itself, such as its module, is not looked at.
        is_object = number in self._classes or is_foreign(target)
        if is_object and operation not in UNDECIDED and name not in UNDECIDED_NAMES:
            self.asked_objects = True
            if self.plain:
                raise mark_from_program(
                    TypeError("the program returned an object where the reference has none")
                )
        if (operation == "__contains__" or name in _TELLING) and is_foreign(target):
            self._require_named(target)


def _new_error(cls: Any, args: tuple) -> BaseException:
    if not (isinstance(cls, type) and issubclass(cls, BaseException)):
        raise TypeError("no exception")
    try:
        if CLASS_NUMBER in cls.__dict__:
            raise TypeError("made without its own constructor")
        return cls(*args)
    except Exception:
        error = cls.__new__(cls, *args)
        error.args = args
        return error
