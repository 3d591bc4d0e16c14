"""The value RPC between a program (S) and its test (T): two ends of one socket, one request at a time.

T may ask S for anything, S only for what `permits` allows. No deadline here: the supervisor keeps time.

A message is a request, `{"o": operation, "i": number of the object, "a": args, "k": kwargs}`, or the answer to one,
`{"v": value}`, `{"x": exception}`, `{"big": why it does not fit}`. Each holds its turn, `t`, and what goes along: `u`,
parts of containers that changed; `z`, containers that are given up; `y`, objects that were let go of; a request of T's also
`p`, its standard streams, and `s` where containers are to have no twins.
"""

import _thread  # `threading` would cost each fork a hundred page faults
import os
import select
import socket
import time
from typing import Any

from . import kernel, streams
from .codec import Codec
from .errors import (
    Fatal,
    NotServed,
    ProgramGone,
    ProgramLied,
    Refused,
    StackEnded,
    ValueTooLarge,
    mark_from_program,
    of_reading,
)
from .framing import MAX_VALUE, Frames, FrameTooLarge, send_frame
from .mirrors import kind_of
from .operations import perform
from .permits import OF_GENERATORS, is_permitted
from .standins import ForeignClass, is_foreign

ASKING, TESTING = b"asking", b"testing"
"""What a test process calls itself while it waits for the program, or reads what it sent; and else. The supervisor
looks when a limit is passed: what the program makes the test do is the program's."""
MOST_NESTED = 100
"""Questions of a test within each other. Where there are more, and the stack ends, it is the program that called back."""
_sleep = time.sleep


def _plain_error(name: str, text: str) -> dict:
    return {"e": [None, {"K": f"builtins:{name}"}, None, text, None, None, None, False]}


