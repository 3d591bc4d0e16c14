"""Stand-ins for the objects and classes of the other end.

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

from . import mirrors
from .values import PLAIN_TYPES

NUMBER, CLASS_NUMBER = "_sandbox_number", "_sandbox_class"
FROM_PROGRAM = "_from_program"
MAX_LENGTH = 10_000_000
"""A test's list() would allocate what `__len__` says before it asks for a single item."""
MAX_TEXT = 2000
"""Characters of an exception's text that cross the socket."""
SINGLE, MOST_AT_ONCE = 64, 1000
"""Items of an iterator that are asked for one by one; most items asked for at once after that."""

_PAIRS = "add sub mul truediv floordiv mod divmod pow matmul lshift rshift and or xor".split()  # noqa: SIM905
_ARITHMETIC = {f"__{prefix}{name}__" for name in _PAIRS for prefix in ("", "r", "i")} - {"__idivmod__"}
_ORDER = {f"__{name}__" for name in ("lt", "le", "gt", "ge")}
_CONVERT = {
    f"__{name}__"
    for name in ("int", "float", "complex", "index", "round", "trunc", "floor", "ceil", "format", "bytes")
}
_OTHERS = (  # noqa: SIM905
    "call iter next len getitem setitem delitem contains bool str repr hash enter exit neg pos abs invert reversed "
    "eq ne await aiter anext aenter aexit"
).split()
_TEXT = {"__str__", "__repr__"}
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
DUNDERS = frozenset(_ARITHMETIC | _ORDER | _CONVERT | {f"__{name}__" for name in _OTHERS})


class NotServed(TypeError):
    """What program and test would need one interpreter for; the text names it."""


# ---------------------------------------------------------------- a class, as it is told to the other end


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


_METHODS = (
    types.FunctionType,
    classmethod,
    staticmethod,
    types.MethodDescriptorType,
    types.ClassMethodDescriptorType,
)


# ---------------------------------------------------------------- classes that stand for classes


class ForeignClass(type):
    """A class of the other end. Built by `Remotes`; a class statement that derives from one comes here, too."""

    _ask: Callable[..., Any]

    def __new__(mcs, name: str, bases: tuple, namespace: dict) -> Any:
        raise NotServed(f"a class of the test that derives from one of the program's: {name}")

    def __call__(cls, /, *args: Any, **kwargs: Any) -> Any:
        return cls._ask(class_number(cls), "call", args, kwargs)

    def __getattr__(cls, name: str) -> Any:
        if name == "__dataclass_fields__":
            return _dataclass_fields(cls)
        return cls._ask(class_number(cls), "get", (name,))

    def __setattr__(cls, name: str, value: Any) -> None:
        cls._ask(class_number(cls), "set", (name, value))

    def __iter__(cls) -> Any:
        return _iterator(cls._ask(class_number(cls), "__iter__"))

    def __len__(cls) -> int:
        return _length(cls._ask(class_number(cls), "__len__"))

    def __bool__(cls) -> bool:
        return True

    def __getitem__(cls, key: Any) -> Any:
        return cls._ask(class_number(cls), "__getitem__", (key,))

    def __contains__(cls, key: Any) -> bool:
        return bool(cls._ask(class_number(cls), "__contains__", (key,)))


class ForeignError(type):
    """An exception class of the other end: a real one here."""

    def __call__(cls, /, *args: Any, **kwargs: Any) -> Any:
        if CLASS_NUMBER not in cls.__dict__:
            return super().__call__(*args, **kwargs)
        return cls._ask(class_number(cls), "call", args, kwargs)  # type: ignore[attr-defined]

    def __getattr__(cls, name: str) -> Any:
        if name[:2] == "__" or CLASS_NUMBER not in cls.__dict__:
            raise AttributeError(name)
        return cls._ask(class_number(cls), "get", (name,))  # type: ignore[attr-defined]


