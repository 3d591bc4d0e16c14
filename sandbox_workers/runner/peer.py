"""The value RPC between a program (S) and its test (T): two ends of one socket, one request at a time.

T may ask S for anything but dunder attributes. S may only call and iterate what T handed over: never getattr,
since `__globals__` or `gi_frame` of a test's lambda lead to the verdict pipe. No deadline here: the
supervisor keeps time.
"""

import builtins
import contextlib
import operator
import os
import socket
import sys
from collections.abc import Callable
from typing import Any

from . import kernel
from .framing import FrameTooLarge, recv_frame, send_frame
from .values import Codec

ASKING, TESTING = b"asking", b"testing"
"""What a test process calls itself while it waits for the program, or reads what it sent; and else. The supervisor
looks when a limit is passed: what the program makes the test do is the program's."""
MAX_LENGTH = 10_000_000
"""A test's list() would allocate what `__len__` says before it asks for a single item."""
MAX_TEXT = 2000
"""Characters of an exception's text that cross the socket."""


class ProgramGone(BaseException):
    """The program's process ended. A BaseException, and sticky: a test's `except Exception` cannot hide
    it."""


class ProgramLied(BaseException):
    """The program's process sent what the protocol does not know."""


class ValueTooLarge(BaseException):
    """A value does not fit a frame."""


Fatal = (ProgramGone, ProgramLied, ValueTooLarge)


class FromProgram(Exception):
    """Carries an exception that the program raised, out of the code that guards against protocol errors."""


class Remote:
    """Handle on an object of the other process. Order and arithmetic against plain data are refused, never
    delegated: a program's `__lt__` or `__eq__` must not decide a test's comparison."""

    def __init__(self, peer: "Peer", number: int, type_name: str) -> None:
        self.__peer, self.__number, self.__type_name = peer, number, type_name

    def __ask(self, operation: str, *args: Any, **kwargs: Any) -> Any:
        return self.__peer.ask(self.__number, operation, args, kwargs)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_Remote__") or name in ("__array__", "__class__"):
            raise AttributeError(name)
        return self.__ask("getattr", name)

    def __setattr__(self, name: str, value: Any) -> None:
        if name.startswith("_Remote__"):
            object.__setattr__(self, name, value)
        else:
            self.__ask("setattr", name, value)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.__ask("call", *args, **kwargs)

    def __iter__(self) -> Any:
        if self.__type_name in ("generator", "iterator"):
            return self
        iterator = self.__ask("iter")
        if type(iterator) is not Remote:
            raise mark_from_program(TypeError("the program's iterator is none"))
        return iterator

    def __next__(self) -> Any:
        return self.__ask("next")

    def __len__(self) -> int:
        length = self.__ask("len")
        if type(length) is not int or not 0 <= length <= MAX_LENGTH:
            raise mark_from_program(ValueError("the program's length is none"))
        return length

    def __getitem__(self, key: Any) -> Any:
        return self.__ask("getitem", key)

    def __setitem__(self, key: Any, value: Any) -> None:
        self.__ask("setitem", key, value)

    def __contains__(self, key: Any) -> bool:
        return bool(self.__ask("contains", key))

    def __bool__(self) -> bool:
        return bool(self.__ask("truth"))

    def __str__(self) -> str:
        return str(self.__ask("str"))

    def __repr__(self) -> str:
        return str(self.__ask("repr"))

    def __enter__(self) -> Any:
        return self.__ask("enter")

    def __exit__(self, *details: Any) -> Any:
        return self.__ask("exit")

    def __eq__(self, other: Any) -> bool:
        if not isinstance(other, Remote):
            return False
        return self.__number == other.__number or bool(self.__ask("eq", other))

    def __ne__(self, other: Any) -> bool:
        return not self == other

    def __hash__(self) -> int:
        return hash(("remote", self.__number))

    def __instancecheck__(self, instance: Any) -> bool:
        return isinstance(instance, Remote) and bool(self.__ask("isinstance", instance))


