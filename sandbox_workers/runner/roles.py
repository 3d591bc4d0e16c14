"""The two children of a pair: `run_program` (S) and `run_tests` (T). Untrusted from the first exec on.

Only T has the verdict pipe. All tests of one job share S and T, as a test file would: give each author its
own job. A T that was given nothing but data tests may judge further jobs.
"""

import os
import socket
import sys
import time
import types
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from . import calls, data_tests, kernel, streams, suite
from .errors import (
    NotServed,
    ProgramGone,
    ProgramLied,
    ValueTooLarge,
    describe,
    is_from_program,
    of_reading,
)
from .framing import MAX_VALUE, Frames, FrameTooLarge, recv_frame, send_frame
from .peer import ASKING, TESTING, Peer
from .permits import TEST
from .values import NotPlain, TooLong

PICKLED = {
    "builtins": "set frozenset bytearray complex range slice",
    "collections": "Counter OrderedDict deque defaultdict",
    "datetime": "date datetime time timedelta",
    "decimal": "Decimal",
    "fractions": "Fraction",
    "copyreg": "_reconstructor",
}
"""What a pickle may name, in a test."""
NOT_TOLD = frozenset("__builtins__ __name__ __doc__ __file__ __loader__ __spec__ __package__".split())  # noqa: SIM905
"""Names that every module has."""
NOT_DATA = "NOT_DATA"
"""Status of a test that has to be judged as code. Only a supervisor ever sees it."""
MAX_ERROR = 500
"""Characters of an error text in a verdict."""


# ---------------------------------------------------------------- S: the program


def run_program(control: socket.socket, rpc: socket.socket) -> None:
    """Load the program, tell T its names, then serve T until T is gone."""
    job = recv_frame(control)
    control.close()
    module = types.ModuleType("program")
    sys.modules["program"] = sys.modules["solution"] = module
    server: Peer | calls.Server
    if job["data"]:
        server = calls.Server(rpc, module.__dict__)
    else:
        server = Peer(rpc, "program")
        server.names = module.__dict__
    streams.remember()
    hello = load(job["program"], module)
    streams.flush()
    try:
        send_frame(rpc, hello, MAX_VALUE)
        server.serve()
    except FrameTooLarge:
        os._exit(14)
    except (EOFError, OSError):
        os._exit(0)


def load(source: str, module: types.ModuleType) -> dict:
    """What the program has to say first: its names, or why it has none."""
    try:
        code = compile(source, "program.py", "exec", dont_inherit=True)
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
        if type(name) is not str or name in NOT_TOLD:
            continue
        if isinstance(value, types.ModuleType):
            modules[name] = str(value.__name__)
        else:
            names.append(name)
            if not callable(value):
                variables.append(name)
    return {"names": names, "variables": variables, "modules": modules}


def failed(status: str, error: BaseException) -> dict:
    return {"failed": status, "error": f"{type(error).__name__}: {describe(error)}"[:MAX_ERROR]}


# ---------------------------------------------------------------- T: the tests


class LoadFailed(Exception):
    """The program said that it could not be loaded: (status, error)."""


class Program(NamedTuple):
    """What a program says first."""

    names: frozenset[str] = frozenset()
    variables: frozenset[str] = frozenset()
    """Of the names, those of what cannot be called."""
    modules: Mapping[str, str] = {}
    """What it imports, by its own names."""


def run_tests(control: socket.socket) -> None:
    """Judge jobs until the supervisor closes the connection: a byte with the RPC's end, then a frame with tests."""
    sys.addaudithook(refuse_pickled_code)
    main = sys.modules[TEST]
    while True:
        _, descriptors, _, _ = socket.recv_fds(control, 1, 1)
        if not descriptors:
            os._exit(0)
        with socket.socket(fileno=descriptors[0]) as rpc:
            job = recv_frame(control)
            (judge_data if job["data"] else judge_job)(control, rpc, job["tests"])
        for name in (TEST, "program", "solution"):  # what a job left there would be the next one's burden
            sys.modules.pop(name, None)
        sys.modules[TEST] = main


