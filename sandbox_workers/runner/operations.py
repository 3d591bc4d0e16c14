"""What one end of the value RPC does for the other with an object."""

import copy
import operator
import time
import types
from collections.abc import Callable
from typing import Any

AT_ONCE_S = 0.001
"""How long one request may gather items of an iterator."""
CODE = (
    "co_name",
    "co_argcount",
    "co_posonlyargcount",
    "co_kwonlyargcount",
    "co_flags",
    "co_varnames",
    "co_nlocals",
    "co_firstlineno",
)
"""What is told of a function's code: its shape, which is what `inspect` reads of it."""


def perform(target: Any, operation: str, args: Any, kwargs: dict) -> Any:
    """By OPERATIONS, or the special method of the object's class that is called so."""
    if (act := OPERATIONS.get(operation)) is not None:
        return act(target, *args, **kwargs)
    return getattr(type(target), operation)(target, *args)


def _call_named(names: dict, name: str, /, *args: Any, **kwargs: Any) -> Any:
    return names[name](*args, **kwargs)


def _get(target: Any, name: str) -> Any:
    value = getattr(target, name)
    if name == "__code__" and isinstance(value, types.CodeType):
        return types.SimpleNamespace(**{part: getattr(value, part) for part in CODE})
    return value


def _take(iterator: Any, most: int) -> tuple[list, BaseException | None]:
    """(up to `most` items, none where there are no more; what was raised after them)"""
    items: list[Any] = []
    until = time.monotonic() + AT_ONCE_S
    try:
        while not items or (len(items) < most and time.monotonic() < until):
            items.append(next(iterator))
    except StopIteration as stop:
        return items, stop if stop.value is not None else None
    except Exception as error:
        if not items:
            raise
        return items, error
    return items, None


def _fields(target: Any) -> list:
    return [name for name, field in target.__dataclass_fields__.items() if field._field_type.name == "_FIELD"]


def _details(error: BaseException | None) -> tuple:
    return (None, None, None) if error is None else (type(error), error, error.__traceback__)


def _run(awaitable: Any) -> Any:
    import asyncio  # few programs need it, and each child would pay for it

    async def whole() -> Any:
        return await awaitable

    if not _LOOP:  # one for all: an asynchronous generator stays with its own
        _LOOP.append(asyncio.new_event_loop())
    return _LOOP[0].run_until_complete(whole())


_LOOP: list[Any] = []
OPERATIONS: dict[str, Callable[..., Any]] = {
    # of the program's names
    "name": operator.getitem,
    "rename": operator.setitem,
    "function": _call_named,
    # of an object
    "call": lambda target, /, *args, **kwargs: target(*args, **kwargs),
    "method": lambda target, name, /, *args, **kwargs: getattr(target, name)(*args, **kwargs),
    "get": _get,
    "set": setattr,
    "del": delattr,
    "take": _take,
    "dir": dir,
    "vars": lambda target: target.__dict__,
    "copy": copy.copy,
    "deepcopy": copy.deepcopy,
    "fields": _fields,
    "__iter__": iter,
    "__next__": next,
    "__len__": len,
    "__bool__": bool,
    "__str__": str,
    "__repr__": repr,
    "__hash__": hash,
    "__format__": format,
    "__getitem__": operator.getitem,
    "__setitem__": operator.setitem,
    "__delitem__": operator.delitem,
    "__contains__": operator.contains,
    "__reversed__": reversed,
    "__exit__": lambda target, error: type(target).__exit__(target, *_details(error)),
    "__await__": _run,
    "__anext__": lambda target: _run(type(target).__anext__(target)),
    "__aenter__": lambda target: _run(type(target).__aenter__(target)),
    "__aexit__": lambda target, error: _run(type(target).__aexit__(target, *_details(error))),
}
"""By name. A special method is asked for under its own."""