def _refuse(self: Remote, *args: Any) -> Any:
    raise mark_from_program(TypeError("the program returned an object that is not a plain value"))


_REFUSED = """
    lt le gt ge add radd sub rsub mul rmul truediv rtruediv floordiv rfloordiv mod rmod divmod rdivmod pow rpow
    matmul rmatmul lshift rlshift rshift rrshift and rand or ror xor rxor abs neg pos invert
    int float complex index round trunc floor ceil bytes format reversed
"""
for _name in _REFUSED.split():
    setattr(Remote, f"__{_name}__", _refuse)


def mark_from_program(error: BaseException) -> BaseException:
    """The error, marked as the program's own."""
    error.__dict__["_from_program"] = True
    return error


def is_from_program(error: BaseException) -> bool:
    return bool(error.__dict__.get("_from_program"))


def _remote_number(value: Any) -> int | None:
    return value._Remote__number if type(value) is Remote else None


class _Iterator:
    def __init__(self, iterator: Any) -> None:
        self._iterator = iterator

    def __next__(self) -> Any:
        return next(self._iterator)


_Iterator.__name__ = "iterator"  # its handle iterates itself

_OPERATIONS: dict[str, Callable[..., Any]] = {
    "getattr": getattr,
    "setattr": setattr,
    "call": lambda function, *args, **kwargs: function(*args, **kwargs),
    "iter": lambda value: _Iterator(iter(value)),
    "next": next,
    "len": len,
    "getitem": operator.getitem,
    "setitem": operator.setitem,
    "contains": operator.contains,
    "truth": bool,
    "str": str,
    "repr": repr,
    "enter": lambda manager: manager.__enter__(),
    "exit": lambda manager: manager.__exit__(None, None, None),
    "eq": operator.eq,
    "isinstance": lambda cls, value: isinstance(value, cls),
}
_ALLOWED_TO_PROGRAM = ("call", "iter", "next")
_MUTABLE = (list, dict, set)


