"""The roles of a slot's child processes: `run_program` (S) and `evaluate` (T). S is untrusted from the program's first
line on. T runs no line of a program and no line of a test: it reads data tests and has S do what they call.

A code test runs in S.
"""

import os
import socket
import sys
import types
from collections.abc import Callable, Mapping, Set
from typing import Any, NamedTuple

from . import calls, code_tests, data_tests, streams, walk
from .errors import MAX_ERROR, ProgramGone, ProgramLied, ValueTooLarge, describe, of_reading
from .framing import ANY_SIZE, MAX_VALUE, Frames, FrameTooLarge, recv_frame, send_frame
from .values import NotPlain, TooLong

NOT_DATA = "NOT_DATA"
"""Status of a test that has to be judged as code. Only the supervisor sees it."""
LOAD_FAILURES = ("SYNTAX_ERROR", "RUNTIME_ERROR", "MEMORY_LIMIT")


# ---------------------------------------------------------------- S: the program


def run_program(control: socket.socket, rpc: socket.socket | None) -> None:
    """Loads the program. Then serves T until T is gone or, if there is no T, runs the code tests."""
    if rpc is None:
        send_frame(control, {"ready": True})  # from here on, failures are the program's
    source = recv_frame(control)["program"]
    module = types.ModuleType("program")
    for name in code_tests.MODULES:
        sys.modules[name] = module
    if rpc is None:
        send_frame(control, load(source, module))
        run_code_tests(control, module)
        return
    control.close()
    server = calls.Server(rpc, module.__dict__)
    hello = load(source, module)
    streams.flush()
    try:
        send_frame(rpc, hello, MAX_VALUE)
        server.serve()
    except FrameTooLarge:
        os._exit(14)
    except (EOFError, OSError):
        os._exit(0)


def load(source: str, module: types.ModuleType) -> dict:
    """Executes the program in the module. Returns the names that it defines, or why it cannot be loaded."""
    try:
        code = compile(source.removeprefix("\ufeff"), code_tests.PROGRAM_FILE, "exec", dont_inherit=True)
    except (SyntaxError, ValueError, RecursionError) as error:
        return failed("SYNTAX_ERROR", error)
    except MemoryError as error:
        return failed("MEMORY_LIMIT", error)
    try:
        exec(code, module.__dict__)
    except MemoryError as error:
        return failed("MEMORY_LIMIT", error)
    except BaseException as error:
        return failed("RUNTIME_ERROR", error)
    names, variables, modules = [], [], {}
    for name, value in list(module.__dict__.items()):
        if type(name) is not str or name in code_tests.OF_EVERY_MODULE:
            continue
        if type(value) is types.ModuleType:  # an object of a subclass could be called
            modules[name] = str(value.__name__)
        else:
            names.append(name)
            if not callable(value):
                variables.append(name)
    return {"names": names, "variables": variables, "modules": modules}


def failed(status: str, error: BaseException) -> dict:
    return {"failed": status, "error": _of_program(f"{type(error).__name__}: {describe(error)}")}


def run_code_tests(control: socket.socket, module: types.ModuleType) -> None:
    """Runs the tests in order. Sends one frame per test, with the token that the supervisor drew for this round."""
    import random  # already loaded by zygote._import_random

    streams.flush()
    own_pid, sys.modules[code_tests.TEST] = os.getpid(), module
    asked = recv_frame(control, ANY_SIZE)
    tests = [_read(code_tests.read, source) for source in asked["tests"]]
    for index, (test, source) in enumerate(zip(tests, asked["tests"], strict=True)):
        control.recv(1)  # the supervisor has read output and clocks: they begin anew
        random.seed(source)  # the same numbers, whatever tests run with it
        try:
            if isinstance(test, BaseException):
                raise test
            outcome = passed(code_tests.run(test, module))
        except BaseException as error:
            outcome = outcome_of_code(error)
        if os.getpid() != own_pid:  # a child that the program or its test forked
            os._exit(0)
        streams.flush()
        send_frame(control, {"index": index, "token": asked["token"], **outcome})


def outcome_of_code(error: BaseException) -> dict:
    text = f"{type(error).__name__}: {describe(error)}"
    if isinstance(error, TooLong):
        return outcome("OUTPUT_LIMIT", describe(error))
    if isinstance(error, NotPlain):
        return outcome("RUNTIME_ERROR", describe(error))
    if code_tests.is_programs(error):
        return outcome("MEMORY_LIMIT" if isinstance(error, MemoryError) else "RUNTIME_ERROR", text)
    if isinstance(error, AssertionError):
        return outcome("WRONG_ANSWER", describe(error))
    return outcome_of_test(error)


def outcome_of_test(error: BaseException) -> dict:
    """Returns the outcome of a test that failed by itself."""
    status = "SYNTAX_ERROR" if isinstance(error, SyntaxError) else "RUNTIME_ERROR"
    text = f"test: {type(error).__name__}: {describe(error)}"[:MAX_ERROR]
    return outcome(status, "") | {"error": text, "never_asked": isinstance(error, code_tests.NeverAsked)}


def passed(value: str | None) -> dict:
    return outcome("PASSED", "") | {"value": value}


def outcome(status: str, error: str) -> dict:
    return {"status": status, "value": None, "error": _of_program(error), "never_asked": False}


def _of_program(error: str) -> str:
    """Returns a shortened text of an error that is not the test's own."""
    return f"{'program: ' if error.startswith('test:') else ''}{error}"[:MAX_ERROR]


