"""The value RPC between a program (S) and its test (T): two ends of one socket, one request at a time.

T may ask S for anything. S may ask T only for what a test hands over to be used: its functions, iterators, and the
objects of its own classes, by names without an underscore; never for what leads from there to the verdict pipe
(`__globals__`, `gi_frame`), nor for functions of the library that do (`eval`, `getattr`). No deadline here: the
supervisor keeps time.
"""

import _thread  # `threading` would cost each fork a hundred page faults
import builtins
import contextlib
import copy
import functools
import operator
import os
import select
import socket
import sys
import time
import types
from collections.abc import Callable
from typing import Any

from . import kernel, remote
from .codec import HARMFUL, HARMLESS, Codec
from .framing import MAX_VALUE, Frames, FrameTooLarge, send_frame
from .mirrors import kind_of
from .remote import NotServed, mark_from_program

ASKING, TESTING = b"asking", b"testing"
"""What a test process calls itself while it waits for the program, or reads what it sent; and else. The supervisor
looks when a limit is passed: what the program makes the test do is the program's."""
_sleep = time.sleep
AT_ONCE_S = 0.001
"""How long one request may gather items of an iterator."""
TEST = "__main__"
"""What a test calls its own module."""


class ProgramGone(BaseException):
    """The program's process ended. A BaseException, and sticky: a test's `except Exception` cannot hide
    it."""


class ProgramLied(BaseException):
    """The program's process sent what the protocol does not know."""


class ValueTooLarge(BaseException):
    """A value does not fit a frame."""


class Refused(AttributeError):
    """What a program may not ask of a test's object is not there."""


def _plain_error(name: str, text: str) -> dict:
    return {"e": [None, {"K": f"builtins:{name}"}, None, text, None, None, None, False]}


OUT_OF_MEMORY = _plain_error("MemoryError", "")
REFUSED = _plain_error("AttributeError", "not served")
Fatal = (ProgramGone, ProgramLied, ValueTooLarge)


