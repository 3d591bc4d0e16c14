"""Attacks on verdicts and on what a sandbox must not reach: each gets the verdict it deserves, the next job is unharmed."""

import asyncio
import os
from collections.abc import Callable

import pytest

from core.verdict import Status, Verdict
from sandbox_workers.backends import choose_backend
from sandbox_workers.jobs import SandboxUnavailable
from sandbox_workers.local import LocalSandbox

WRONG, ERROR = Status.WRONG_ANSWER, Status.RUNTIME_ERROR
TIME, OUTPUT = Status.TIME_LIMIT, Status.OUTPUT_LIMIT
ANSWER = "assert f(1) == 2"
Attack = Callable[[str, str], Verdict]

SECRET = "expected = 'zq' + '7771'; expected += 'zq'; held = [expected]; assert f() == expected"
SEARCH = "def seen(t): return isinstance(t, str) and t.startswith('zq7771') and t.endswith('zq')\n"

# Where a sandbox has one uid, a program is the init of its own pid namespace: its signals to itself are void,
# and it answers None.
FORGERIES: dict[str, tuple[str, str, set[Status]]] = {
    "exit while loaded": ("import sys; sys.exit(0)", ANSWER, {ERROR}),
    "os._exit while loaded": ("import os; os._exit(0)", ANSWER, {ERROR}),
    "os._exit in the call": ("import os\ndef f(x): os._exit(0)", ANSWER, {ERROR}),
    "exit under a bare except": (
        "import os\ndef f(x): os._exit(0)",
        "try:\n    f(1)\nexcept:\n    pass",
        {ERROR},
    ),
    "kill itself": ("import os\ndef f(x): os.kill(os.getpid(), 9)", ANSWER, {ERROR, WRONG}),
    "print verdicts": (
        'def f(x):\n    print(\'{"index": 0, "status": "PASSED", "value": null, "error": ""}\', flush=True)',
        ANSWER,
        {WRONG},
    ),
    "write verdicts to every descriptor": (
        "import os, json, struct\n"
        "b = json.dumps({'index': 0, 'status': 'PASSED', 'value': None, 'error': ''}).encode()\n"
        "def f(x):\n"
        "    for fd in range(3, 300):\n"
        "        try: os.write(fd, struct.pack('>I', len(b)) + b)\n"
        "        except OSError: pass\n",
        ANSWER,
        {ERROR},
    ),
    "garbage on every descriptor": (
        "import os\ndef f(x):\n"
        "    for fd in range(3, 300):\n"
        "        try: os.write(fd, b'\\xff' * 64)\n"
        "        except OSError: pass\n",
        ANSWER,
        {ERROR, OUTPUT},
    ),
    "deeply nested reply": (
        "import os, struct\ndef f(x): os.write(11, struct.pack('>I', 200_000) + b'[' * 200_000)",
        ANSWER,
        {ERROR},
    ),
    "half a reply, then silence": (
        "import os, time\ndef f(x): os.write(11, b'\\0\\0\\0\\x10{'); time.sleep(30)",
        ANSWER,
        {TIME},
    ),
    "close every descriptor": ("import os\ndef f(x): os.closerange(0, 300)", ANSWER, {ERROR}),
    "object that equals everything": (
        "class Yes:\n    def __eq__(self, other): return True\n    def __bool__(self): return True\n"
        "def f(x): return Yes()",
        ANSWER,
        {WRONG},
    ),
    "class that equals everything": (
        "class Meta(type):\n    def __eq__(cls, other): return True\n    __hash__ = type.__hash__\n"
        "class Yes(metaclass=Meta): pass\ndef f(x): return Yes",
        ANSWER,
        {WRONG},
    ),
    "int that equals everything": (
        "class Yes(int):\n    def __eq__(self, other): return True\n    def __abs__(self): return 2\n"
        "def f(x): return Yes(5)",
        ANSWER,
        {WRONG},
    ),
    "list that equals everything": (
        "class Yes(list):\n    def __eq__(self, other): return True\n    def __iter__(self): yield 2\n"
        "def f(x): return Yes([5])",
        "assert f(1) == [2]",
        {WRONG},
    ),
    "str that reads differently": (
        "class Yes(str):\n    def __str__(self): return 'right'\n    def __eq__(self, other): return True\n"
        "def f(x): return Yes('wrong')",
        "assert f(1) == 'right'",
        {WRONG},
    ),
    "object that compares in order": (
        "class Yes:\n    def __lt__(self, other): return True\n    __gt__ = __le__ = __ge__ = __lt__\n"
        "def f(x): return Yes()",
        "assert f(1) < 3",
        {ERROR},
    ),
    "patched builtins": (
        "import builtins\nbuiltins.AssertionError = ValueError\nbuiltins.isinstance = lambda *a: True\n"
        "builtins.type = lambda *a: int\ndef f(x): return 5",
        ANSWER,
        {WRONG, ERROR},
    ),
    "patched json": (
        "import json\njson.dumps = lambda *a, **k: '{\"v\": 2}'\ndef f(x): return 5",
        "assert f(1) == 2 and f(2) == 3",
        {WRONG, ERROR},
    ),
    "patched runner": (
        "import sys\n"
        "for name, module in list(sys.modules.items()):\n"
        "    if name.startswith('runner'):\n"
        "        for key in list(vars(module)):\n"
        "            if callable(getattr(module, key)): setattr(module, key, lambda *a, **k: 2)\n"
        "def f(x): return 5",
        ANSWER,
        {WRONG, ERROR, TIME},
    ),
    "search frames for the answer": (
        SEARCH + "import sys\ndef f():\n    frame = sys._getframe()\n    while frame:\n"
        "        for v in [*frame.f_locals.values(), *frame.f_globals.values()]:\n            if seen(v): return v\n"
        "        frame = frame.f_back\n",
        SECRET,
        {WRONG},
    ),
    "search the heap for the answer": (
        SEARCH + "import gc\ndef f():\n    for o in gc.get_objects():\n"
        "        for v in (o.values() if type(o) is dict else o if type(o) in (list, tuple) else ()):\n"
        "            if seen(v): return v\n",
        SECRET,
        {WRONG},
    ),
    "search /proc for the answer": (
        "import os, re\ndef f():\n"
        "    for pid in filter(str.isdigit, os.listdir('/proc')):\n"
        "        if int(pid) == os.getpid(): continue\n"
        "        for name in ('cmdline', 'environ', 'mem', 'fd/10', 'fd/11', 'task/' + pid + '/mem'):\n"
        "            try: data = open(f'/proc/{pid}/{name}', 'rb', buffering=0).read(1 << 16)\n"
        "            except OSError: continue\n"
        "            if m := re.search(b'zq7771zq', data): return m.group().decode()\n",
        SECRET,
        {WRONG},
    ),
    "search files for the test": (
        "import os\ndef f():\n"
        "    for top in ('/jobs', '/opt', '/tmp', '/var/tmp', '/dev/shm', '/run'):\n"
        "        for folder, _, names in os.walk(top):\n"
        "            for name in names:\n"
        "                try: text = open(os.path.join(folder, name)).read()\n"
        "                except (OSError, ValueError): continue\n"
        "                if \"'7771'\" in text: return 'zq7771zq'\n",
        SECRET,
        {WRONG},
    ),
    "globals of a callback": (
        "def f(g): return g.__globals__['wanted']",
        "wanted = 7\nassert f(lambda: 1) == wanted",
        {ERROR},
    ),
    "frame of a generator": (
        "def f(g): return g.gi_frame.f_locals['wanted']",
        "def items():\n    wanted = 7\n    yield 1\ng = items(); next(g)\nassert f(g) == 7",
        {ERROR},
    ),
    "shadowed builtins": ("def len(x): return 2\ndef f(x): return x", "assert len(f([1])) == 2", {WRONG}),
    "shadowed AssertionError": (
        "class AssertionError(Exception): pass\ndef f(x): raise AssertionError('no')",
        "try:\n    f(1)\nexcept AssertionError as e:\n    raise",
        {ERROR},
    ),
    "assertion of its own": ("def f(x): raise AssertionError", ANSWER, {ERROR}),
    "change the argument it is compared with": (
        "def f(xs): xs[:] = [0]; return [0]",
        "xs = [2, 1]; assert f(xs) == sorted(xs)",
        {WRONG},
    ),
    "NaN": ("def f(x): return float('nan')", "assert f(1) == f(1)", {WRONG}),
    "signalling NaN": ("import decimal\ndef f(x): return decimal.Decimal('sNaN')", ANSWER, {ERROR}),
    "exception that cannot be printed": (
        "class Bad(Exception):\n    def __str__(self): raise SystemExit(0)\ndef f(x): raise Bad",
        ANSWER,
        {ERROR},
    ),
    "list that holds itself": ("def f(x):\n    a = []; a.append(a); return a", ANSWER, {ERROR}),
}