def refuse_pickled_code(event: str, args: tuple) -> None:
    """A test that unpickles what the program gave it shall not run the program's code."""
    if event == "pickle.find_class" and args[1] not in PICKLED.get(args[0], "").split():
        raise PermissionError(f"a pickle that wants {args[0]}.{args[1]}")


def judge_data(control: socket.socket, rpc: socket.socket, tests: list[list]) -> None:
    """As `judge_job`, of tests that are data: this process is as good as new afterwards."""
    kernel.set_name(TESTING)
    caller = calls.Caller(rpc)
    read_tests = [_read(data_tests.read, source) for source, _, _ in tests]
    kernel.set_name(ASKING)
    try:
        program = meet_program(caller.frames)
    except BaseException as error:
        _tell_all(control, outcome_of(error), len(tests))
        return
    send_frame(control, {"loaded": True})
    for index, (test, (_, plain, kind)) in enumerate(zip(read_tests, tests, strict=True)):
        control.recv(1)
        kernel.set_name(TESTING)
        caller.plain, caller.more_than_results = plain, False
        if isinstance(test, data_tests.DataTest):
            caller.watches, caller.named = test.keeps, test.free
        try:
            outcome = {
                "status": "PASSED",
                "value": run_data(test, program, caller),
                "error": "",
                "by_test": False,
            }
        except (data_tests.NotData, data_tests.NotPlain) as error:
            outcome = outcome_of(error) | ({"status": NOT_DATA} if kind == "either" else {})
        except BaseException as error:
            outcome = outcome_of(error)
        if caller.fatal is not None:  # sticky
            outcome = outcome_of(caller.fatal)
        outcome |= {"asked_objects": caller.more_than_results, "last": caller.fatal is not None}
        send_frame(control, {"index": index, **outcome})
        if caller.fatal is not None:
            return


def run_data(test: data_tests.DataTest | BaseException, program: Program, caller: calls.Caller) -> str | None:
    if isinstance(test, BaseException):
        raise test

    def named(name: str) -> Any:
        if name in program.modules:
            raise data_tests.NotData(f"{name}, a module of the program's")
        if name not in program.names:
            raise KeyError(name)
        return caller.ask("name", name) if name in program.variables else calls.Name(caller, name)

    asked = caller.asked
    value = data_tests.Walk(test, named, data_tests.shadowing(test, program.names)).run()
    if caller.asked == asked and not (test.is_expression or test.only_loads):
        raise suite.NeverAsked("the test never uses the program")
    return value


def judge_job(control: socket.socket, rpc: socket.socket, tests: list[list]) -> None:
    """Judge the tests in order, a frame each; stop after one that lost the program.

    Args:
        tests: of each [its source, whether its results must be plain, which kind it is].
    """
    kernel.set_name(TESTING)
    peer = Peer(rpc, "test")
    import random  # loaded by the zygote, in its own way

    streams.remember()
    time.sleep = peer.sleep
    # All before the program runs on: it can see how long that takes.
    suites = [_read(suite.read, source) for source, _, _ in tests]
    kernel.set_name(ASKING)
    try:
        program = meet_program(peer.frames)
    except BaseException as error:
        _tell_all(control, outcome_of(error), len(tests))
        return
    send_frame(control, {"loaded": True})
    for index, (read_suite, (source, plain, _)) in enumerate(zip(suites, tests, strict=True)):
        control.recv(1)  # the supervisor has read what was printed and the clocks: this test's begin at zero
        # The same numbers in any company; a program cannot draw them: it does not know the test.
        random.seed(source)
        peer.codec.remotes.plain = plain
        outcome = judge(read_suite, program, peer)
        send_frame(control, {"index": index, **outcome, "last": peer.fatal is not None})
        if peer.fatal is not None:
            return


def _tell_all(control: socket.socket, outcome: dict, count: int) -> None:
    for index in range(count):
        send_frame(control, {"index": index, **outcome})