class Peer:
    """One end of the RPC. `role` is "program" or "test"."""

    def __init__(self, connection: socket.socket, role: str) -> None:
        self.connection = connection
        self.frames = Frames(connection.recv, MAX_VALUE)
        self.role = role
        self.codec = Codec(self.ask, role)
        self.fatal: BaseException | None = None
        self.asked = 0
        """Requests so far."""
        self.known: dict[str, Any] = {}
        """The program's functions and classes, by name."""
        self.not_served = ""
        """What the program wanted of the test's objects and does not get."""
        self.module: Any = None
        """The program's, in its own process."""
        self.holding = 0
        """Within how many comparisons a test is: what the program does to the test's containers is seen after."""
        self._depth = 0
        self._pid = os.getpid()
        self._lock = _thread.RLock()

    # ------------------------------------------------------------ asking

    def ask(self, number: int | None, operation: str, args: tuple = (), kwargs: dict | None = None) -> Any:
        """Have the other end apply `operation` to its object `number`; raise what it raised."""
        if self.role == "program":
            with self._lock:
                return self._result(operation, args, self._exchange(number, operation, args, kwargs))
        with self._lock:
            if self.fatal is not None:
                raise self.fatal
            self._depth += 1
            if self._depth == 1:
                kernel.set_name(ASKING)
            try:
                return self._result(operation, args, self._exchange(number, operation, args, kwargs))
            except Fatal as error:
                self.fatal = error
                raise
            finally:
                self._depth -= 1
                # Who takes many items at once goes on reading what the program sent.
                if not self._depth and not (operation == "take" and args[0] > 1):
                    kernel.set_name(TESTING)

    def ask_function(self, name: str, /, *args: Any, **kwargs: Any) -> Any:
        """Call a function of the program by its name."""
        return self.ask(None, "function", (name, *args), kwargs)

    def program_name(self, name: str) -> Any:
        """What the program calls so. Functions and classes are asked for once, variables each time."""
        if name in self.known:
            self.asked += 1
            return self.known[name]
        value = self.ask(None, "name", (name,))
        if isinstance(value, remote.ForeignClass):
            self.codec.remotes.named.add(value)
        if isinstance(value, type) or (callable(value) and remote.is_foreign(value)):
            self.known[name] = value
        return value

    def _exchange(self, number: int | None, operation: str, args: tuple, kwargs: dict | None) -> dict:
        codec = self.codec
        codec.remotes.asked(number, operation, args)
        self.asked += 1
        turn = self.asked
        request: dict[str, Any] = {"o": operation, "i": number, "t": turn}
        mark = codec.mirrors.mark()
        try:
            self._add_changes(request)
            if args:
                request["a"] = [codec.encode(value) for value in args]
            if kwargs:
                request["k"] = {name: codec.encode(value) for name, value in kwargs.items()}
            if not codec.shared:
                request["s"] = 1
            elif self.role == "test":
                self._lend_streams(request)
            self._add_dropped(request)
            send_frame(self.connection, request, MAX_VALUE)
        except (FrameTooLarge, RecursionError) as error:  # this end's own doing
            codec.mirrors.undo(mark)
            raise NotServed(f"a value too large to pass between program and test: {error}") from None
        except OSError:
            raise ProgramGone("the program's process ended") from None
        # From here on whatever goes wrong is the program's doing, and sticks.
        try:
            while True:
                message = self.frames.next()
                if "o" not in message:
                    if message["t"] != turn:
                        raise ValueError("an answer to another question")
                    return message
                self.serve_one(message)  # the other end calls back
        except (EOFError, ConnectionError):
            raise ProgramGone("the program's process ended") from None
        except (FrameTooLarge, MemoryError) as error:
            raise ValueTooLarge(str(error)) from None
        except Exception as error:
            raise ProgramLied(type(error).__name__) from None

    def _result(self, operation: str, args: tuple, reply: dict) -> Any:
        raised = None
        try:
            if "big" in reply:
                raise ValueTooLarge(str(reply["big"]))
            self._read_changes(reply, unseen=bool(self.holding) and reply.get("v") is not None)
            if "x" in reply:
                raised = self._raised(reply["x"], operation, args)
            else:
                value = self.codec.decode(reply["v"])
            self._forget(reply)
        except MemoryError:
            raise ValueTooLarge("value too large to decode") from None
        except Exception as error:
            raise ProgramLied(type(error).__name__) from None
        if raised is not None:
            raise raised
        return value

    def _raised(self, message: Any, operation: str, args: tuple) -> BaseException:
        error = self.codec.decode(message)
        if not isinstance(error, BaseException):
            raise TypeError("no exception")
        if "r" in message:  # this end's own, on its way back
            return error
        # Elsewhere than in an iteration it would end a loop of the test's, as if there were nothing to check.
        iterates = operation in ("take", "__anext__") or (operation == "method" and args[0] in OF_GENERATORS)
        if isinstance(error, (StopIteration, StopAsyncIteration)) and not iterates:
            error = RuntimeError(f"the program raised {type(error).__name__}")
        return mark_from_program(error) if self.role == "test" else error

    # ------------------------------------------------------------ what goes along

    def _add_changes(self, message: dict) -> None:
        """First of all: what else is said may refer to what is new in them."""
        if self.codec.mirrors.values and (changed := self.codec.mirrors.changes()):
            message["u"] = [[number, self.codec.items(parts)] for number, parts in changed]

    def _add_dropped(self, message: dict) -> None:
        codec = self.codec
        if codec.mirrors.values and (given_up := codec.mirrors.give_up()):
            message["z"] = given_up
        if dropped := codec.remotes.dropped:
            message["y"] = dropped[:]
            dropped.clear()

    def _read_changes(self, message: dict, unseen: bool = False) -> None:
        codec = self.codec
        for number, parts in message.get("u", ()):
            if number not in codec.mirrors.values:
                continue
            new = codec.parts(parts)
            if unseen and codec.mirrors.is_own(number):
                value = codec.mirrors.values[number]
                codec.pending[id(value)] = value, new
            else:
                codec.pending.pop(id(codec.mirrors.values[number]), None)
                codec.mirrors.fill(number, new)

    def _forget(self, message: dict) -> None:
        for number in message.get("z", ()):
            self.codec.mirrors.forget(number)
        if "y" in message:
            self.codec.release(message["y"])

    def sleep(self, seconds: float) -> None:
        """A test's `time.sleep`: a program's thread may call back meanwhile."""
        if os.getpid() != self._pid:  # a child that the test forked
            _sleep(seconds)
            return
        until = time.monotonic() + seconds
        while (left := until - time.monotonic()) > 0:
            if self.frames.waiting() or select.select([self.connection], [], [], left)[0]:
                with self._lock:
                    kernel.set_name(ASKING)
                    try:
                        self.serve_one(self.frames.next())
                    except Exception as error:
                        self.fatal = ProgramLied(type(error).__name__)
                        raise self.fatal from None
                    finally:
                        kernel.set_name(TESTING)

    def serve(self) -> None:
        """In the program: until the test is gone."""
        while True:
            if _thread._count():  # one of them may be waiting for an answer: only one may read
                if not self.frames.waiting():
                    select.select([self.connection], [], [])
                with self._lock:
                    if not (self.frames.waiting() or select.select([self.connection], [], [], 0)[0]):
                        continue
                    request = self.frames.next()
            else:
                request = self.frames.next()
            self.serve_one(request)

    def see_changes(self) -> None:
        """What the program did to the test's containers during a comparison, done now."""
        self.holding = 0
        for value, parts in self.codec.pending.values():
            if (number := self.codec.mirrors.number_of(value)) is not None:
                self.codec.mirrors.fill(number, parts)
            else:  # the program has let go of its own
                kind_of(value).fill(value, parts)
        self.codec.pending.clear()

    def _lend_streams(self, request: dict) -> None:
        """What the test has put in the place of standard streams, `input` and `print` serves the program, too."""
        for place, name, original in _STREAMS:
            if (now := getattr(place, name)) is not original:
                request.setdefault("p", {})[name] = self.codec.encode(now)

    # ------------------------------------------------------------ serving

    def serve_one(self, request: dict) -> None:
        """Answer one request. In the program, `os._exit` and its like end the process, as they would anywhere."""
        codec = self.codec
        error = value = None
        reply: dict[str, Any] = {"t": request["t"]}
        shared, codec.shared = codec.shared, "s" not in request
        try:
            self._read_changes(request)
            args = codec.parts(request["a"]) if "a" in request else ()
            kwargs = (
                {name: codec.decode(item) for name, item in request["k"].items()} if "k" in request else {}
            )
            self._forget(request)
            target = None if request["i"] is None else codec.objects[request["i"]]
            if self.role == "test":
                self._permit(target, request["o"], args)
            with self._streams(request["p"]) if "p" in request else NO_STREAMS:
                value = self._perform(target, request["o"], args, kwargs)
        except BaseException as raised:
            if isinstance(raised, GeneratorExit) or (self.role == "test" and isinstance(raised, Fatal)):
                raise
            error = raised
        self._answer(reply, value, error)
        args = kwargs = target = value = error = None  # what only they hold is nobody's
        self._add_dropped(reply)
        flush_output()
        try:
            send_frame(self.connection, reply, MAX_VALUE)
        except (FrameTooLarge, RecursionError) as large:
            send_frame(self.connection, {"t": reply["t"], "big": str(large)})
        except MemoryError:
            send_frame(self.connection, {"t": reply["t"], "x": OUT_OF_MEMORY})
        codec.shared = shared

    def _perform(self, target: Any, operation: str, args: Any, kwargs: dict) -> Any:
        if operation == "name":
            return self.module.__dict__[args[0]]
        if operation == "rename":
            self.module.__dict__[args[0]] = args[1]
            return None
        if operation == "function":
            return self.module.__dict__[args[0]](*args[1:], **kwargs)
        if operation in OPERATIONS:
            return OPERATIONS[operation](target, *args, **kwargs)
        return getattr(type(target), operation)(target, *args)

    def _answer(self, reply: dict, value: Any, error: BaseException | None) -> None:
        codec = self.codec
        try:
            self._add_changes(reply)
            mark = codec.mirrors.mark()
            if error is None:
                try:
                    reply["v"] = codec.encode(value)
                    return
                except BaseException as failed:
                    codec.mirrors.undo(mark)
                    error = failed
            reply["x"] = REFUSED if isinstance(error, Refused) else codec.encode(error)
            error.__traceback__ = None
        except MemoryError:
            reply["x"] = OUT_OF_MEMORY

    @contextlib.contextmanager
    def _streams(self, lent: dict) -> Any:
        with contextlib.ExitStack() as stack:
            for place, name, original in _STREAMS:
                if name in lent:
                    setattr(place, name, self.codec.decode(lent[name]))
                    stack.callback(setattr, place, name, original)
            yield

    # ------------------------------------------------------------ what a program may ask of its test

    def _permit(self, target: Any, operation: str, args: Any) -> None:
        if self._is_permitted(target, operation, args):
            return
        if operation == "get" and not hasattr(target, args[0]):
            raise Refused
        what = f" {args[0]}" if operation in ("get", "set", "method") and args else ""
        self.not_served = f"{operation}{what} on the test's {type(target).__name__}"
        raise Refused

    def _is_permitted(self, target: Any, operation: str, args: Any) -> bool:
        kind = type(target)
        own_class = isinstance(target, type) and target.__module__ == TEST
        is_own = kind.__module__ == TEST or kind.__module__ == "unittest.mock"
        if operation in ("get", "method"):
            name = args[0]
            if type(name) is not str:
                return False
            if isinstance(target, types.FunctionType):
                return operation == "get" and name in OF_FUNCTIONS
            if isinstance(target, types.GeneratorType):
                return name in OF_GENERATORS
            return (is_own or own_class) and (name[:1] != "_" or name in NAMED)
        if operation in ("set", "del"):
            if kind.__module__ != TEST or type(args[0]) is not str or args[0][:1] == "_":
                return False
            return not callable(getattr(kind, args[0], None))  # `assertEqual` stays what it is
        if operation == "call":
            return self._may_be_called(target)
        if operation in ("take", "__iter__", "__len__", "__contains__", "__bool__"):
            return True
        return is_own and operation in remote.DUNDERS

    def _may_be_called(self, target: Any) -> bool:
        if isinstance(target, functools.partial):
            return self._may_be_called(target.func)
        if isinstance(target, types.MethodType):
            return self._may_be_called(target.__func__) or type(target.__self__).__module__ == "unittest.mock"
        if isinstance(target, types.FunctionType):
            return (
                target.__globals__.get("__name__") == TEST
                or target.__module__ in HARMLESS
                or target in (builtins.input, builtins.print)
            )
        if isinstance(target, type):
            return target.__module__ == TEST or target in _MADE_BY_CALL
        if isinstance(
            target, types.BuiltinFunctionType | types.MethodDescriptorType | types.MethodWrapperType
        ):
            holder = getattr(target, "__self__", None)
            if holder is None or isinstance(holder, types.ModuleType):
                return (
                    getattr(target, "__module__", None) or "builtins"
                ) in HARMLESS and target.__name__ not in HARMFUL
            return not isinstance(holder, types.ModuleType)
        return type(target).__module__ in (TEST, "unittest.mock", *HARMLESS)