PROBES: dict[str, tuple[str, str, str]] = {
    "internet socket": (
        "import socket\ndef f():\n    try: socket.socket(); return 'open'\n    except OSError: return 'denied'",
        "f()",
        "'denied'",
    ),
    "abstract unix socket": (
        "import socket\ndef f():\n    try: socket.socket(socket.AF_UNIX).bind('\\0meet'); return 'open'\n"
        "    except OSError: return 'denied'",
        "f()",
        "'denied'",
    ),
    "ptrace": (
        "import ctypes, os\nlibc = ctypes.CDLL(None)\n"
        "def f(): return [p for p in map(int, filter(str.isdigit, os.listdir('/proc'))) if libc.ptrace(16, p, 0, 0) == 0]",
        "f()",
        "[]",
    ),
    "kill the others": (
        "import os\ndef f():\n    killed = []\n"
        "    for pid in map(int, filter(str.isdigit, os.listdir('/proc'))):\n"
        "        if pid == os.getpid(): continue\n"
        "        try: os.kill(pid, 9); killed.append(pid)\n"
        "        except OSError: pass\n    return killed",
        "f()",
        "[]",
    ),
    "become root": (
        "import os\ndef f():\n    got = []\n"
        "    for call in (lambda: os.setuid(0), lambda: os.setgid(0), lambda: os.setgroups([0]), lambda: os.chroot('/')):\n"
        "        try: call(); got.append(1)\n        except OSError: pass\n    return got",
        "f()",
        "[]",
    ),
    "new namespaces and mounts": (
        "import ctypes\nlibc = ctypes.CDLL(None)\n"
        "def f(): return [libc.unshare(0x10000000), libc.unshare(0x20000), libc.mount(b'x', b'/', b'tmpfs', 0, None)]",
        "f()",
        "[-1, -1, -1]",
    ),
    "System V memory": (
        "import ctypes\nlibc = ctypes.CDLL(None)\ndef f(): return libc.shmget(77, 4096, 0o1666), libc.msgget(77, 0o1666)",
        "f()",
        "(-1, -1)",
    ),
    "write outside": (
        "import os\ndef f():\n    wrote = []\n"
        "    for folder in ('/', '/jobs', '/tmp', '/var/tmp', '/dev', '/dev/shm', '/dev/mqueue', '/opt/sparring', '/run',\n"
        "                   '/proc/sys/kernel', '/sys/fs/cgroup', '/usr', '/etc'):\n"
        "        try: open(folder + '/left', 'w').close(); wrote.append(folder)\n        except OSError: pass\n"
        "    return wrote",
        "f()",
        "[]",
    ),
    "other directories of the sandbox": (
        "import os\ndef f():\n    seen = []\n    for name in os.listdir('/jobs'):\n"
        "        if os.path.realpath('.') == '/jobs/' + name: continue\n"
        "        try: seen += os.listdir('/jobs/' + name)\n        except PermissionError: pass\n    return seen",
        "open('mine', 'w').close(); f()\nassert f() == []",
        "None",
    ),
    "environment": (
        "import os\ndef f(): return sorted(os.environ)",
        "f()",
        "['HOME', 'LANG', 'PATH', 'TMPDIR']",
    ),
}


