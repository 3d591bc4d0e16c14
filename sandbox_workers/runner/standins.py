"""What a stand-in does when it is used: nearly always, it asks the object or class behind it.

Its class has `_ask`, the codec's way to the other end, and CLASS_NUMBER, which is the class behind it; each object has
NUMBER. `remote` makes both.
"""

import types
from collections.abc import Callable
from typing import Any

from . import mirrors
from .errors import NotServed, mark_from_program
from .values import PLAIN_TYPES

NUMBER, CLASS_NUMBER = "_sandbox_number", "_sandbox_class"
MAX_LENGTH = 10_000_000
"""A test's list() would allocate what `__len__` says before it asks for a single item."""
PLAIN = tuple({*PLAIN_TYPES, *mirrors.KINDS} - {bool})
"""Classes whose subclasses' stand-ins are of them, too."""


def number(value: Any) -> int:
    """Of the object behind a stand-in."""
    return object.__getattribute__(value, NUMBER)


def ask(value: Any, operation: str, args: tuple = (), kwargs: dict | None = None) -> Any:
    """The object behind a stand-in."""
    return type(value)._ask(number(value), operation, args, kwargs)


# ---------------------------------------------------------------- classes


class ForeignClass(type):
    """A class of the other end. Built by `Remotes`; a class statement that derives from one comes here, too."""

    def __new__(mcs, name: str, bases: tuple, namespace: dict) -> Any:
        raise NotServed(f"a class of the test that derives from one of the program's: {name}")

    def __call__(cls, /, *args: Any, **kwargs: Any) -> Any:
        return ask_class(cls, "call", args, kwargs)

    def __getattr__(cls, name: str) -> Any:
        if name == "__dataclass_fields__":
            return _dataclass_fields(cls)
        return ask_class(cls, "get", (name,))

    def __setattr__(cls, name: str, value: Any) -> None:
        ask_class(cls, "set", (name, value))

    def __iter__(cls) -> Any:
        return _iterator(ask_class(cls, "__iter__"))

    def __len__(cls) -> int:
        return _length(ask_class(cls, "__len__"))

    def __bool__(cls) -> bool:
        return True

    def __getitem__(cls, key: Any) -> Any:
        return ask_class(cls, "__getitem__", (key,))

    def __contains__(cls, key: Any) -> bool:
        return bool(ask_class(cls, "__contains__", (key,)))


class ForeignError(type):
    """An exception class of the other end: a real one here, and a test may derive from it."""

    def __call__(cls, /, *args: Any, **kwargs: Any) -> Any:
        if CLASS_NUMBER not in cls.__dict__:
            return super().__call__(*args, **kwargs)
        return ask_class(cls, "call", args, kwargs)

    def __getattr__(cls, name: str) -> Any:
        if name[:2] == "__" or CLASS_NUMBER not in cls.__dict__:
            raise AttributeError(name)
        return ask_class(cls, "get", (name,))


def class_number(cls: type) -> int | None:
    """Of the class at the other end; None for any class that is none of its."""
    return cls.__dict__.get(CLASS_NUMBER) if isinstance(cls, ForeignClass | ForeignError) else None


def ask_class(cls: Any, operation: str, args: tuple = (), kwargs: dict | None = None) -> Any:
    """The class behind a stand-in."""
    return cls._ask(class_number(cls), operation, args, kwargs)


def is_foreign(value: Any) -> bool:
    """An object of the other end that is no plain value."""
    return type(type(value)) in (ForeignClass, ForeignError) and not issubclass(type(value), PLAIN)


def number_of(value: Any) -> int | None:
    """Of the object at the other end; None for one of this end."""
    return number(value) if type(type(value)) is ForeignClass else None


# ---------------------------------------------------------------- methods


class Method:
    """A method of an object of the other end, bound to it. Calling it is one request."""

    def __init__(self, holder: Any, name: str) -> None:
        self.__self__, self.__name__ = holder, name

    def __call__(self, /, *args: Any, **kwargs: Any) -> Any:
        return ask(self.__self__, "method", (self.__name__, *args), kwargs)

    def __getattr__(self, name: str) -> Any:
        return getattr(ask(self.__self__, "get", (self.__name__,)), name)

    __doc__ = property(lambda self: self.__getattr__("__doc__"))

    def __eq__(self, other: Any) -> bool:
        return type(other) is Method and (self.__self__, self.__name__) == (other.__self__, other.__name__)

    def __hash__(self) -> int:
        return hash((id(self.__self__), self.__name__))


