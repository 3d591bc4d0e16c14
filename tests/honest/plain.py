"""What plain CPython says of (program, test), and of whole programs their own interpreter.

As a script: reads [[program, test], ...] as JSON, writes why each failed ("" where it passed). Program and test are
executed in one namespace, `__main__`; then what the test defined is run as pytest and unittest would run it.
"""

import ast
import asyncio
import contextlib
import gc
import inspect
import json
import os
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import traceback
import types
import unittest
from collections.abc import Sequence
from pathlib import Path
from subprocess import DEVNULL, PIPE
from typing import Any

SECONDS = 20
"""Of one program with one test; a wrong one may hang."""
COMMANDS = {
    "python": ("main.py", [], [sys.executable, "main.py"]),
    "javascript": ("main.js", [], ["node", "main.js"]),
    "lua": ("main.lua", [], ["lua5.4", "main.lua"]),
    "bash": ("main.sh", [], ["bash", "main.sh"]),
    "c": ("main.c", ["gcc", "-O1", "-o", "main", "main.c", "-lm"], ["./main"]),
}
STREAMS: Any = {"stdin": PIPE, "stdout": PIPE, "stderr": DEVNULL}


def run_tests(pairs: Sequence[tuple[str, str]]) -> list[str]:
    """Why each (program, test) failed in plain CPython, all in one process's children."""
    done = subprocess.run(
        [sys.executable, __file__], input=json.dumps(pairs), capture_output=True, text=True, check=True
    )
    return json.loads(done.stdout)


def can_run(language: str) -> bool:
    _, build, run = COMMANDS[language]
    return all(shutil.which(command[0]) for command in (build, run) if command and command[0][0] != ".")


def run_program(language: str, program: str, stdin: str) -> str | None:
    """What the program prints; None where it fails."""
    name, build, run = COMMANDS[language]
    with tempfile.TemporaryDirectory() as directory:
        (Path(directory) / name).write_text(program)
        for command in filter(None, (build, run)):
            started = subprocess.Popen(command, cwd=directory, text=True, start_new_session=True, **STREAMS)
            try:
                stdout, _ = started.communicate(stdin, timeout=SECONDS)
            except subprocess.TimeoutExpired:
                return None
            finally:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(started.pid, signal.SIGKILL)  # also what it left behind
                started.wait()
            if started.returncode != 0:
                return None
    return stdout


def in_a_child(program: str, test: str) -> str:
    read_end, write_end = os.pipe()
    child = os.fork()
    if child == 0:
        os.setsid()
        null = os.open(os.devnull, os.O_RDWR)
        for stream in (0, 1, 2):
            os.dup2(null, stream)
        try:
            execute(program, test)
            why = ""
        except BaseException:
            why = traceback.format_exc()
        os.write(write_end, why.encode("utf-8", "backslashreplace")[-4000:] or b"passed")
        os._exit(0)
    os.close(write_end)
    answered, _, _ = select.select([read_end], [], [], SECONDS)
    why = os.read(read_end, 5000).decode() if answered else "it did not end"
    os.close(read_end)
    os.killpg(child, signal.SIGKILL)  # also what it left behind
    os.waitpid(child, 0)
    return {"passed": "", "": "it ended without a word"}.get(why, why)


def execute(program: str, test: str) -> None:
    module = types.ModuleType("__main__")
    for name in ("__main__", "program", "solution"):
        sys.modules[name] = module
    exec(compile(program, "program.py", "exec", dont_inherit=True), module.__dict__)
    try:
        exec(compile(test, "test.py", "exec", dont_inherit=True), module.__dict__)
    except SystemExit as error:  # of `unittest.main()`
        assert not error.code, f"exit code {error.code}"
        return
    for node in ast.parse(test).body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            run_collected(node.name, module.__dict__[node.name])


def run_collected(name: str, defined: Any) -> None:
    """What pytest would collect, by pytest's names, and unittest's cases."""
    if isinstance(defined, type) and issubclass(defined, unittest.TestCase):
        suite = unittest.defaultTestLoader.loadTestsFromTestCase(defined)
        result = unittest.TestResult()
        suite.run(result)
        assert result.wasSuccessful() and not result.unexpectedSuccesses, result.errors + result.failures
    elif isinstance(defined, type) and name.startswith("Test") and "__init__" not in vars(defined):
        for method in [m for m in vars(defined) if m.startswith("test")]:
            one = defined()
            getattr(one, "setup_method", lambda: None)()
            call(getattr(one, method))
            getattr(one, "teardown_method", lambda: None)()
    elif name.startswith("test") and isinstance(defined, types.FunctionType):
        wanted = [p for p in inspect.signature(defined).parameters.values() if p.default is p.empty]
        if not wanted:  # else a helper of that name, which the test calls itself
            call(defined)


def call(function: Any) -> None:
    result = function()
    if asyncio.iscoroutine(result):
        asyncio.run(result)


if __name__ == "__main__":
    # Loaded before the forks: each child would load them again.
    import array, collections, contextlib, copy, dataclasses, datetime, decimal, doctest, enum, fractions  # noqa: E401, F401, I001
    import functools, http, inspect, io, itertools, math, pathlib, random, statistics, typing, unittest.mock, uuid  # noqa: E401, F401

    sys.path.pop(0)  # this directory, where a test's `import jobs` would find something
    gc.freeze()
    pairs = json.load(sys.stdin)
    with tempfile.TemporaryDirectory() as directory:
        os.chdir(directory)
        print(json.dumps([in_a_child(program, test) for program, test in pairs]))