def class_number(cls: type) -> int | None:
    """Of the class at the other end; None for any class that is none of its."""
    return cls.__dict__.get(CLASS_NUMBER) if isinstance(cls, ForeignClass | ForeignError) else None


def is_foreign(value: Any) -> bool:
    """An object of the other end that is no plain value."""
    return type(type(value)) in (ForeignClass, ForeignError) and not issubclass(type(value), _PLAIN)


def number_of(value: Any) -> int | None:
    """Of the object at the other end; None for one of this end."""
    return _number(value) if type(type(value)) is ForeignClass else None


def _number(value: Any) -> int:
    return object.__getattribute__(value, NUMBER)


def mark_from_program(error: BaseException) -> BaseException:
    """The error, marked as the program's own."""
    error.__dict__[FROM_PROGRAM] = True
    return error


def is_from_program(error: BaseException) -> bool:
    return FROM_PROGRAM in error.__dict__


def describe(error: BaseException) -> str:
    """str(error) where that works: it is the program's code. Encodable: lone surrogates are replaced."""
    try:
        return str(error)[:MAX_TEXT].encode("utf-8", "replace").decode()
    except BaseException:
        return ""


def _iterator(iterator: Any) -> Any:
    if not hasattr(type(iterator), "__next__"):
        raise mark_from_program(TypeError("the program's iterator is none"))
    return iterator


def _hash(value: Any, ask: Callable[[Any], Any]) -> int:
    """Asked for once."""
    try:
        return object.__getattribute__(value, "_sandbox_hash")
    except AttributeError:
        found = ask(value)
        if type(found) is int:
            object.__setattr__(value, "_sandbox_hash", found)
        return found


def _length(length: Any) -> int:
    if type(length) is not int or not 0 <= length <= MAX_LENGTH:
        raise mark_from_program(ValueError("the program's length is none"))
    return length


def _dataclass_fields(cls: Any) -> dict:
    import dataclasses

    names = cls._ask(class_number(cls), "fields")
    if type(names) is not list or not all(type(name) is str for name in names):
        raise AttributeError("__dataclass_fields__")
    return dataclasses.make_dataclass("Fields", names).__dataclass_fields__


class Method:
    """A method of an object of the other end, bound to it. Calling it is one request."""

    def __init__(self, holder: Any, name: str) -> None:
        self.__self__, self.__name__ = holder, name

    def __call__(self, /, *args: Any, **kwargs: Any) -> Any:
        return type(self.__self__)._ask(_number(self.__self__), "method", (self.__name__, *args), kwargs)

    def __getattr__(self, name: str) -> Any:
        return getattr(type(self.__self__)._ask(_number(self.__self__), "get", (self.__name__,)), name)

    __doc__ = property(lambda self: self.__getattr__("__doc__"))  # type: ignore[assignment]

    def __eq__(self, other: Any) -> bool:
        return type(other) is Method and (self.__self__, self.__name__) == (other.__self__, other.__name__)

    def __hash__(self) -> int:
        return hash((id(self.__self__), self.__name__))