def _read(reader: Callable[[str], Any], test: str) -> Any:
    """The test as it is run, or why it cannot be."""
    try:
        return reader(test)
    except BaseException as error:
        return error


def meet_program(frames: Frames) -> Program:
    failure = None
    program = Program()
    try:
        hello = frames.next()
        if "failed" in hello:
            failure = LoadFailed(str(hello["failed"]), str(hello.get("error")))
        else:
            names = frozenset(name for name in hello["names"] if type(name) is str and name not in NOT_TOLD)
            modules = {str(name): str(module) for name, module in hello["modules"].items()}
            program = Program(names, names.intersection(map(str, hello["variables"])), modules)
    except Exception as error:
        raise of_reading(error) from None
    if failure is not None:
        raise failure
    return program


def judge(test: suite.Suite | BaseException, program: Program, peer: Peer) -> dict:
    kernel.set_name(TESTING)
    remotes = peer.codec.remotes
    peer.not_served, remotes.refused, remotes.met, remotes.asked_objects = "", "", False, False
    try:
        if isinstance(test, BaseException):
            raise test
        value = suite.run(test, program.names, program.modules, peer)
        outcome = {"status": "PASSED", "value": value, "error": "", "by_test": False}
    except BaseException as error:
        outcome = outcome_of(error) | {"by_test": False} if remotes.met else outcome_of(error)
        if peer.not_served:
            outcome |= {"status": "UNSUPPORTED", "error": f"not served: {peer.not_served}", "by_test": False}
        elif remotes.refused and not outcome["error"]:
            outcome["error"] = f"not served: {remotes.refused}"
        outcome["error"] = outcome["error"][:MAX_ERROR]  # names in it are the program's
    if peer.fatal is not None:  # sticky: a bare `except:` in the test cannot make a pass of it
        outcome = outcome_of(peer.fatal)
    return outcome | {"asked_objects": remotes.asked_objects}


def outcome_of(error: BaseException) -> dict:
    status, text, by_test = classify(error)
    text = f"test: {text}" if by_test else text
    outcome = {
        "status": status,
        "value": None,
        "error": text[:MAX_ERROR],
        "by_test": by_test,
        "asked_objects": False,
    }
    if isinstance(error, ProgramGone):
        outcome["gone"] = True  # the supervisor looks up how it ended
    return outcome


def classify(error: BaseException) -> tuple[str, str, bool]:
    """(status, error text, whether it is the test's own) of what ended a test."""
    text = f"{type(error).__name__}: {describe(error)}"
    match error:
        case LoadFailed():
            status, text = error.args
            text = "".join(letter for letter in text if letter.isprintable())
            known = ("SYNTAX_ERROR", "RUNTIME_ERROR", "MEMORY_LIMIT")
            return (status if status in known else "RUNTIME_ERROR"), text, False
        case ProgramGone() | ProgramLied():
            return "RUNTIME_ERROR", text, False
        case ValueTooLarge():
            return "OUTPUT_LIMIT", "a value too large to pass between program and test", False
        case NotPlain() | data_tests.NotPlain() | data_tests.NotData():
            return "RUNTIME_ERROR", describe(error), False
        case data_tests.ProgramRaised(names=names):
            status = "MEMORY_LIMIT" if "MemoryError" in names else "RUNTIME_ERROR"
            return status, f"{names[0]}: {describe(error)}", False
        case NotServed():
            return "UNSUPPORTED", f"not served: {describe(error)}", False
        case TooLong():
            return "OUTPUT_LIMIT", describe(error), False
    if is_from_program(error):
        return ("MEMORY_LIMIT" if isinstance(error, MemoryError) else "RUNTIME_ERROR"), text, False
    if isinstance(error, AssertionError):
        return "WRONG_ANSWER", describe(error), False
    return ("SYNTAX_ERROR" if isinstance(error, SyntaxError) else "RUNTIME_ERROR"), text, True
