"""Programs that use up processes, time, memory, disk or output: each gets the verdict it deserves."""

from collections.abc import Callable

import pytest

from tests.attacks.conftest import ERROR, MEMORY, OUTPUT, TIME, WRONG, asked

PROGRAMS: dict[str, tuple] = {
    "fork bomb": ("import os\ndef f(x):\n    while True: os.fork()", {ERROR, TIME}),
    "fork bomb that ignores errors": (
        "import os\ndef f(x):\n    while True:\n        try: os.fork()\n        except OSError: pass",
        {ERROR, TIME},
    ),
    "thread bomb": (
        "import threading, time\ndef f(x):\n"
        "    while True: threading.Thread(target=time.sleep, args=(60,)).start()",
        {ERROR, MEMORY},
    ),
    "memory bomb": ("def f(x):\n    a = []\n    while True: a.append(bytearray(1 << 20))", {MEMORY}),
    "memory bomb while loaded": ("a = [0] * (1 << 30)\ndef f(x): return 2", {MEMORY}),
    "memory through children": (
        "import os, time\ndef f(x):\n    for _ in range(14):\n"
        "        if os.fork() == 0:\n            a = bytearray(90 << 20); time.sleep(60)\n    time.sleep(60)",
        {ERROR, MEMORY, TIME},
    ),
    "one huge file": (
        "def f(x):\n    with open('a', 'wb') as a:\n        while True: a.write(b'0' * 65536)",
        {ERROR},
    ),
    "disk fill": (
        "def f(x):\n    for n in range(100):\n        open(str(n), 'wb').write(b'0' * (3 << 20))\n"
        "    return 2",
        {ERROR},
    ),
    # Bubblewrap's tmpfs has no limit of inodes: there it is the wipe that is tested.
    "inode fill": (
        "def f(x):\n    for n in range(10_000): open(str(n), 'w').close()\n    return 3",
        {ERROR, WRONG},
    ),
    "output flood": ("def f(x):\n    while True: print('x' * 4096)", {OUTPUT}),
    "output flood on stderr": ("import os\ndef f(x):\n    while True: os.write(2, b'x' * 4096)", {OUTPUT}),
    "deep recursion": ("def f(x): return f(x)", {ERROR}),
    "deep recursion, unlimited": (
        "import sys\nsys.setrecursionlimit(10 ** 9)\nclass A:\n"
        "    def __getattr__(self, n): return getattr(self, n + 'x')\n"
        "def f(x): return A().a",
        {ERROR, MEMORY, TIME},
    ),
    "infinite generator": ("def f(x):\n    while True: yield 1", "assert list(f(1)) == [1]", {TIME}),
    "huge int by computing": ("def f(x): return 10 ** 10 ** 9", {MEMORY, TIME}),
    "huge int by shifting": ("def f(x): return 1 << 150_000_000", {MEMORY, OUTPUT, TIME}),
    "huge value": ("def f(x): return 'x' * (40 << 20)", {MEMORY, OUTPUT}),
    "regular expression without end": (
        "import re\ndef f(x): return bool(re.match(r'(a+)+$', 'a' * 60 + 'b'))",
        {TIME},
    ),
}
ATTACKS = asked(PROGRAMS)


@pytest.mark.parametrize("name", ATTACKS)
def test_exhaustion(convict: Callable, name: str) -> None:
    convict(*ATTACKS[name])