OUT_OF_MEMORY = _plain_error("MemoryError", "")
REFUSED = _plain_error("AttributeError", "not served")


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
        self.names: dict[str, Any] | None = None
        """The program's, in its own process."""
        self.holding = 0
        """Within how many comparisons a test is: what the program does to the test's containers is seen after."""
        self._hidden: dict[int, tuple[Any, list]] | None = None
        """By id: the test's containers that the program changed while it was answered within a comparison, and
        their parts before."""
        self._depth = 0
        self._pid = os.getpid()
        self._lock = _thread.RLock()

    # ------------------------------------------------------------ asking

    def ask(self, number: int | None, operation: str, args: tuple = (), kwargs: dict | None = None) -> Any:
        """Have the other end apply `operation` to its object `number`; raise what it raised."""
        with self._lock:
            if self.role == "program":
                return self._result(operation, args, self._exchange(number, operation, args, kwargs))
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
            except (RecursionError, StackEnded):
                if self._depth <= MOST_NESTED:
                    raise
                self.fatal = ProgramLied("it called back until the test's stack ended")
                raise self.fatal from None
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
        if isinstance(value, ForeignClass):
            self.codec.remotes.named.add(value)
        if isinstance(value, type) or (callable(value) and is_foreign(value)):
            self.known[name] = value
        return value

    def _exchange(self, number: int | None, operation: str, args: tuple, kwargs: dict | None) -> dict:
        self.codec.remotes.asked(number, operation, args)
        self.asked += 1
        turn = self.asked
        request: dict[str, Any] = {"o": operation, "i": number, "t": turn}
        mark = self.codec.mirrors.mark()
        try:
            self._fill(request, args, kwargs)
            send_frame(self.connection, request, MAX_VALUE)
        except (FrameTooLarge, RecursionError) as error:  # this end's own doing
            self.codec.mirrors.undo(mark)
            kind = StackEnded if isinstance(error, RecursionError) else NotServed
            raise kind(f"a value too large to pass between program and test: {error}") from None
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
        except Exception as error:
            raise of_reading(error) from None

    def _fill(self, request: dict, args: tuple, kwargs: dict | None) -> None:
        codec = self.codec
        self._add_changes(request)
        if args:
            request["a"] = [codec.encode(value) for value in args]
        if kwargs:
            request["k"] = {name: codec.encode(value) for name, value in kwargs.items()}
        if not codec.shared:
            request["s"] = 1
        elif self.role == "test" and (replaced := streams.replaced()):
            request["p"] = {name: codec.encode(stream) for name, stream in replaced.items()}
        self._add_dropped(request)

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
            message["y"] = list(dropped)
            dropped.clear()

    def _read_changes(self, message: dict, unseen: bool = False) -> None:
        codec = self.codec
        for number, parts in message.get("u", ()):
            if number not in codec.mirrors.values:
                continue
            value, new = codec.mirrors.values[number], codec.parts(parts)
            if unseen and codec.mirrors.is_own(number):
                codec.pending[id(value)] = value, new
            else:
                if codec.mirrors.is_own(number):
                    self._note(value)
                codec.pending.pop(id(value), None)
                codec.mirrors.fill(number, new)

    def _forget(self, message: dict) -> None:
        for number in message.get("z", ()):
            self.codec.mirrors.forget(number)
        if "y" in message:
            self.codec.release(message["y"])

    def _note(self, value: Any) -> None:
        """What a container of the test's is, before the program's change to it is done."""
        if self._hidden is not None:
            self._hidden.setdefault(id(value), (value, kind_of(value).parts(value)))

    def see_changes(self) -> None:
        """What the program did to the test's containers during a comparison, done now."""
        self.holding = 0
        for value, parts in self.codec.pending.values():
            self._note(value)
            if (number := self.codec.mirrors.number_of(value)) is not None:
                self.codec.mirrors.fill(number, parts)
            else:  # the program has let go of its own
                kind_of(value).fill(value, parts)
        self.codec.pending.clear()

    # ------------------------------------------------------------ serving

    def serve(self) -> None:
        """In the program: until the test is gone."""
        while True:
            if _thread._count():  # one of them may be waiting for an answer: only one may read
                self._is_asked()
                with self._lock:
                    if not self._is_asked(0):
                        continue
                    request = self.frames.next()
            else:
                request = self.frames.next()
            self.serve_one(request)

    def sleep(self, seconds: float) -> None:
        """A test's `time.sleep`: a program's thread may call back meanwhile."""
        if os.getpid() != self._pid:  # a child that the test forked
            _sleep(seconds)
            return
        until = time.monotonic() + seconds
        while (left := until - time.monotonic()) > 0:
            if self._is_asked(left):
                with self._lock:
                    kernel.set_name(ASKING)
                    try:
                        self.serve_one(self.frames.next())
                    except Exception as error:
                        self.fatal = ProgramLied(type(error).__name__)
                        raise self.fatal from None
                    finally:
                        kernel.set_name(TESTING)

    def _is_asked(self, timeout_s: float | None = None) -> bool:
        """Within this time; None: wait for it."""
        return self.frames.waiting() or bool(select.select([self.connection], [], [], timeout_s)[0])

    def serve_one(self, request: dict) -> None:
        """Answer one request. In the program, `os._exit` and its like end the process, as they would anywhere."""
        codec = self.codec
        error = value = None
        reply: dict[str, Any] = {"t": request["t"]}
        shared, codec.shared = codec.shared, "s" not in request
        try:
            value = self._served_unseen(request) if self.holding else self._served(request)
        except BaseException as raised:
            if isinstance(raised, GeneratorExit) or (self.role == "test" and isinstance(raised, Fatal)):
                raise
            error = raised
        self._answer(reply, value, error)
        value = error = None  # what only they hold is nobody's
        self._add_dropped(reply)
        streams.flush()
        try:
            send_frame(self.connection, reply, MAX_VALUE)
        except (FrameTooLarge, RecursionError) as large:
            send_frame(self.connection, {"t": reply["t"], "big": str(large)})
        except MemoryError:
            send_frame(self.connection, {"t": reply["t"], "x": OUT_OF_MEMORY})
        codec.shared = shared

    def _served(self, request: dict) -> Any:
        codec = self.codec
        try:
            args, kwargs = self._read(request)
        except Exception as error:
            if self.role == "program" or isinstance(error, Refused):
                raise
            raise of_reading(error) from None
        target = self.names if request["i"] is None else codec.objects[request["i"]]
        if self.role == "test":
            self._permit(target, request["o"], args)
        if self.role == "test" or "p" not in request:  # a test's streams are its own
            return perform(target, request["o"], args, kwargs)
        with streams.lent({name: codec.decode(stream) for name, stream in request["p"].items()}):
            return perform(target, request["o"], args, kwargs)

    def _read(self, request: dict) -> tuple[Any, dict]:
        """Arguments, after what goes along."""
        codec = self.codec
        self._read_changes(request)
        args = codec.parts(request["a"]) if "a" in request else ()
        kwargs = {name: codec.decode(item) for name, item in request["k"].items()} if "k" in request else {}
        self._forget(request)
        return args, kwargs

    def _served_unseen(self, request: dict) -> Any:
        """Within a comparison of the test's: what answers sees what the program changed, the comparison does not."""
        codec, holding, outer = self.codec, self.holding, self._hidden
        self._hidden = {}
        self.see_changes()
        try:
            return self._served(request)
        finally:
            self.see_changes()
            for key, (value, before) in self._hidden.items():
                number, kind = codec.mirrors.number_of(value), kind_of(value)
                parts = kind.parts(value)
                if number is not None and not codec.mirrors.is_known(number, parts):
                    continue  # the test itself has changed it meanwhile
                codec.pending[key] = value, parts
                kind.fill(value, before)
                if number is not None:
                    codec.mirrors.known(number, kind.parts(value))
            self._hidden, self.holding = outer, holding

    def _permit(self, target: Any, operation: str, args: Any) -> None:
        if is_permitted(target, operation, args):
            return
        if operation == "get" and not hasattr(target, args[0]):
            raise Refused
        what = f" {args[0]}" if operation in ("get", "set", "method") and args else ""
        self.not_served = f"{operation}{what} on the test's {type(target).__name__}"
        raise Refused

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
