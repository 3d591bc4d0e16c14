"""What a program may ask of its test: only what a test hands over to be used, its functions, iterators, and the objects
of its own classes, by names without an underscore; never what leads from there to the verdict pipe (`__globals__`,
`gi_frame`), nor functions of the library that do (`eval`, `getattr`)."""

import builtins
import functools
import types
from typing import Any

from .library import HARMFUL, HARMLESS
from .remote import DUNDERS

TEST = "__main__"
"""What a test calls its own module."""
MOCK = "unittest.mock"
NAMED = frozenset(("_fields", "_asdict", "_replace", "_make", "_field_defaults"))
"""What a namedtuple's users call, too."""
OF_FUNCTIONS = frozenset(
    f"__{name}__"
    for name in ("name", "qualname", "module", "doc", "code", "defaults", "kwdefaults", "annotations")
)
OF_GENERATORS = frozenset(("send", "throw", "close"))
OF_ALL = frozenset(("take", "__iter__", "__len__", "__contains__", "__bool__"))
"""Operations."""
_MADE_BY_CALL = (staticmethod, classmethod, property)


def is_permitted(target: Any, operation: str, args: Any) -> bool:
    """Of an object of the test's."""
    kind = type(target)
    is_own = kind.__module__ in (TEST, MOCK)
    if operation in ("get", "method"):
        name = args[0]
        if type(name) is not str:
            return False
        if isinstance(target, types.FunctionType):
            return operation == "get" and name in OF_FUNCTIONS
        if isinstance(target, types.GeneratorType):
            return name in OF_GENERATORS
        is_own = is_own or (isinstance(target, type) and target.__module__ == TEST)
        return is_own and (name[:1] != "_" or name in NAMED)
    if operation in ("set", "del"):
        if kind.__module__ != TEST or type(args[0]) is not str or args[0][:1] == "_":
            return False
        return not callable(getattr(kind, args[0], None))  # `assertEqual` stays what it is
    if operation == "call":
        return _may_be_called(target)
    return operation in OF_ALL or (is_own and operation in DUNDERS)


def _may_be_called(target: Any) -> bool:
    if isinstance(target, functools.partial):
        return _may_be_called(target.func)
    if isinstance(target, types.MethodType):
        return _may_be_called(target.__func__) or type(target.__self__).__module__ == MOCK
    if isinstance(target, types.FunctionType):
        is_own = target.__globals__.get("__name__") == TEST
        return is_own or target.__module__ in HARMLESS or target in (builtins.input, builtins.print)
    if isinstance(target, type):
        return target.__module__ == TEST or target in _MADE_BY_CALL
    if isinstance(target, types.BuiltinFunctionType | types.MethodDescriptorType | types.MethodWrapperType):
        holder = getattr(target, "__self__", None)
        if holder is not None and not isinstance(holder, types.ModuleType):
            return True
        module = getattr(target, "__module__", None) or "builtins"
        return module in HARMLESS and target.__name__ not in HARMFUL
    return type(target).__module__ in (TEST, MOCK, *HARMLESS)