class MethodStub:
    """In the class: what looks a method up."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __get__(self, holder: Any, cls: Any) -> Any:
        return ask_class(cls, "get", (self.name,)) if holder is None else Method(holder, self.name)


# ---------------------------------------------------------------- objects


def get(self: Any, name: str) -> Any:
    if name == NUMBER:
        raise AttributeError(name)
    if name == "__dataclass_fields__":
        return _dataclass_fields(type(self))
    return ask(self, "get", (name,))


def _dataclass_fields(cls: Any) -> dict:
    import dataclasses

    names = ask_class(cls, "fields")
    if type(names) is not list or not all(type(name) is str for name in names):
        raise AttributeError("__dataclass_fields__")
    return dataclasses.make_dataclass("Fields", names).__dataclass_fields__


ROOT: dict[str, Any] = {
    "__getattr__": get,
    "__setattr__": lambda self, name, value: ask(self, "set", (name, value)),
    "__delattr__": lambda self, name: ask(self, "del", (name,)),
    "__dict__": property(lambda self: ask(self, "vars")),
    "__dir__": lambda self: ask(self, "dir"),
    "__copy__": lambda self: ask(self, "copy"),
    "__deepcopy__": lambda self, memo: ask(self, "deepcopy"),
}
"""What each class has that derives from no plain type."""
OWN_DOC = property(lambda self: get(self, "__doc__"))
"""A function's, not its class's."""


def bind(self: Any, holder: Any, cls: Any = None) -> Any:
    """`__get__` of a function."""
    return self if holder is None else types.MethodType(self, holder)


def send(self: Any, value: Any) -> Any:
    """Of a coroutine."""
    raise StopIteration(ask(self, "__await__"))


# ---------------------------------------------------------------- special methods


def _call(self: Any, /, *args: Any, **kwargs: Any) -> Any:
    return ask(self, "call", args, kwargs)


def _hash(self: Any) -> int:
    """Asked for once."""
    try:
        return object.__getattribute__(self, "_sandbox_hash")
    except AttributeError:
        found = ask(self, "__hash__")
        if type(found) is int:
            object.__setattr__(self, "_sandbox_hash", found)
        return found


def _length(length: Any) -> int:
    if type(length) is not int or not 0 <= length <= MAX_LENGTH:
        raise mark_from_program(ValueError("the program's length is none"))
    return length


def _iterator(iterator: Any) -> Any:
    if not hasattr(type(iterator), "__next__"):
        raise mark_from_program(TypeError("the program's iterator is none"))
    return iterator


def _iterate(self: Any) -> Any:
    return self if hasattr(type(self), "__next__") else _iterator(ask(self, "__iter__"))


def _iterate_later(self: Any) -> Any:
    return self if hasattr(type(self), "__anext__") else ask(self, "__aiter__")


async def _next_later(self: Any) -> Any:
    return ask(self, "__anext__")


async def _enter_later(self: Any) -> Any:
    return ask(self, "__aenter__")


async def _leave_later(self: Any, kind: Any, error: Any, trace: Any) -> Any:
    return ask(self, "__aexit__", (error,))


def _await(self: Any) -> Any:
    return ask(self, "__await__")
    yield  # a generator, as the interpreter wants it


SPECIAL: dict[str, Callable[..., Any]] = {
    "__call__": _call,
    "__hash__": _hash,
    "__len__": lambda self: _length(ask(self, "__len__")),
    "__bool__": lambda self: bool(ask(self, "__bool__")),
    "__contains__": lambda self, item: bool(ask(self, "__contains__", (item,))),
    "__exit__": lambda self, kind, error, trace: ask(self, "__exit__", (error,)),
    "__iter__": _iterate,
    "__aiter__": _iterate_later,
    "__anext__": _next_later,
    "__aenter__": _enter_later,
    "__aexit__": _leave_later,
    "__await__": _await,
}
"""Those that do more than ask for what they are called."""
for _name, _method in SPECIAL.items():
    _method.__name__ = _name  # by which a bound one crosses


# ---------------------------------------------------------------- exceptions


def _error_text(self: Any) -> str:
    text = self.__dict__.get("_sandbox_text")
    return BaseException.__str__(self) if text is None else text


def _error_attribute(self: Any, name: str) -> Any:
    behind = BaseException.__getattribute__(self, "__dict__").get(NUMBER)
    if behind is None or name[:1] == "_":
        raise AttributeError(name)
    return ask(self, "get", (name,))


ERROR = {"__str__": _error_text, "__getattr__": _error_attribute}
SPECIAL_OF_ERRORS = frozenset(("__eq__", "__ne__", "__hash__", "__len__", "__iter__", "__bool__"))