class Peer:
    """One end of the RPC. `role` is "program" or "test"."""

    def __init__(self, connection: socket.socket, role: str) -> None:
        self.connection = connection
        self.role = role
        self.codec = Codec(lambda number, name: Remote(self, number, name), _remote_number)
        self.exceptions: dict[str, Any] = {}
        """Exception classes that the program defines, by name."""
        self.fatal: BaseException | None = None

    def ask(self, number: int, operation: str, args: tuple, kwargs: dict) -> Any:
        """Have the other end apply `operation` to its object `number`; raise what it raised."""
        if self.fatal is not None:
            raise self.fatal
        if self.role == "test":
            kernel.set_name(ASKING)
        try:
            reply = self._exchange(number, operation, args, kwargs)
            try:
                return self._result(args, reply)
            except FromProgram as carrier:
                error = carrier.args[0]
                # Elsewhere than in `next` it would end a loop of the test's, as if there were nothing to check.
                if isinstance(error, (StopIteration, StopAsyncIteration)) and operation != "next":
                    error = mark_from_program(RuntimeError(f"the program raised {type(error).__name__}"))
                raise error from None
        except Fatal as error:
            self.fatal = error
            raise
        finally:
            if self.role == "test":
                kernel.set_name(TESTING)

    def _exchange(self, number: int, operation: str, args: tuple, kwargs: dict) -> dict:
        encode = self.codec.encode
        request = {"i": number, "o": operation, "a": [encode(a) for a in args]}
        request["k"] = {name: encode(value) for name, value in kwargs.items()}
        # From here on whatever goes wrong is the program's doing, and sticks.
        try:
            send_frame(self.connection, request)
            while True:
                message = recv_frame(self.connection)
                if "o" not in message:
                    return message
                self.serve_one(message)  # the program calls back into the test
        except (EOFError, ConnectionError):
            raise ProgramGone("the program's process ended") from None
        except (FrameTooLarge, MemoryError) as error:
            raise ValueTooLarge(str(error)) from None
        except Exception as error:
            raise ProgramLied(type(error).__name__) from None

    def _result(self, args: tuple, reply: dict) -> Any:
        try:
            if "big" in reply:
                raise ValueTooLarge(str(reply.get("v")))
            if "x" in reply:
                raise FromProgram(self._exception(str(reply["x"]), str(reply.get("v"))))
            value = self.codec.decode(reply["v"])
            # Written back only when the call returns None: else `f(data) == sorted(data)` could be forged.
            if value is None:
                self._write_back(args, reply.get("m", ()))
            return value
        except FromProgram:
            raise
        except MemoryError:
            raise ValueTooLarge("value too large to decode") from None
        except Exception as error:
            raise ProgramLied(type(error).__name__) from None

    def _write_back(self, args: tuple, changed: Any) -> None:
        for original, encoded in zip(args, changed, strict=False):
            if encoded is None:
                continue
            new = self.codec.decode(encoded)
            if type(original) is list and type(new) is list:
                original[:] = new
            elif (type(original) is dict and type(new) is dict) or (
                type(original) is set and type(new) is set
            ):
                original.clear()
                original.update(new)

    def _exception(self, name: str, text: str) -> BaseException:
        cls = self.exceptions.get(name) or getattr(builtins, name, None)
        if not (isinstance(cls, type) and issubclass(cls, Exception)):
            cls = RuntimeError
        return mark_from_program(cls.__new__(cls, text[:MAX_TEXT]))

    def _serves(self, request: dict) -> bool:
        if self.role == "test":
            return request["o"] in _ALLOWED_TO_PROGRAM
        if request["o"] != "getattr":
            return True
        name = str(request["a"][0])
        return not name.startswith("__") or name in ("__name__", "__doc__")

    def serve_one(self, request: dict) -> None:
        """Answer one request. In the program, SystemExit and its like end the process, as they would
        anywhere."""
        args: list[Any] = []
        before: list[str | None] = []
        reply: dict[str, Any]
        try:
            if not self._serves(request):
                raise PermissionError("not served")
            args = [self.codec.decode(item) for item in request["a"]]
            before = [repr(value) if type(value) in _MUTABLE else None for value in args]
            kwargs = {name: self.codec.decode(value) for name, value in request["k"].items()}
            target = self.codec.objects[request["i"]]
            reply = {"v": self.codec.encode(_OPERATIONS[request["o"]](target, *args, **kwargs))}
        except BaseException as error:
            if self.role == "program" and isinstance(error, (SystemExit, KeyboardInterrupt, GeneratorExit)):
                flush_output()
                os._exit(13)
            reply = {"x": self._known_name(error), "v": describe(error)}
            before = []
        reply["m"] = self._changes(args, before)
        flush_output()
        self._reply(reply)

    def _changes(self, args: list, before: list[str | None]) -> list:
        try:
            return [
                self.codec.encode(value) if old is not None and repr(value) != old else None
                for value, old in zip(args, before, strict=False)
            ]
        except BaseException:
            return []

    def _reply(self, reply: dict) -> None:
        try:
            send_frame(self.connection, reply)
        except FrameTooLarge as error:
            send_frame(
                self.connection, {"x": "OverflowError", "v": f"value too large: {error}", "m": [], "big": 1}
            )
        except MemoryError:
            send_frame(self.connection, {"x": "MemoryError", "v": "", "m": []})

    def _known_name(self, error: BaseException) -> str:
        """The most derived class of the error that the other end knows too."""
        for cls in type(error).__mro__:
            if cls.__name__ in self.exceptions or hasattr(builtins, cls.__name__):
                return cls.__name__
        return "Exception"


def describe(error: BaseException) -> str:
    """str(error) where that works: it is the program's code. Encodable: lone surrogates are replaced."""
    try:
        return str(error)[:MAX_TEXT].encode("utf-8", "replace").decode()
    except BaseException:
        return ""


def flush_output() -> None:
    with contextlib.suppress(BaseException):
        sys.stdout.flush()
    with contextlib.suppress(BaseException):
        sys.stderr.flush()
