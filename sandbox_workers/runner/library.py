"""The standard library, which both ends of the value RPC have: its classes and functions go by their names."""

import importlib
import sys
import types
from typing import Any

MODULES = sys.stdlib_module_names - {
    *("antigravity", "this", "idlelib", "lib2to3", "tkinter", "turtle", "turtledemo"),
}
"""Modules that a program may have its test import: not those that do something then."""
HARMLESS = frozenset(
    "builtins math cmath operator _operator functools _functools itertools statistics random _random heapq _heapq bisect "  # noqa: SIM905
    "_bisect string re decimal _decimal fractions datetime _datetime collections _collections time copy textwrap".split()
)
"""Of them those whose functions a test may hand to a program."""
HARMFUL = frozenset(
    "eval exec compile open getattr setattr delattr hasattr vars globals locals dir __import__ input print breakpoint "  # noqa: SIM905
    "__build_class__ attrgetter methodcaller sleep".split()
)
"""Names of functions that it may not hand over even so."""
REACHING_OUT = frozenset(
    "subprocess ctypes _ctypes multiprocessing code runpy importlib zipimport pickle _pickle socket _socket".split()  # noqa: SIM905
)
"""Modules whose classes a program keeps to itself, but for exceptions: a test that calls what it is given would run the
program's code by them."""
FUNCTIONS = (types.BuiltinFunctionType, types.FunctionType, types.MethodDescriptorType)


def is_in_library(module: str) -> bool:
    """By the module's full name."""
    return module.partition(".")[0] in MODULES


def class_name(cls: type) -> str | None:
    """ "module:name" of a class of the library that both ends may have; None for any other."""
    module, name = cls.__module__, cls.__qualname__
    if not is_in_library(module) or _found(module, name) is not cls:
        return None
    reaches_out = module.partition(".")[0] in REACHING_OUT or name in HARMFUL
    return None if reaches_out and not issubclass(cls, BaseException) else f"{module}:{name}"


def class_named(text: str) -> type:
    """Raise some Exception where there is none."""
    module, _, name = text.partition(":")
    if not is_in_library(module) or "__" in module:
        raise ValueError("no module of the library")
    found: Any = importlib.import_module(module)
    for part in name.split("."):
        found = getattr(found, part)
    if not isinstance(found, type):
        raise TypeError("no class")
    if class_name(found) != text:
        raise ValueError("no class that both ends may have")
    return found


def function_name(value: Any) -> str | None:
    """ "module:name" of a function that both ends have and a test may hand to a program; None for any other."""
    holder = getattr(value, "__objclass__", None)
    if holder is None:
        module, name = getattr(value, "__module__", None), getattr(value, "__qualname__", "")
    else:
        module, name = holder.__module__, f"{holder.__qualname__}.{value.__name__}"
    if module not in HARMLESS or "." in name.removeprefix("str.") or value.__name__ in HARMFUL:
        return None
    return f"{module}:{name}" if _found(module, name) is value else None


def function_named(text: str) -> Any:
    """Raise some Exception where there is none, or a test may not hand it over."""
    module, _, name = text.partition(":")
    value = _found(module, name)
    if module not in HARMLESS or value is None or function_name(value) != text:
        raise ValueError("no function of the library")
    return value


def _found(module: str, name: str) -> Any:
    """Where the module is loaded and has it."""
    found: Any = sys.modules.get(module)
    for part in name.split("."):
        found = getattr(found, part, None)
    return found
