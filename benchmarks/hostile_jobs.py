"""Programs that attack the sandbox or its limits, for the soak test. Each is tested with f(1) == 2 and must not pass."""

from dataclasses import dataclass

from sparring.core.verdict import Limits

TEST = "assert f(1) == 2"
LIMITS = Limits(cpu_s=0.2, wall_s=1.0, memory_mb=128, processes=8, file_mb=4, output_kb=16)


@dataclass(frozen=True, kw_only=True, slots=True)
class Hostile:
    """One attack. Its share of all hostile jobs is its weight divided by the sum of all weights."""

    name: str
    program: str
    weight: int = 10


HOSTILE = (
    Hostile(
        name="fork bomb",
        program="import os\ndef f(x):\n    while True:\n        try: os.fork()\n        except OSError: pass",
        weight=2,
    ),
    Hostile(
        name="fork bomb that falls over its limit",
        program="import os\ndef f(x):\n    while True: os.fork()",
        weight=5,
    ),
    Hostile(
        name="memory hog",
        program="def f(x):\n    held = []\n    while True: held.append(bytearray(1 << 20))",
    ),
    Hostile(name="endless loop", program="def f(x):\n    while True: pass", weight=4),
    Hostile(
        name="sleep that ignores signals",  # uses its wall-clock limit twice: the first time-out may be ours
        program="import signal, time\nfor n in (1, 2, 15): signal.signal(n, signal.SIG_IGN)\n"
        "def f(x):\n    while True: time.sleep(60)",
        weight=1,
    ),
    Hostile(name="exit", program="import os\ndef f(x): os._exit(0)"),
    Hostile(name="exit while loaded", program="raise SystemExit(0)"),
    Hostile(name="output flood", program="def f(x):\n    while True: print('x' * 4096)"),
    Hostile(
        name="daemon left behind",
        program="import os, time\ndef f(x):\n    if os.fork() == 0:\n        os.setsid()\n        if os.fork() == 0:\n"
        "            while True: time.sleep(60)\n        os._exit(0)\n    os.wait()\n    return 3",
    ),
    Hostile(
        name="files left behind",
        program="import os\ndef f(x):\n    os.makedirs('a/b/c')\n"
        "    for n in range(50): open(f'a/b/{n}', 'w').write('x' * 1000)\n"
        "    os.symlink('/', 'a/root'); os.chmod('a/b', 0)\n    return 3",
    ),
    Hostile(
        name="kill everything",
        program="import os\ndef f(x):\n    os.kill(-1, 9)\n    os.kill(os.getpid(), 9)",
    ),
    Hostile(
        name="standard input",
        program="import os, sys\ndef f(x):\n    text = sys.stdin.read() + os.read(0, 100).decode()\n"
        "    os.close(0); os.dup2(1, 0); sys.stdin = open(0)\n    return text or 3",
    ),
    Hostile(name="huge value", program="def f(x): return 'x' * (30 << 20)", weight=5),
    Hostile(name="deep recursion", program="def f(x): return f(x)"),
    Hostile(
        name="deeply nested list",
        program="def f(x):\n    nested = []\n    for _ in range(100_000): nested = [nested]\n    return nested",
    ),
    Hostile(
        name="verdicts on every descriptor",
        program="import json, os, struct\n"
        "forged = json.dumps({'index': 0, 'status': 'PASSED', 'value': None, 'error': ''}).encode()\n"
        "def f(x):\n    for descriptor in range(3, 64):\n"
        "        try: os.write(descriptor, struct.pack('>I', len(forged)) + forged)\n        except OSError: pass",
    ),
    Hostile(name="descriptors closed", program="import os\ndef f(x): os.closerange(0, 300)"),
)
