"""The two children of a pair: `run_program` (S) and `run_tests` (T). Untrusted from the first exec on.

Only T has the verdict pipe. All tests of one job share S and T, as a test file would: give each author its
own job. A T that was given nothing but inert tests may judge further jobs.
"""

import ast
import builtins
import importlib
import os
import socket
import sys
import types
from typing import Any

from . import kernel
from .framing import FrameTooLarge, recv_frame, send_frame
from .peer import (
    ASKING,
    TESTING,
    Peer,
    ProgramGone,
    ProgramLied,
    ValueTooLarge,
    describe,
    flush_output,
    is_from_program,
)
from .values import NotPlain, TooLong, plain_repr

LIBRARY = {name for name in sys.stdlib_module_names if name[0] != "_"} - {"antigravity", "this"}
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
    try:
        hello = load(source, module, peer)
    except MemoryError:
        hello = {"failed": "MEMORY_LIMIT", "error": "MemoryError"}
    flush_output()
    try:
        send_frame(rpc, hello)
        while True:
            peer.serve_one(recv_frame(rpc))
    except FrameTooLarge:
        os._exit(14)
    except (EOFError, OSError):
        os._exit(0)


def load(source: str, module: types.ModuleType, peer: Peer) -> dict:
    try:
        code = compile(source, "program.py", "exec", dont_inherit=True)
    except (SyntaxError, ValueError, RecursionError) as error:
        return {"failed": "SYNTAX_ERROR", "error": f"{type(error).__name__}: {describe(error)}"[:MAX_ERROR]}
    try:
        exec(code, module.__dict__)
    except MemoryError:
        raise
    except BaseException as error:
        return {"failed": "RUNTIME_ERROR", "error": f"{type(error).__name__}: {describe(error)}"[:MAX_ERROR]}
    peer.exceptions = {
        name: next(base.__name__ for base in value.__mro__ if hasattr(builtins, base.__name__))
        for name, value in module.__dict__.items()
        if isinstance(value, type) and issubclass(value, Exception)
    }
    public = {
        name: peer.codec.encode(value)
        for name, value in list(module.__dict__.items())
        if not name.startswith("__")
        and name not in peer.exceptions
        and not isinstance(value, types.ModuleType)
    }
    modules = [name for name, value in module.__dict__.items() if value is sys.modules.get(name)]
    return {"names": public, "exceptions": peer.exceptions, "modules": modules}


# ---------------------------------------------------------------- T: the tests


class LoadFailed(Exception):
    """The program said that it could not be loaded: (status, error)."""


def run_tests(control: socket.socket) -> None:
    """Judge jobs until the supervisor closes the connection: a byte with the RPC's end, then a frame with tests."""
    while True:
        _, descriptors, _, _ = socket.recv_fds(control, 1, 1)
        if not descriptors:
            os._exit(0)
        with socket.socket(fileno=descriptors[0]) as rpc:
            job = recv_frame(control)
            judge_job(control, rpc, job["tests"], job["inert"])


def judge_job(control: socket.socket, rpc: socket.socket, tests: list[str], inert: bool) -> None:
    """Judge the tests in order, a frame each; stop after one that lost the program."""
    kernel.set_name(ASKING)
    peer = Peer(rpc, "test")
    import random  # loaded by the zygote, in its own way

    random.seed(repr(tests))  # a program cannot draw the same numbers: it does not know the tests
    try:
        names = meet_program(peer, modules=not inert)  # inert tests have no use for them
    except BaseException as error:
        outcome = outcome_of(error)
        for index in range(len(tests)):
            send_frame(control, {"index": index, **outcome})
        return
    send_frame(control, {"loaded": True})
    for index, test in enumerate(tests):
        control.recv(1)  # the supervisor has read what was printed and the clocks: this test's begin at zero
        outcome = judge(test, dict(names), peer)
        send_frame(control, {"index": index, **outcome, "last": peer.fatal is not None})
        if peer.fatal is not None:
            return