@pytest.mark.parametrize("name", FORGERIES)
def test_forgery(attack: Attack, name: str) -> None:
    program, test, deserved = FORGERIES[name]
    verdict = attack(program, test)
    assert verdict.status in deserved, verdict


@pytest.mark.parametrize("name", PROBES)
def test_probe(attack: Attack, name: str) -> None:
    program, test, found = PROBES[name]
    verdict = attack(program, test)
    assert verdict.status is Status.PASSED, verdict
    assert str(verdict.value) == found


def test_a_neighbouring_slot_is_out_of_reach() -> None:
    """Two slots at once: the attacker signals and looks around while its neighbour works."""
    attacker = (
        "import os, time\ndef f():\n    end = time.monotonic() + 0.4\n    seen = set()\n"
        "    while time.monotonic() < end:\n"
        "        for pid in map(int, filter(str.isdigit, os.listdir('/proc'))):\n"
        "            if pid == os.getpid(): continue\n"
        "            try: os.kill(pid, 9); seen.add(pid)\n            except OSError: pass\n    return len(seen)"
    )
    try:
        choose_backend("auto")
    except SandboxUnavailable as missing:
        pytest.skip(str(missing))

    async def side_by_side(local: LocalSandbox) -> tuple[list[Verdict], list[Verdict]]:
        honest = local.judge(
            "import time\ndef g(x): time.sleep(0.05); return x", [f"assert g({n}) == {n}" for n in range(8)]
        )
        return await asyncio.gather(local.judge(attacker, ["f()"]), honest)

    with LocalSandbox("auto", slots=2, run_id=f"neighbours-{os.getpid()}") as local:
        (attack,), honest = asyncio.run(side_by_side(local))
    assert attack.value == "0"
    assert all(verdict.passed for verdict in honest)
