"""Tests are written by an opponent, too: a hostile one harms neither the sandbox nor the next job."""

from collections.abc import Callable

import pytest

from sparring.core.verdict import Status

WRONG, ERROR = Status.WRONG_ANSWER, Status.RUNTIME_ERROR
TIME, MEMORY, OUTPUT = Status.TIME_LIMIT, Status.MEMORY_LIMIT, Status.OUTPUT_LIMIT
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
# program, test, statuses it may get
ATTACKS: dict[str, tuple[str, str, set[Status]]] = {
    "test claims that the sandbox failed": (
        RIGHT,
        WRITE + "write(index=0, status='SANDBOX_ERROR', value=None, error='')\ntime.sleep(9)",
        {ERROR, TIME},
    ),
    "test writes an error text that no file takes": (
        RIGHT,
        WRITE
        + "write(index=0, status='RUNTIME_ERROR', value=None, error='\\udcff\\x1b[2J' + 'x' * 60000, by_test=True, "
        "asked_objects=False)\ntime.sleep(9)",
        {ERROR},
    ),
    "test says that its program is gone, then floods": (
        RIGHT,
        WRITE
        + "write(index=0, status='RUNTIME_ERROR', value=None, error='', by_test=False, gone=True)\n"
        + "while True: os.write(10, bytes(65536))",
        {ERROR},
    ),
    "test stops whoever comes to kill it": (
        RIGHT,
        "import os, signal\nif os.fork() == 0:\n    while True: os.kill(-1, signal.SIGSTOP)\nassert f(1) == 3",
        {ERROR, WRONG, TIME},
    ),
    "test wants the CPU when the clock runs out": (
        RIGHT,
        "f\nimport time\ntime.sleep(1.42)\nwhile True: pass",
        {TIME},
    ),
    "test's process name is no UTF-8": (
        RIGHT,
        "f\nimport ctypes, time\nctypes.CDLL(None).prctl(15, b'\\xff\\xfe', 0, 0, 0)\ntime.sleep(9)",
        {TIME},
    ),
    "test has the token, and says what no test may say": (
        RIGHT,
        WRITE
        + TOKEN
        + "write(index=0, token=token, status='NOT_DATA', value=None, error='', by_test=False)\ntime.sleep(9)",
        {ERROR},
    ),
    "test has the token, and gives a value that no file takes": (
        RIGHT,
        WRITE
        + TOKEN
        + "write(index=0, token=token, status='WRONG_ANSWER', value='\\udcff', error='', by_test=False)\n"
        "time.sleep(9)",
        {WRONG},
    ),
    "test speaks for a test that does not exist": (
        RIGHT,
        WRITE + "write(index=7, status='PASSED', value=None, error='')\ntime.sleep(9)",
        {ERROR},
    ),
    "test says loaded again and again": (
        RIGHT,
        WRITE + "for _ in range(9999): write(loaded=True)\nassert f(1) == 3",
        {ERROR, WRONG},
    ),
    "test floods the verdict pipe": (
        RIGHT,
        "f\nimport os\nwhile True: os.write(10, bytes(4096))",
        {ERROR},
    ),
    "test announces a frame of four gigabytes": (
        RIGHT,
        "f\nimport os\nos.write(10, b'\\xff' * 4); assert 0",
        {ERROR},
    ),
    "test nests its verdict deeply": (
        RIGHT,
        "f\nimport os, struct\nos.write(10, struct.pack('>I', 60_000) + b'[' * 60_000)\nassert 0",
        {ERROR},
    ),
    "test reports the program as gone": (
        RIGHT,
        WRITE + "write(index=0, status='PASSED', value=None, error='', gone=True)\ntime.sleep(9)",
        {ERROR},
    ),
    "test closes the verdict pipe": (RIGHT, "f\nimport os, time\nos.close(10)\ntime.sleep(9)", {TIME, ERROR}),
    # Where each takes a part of one reply (1 time in 50), its text reads as a length that no frame has.
    "test forks and both answer": (RIGHT, "import os\nos.fork()\nassert f(1) == 3", {WRONG, ERROR, OUTPUT}),
    "test leaves a daemon": (
        RIGHT,
        "import os, time\nif os.fork() == 0:\n    os.setsid()\n"
        "    open('left', 'w').close(); time.sleep(60)\n"
        "time.sleep(0.05)\nassert f(1) == 3",
        {WRONG},
    ),
    "test bombs with forks": (RIGHT, "f\nimport os\nwhile True:\n    os.fork()", {ERROR, TIME}),
    "test fills memory": (
        RIGHT,
        "f\na = []\nwhile True: a.append(bytearray(1 << 22))",
        {ERROR, MEMORY, TIME},
    ),
    "test fills its disk": (
        RIGHT,
        "f\nfor n in range(99): open(str(n), 'wb').write(bytes(3 << 20))",
        {ERROR},
    ),
    "test kills the program": (
        RIGHT,
        "import os\nfor pid in filter(str.isdigit, os.listdir('/proc')):\n    try: os.kill(int(pid), 0)\n"
        "    except OSError: continue\n    assert int(pid) == os.getpid(), pid\nassert f(1) == 3",
        {WRONG},
    ),
    "test reads the program's memory": (
        RIGHT,
        "import os\nfor pid in filter(str.isdigit, os.listdir('/proc')):\n"
        "    try: open(f'/proc/{pid}/mem').close()\n"
        "    except OSError: continue\n    assert int(pid) == os.getpid(), pid\nassert f(1) == 3",
        {WRONG},
    ),
    "test crashes its interpreter": (RIGHT, "f\nimport ctypes\nctypes.string_at(0)", {ERROR}),
    "test that no parser survives": (
        RIGHT,
        "assert " + "(" * 100_000 + "1",
        {Status.SYNTAX_ERROR, ERROR, MEMORY},
    ),
    "test with a lone surrogate": (RIGHT, "assert f(1) == '\ud800'", {Status.SYNTAX_ERROR, ERROR}),
    "test floods its output": (RIGHT, "f\nwhile True: print('x' * 4096)", {OUTPUT}),
    "test marks its directory": (
        RIGHT,
        "import os\ntry: os.setxattr('.', 'user.left', b'1')\nexcept OSError: pass\nassert f(1) == 3",
        {WRONG},
    ),
}


@pytest.mark.parametrize("name", ATTACKS)
def test_hostile_test(attack: Callable, name: str) -> None:
    program, test, deserved = ATTACKS[name]
    verdict = attack(program, test)
    assert verdict.status in deserved, verdict
    after = attack(
        RIGHT, "import os\nleft = os.listdir('.') + os.listxattr('.')\nassert f(len(left)) == 1, left"
    )
    assert after.status is Status.PASSED, after
