"""Programs that use up what no single limit counts, or reach a limit by another way: no harm is done."""

from collections.abc import Callable

import pytest

from tests.attacks.conftest import ERROR, MEMORY, OUTPUT, PATIENT, SHORT, TIME, WRONG

ERRORS = {
    "memory in pipes": (
        "import fcntl, os\ndef f(x):\n    while True:\n        a, b = os.pipe()\n"
        "        os.set_blocking(b, False)\n"
        "        try: fcntl.fcntl(b, fcntl.F_SETPIPE_SZ, 1 << 20)\n        except OSError: pass\n"
        "        os.write(b, bytes(1 << 20))"
    ),
    "descriptors in flight": (
        "import os, socket\na, b = socket.socketpair()\na.setblocking(False)\ndef f(x):\n"
        "    while True: socket.send_fds(a, [b'x'], [a.fileno(), b.fileno(), *([0] * 200)])"
    ),
    "shared memory and semaphores": (
        "import multiprocessing as m\nfrom multiprocessing.shared_memory import SharedMemory\ndef f(x):\n"
        "    try: m.Semaphore()\n    except OSError: SharedMemory('left', True, 1 << 30)"
    ),
    "every descriptor": "kept = []\ndef f(x):\n    while True: kept.append(open('/dev/null'))",
    "pseudo terminals": "import os\nkept = []\ndef f(x):\n    while True: kept.append(os.openpty())",
    "sparse file": "def f(x): open('a', 'w').truncate(1 << 40)",
    "disk in deleted files": (
        "import os\nkept = []\ndef f(x):\n    for n in range(40):\n"
        "        kept.append(open('a', 'wb', 0)); os.unlink('a')\n"
        "        kept[-1].write(bytes(3 << 20))\n    return 2"
    ),
    "deep JSON": "import json\ndef f(x): return json.loads('[' * 10 ** 6)",
    "recursion in comparing": "def f(x):\n    a, b = [], []\n    a.append(a); b.append(b)\n    return a == b",
}
# program, deserved, and limits that differ
MIXED: dict[str, tuple] = {
    "CPU time of children": (
        "import os, time\ndef f(x):\n    for _ in range(3):\n        if os.fork() == 0:\n"
        "            while time.process_time() < 0.4: pass\n            os._exit(0)\n        os.wait()\n"
        "    return 2",
        {TIME},
        PATIENT,
    ),
    "CPU time after the parent left": (
        "import os, time\nif os.fork(): os._exit(0)\ndef f(x):\n    while time.process_time() < 1: pass\n"
        "    return 2",
        {ERROR, TIME},
        PATIENT,
    ),
    "CPU time of threads": (
        "import hashlib, threading\ndef burn():\n    while True: hashlib.sha256(bytes(1 << 20))\n"
        "def f(x):\n    for _ in range(8): threading.Thread(target=burn, daemon=True).start()\n    burn()",
        {ERROR, TIME},
    ),
    "stop whoever comes to kill": (
        "import os, signal\ndef f(x):\n    if os.fork() == 0:\n        os.setsid()\n"
        "        while True:\n            try: os.kill(-1, signal.SIGSTOP)\n            except OSError: pass\n"
        "    return 0",
        {TIME, WRONG},
    ),
    "fork bomb of daemons": (
        "import os\ndef f(x):\n    while True:\n        try:\n            if os.fork() == 0:\n"
        "                os.setsid()\n"
        "                if os.fork(): os._exit(0)\n        except OSError: pass",
        {ERROR, TIME},
    ),
    "fork bomb by programs": (
        "import os, subprocess, sys\ndef f(x):\n"
        "    subprocess.Popen(['sh', '-c', 'b() { b | b & }; b; sleep 1'])\n"
        "    subprocess.Popen('yes>/dev/null&', shell=True)\n    return 3",
        {ERROR, OUTPUT, WRONG},
    ),
    "memory by doubling a string": ("def f(x):\n    s = 'x'\n    while True: s += s", {MEMORY}),
    "memory by one allocation": ("def f(x): return len(bytearray(1 << 40))", {MEMORY}),
    "memory by mapping": (
        "import mmap\nmaps = []\ndef f(x):\n"
        "    while True: maps.append(mmap.mmap(-1, 8 << 20)); maps[-1].write(bytes(8 << 20))",
        {ERROR, MEMORY},
    ),
    "memory by sets of tuples": ("def f(x): return {(n, str(n)) for n in range(10 ** 7)}", {MEMORY, TIME}),
    "memory in files without a name": (
        "import os\ndef f(x):\n    for n in range(40):\n        fd = os.memfd_create(str(n))\n"
        "        try: os.write(fd, bytes(4 << 20))\n        except OSError: pass\n    return 3",
        {ERROR, MEMORY, WRONG},
    ),
    "memory in socket buffers": (
        "import socket\nkept = []\ndef f(x):\n    while True:\n"
        "        pair = socket.socketpair(); kept.append(pair)\n"
        "        for s in pair:\n            s.setsockopt(1, 7, 1 << 28); s.setblocking(False)\n"
        "            try:\n                while True: s.send(bytes(1 << 16))\n"
        "            except BlockingIOError: pass",
        {ERROR, TIME},
    ),
    "pending signals": (
        "import os, signal\nsignal.pthread_sigmask(signal.SIG_BLOCK, range(1, 65))\ndef f(x):\n"
        "    for n in range(100_000): os.kill(os.getpid(), 34 + n % 30)\n    return 3",
        {TIME, WRONG},
    ),
    "contexts of asynchronous input": (
        "import ctypes\nlibc = ctypes.CDLL(None)\ndef f(x):\n    n = 0\n"
        "    while libc.syscall(206, 64, ctypes.byref(ctypes.c_ulong())) == 0 and n < 9999: n += 1\n"
        "    return n + 3",
        {ERROR, MEMORY, WRONG},
    ),
    "timers": (
        "import ctypes\nlibc = ctypes.CDLL(None)\ndef f(x):\n"
        "    for _ in range(20_000): libc.syscall(222, 0, 0, ctypes.byref(ctypes.c_int()))\n    return 3",
        {ERROR, WRONG},
    ),
    "file size signal not ignored": (
        "import signal\nsignal.signal(signal.SIGXFSZ, signal.SIG_DFL)\n"
        "def f(x): open('a', 'wb').write(bytes(8 << 20)); return 2",
        {ERROR, WRONG},
    ),
    "nested directories by the thousand": (
        "import os\ndef f(x):\n    try:\n        for _ in range(5000): os.mkdir('d'); os.chdir('d')\n"
        "    except OSError: pass\n    return 3",
        {WRONG},
        PATIENT,
    ),
    "names that no shell likes": (
        "import os\ndef f(x):\n    for n in (b'-rf', b'\\n', b'\\xff', b'*', b'x' * 255, b' ', b'--', "
        "b'$(id)', b'.a', b'..b'):\n"
        "        os.mkdir(n); open(n + b'/' + n, 'w').close(); os.symlink(n, n + b'/l'); os.chmod(n, 0)\n"
        "    return 3",
        {WRONG},
    ),
    "output through children": (
        "import os\ndef f(x):\n    for _ in range(4):\n        if os.fork() == 0:\n"
        "            while True: os.write(1, b'x' * 4096)\n    os.wait()",
        {OUTPUT},
    ),
    "output while loaded": ("while True: print('x' * 4096)", {OUTPUT}),
    "compressed bomb": (
        "import bz2\nblock = bz2.compress(bytes(1 << 20))\n"
        "def f(x): return len(bz2.decompress(block * 4000))",
        {MEMORY, TIME},
    ),
    "archive of many files": (
        "import io, zipfile\ndef f(x):\n    with zipfile.ZipFile(io.BytesIO(), 'w') as z:\n"
        "        for n in range(5000): z.writestr(f'{n}', '')\n        z.extractall()\n    return 3",
        {ERROR, TIME, WRONG},
    ),
    "huge power as text": (
        "import sys\nsys.set_int_max_str_digits(0)\ndef f(x): return str(7 ** 10 ** 6)",
        {TIME},
    ),
    "colliding keys": ("def f(x): return len({n * ((1 << 61) - 1) for n in range(10 ** 5)})", {TIME}),
    "sum without end": ("import itertools\ndef f(x): return sum(itertools.count())", {TIME}),
    "locked with itself": (
        "import threading\nlock = threading.Lock()\ndef f(x): lock.acquire(); lock.acquire()",
        {TIME},
        SHORT,
    ),
    "recursion in C": (
        "import itertools\ndef f(x):\n    it = iter([1])\n"
        "    for _ in range(10 ** 6): it = itertools.chain(it)\n    return next(it)",
        {ERROR, MEMORY, TIME},
    ),
    "exceptions in a chain": (
        "def f(x):\n    e = None\n    for n in range(200_000):\n"
        "        new = ValueError(n); new.__context__ = e; e = new\n    raise e",
        {ERROR, MEMORY, TIME},
    ),
}
ATTACKS = {name: (of, {ERROR}) for name, of in ERRORS.items()} | MIXED


@pytest.mark.parametrize("name", ATTACKS)
def test_resource(convict: Callable, name: str) -> None:
    program, *deserved = ATTACKS[name]
    convict(program, "assert f(1) == 2", *deserved)