def meet_program(peer: Peer, modules: bool) -> dict[str, Any]:
    """The test's namespace: the program's public names, none of which may shadow a builtin of the test."""
    try:
        hello = recv_frame(peer.connection)
    except (EOFError, ConnectionError):
        raise ProgramGone("the program's process ended while it was loaded") from None
    except FrameTooLarge as error:
        raise ValueTooLarge(str(error)) from None
    except Exception as error:
        raise ProgramLied(type(error).__name__) from None
    try:
        if "failed" in hello:
            raise LoadFailed(str(hello["failed"]), str(hello["error"]))
        names: dict[str, Any] = {}
        for name, base in hello["exceptions"].items():
            cls = getattr(builtins, str(base), Exception)
            parent = cls if isinstance(cls, type) and issubclass(cls, Exception) else Exception
            peer.exceptions[name] = names[name] = type(name, (parent,), {})
        names |= {name: peer.codec.decode(value) for name, value in hello["names"].items()}
        # What a program imports under its own name a test may use: from the test's own library.
        if modules:
            names |= {name: importlib.import_module(name) for name in hello["modules"] if name in LIBRARY}
        if any(name.startswith("__") for name in names):  # `__builtins__` would be the test's own
            raise ProgramLied("a name that is not the program's to give")
    except (LoadFailed, ProgramLied):
        raise
    except Exception as error:
        raise ProgramLied(type(error).__name__) from None
    names = {name: value for name, value in names.items() if not hasattr(builtins, name)}
    module = types.ModuleType("program")
    module.__dict__.update(names)
    sys.modules["program"] = sys.modules["solution"] = module
    return names


def judge(test: str, names: dict[str, Any], peer: Peer) -> dict:
    kernel.set_name(TESTING)
    try:
        value = evaluate(test, {**names, "__name__": "__test__"})
        outcome = {"status": "PASSED", "value": value, "error": "", "by_test": False}
    except BaseException as error:
        outcome = outcome_of(error)
    if peer.fatal is not None:  # sticky: a bare `except:` in the test cannot make a pass of it
        outcome = outcome_of(peer.fatal)
    return outcome


def evaluate(test: str, namespace: dict[str, Any]) -> str | None:
    """Run statements and return None, or evaluate a single expression and return the repr of its value."""
    tree = ast.parse(test, "test.py")
    if len(tree.body) == 1 and isinstance(tree.body[0], ast.Expr):
        expression = compile(ast.Expression(tree.body[0].value), "test.py", "eval", dont_inherit=True)
        return plain_repr(eval(expression, namespace))
    exec(compile(tree, "test.py", "exec", dont_inherit=True), namespace)
    for node in tree.body:  # a pytest-style suite: define test functions, then call them
        if isinstance(node, ast.FunctionDef) and node.name.startswith("test") and not node.args.args:
            namespace[node.name]()
    return None


def outcome_of(error: BaseException) -> dict:
    status, text, by_test = classify(error)
    text = f"test: {text}" if by_test else text
    outcome = {"status": status, "value": None, "error": text[:MAX_ERROR], "by_test": by_test}
    if isinstance(error, ProgramGone):
        outcome["gone"] = True  # the supervisor looks up how it ended
    return outcome


def classify(error: BaseException) -> tuple[str, str, bool]:
    """(status, error text, whether it is the test's own) of what ended a test."""
    text = f"{type(error).__name__}: {describe(error)}"
    match error:
        case LoadFailed():
            status, text = error.args
            known = ("SYNTAX_ERROR", "RUNTIME_ERROR", "MEMORY_LIMIT")
            return (status if status in known else "RUNTIME_ERROR"), text, False
        case ProgramGone() | ProgramLied():
            return "RUNTIME_ERROR", text, False
        case ValueTooLarge():
            return "OUTPUT_LIMIT", "a value too large to pass between program and test", False
        case NotPlain():
            return "RUNTIME_ERROR", describe(error), False
        case TooLong():
            return "OUTPUT_LIMIT", describe(error), False
    if is_from_program(error):
        return ("MEMORY_LIMIT" if isinstance(error, MemoryError) else "RUNTIME_ERROR"), text, False
    if isinstance(error, AssertionError):
        return "WRONG_ANSWER", describe(error), False
    return ("SYNTAX_ERROR" if isinstance(error, SyntaxError) else "RUNTIME_ERROR"), text, True