class _MethodStub:
    """In the class: what looks a method up."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __get__(self, holder: Any, cls: Any) -> Any:
        if holder is None:
            return cls._ask(class_number(cls), "get", (self.name,))
        return Method(holder, self.name)


# ---------------------------------------------------------------- instances that stand for instances


def _get(self: Any, name: str) -> Any:
    if name == NUMBER:
        raise AttributeError(name)
    if name == "__dataclass_fields__":
        return _dataclass_fields(type(self))
    return type(self)._ask(_number(self), "get", (name,))


def _set(self: Any, name: str, value: Any) -> None:
    type(self)._ask(_number(self), "set", (name, value))


def _delete(self: Any, name: str) -> None:
    type(self)._ask(_number(self), "del", (name,))


def _variables(self: Any) -> dict:
    return type(self)._ask(_number(self), "vars")


def _names(self: Any) -> list:
    return type(self)._ask(_number(self), "dir")


def _copy(self: Any) -> Any:
    return type(self)._ask(_number(self), "copy")


def _deep_copy(self: Any, memo: dict) -> Any:
    return type(self)._ask(_number(self), "deepcopy")


_ROOT = {
    "__getattr__": _get,
    "__setattr__": _set,
    "__delattr__": _delete,
    "__dict__": property(_variables),
    "__dir__": _names,
    "__copy__": _copy,
    "__deepcopy__": _deep_copy,
}
_PLAIN = tuple({*PLAIN_TYPES, *mirrors.KINDS} - {bool})
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
        self.refused = ""
        """What the program's object was not asked, since it would have decided a comparison."""
        self.met = False
        """An object came that is neither plain nor a function."""
        self.dropped: list[int] = []
        """Objects of the other end that this one has let go of."""
        self.asked_objects = False
        """Something was asked that an object of a program's own class alone can answer."""
        self.plain = False
        """Nothing of that kind is asked: it was not, of the reference."""
        self.named: set[type] = set()
        """Classes that the test itself names."""
        self._streams: dict[int, list] = {}
        """By iterator: items that were sent ahead, the next one last."""
        self._raising: set[int] = set()
        """Iterators whose last item is an error, to be raised."""
        self._running: tuple[int, int] = (-1, 0)
        """(the iterator that was asked last, how often in a row)"""

    # ------------------------------------------------------------ from messages

    def object(self, number: int, body: list, base: Any = None) -> Any:
        if (alive := self._alive.get(number)) is not None and (known := alive()) is not None:
            return known
        cls = self.class_of(*body)
        self.met |= cls.__name__ != "function"
        plain = next((kind for kind in cls.__mro__ if kind in _PLAIN), object)
        content = () if base is None else (self._codec.decode(base),)
        value = plain.__new__(cls, *content)
        object.__setattr__(value, NUMBER, number)
        try:
            self._alive[number] = weakref.ref(value, lambda _, number=number: self._drop(number))
        except TypeError:  # an int or a tuple, which nobody can watch
            self._alive[number] = lambda value=value: value
        return value

    def _drop(self, number: int) -> None:
        self.dropped.append(number)
        self._alive.pop(number, None)
        self._streams.pop(number, None)

    def class_of(self, number: int, description: dict | None = None) -> type:
        if description is None:
            return self._classes[number]
        bases = []
        for reference in description["b"]:
            base = self._codec.decode(reference)
            if not isinstance(base, type):
                raise TypeError("a base that is no class")
            if not isinstance(base, ForeignClass) and not issubclass(base, BaseException):
                base = next((kind for kind in base.__mro__ if kind in _PLAIN), None)
            if base is not None:
                bases.append(base)
        namespace = {
            CLASS_NUMBER: number,
            "_ask": staticmethod(self._codec.ask),
            "__module__": str(description["m"]),
            "__qualname__": str(description["q"]),
            "__doc__": description.get("d"),
        }
        if any(issubclass(base, BaseException) for base in bases):
            special = _OF_ERRORS.intersection(map(str, description["s"]))
            namespace |= _ERROR | {name: self._special(name) for name in special}
            cls = _new_class(ForeignError, str(description["n"]), bases, namespace)
        else:
            cls = self._object_class(description, bases, namespace)
        self._classes[number] = cls
        return cls

    def _object_class(self, description: dict, bases: list, namespace: dict) -> type:
        plain = next((kind for base in bases for kind in base.__mro__ if kind in _PLAIN), None)
        if plain is None:
            namespace |= _ROOT
            if (stands_for := _library_class_of(description)) is not None:
                namespace["__class__"] = property(lambda self: stands_for)
            if description["m"] == "builtins":  # a function's own, not its class's
                namespace["__doc__"] = property(lambda self: _get(self, "__doc__"))
        else:
            namespace["__getattr__"] = _get
        namespace |= {
            name: _MethodStub(name)
            for name in map(str, description["f"])
            if not (name in namespace or name.startswith(("__", "_sandbox")) or hasattr(plain, name))
        }
        for name in DUNDERS.intersection(map(str, description["s"])):
            if plain is None or name in _TEXT or not hasattr(plain, name):
                namespace[name] = self._special(name)
        if description.get("u") and plain is None:
            namespace["__hash__"] = None
        elif "__eq__" in namespace:
            namespace.setdefault("__hash__", object.__hash__)
        if description["n"] == "function":
            namespace["__get__"] = _bind
        elif description["n"] == "coroutine":
            namespace["send"] = _send
        return _new_class(ForeignClass, str(description["n"]), bases, namespace)

    def exception(
        self,
        number: int | None,
        cls: Any,
        args: Any,
        text: str,
        attributes: Any,
        cause: Any,
        context: Any,
        hidden: Any,
    ) -> BaseException:
        decode = self._codec.decode
        cls, args, attributes = decode(cls), decode(args), decode(attributes)
        if not (isinstance(cls, type) and issubclass(cls, BaseException)):
            raise TypeError("no exception")
        args = args if type(args) is tuple else (str(text),)
        try:
            if CLASS_NUMBER in cls.__dict__:
                raise TypeError("made without its own constructor")
            error = cls(*args)
        except Exception:
            error = cls.__new__(cls, *args)
            error.args = args
        for name, value in (attributes if type(attributes) is dict else {}).items():
            with contextlib.suppress(AttributeError, TypeError):  # one that the constructor has set for good
                BaseException.__setattr__(error, name, value)
        if number is not None:
            if (alive := self._alive.get(number)) is not None and isinstance(known := alive(), BaseException):
                return known
            error.__dict__[NUMBER] = number
        if isinstance(cls, ForeignError):
            error.__dict__["_sandbox_text"] = str(text)
            if number is not None:
                self._alive[number] = weakref.ref(error, lambda _: self._drop(number))
        cause, context = decode(cause), decode(context)
        if isinstance(cause, BaseException):
            error.__cause__ = cause
        error.__context__ = cause if context is True else context
        error.__suppress_context__ = bool(hidden)
        return error

    # ------------------------------------------------------------ special methods

    def _special(self, name: str) -> Callable[..., Any]:
        ask, strict, advance = self._codec.ask, self._strict, self._next

        def simple(self: Any, *args: Any) -> Any:
            return ask(_number(self), name, args)

        if name == "__call__":
            return lambda *args, **kwargs: ask(_number(args[0]), "call", args[1:], kwargs)
        if name == "__hash__":
            return lambda self: _hash(self, simple)
        if name == "__next__":
            return lambda self: advance(_number(self))
        if name == "__iter__":
            return lambda self: self if hasattr(type(self), "__next__") else _iterator(simple(self))
        if name == "__len__":
            return lambda self: _length(simple(self))
        if name in ("__bool__", "__contains__"):
            return lambda self, *args: bool(simple(self, *args))
        if name in ("__exit__", "__aexit__"):
            leave = lambda self, kind, error, trace: ask(_number(self), name, (error,))  # noqa: E731
            return leave if name == "__exit__" else _as_coroutine(leave)
        if name in ("__anext__", "__aenter__"):
            return _as_coroutine(simple)
        if name == "__aiter__":
            return lambda self: self if hasattr(type(self), "__anext__") else simple(self)
        if name == "__await__":
            return _await
        if not strict:
            return simple
        named = self.named

        def between_objects(self: Any, *args: Any) -> Any:
            if all(map(is_foreign, args)):
                return simple(self, *args)
            self.refused = f"{name} of a {type(self).__name__} of the program with a {type(args[0]).__name__}"
            if name in ("__eq__", "__ne__"):
                return NotImplemented
            if name in _ORDER or named.isdisjoint(type(self).__mro__):
                raise mark_from_program(TypeError("the program returned an object that is not a plain value"))
            return simple(self, *args)

        if name in _ORDER | _ARITHMETIC | {"__eq__", "__ne__"}:
            return between_objects
        if name in _CONVERT:

            def convert(self: Any, *args: Any) -> Any:
                if named.isdisjoint(type(self).__mro__):
                    raise mark_from_program(
                        TypeError("the program returned an object that is not a plain value")
                    )
                return simple(self, *args)

            return convert
        return simple

    def _next(self, number: int) -> Any:
        """One by one at first: how far a program has come may be a test's question. Many at once later."""
        ahead = self._streams.setdefault(number, [])
        if not ahead:
            last, times = self._running
            times = times + 1 if last == number else 0
            wanted = 1 if times < SINGLE else MOST_AT_ONCE
            items, error = self._codec.ask(number, "take", (wanted,))
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

    def asked(self, number: int | None, operation: str, args: tuple) -> None:
        """Take note of a request, and refuse one by which an object of a class that the test does not name would
        say of itself what a text or a set is asked for."""
        if operation != "take":  # an iterator is no longer the only thing that runs
            self._running = (-1, 0)
        if not self._strict:
            return
        named = operation in ("get", "method") and args[0] in UNDECIDED_NAMES
        if self._is_object(number) and operation not in UNDECIDED and not named:
            self.asked_objects = True
            if self.plain:
                raise mark_from_program(
                    TypeError("the program returned an object where the reference has none")
                )
        if number not in self._alive:
            return
        if operation == "__contains__" or (operation in ("get", "method") and args[0] in _TELLING):
            value = self._alive[number]()
            if is_foreign(value) and self.named.isdisjoint(type(value).__mro__):
                raise mark_from_program(TypeError("the program returned an object that is not a plain value"))

    def _is_object(self, number: int | None) -> bool:
        """Of the program's, or a class. What it says of itself, such as its module, is not looked at."""
        return number in self._classes or (number in self._alive and is_foreign(self._alive[number]()))