def _read(reader: Callable[[str], Any], test: str) -> Any:
    """Returns the test that was read, or the error that was raised."""
    try:
        return reader(test)
    except BaseException as error:
        return error


# ---------------------------------------------------------------- T: tests that are data


class LoadFailed(Exception):
    """Raised if the program reported that it could not be loaded. The arguments are (status, error)."""


class Program(NamedTuple):
    """The first report of a program."""

    names: frozenset[str] = frozenset()
    variables: frozenset[str] = frozenset()
    """Names whose values cannot be called, a part of `names`."""
    modules: Mapping[str, str] = {}
    """The names of the modules that it imports, by the program's names for them."""


def evaluate(control: socket.socket) -> None:
    """Judges jobs until the supervisor closes the connection. A job is a byte with the descriptor of the connection to
    S, then a frame with tests."""
    while True:
        _, descriptors, _, _ = socket.recv_fds(control, 1, 1)
        if not descriptors:
            os._exit(0)
        with socket.socket(fileno=descriptors[0]) as rpc:
            caller = calls.Caller(rpc)
            judge_data(control, caller, recv_frame(control, ANY_SIZE)["tests"])
            caller.begin(None, False)  # values that it holds refer to it, and no collector runs


def judge_data(control: socket.socket, caller: calls.Caller, tests: list[list]) -> None:
    """Judges the tests in order and sends one frame per test. Stops after a test that lost the program.

    Args:
        tests: see Slot.judge.
    """
    # All tests are read before the program goes on, because it can see how long that takes.
    read_tests = [_read(data_tests.read_often, source) for source, *_ in tests]
    try:
        program = meet_program(caller.frames)
    except BaseException as error:
        for index in range(len(tests)):
            send_frame(control, {"index": index, "asked_objects": False, "shadowed": [], **outcome_of(error)})
        return
    send_frame(control, {"loaded": True})
    for index, (test, asked) in enumerate(zip(read_tests, tests, strict=True)):
        _, plain, kind, entry_point, shadowed = asked
        control.recv(1)  # see run_code_tests
        caller.begin(test if isinstance(test, data_tests.DataTest) else None, plain)
        if shadowed is None and isinstance(test, data_tests.DataTest):
            shadowed = data_tests.shadowing(test, program.names, entry_point)
        try:
            said = passed(run_data(test, program, caller, frozenset(shadowed or ())))
        except data_tests.NotData as error:
            said = outcome_of(error) | ({} if kind == "data" else {"status": NOT_DATA})
        except walk.ObjectCompared as error:
            said = outcome_of(error) | ({"status": NOT_DATA} if kind == "reference" else {})
        except BaseException as error:
            said = outcome_of(error)
        if caller.fatal is not None:  # a test cannot hide it
            said = outcome_of(caller.fatal)
        said |= {"asked_objects": caller.more_than_results, "last": caller.fatal is not None}
        send_frame(control, {"index": index, "shadowed": sorted(shadowed or ()), **said})
        if caller.fatal is not None:
            return


def meet_program(frames: Frames) -> Program:
    failure = None
    program = Program()
    try:
        hello = frames.next()
        if "failed" in hello:
            failure = LoadFailed(str(hello["failed"]), str(hello.get("error")))
        else:
            told = (name for name in hello["names"] if type(name) is str)
            names = frozenset(name for name in told if name not in code_tests.OF_EVERY_MODULE)
            modules = {str(name): str(module) for name, module in hello["modules"].items()}
            program = Program(names, names.intersection(map(str, hello["variables"])), modules)
    except Exception as error:
        raise of_reading(error) from None
    if failure is not None:
        raise failure
    return program


def run_data(
    test: data_tests.DataTest | BaseException,
    program: Program,
    caller: calls.Caller,
    shadowing: Set[str] = frozenset(),
) -> str | None:
    if isinstance(test, BaseException):
        raise test

    def named(name: str) -> Any:
        if name in program.modules:
            raise data_tests.NotData(f"{name}, a module of the program's")
        if name not in program.names:
            raise KeyError(name)
        return caller.ask("name", name) if name in program.variables else calls.Name(caller, name)

    asked = caller.asked
    value = walk.Walk(test, named, shadowing, caller.values.see_changes).run()
    if caller.again():
        walk.Walk(test, named, shadowing).run()
    if caller.asked == asked and not (test.is_expression or test.only_loads):
        raise code_tests.NeverAsked("the test never uses the program")
    return value


def outcome_of(error: BaseException) -> dict:
    """Returns the outcome of a test that an error ended."""
    text = f"{type(error).__name__}: {describe(error)}"
    match error:
        case LoadFailed():
            status, text = error.args
            return outcome(status if status in LOAD_FAILURES else "RUNTIME_ERROR", text)
        case ProgramGone():  # the supervisor looks up how it ended
            return outcome("RUNTIME_ERROR", text) | {"gone": True}
        case ProgramLied():
            return outcome("RUNTIME_ERROR", text)
        case ValueTooLarge():
            return outcome("OUTPUT_LIMIT", "a value too large to pass between program and test")
        case NotPlain() | walk.ObjectCompared() | data_tests.NotData():
            return outcome("RUNTIME_ERROR", describe(error))
        case walk.ProgramRaised(names=names):
            status = "MEMORY_LIMIT" if "MemoryError" in names else "RUNTIME_ERROR"
            return outcome(status, f"{names[0]}: {describe(error)}")
        case TooLong():
            return outcome("OUTPUT_LIMIT", describe(error))
        case AssertionError():
            return outcome("WRONG_ANSWER", describe(error))
    return outcome_of_test(error)
