"""Programs that are merely unpleasant: broken text, odd sources, signals, crashes, patched interpreters."""

from collections.abc import Callable

import pytest

from tests.attacks.conftest import ERROR, MEMORY, OUTPUT, SHORT, SYNTAX, TIME, WRONG, asked

WRONG_ANSWERS = {
    "very deep directories": "import os\ndef f(x):\n    for _ in range(900): os.mkdir('d'); os.chdir('d')\n    return 3",
    "locked directories": (
        "import os\ndef f(x):\n    os.makedirs('a/b/c'); open('a/b/c/d', 'w').close(); os.chmod('a/b', 0)\n"
        "    try: os.chmod('.', 0)\n    finally: return 3"
    ),
    "daemon left behind": (
        "import os, time\ndef f(x):\n    if os.fork() == 0:\n        os.setsid()\n"
        "        if os.fork() == 0:\n"
        "            while True:\n                open('alive', 'a').close(); time.sleep(0.01)\n"
        "        os._exit(0)\n"
        "    time.sleep(0.05)\n    return 3"
    ),
    "smallest integer divided": "import ctypes\ndef f(x): return ctypes.c_int64(-2 ** 63 // -1).value + (-2 ** 63) % -1",
    "broken UTF-8 on standard output": (
        "import os\ndef f(x):\n    for fd in (1, 2): os.write(fd, bytes(range(256)) * 8 + b'\\xf0\\x9f')\n"
        "    return 3"
    ),
    "NULs and terminal codes on standard output": "def f(x): print('\\0\\x1b[2J\\x1b]0;x\\x07\\r\\x08' * 50, end=''); return 3",
    "lone surrogates on standard output": "def f(x): print('\\ud800' * 99, flush=True); return 3",
    "source of a megabyte": "#" + "x" * (1 << 20) + "\ndef f(x): return 3",
    "very long name": f"def {'f' * 500_000}(x): return 3\nf = {'f' * 500_000}",
    "standard streams replaced": (
        "import sys\nclass Bad:\n    def flush(self): raise SystemExit(0)\n    write = flush\n"
        "sys.stdout = sys.stderr = Bad()\nsys.stdin = None\ndef f(x): return 3"
    ),
    "finalizer at exit": (
        "import atexit, threading, time\natexit.register(time.sleep, 60)\n"
        "threading._register_atexit(time.sleep, 60)\ndef f(x): return 3"
    ),
}
ERRORS_OR_WRONG_ANSWERS = {
    "child without an exit signal": (
        "import ctypes, os, time\nlibc = ctypes.CDLL(None)\ndef f(x):\n"
        "    if libc.syscall(56, 0, 0, 0, 0, 0) == 0: time.sleep(60)\n    return 3"
    ),
    "child of its parent": (
        "import ctypes, os, time\nlibc = ctypes.CDLL(None)\n"
        "def f(x):\n    if libc.syscall(56, 0x8000 | 17, 0, 0, 0, 0) == 0: time.sleep(60)\n    return 3"
    ),
    "clock that faults": "import ctypes, time\ndef f(x): ctypes.CDLL(None).prctl(26, 2, 0, 0, 0); time.time(); return 3",
    "trace function that raises": (
        "import sys\ndef bad(*a): raise ValueError\n"
        "def f(x): sys.settrace(bad); sys.setprofile(bad); return 5"
    ),
    "modules emptied": "import sys\ndef f(x): sys.modules.clear(); return 5",
}
ERRORS = {
    "filter of its own": (
        "import ctypes, os\ndef f(x):\n    libc = ctypes.CDLL(None)\n"
        "    code = ctypes.create_string_buffer(bytes.fromhex('0600000000000080'))\n"
        "    class P(ctypes.Structure): _fields_ = [('n', ctypes.c_ushort), ('p', ctypes.c_void_p)]\n"
        "    libc.prctl(22, 2, ctypes.byref(P(1, ctypes.addressof(code))), 0, 0)\n    return 2"
    ),
    "null pointer": "import ctypes\ndef f(x): ctypes.string_at(0)",
    "fault while loaded": "import faulthandler\nfaulthandler.enable()\nfaulthandler._sigsegv()",
    "abort": "import os\ndef f(x): os.abort()",
    "lone surrogate in an error": "def f(x): raise ValueError('\\ud800')",
    "error of ten megabytes": "def f(x): raise ValueError('x' * 10_000_000)",
    "class name of a megabyte": "def f(x): raise type('x' * 1_000_000, (Exception,), {})('y')",
    "error that causes itself": "def f(x):\n    e = ValueError('a'); e.__cause__ = e.__context__ = e\n    raise e",
    "error that is a group": "def f(x): raise ExceptionGroup('a', [ValueError(1), ExceptionGroup('b', [OSError()])])",
    "error beyond Exception": (
        "class Deep(BaseException): pass\ndef f(x): raise Deep('down')",
        "try:\n    f(1)\nexcept Exception:\n    raise",
    ),
    "interrupt from the keyboard": "def f(x): raise KeyboardInterrupt",
    "exit of a generator": "def f(x): raise GeneratorExit",
    "directory that is gone": "import os\ndef f(x): os.mkdir('d'); os.chdir('d'); os.rmdir('../d'); return os.getcwd()",
    "standard streams closed": (
        "import os, sys\ndef f(x):\n    for s in (sys.stdin, sys.stdout, sys.stderr): s.close()\n    print(1)"
    ),
    "reads standard input": "def f(x): return input()",
    "warnings are errors": "import warnings\nwarnings.simplefilter('error')\ndef f(x): warnings.warn('now')",
    "locale that nobody has": (
        "import locale, os\nos.environ.update(LANG='xx', LC_ALL='xx', PYTHONHASHSEED='bad')\n"
        "def f(x): locale.setlocale(locale.LC_ALL, '')"
    ),
}
SYNTAX_ERRORS = {
    "NUL in the source": "def f(x): return 2\0",
    "lone surrogate in the source": "def f(x): return '\ud800'",
    "encoding declared": "# -*- coding: rot13 -*-\nqrs s(k): erghea 2\n",
    "blocks within blocks": "".join(" " * n + "if 1:\n" for n in range(150)) + " " * 150 + "x = 1",
}
MIXED: dict[str, tuple] = {
    "ignored signals": (
        "import signal, time\nfor n in (1, 2, 3, 14, 15, 24): signal.signal(n, signal.SIG_IGN)\n"
        "def f(x):\n    while True: time.sleep(1)",
        {TIME},
    ),
    "stopped": ("import os, signal\ndef f(x): os.kill(os.getpid(), signal.SIGSTOP)", {TIME, WRONG}),
    "all signals blocked": (
        "import signal, time\nsignal.pthread_sigmask(signal.SIG_BLOCK, range(1, 65))\n"
        "def f(x): time.sleep(60)",
        {TIME},
        SHORT,
    ),
    "zombies": (
        "import os\ndef f(x):\n    while True:\n        if os.fork() == 0: os._exit(0)",
        {ERROR, TIME},
    ),
    "stopped and continued by a child": (
        "import os, signal\ndef f(x):\n    me = os.getpid()\n    if os.fork() == 0:\n"
        "        for _ in range(20_000): os.kill(me, signal.SIGSTOP); os.kill(me, signal.SIGCONT)\n"
        "        os._exit(0)\n"
        "    os.wait()\n    return 3",
        {TIME, WRONG},
    ),
    "child that shares its memory and never ends": (
        "import ctypes\ndef f(x):\n    libc = ctypes.CDLL(None)\n    if libc.vfork() == 0: libc.pause()\n"
        "    return 3",
        {ERROR, TIME, WRONG},
        SHORT,
    ),
    "main thread gone, another goes on": (
        "import ctypes, threading, time\ndef f(x):\n"
        "    threading.Thread(target=time.sleep, args=(60,)).start()\n    ctypes.CDLL(None).syscall(60, 0)",
        {ERROR, TIME},
        SHORT,
    ),
    "fault that is handled without end": (
        "import ctypes, signal\nsignal.signal(signal.SIGSEGV, lambda *a: None)\n"
        "def f(x): ctypes.string_at(0)",
        {ERROR, TIME},
    ),
    "one line of ten megabytes": ("def f(x): print('x' * 10_000_000, end='')", {OUTPUT}),
    "byte order mark, form feeds and line ends": (
        "\x0cdef f(x):\r\n\x0c    return 3\r\r\n\x0c\n\ufeff",
        {SYNTAX, WRONG},
    ),
    "parentheses without end": ("x = " + "(" * 100_000, {MEMORY, SYNTAX}),
    "signs without end": ("x = " + "-" * 200_000 + "1", {ERROR, MEMORY, SYNTAX}),
    "sum of many terms": ("x = 1" + " + 1" * 200_000, {ERROR, MEMORY, SYNTAX, TIME}),
    "branches by the thousand": (
        "def f(x):\n    if x: return 3\n" + "    elif x: pass\n" * 20_000,
        {ERROR, MEMORY, SYNTAX, TIME},
    ),
    "source beyond any frame": ("#" + "x" * (17 << 20), {ERROR, MEMORY, OUTPUT, SYNTAX}),
    "constant that takes long to fold": (
        "x = (1 << 100) ** 10 ** 7 ** 7\ndef f(x): return 3",
        {MEMORY, SYNTAX, TIME},
    ),
    "recursion limit of one": ("import sys\ndef f(x): sys.setrecursionlimit(60); return f(x)", {ERROR, TIME}),
    "threads that go on": (
        "import threading, time\ndef go():\n    while True: print(end='.', flush=True); time.sleep(0.01)\n"
        "def f(x):\n    for _ in range(5): threading.Thread(target=go).start()\n    return 3",
        {OUTPUT, WRONG},
    ),
    "time stands still": (
        "import time\ntime.time = time.monotonic = time.perf_counter = time.process_time = lambda: 0.0\n"
        "def f(x):\n    while time.time() < 1: pass",
        {TIME},
    ),
    "os and socket patched": (
        "import os, socket\nfor n in ('write', 'read', '_exit', 'close'): setattr(os, n, lambda *a: 0)\n"
        "socket.socket.sendall = lambda *a: None\ndef f(x): return 2",
        {ERROR, TIME},
        SHORT,
    ),
    "builtins emptied": (
        "import builtins\ndef f(x): vars(builtins).clear(); return 5",
        {ERROR, TIME, WRONG},
        SHORT,
    ),
}
ATTACKS = (
    asked(WRONG_ANSWERS, {WRONG})
    | asked(ERRORS_OR_WRONG_ANSWERS, {ERROR, WRONG})
    | asked(ERRORS, {ERROR})
    | asked(SYNTAX_ERRORS, {SYNTAX})
    | asked(MIXED)
)


@pytest.mark.parametrize("name", ATTACKS)
def test_nuisance(convict: Callable, name: str) -> None:
    convict(*ATTACKS[name])
