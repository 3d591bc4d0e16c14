"""Tests are written by an opponent, too: a hostile one harms neither the sandbox nor the next job."""

from collections.abc import Callable

import pytest

from tests.attacks.conftest import ERROR, MEMORY, OUTPUT, SYNTAX, TIME, WRONG

RIGHT = "def f(x): return x + 1"
WRITE = """
import json, os, struct, time
f
def write(**frame):
    body = json.dumps(frame).encode()
    os.write(10, struct.pack(">I", len(body)) + body)
"""
TOKEN = """
import sys
frame = sys._getframe()
while "asked" not in frame.f_locals: frame = frame.f_back
token = frame.f_locals["asked"]["token"]
"""
ERRORS = {
    "test writes an error text that no file takes": (
        WRITE + "write(index=0, status='RUNTIME_ERROR', value=None, error='\\udcff\\x1b[2J' + 'x' * 60000, "
        "asked_objects=False)\ntime.sleep(9)"
    ),
    "test says that its program is gone, then floods": (
        WRITE
        + "write(index=0, status='RUNTIME_ERROR', value=None, error='', gone=True)\n"
        + "while True: os.write(10, bytes(65536))"
    ),
    "test has the token, and says what no test may say": (
        WRITE + TOKEN + "write(index=0, token=token, status='NOT_DATA', value=None, error='')\ntime.sleep(9)"
    ),
    "test speaks for a test that does not exist": WRITE
    + "write(index=7, status='PASSED', value=None, error='')\ntime.sleep(9)",
    "test floods the verdict pipe": "f\nimport os\nwhile True: os.write(10, bytes(4096))",
    "test announces a frame of four gigabytes": "f\nimport os\nos.write(10, b'\\xff' * 4); assert 0",
    "test nests its verdict deeply": "f\nimport os, struct\nos.write(10, struct.pack('>I', 60_000) + b'[' * 60_000)\nassert 0",
    "test reports the program as gone": WRITE
    + "write(index=0, status='PASSED', value=None, error='', gone=True)\ntime.sleep(9)",
    "test fills its disk": "f\nfor n in range(99): open(str(n), 'wb').write(bytes(3 << 20))",
    "test crashes its interpreter": "f\nimport ctypes\nctypes.string_at(0)",
}
WRONG_ANSWERS = {
    "test has the token, and gives a value that no file takes": (
        WRITE + TOKEN + "write(index=0, token=token, status='WRONG_ANSWER', value='\\udcff', error='')\n"
        "time.sleep(9)"
    ),
    "test leaves a daemon": (
        "import os, time\nif os.fork() == 0:\n    os.setsid()\n"
        "    open('left', 'w').close(); time.sleep(60)\n"
        "time.sleep(0.05)\nassert f(1) == 3"
    ),
    "test kills the program": (
        "import os\nfor pid in filter(str.isdigit, os.listdir('/proc')):\n    try: os.kill(int(pid), 0)\n"
        "    except OSError: continue\n    assert int(pid) == os.getpid(), pid\nassert f(1) == 3"
    ),
    "test reads the program's memory": (
        "import os\nfor pid in filter(str.isdigit, os.listdir('/proc')):\n"
        "    try: open(f'/proc/{pid}/mem').close()\n"
        "    except OSError: continue\n    assert int(pid) == os.getpid(), pid\nassert f(1) == 3"
    ),
    "test marks its directory": "import os\ntry: os.setxattr('.', 'user.left', b'1')\nexcept OSError: pass\nassert f(1) == 3",
}
# test, statuses it may get
MIXED: dict[str, tuple] = {
    "test claims that the sandbox failed": (
        WRITE + "write(index=0, status='SANDBOX_ERROR', value=None, error='')\ntime.sleep(9)",
        {ERROR, TIME},
    ),
    "test stops whoever comes to kill it": (
        "import os, signal\nif os.fork() == 0:\n    while True: os.kill(-1, signal.SIGSTOP)\nassert f(1) == 3",
        {ERROR, TIME, WRONG},
    ),
    "test wants the CPU when the clock runs out": (
        "f\nimport time\ntime.sleep(1.42)\nwhile True: pass",
        {TIME},
    ),
    "test's process name is no UTF-8": (
        "f\nimport ctypes, time\nctypes.CDLL(None).prctl(15, b'\\xff\\xfe', 0, 0, 0)\ntime.sleep(9)",
        {TIME},
    ),
    "test says loaded again and again": (
        WRITE + "for _ in range(9999): write(loaded=True)\nassert f(1) == 3",
        {ERROR, WRONG},
    ),
    "test closes the verdict pipe": ("f\nimport os, time\nos.close(10)\ntime.sleep(9)", {ERROR, TIME}),
    # Where each takes a part of one reply (1 time in 50), its text reads as a length that no frame has.
    "test forks and both answer": ("import os\nos.fork()\nassert f(1) == 3", {ERROR, OUTPUT, WRONG}),
    "test bombs with forks": ("f\nimport os\nwhile True:\n    os.fork()", {ERROR, TIME}),
    "test fills memory": ("f\na = []\nwhile True: a.append(bytearray(1 << 22))", {ERROR, MEMORY, TIME}),
    "test that no parser survives": ("assert " + "(" * 100_000 + "1", {ERROR, MEMORY, SYNTAX}),
    "test with a lone surrogate": ("assert f(1) == '\ud800'", {ERROR, SYNTAX}),
    "test floods its output": ("f\nwhile True: print('x' * 4096)", {OUTPUT}),
}
ATTACKS = (
    {name: (RIGHT, of, {ERROR}) for name, of in ERRORS.items()}
    | {name: (RIGHT, of, {WRONG}) for name, of in WRONG_ANSWERS.items()}
    | {name: (RIGHT, *row) for name, row in MIXED.items()}
)


@pytest.mark.parametrize("name", ATTACKS)
def test_hostile_test(attack: Callable, name: str) -> None:
    program, test, deserved = ATTACKS[name]
    verdict = attack(program, test)
    assert verdict.status in deserved, verdict
    after = attack(
        RIGHT, "import os\nleft = os.listdir('.') + os.listxattr('.')\nassert f(len(left)) == 1, left"
    )
    assert after.passed, after
