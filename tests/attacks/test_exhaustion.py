"""Attacks on time, memory, disk, processes and output: each gets the verdict it deserves, the next job is unharmed."""

from collections.abc import Callable

import pytest

from core.verdict import Status, Verdict

WRONG, ERROR = Status.WRONG_ANSWER, Status.RUNTIME_ERROR
TIME, MEMORY, OUTPUT = Status.TIME_LIMIT, Status.MEMORY_LIMIT, Status.OUTPUT_LIMIT
ANSWER = "assert f(1) == 2"
Attack = Callable[[str, str], Verdict]

EXHAUSTIONS: dict[str, tuple[str, str, set[Status]]] = {
    "fork bomb": ("import os\ndef f(x):\n    while True: os.fork()", ANSWER, {ERROR, TIME}),
    "fork bomb that ignores errors": (
        "import os\ndef f(x):\n    while True:\n        try: os.fork()\n        except OSError: pass",
        ANSWER,
        {TIME, ERROR},
    ),
    "thread bomb": (
        "import threading, time\ndef f(x):\n    while True: threading.Thread(target=time.sleep, args=(60,)).start()",
        ANSWER,
        {ERROR, MEMORY},
    ),
    "memory bomb": ("def f(x):\n    a = []\n    while True: a.append(bytearray(1 << 20))", ANSWER, {MEMORY}),
    "memory bomb while loaded": ("a = [0] * (1 << 30)\ndef f(x): return 2", ANSWER, {MEMORY}),
    "memory through children": (
        "import os, time\ndef f(x):\n    for _ in range(14):\n"
        "        if os.fork() == 0:\n            a = bytearray(90 << 20); time.sleep(60)\n    time.sleep(60)",
        ANSWER,
        {MEMORY, TIME, ERROR},
    ),
    "one huge file": (
        "def f(x):\n    with open('a', 'wb') as a:\n        while True: a.write(b'0' * 65536)",
        ANSWER,
        {ERROR},
    ),
    "disk fill": (
        "def f(x):\n    for n in range(100):\n        open(str(n), 'wb').write(b'0' * (3 << 20))\n    return 2",
        ANSWER,
        {ERROR},
    ),
    # Bubblewrap's tmpfs has no limit of inodes: there it is the wipe that is tested.
    "inode fill": (
        "def f(x):\n    for n in range(10_000): open(str(n), 'w').close()\n    return 3",
        ANSWER,
        {ERROR, WRONG},
    ),
    "output flood": ("def f(x):\n    while True: print('x' * 4096)", ANSWER, {OUTPUT}),
    "output flood on stderr": (
        "import os\ndef f(x):\n    while True: os.write(2, b'x' * 4096)",
        ANSWER,
        {OUTPUT},
    ),
    "deep recursion": ("def f(x): return f(x)", ANSWER, {ERROR}),
    "deep recursion, unlimited": (
        "import sys\nsys.setrecursionlimit(10 ** 9)\nclass A:\n    def __getattr__(self, n): return getattr(self, n + 'x')\n"
        "def f(x): return A().a",
        ANSWER,
        {ERROR, MEMORY, TIME},
    ),
    "infinite generator": ("def f(x):\n    while True: yield 1", "assert list(f(1)) == [1]", {TIME}),
    "huge int by computing": ("def f(x): return 10 ** 10 ** 9", ANSWER, {TIME, MEMORY}),
    "huge int by shifting": ("def f(x): return 1 << 100_000_000", ANSWER, {OUTPUT, TIME}),
    "huge value": ("def f(x): return 'x' * (30 << 20)", ANSWER, {OUTPUT, MEMORY}),
    "regular expression without end": (
        "import re\ndef f(x): return bool(re.match(r'(a+)+$', 'a' * 60 + 'b'))",
        ANSWER,
        {TIME},
    ),
    "ignored signals": (
        "import signal, time\nfor n in (1, 2, 3, 14, 15, 24): signal.signal(n, signal.SIG_IGN)\n"
        "def f(x):\n    while True: time.sleep(1)",
        ANSWER,
        {TIME},
    ),
    "stopped": ("import os, signal\ndef f(x): os.kill(os.getpid(), signal.SIGSTOP)", ANSWER, {TIME, WRONG}),
    "very deep directories": (
        "import os\ndef f(x):\n    for _ in range(900): os.mkdir('d'); os.chdir('d')\n    return 3",
        ANSWER,
        {WRONG},
    ),
    "locked directories": (
        "import os\ndef f(x):\n    os.makedirs('a/b/c'); open('a/b/c/d', 'w').close(); os.chmod('a/b', 0)\n"
        "    try: os.chmod('.', 0)\n    finally: return 3",
        ANSWER,
        {WRONG},
    ),
    "daemon left behind": (
        "import os, time\ndef f(x):\n    if os.fork() == 0:\n        os.setsid()\n        if os.fork() == 0:\n"
        "            while True:\n                open('alive', 'a').close(); time.sleep(0.01)\n        os._exit(0)\n"
        "    time.sleep(0.05)\n    return 3",
        ANSWER,
        {WRONG},
    ),
}


@pytest.mark.parametrize("name", EXHAUSTIONS)
def test_exhaustion(attack: Attack, name: str) -> None:
    program, test, deserved = EXHAUSTIONS[name]
    verdict = attack(program, test)
    assert verdict.status in deserved, verdict
    assert len(verdict.stdout) <= 16 << 10
