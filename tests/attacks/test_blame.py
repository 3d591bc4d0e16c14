"""Programs that fail and have it look like the fault of the test or of the sandbox: that would not count."""

from collections.abc import Callable

import pytest

from tests.attacks.conftest import ERROR, MEMORY, OUTPUT, SHORT, TIME, WRONG, asked

ERRORS = {
    "exception class named test": "class test(Exception): pass\ndef f(x): raise test('NameError')",
    "load error in the test's words": (
        "import sys\nroles = sys.modules['runner.roles']\nsend = roles.send_frame\n"
        "failed = {'failed': 'RUNTIME_ERROR', 'error': 'test: NameError'}\n"
        "roles.send_frame = lambda c, m, *cap: send(c, failed)\n"
    ),
    "object where the test divides": ("def f(x): return object()", "assert 10 % f(1) == 0"),
}
TIMEOUTS = {
    "sleep while the test has worked more": (
        "import time\ndef f(x): time.sleep(9)",
        "busy = sum(range(2_000_000))\nassert f(1) == 2",
    ),
    "sleep, then want the CPU when the clock runs out": "import time\ndef f(x):\n    time.sleep(0.92)\n    while True: pass",
    "process name that is no UTF-8": "import ctypes, time\ndef f(x): ctypes.CDLL(None).prctl(15, b'\\xff\\xfe', 0, 0, 0); time.sleep(9)",
    "process name that looks like a state": "import ctypes, time\ndef f(x): ctypes.CDLL(None).prctl(15, b') R 0 (\\n', 0, 0, 0); time.sleep(9)",
}
ERRORS_OR_TIMEOUTS = {
    "requests without end to the test": (
        "import os, json, struct, threading\n"
        "one = json.dumps({'i': 1, 'o': 'call', 't': 1}).encode()\n"
        "many = (struct.pack('>I', len(one)) + one) * 1000\n"
        "def drain():\n    while os.read(11, 1 << 20): pass\n"
        "def f(x):\n    threading.Thread(target=drain, daemon=True).start()\n"
        "    while True: os.write(11, many)"
    ),
    "truth that is a handle on itself": (
        "import sys\npeer = sys.modules['runner.calls']\nsend = peer.send_frame\n"
        "peer.send_frame = lambda c, m, *cap: send(c, {**m, 'v': {'h': [1, [2]]}})\ndef f(x): return 5",
        "assert f(1)",
    ),
    "calls back until the test's stack ends": (
        "def f(g): return g(f)",
        "def again(f): return f(again)\nassert f(again) == 2",
    ),
}
MIXED: dict[str, tuple] = {
    "answer in the test's words": (
        "def f(x): return 'test: NameError'",
        "got = f(1)\nassert got == 2, got",
        {WRONG},
    ),
    "reply that takes long to read": (
        'import os, struct\n__body = b\'{"v":[\' + b\'{"s":[],"f":1},\' * 1_000_000 + b\'1],"m":[]}\'\n'
        "def f(x): os.write(11, struct.pack('>I', len(__body)) + __body)",
        {MEMORY, OUTPUT, TIME},
    ),
    "reply that fills the test's memory": (
        "import os, struct\n__body = b'{\"v\":[' + b'[],' * 5_000_000 + b'1],\"m\":[]}'\n"
        "def f(x): os.write(11, struct.pack('>I', len(__body)) + __body)",
        {MEMORY, OUTPUT, TIME, WRONG},
    ),
    "length that nobody can allocate": (
        "class A:\n    def __len__(self): return 1 << 40\n    def __iter__(self): return iter([1])\n"
        "def f(x): return A()",
        "assert list(f(1)) == [1, 2]",
        {ERROR, MEMORY, OUTPUT, WRONG},
    ),
    "length below zero": (
        "import sys\npeer = sys.modules['runner.calls']\nsend = peer.send_frame\n"
        "class A:\n    def __len__(self): return 3\n"
        "def forge(c, m, *cap):\n    if m.get('v') == 3: m['v'] = -3\n    send(c, m)\n"
        "peer.send_frame = forge\ndef f(x): return A()",
        "assert len(f(1)) == 2",
        {ERROR, WRONG},
    ),
    "generator of large items": (
        "def f(x):\n    while True: yield 'x' * (4 << 20)",
        "assert list(f(1)) == [1]",
        {MEMORY, OUTPUT, TIME},
    ),
    "two hundred thousand names": (
        "globals().update((f'v{n}', n) for n in range(200_000))\ndef f(x): return 3",
        {MEMORY, OUTPUT, TIME, WRONG},
    ),
    "names that are no names": (
        "globals().update({'\\ud800': 1, 'a b': 2, '': 3, 'x' * 100_000: 4, 5: 6})\ndef f(x): return 3",
        {ERROR, WRONG},
    ),
}
ATTACKS = (
    asked(ERRORS, {ERROR})
    | asked(TIMEOUTS, {TIME}, SHORT)
    | asked(ERRORS_OR_TIMEOUTS, {ERROR, TIME})
    | asked(MIXED)
)


@pytest.mark.parametrize("name", ATTACKS)
def test_blame(convict: Callable, name: str) -> None:
    convict(*ATTACKS[name])
