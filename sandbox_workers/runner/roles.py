"""The two children of a pair: `run_program` (S) and `run_tests` (T). Untrusted from the first exec on.

Only T has the verdict pipe. All tests of one job share S and T, as a test file would: give each author its
own job. A T that was given nothing but inert tests may judge further jobs.
"""

import os
import socket
import sys
import time
import types

from . import kernel, streams, suite
from .errors import (
    NotServed,
    ProgramGone,
    ProgramLied,
    ValueTooLarge,
    describe,
    is_from_program,
    of_reading,
)
from .framing import MAX_VALUE, FrameTooLarge, recv_frame, send_frame
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
MAX_ERROR = 500
"""Characters of an error text in a verdict."""


# ---------------------------------------------------------------- S: the program


def run_program(control: socket.socket, rpc: socket.socket) -> None:
    """Load the program, tell T its names, then serve T until T is gone."""
    source = recv_frame(control)["program"]
    control.close()
    module = types.ModuleType("program")
    sys.modules["program"] = sys.modules["solution"] = module
    peer = Peer(rpc, "program")
    peer.names = module.__dict__
    streams.remember()
    hello = load(source, module)
    streams.flush()
    try:
        send_frame(rpc, hello, MAX_VALUE)
        peer.serve()
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
    names, modules = [], {}
    for name, value in list(module.__dict__.items()):
        if type(name) is not str or name in NOT_TOLD:
            continue
        if isinstance(value, types.ModuleType):
            modules[name] = str(value.__name__)
        else:
            names.append(name)
    return {"names": names, "modules": modules}


def failed(status: str, error: BaseException) -> dict:
    return {"failed": status, "error": f"{type(error).__name__}: {describe(error)}"[:MAX_ERROR]}


# ---------------------------------------------------------------- T: the tests


class LoadFailed(Exception):
    """The program said that it could not be loaded: (status, error)."""


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
            judge_job(control, rpc, job["tests"], job["inert"])
        for name in (TEST, "program", "solution"):  # what a job left there would be the next one's burden
            sys.modules.pop(name, None)
        sys.modules[TEST] = main


def refuse_pickled_code(event: str, args: tuple) -> None:
    """A test that unpickles what the program gave it shall not run the program's code."""
    if event == "pickle.find_class" and args[1] not in PICKLED.get(args[0], "").split():
        raise PermissionError(f"a pickle that wants {args[0]}.{args[1]}")


def judge_job(control: socket.socket, rpc: socket.socket, tests: list[list], inert: bool) -> None:
    """Judge the tests in order, a frame each; stop after one that lost the program.

    Args:
        tests: of each [its source, whether its results must be plain].
    """
    kernel.set_name(TESTING)
    peer = Peer(rpc, "test")
    peer.codec.shared = not inert
    import random  # loaded by the zygote, in its own way

    streams.remember()
    time.sleep = peer.sleep
    # All before the program runs on: it can see how long that takes.
    suites = [read(source, inert) for source, _ in tests]
    kernel.set_name(ASKING)
    try:
        names, modules = meet_program(peer)
    except BaseException as error:
        outcome = outcome_of(error)
        for index in range(len(tests)):
            send_frame(control, {"index": index, **outcome})
        return
    send_frame(control, {"loaded": True})
    for index, (read_suite, (source, plain)) in enumerate(zip(suites, tests, strict=True)):
        control.recv(1)  # the supervisor has read what was printed and the clocks: this test's begin at zero
        # The same numbers in any company; a program cannot draw them: it does not know the test.
        random.seed(source)
        peer.codec.remotes.plain = plain
        outcome = judge(read_suite, names, modules, peer)
        send_frame(control, {"index": index, **outcome, "last": peer.fatal is not None})
        if peer.fatal is not None:
            return


def read(test: str, inert: bool) -> suite.Suite | BaseException:
    try:
        return suite.read(test, inert)
    except BaseException as error:
        return error


def meet_program(peer: Peer) -> tuple[frozenset[str], dict[str, str]]:
    """The program's names, and the modules of the library that it imports, by its own names for them."""
    failure = None
    names: frozenset[str] = frozenset()
    modules: dict[str, str] = {}
    try:
        hello = peer.frames.next()
        if "failed" in hello:
            failure = LoadFailed(str(hello["failed"]), str(hello.get("error")))
        else:
            names = frozenset(name for name in hello["names"] if type(name) is str and name not in NOT_TOLD)
            modules = {str(name): str(module) for name, module in hello["modules"].items()}
    except Exception as error:
        raise of_reading(error) from None
    if failure is not None:
        raise failure
    return names, modules


def judge(
    test: suite.Suite | BaseException, names: frozenset[str], modules: dict[str, str], peer: Peer
) -> dict:
    kernel.set_name(TESTING)
    remotes = peer.codec.remotes
    peer.not_served, remotes.refused, remotes.met, remotes.asked_objects = "", "", False, False
    try:
        if isinstance(test, BaseException):
            raise test
        value = suite.run(test, names, modules, peer)
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
        case NotPlain():
            return "RUNTIME_ERROR", describe(error), False
        case NotServed():
            return "UNSUPPORTED", f"not served: {describe(error)}", False
        case TooLong():
            return "OUTPUT_LIMIT", describe(error), False
    if is_from_program(error):
        return ("MEMORY_LIMIT" if isinstance(error, MemoryError) else "RUNTIME_ERROR"), text, False
    if isinstance(error, AssertionError):
        return "WRONG_ANSWER", describe(error), False
    return ("SYNTAX_ERROR" if isinstance(error, SyntaxError) else "RUNTIME_ERROR"), text, True