def _new_class(metaclass: Any, name: str, bases: list, namespace: dict) -> type:
    try:
        return type.__new__(metaclass, name, tuple(bases), namespace)
    except TypeError:  # bases that agree only in the other end's company
        return type.__new__(metaclass, name, tuple(bases[:1]), namespace)


def _library_class_of(description: dict) -> type | None:
    """What `isinstance` shall take it for: the library's class of that name."""
    from .codec import library_class

    try:
        name = str(description["q"])
        found = (
            _STAND_FOR.get(name)
            if description["m"] == "builtins"
            else library_class(f"{description['m']}:{name}")
        )
    except Exception:
        return None
    # What registers or decides membership, an abstract class, is not for a program to claim.
    return None if type(found) is not type or issubclass(found, (*_PLAIN, bool, BaseException)) else found


def _bind(self: Any, holder: Any, cls: Any = None) -> Any:
    return self if holder is None else types.MethodType(self, holder)


def _send(self: Any, value: Any) -> Any:
    raise StopIteration(type(self)._ask(_number(self), "__await__"))


def _await(self: Any) -> Any:
    return type(self)._ask(_number(self), "__await__")
    yield  # a generator, as the interpreter wants it


def _as_coroutine(act: Callable[..., Any]) -> Callable[..., Any]:
    async def wrapped(*args: Any) -> Any:
        return act(*args)

    return wrapped


def _error_text(self: Any) -> str:
    text = self.__dict__.get("_sandbox_text")
    return BaseException.__str__(self) if text is None else text


def _error_attribute(self: Any, name: str) -> Any:
    number = BaseException.__getattribute__(self, "__dict__").get(NUMBER)
    if number is None or name[:1] == "_":
        raise AttributeError(name)
    return type(self)._ask(number, "get", (name,))


_OF_ERRORS = frozenset(("__eq__", "__ne__", "__hash__", "__len__", "__iter__", "__bool__"))
_ERROR = {"__str__": _error_text, "__getattr__": _error_attribute}