_SIGNATURE = ("name", "qualname", "module", "doc", "code", "defaults", "kwdefaults", "annotations")
NAMED = frozenset(("_fields", "_asdict", "_replace", "_make", "_field_defaults"))
"""What a namedtuple's users call, too."""
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
"""What is told of a function's code: its shape."""
OF_FUNCTIONS = frozenset(f"__{name}__" for name in _SIGNATURE)
OF_GENERATORS = frozenset(("send", "throw", "close"))
_MADE_BY_CALL = (staticmethod, classmethod, property)


def _special_get(target: Any, name: str) -> Any:
    """An attribute. A function's code is told by its shape: what `inspect` reads of it."""
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


def _fields(target: Any) -> list:
    return [name for name, field in target.__dataclass_fields__.items() if field._field_type.name == "_FIELD"]


OPERATIONS: dict[str, Callable[..., Any]] = {
    "call": lambda target, /, *args, **kwargs: target(*args, **kwargs),
    "method": lambda target, name, /, *args, **kwargs: getattr(target, name)(*args, **kwargs),
    "get": _special_get,
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
"""Beside the special methods of the object's class, under their own names."""
NO_STREAMS = contextlib.nullcontext()
_STREAMS: list[tuple[Any, str, Any]] = []


def remember_streams() -> None:
    """As they are before a test, or a program, can change them."""
    names = [(sys, "stdout"), (sys, "stderr"), (sys, "stdin"), (builtins, "input"), (builtins, "print")]
    _STREAMS[:] = [(place, name, getattr(place, name)) for place, name in names]


def flush_output() -> None:
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(BaseException):
            stream.flush()
