"""What a program may learn of its tests, and of those who share its kernel: nothing by clocks, limits or notices."""

from collections.abc import Callable

import pytest

from sparring.core.verdict import Status
from tests.attacks.conftest import WORKS

OTHERS = (
    f"{WORKS}import ctypes, os, resource, signal, time\nlibc = ctypes.CDLL(None, use_errno=True)\n"
    "others = [int(p) for p in os.listdir('/proc') if p.isdigit() and int(p) != os.getpid()]\n"
    "clocks = [(~p << 3) | kind for p in others for kind in (0, 1, 2, 4, 5, 6)]\n"
)
# program, value of its f()
ATTACKS: dict[str, tuple[str, str]] = {
    "CPU clocks of other processes": (
        OTHERS
        + "def f(): return [c for c in clocks if works(time.clock_gettime, c) or works(time.clock_getres, c)]",
        "[]",
    ),
    "CPU clocks of other processes, with bits that the kernel drops": (
        OTHERS + "def f():\n    low = [ctypes.c_long(c & 0xffffffff) for c in clocks]\n"
        "    return [c.value for c in low if libc.clock_gettime(c, bytes(16)) == 0]",
        "[]",
    ),
    "timers by the clock of another process": (
        OTHERS + "def f(): return [c for c in clocks if libc.timer_create(c, None, bytes(8)) == 0]",
        "[]",
    ),
    "sleeping by the clock of another process": (
        OTHERS + "def f(): return [c for c in clocks if libc.clock_nanosleep(c, 0, bytes(16), None) == 0]",
        "[]",
    ),
    "number of tests by a limit of its own": (
        "import resource\ndef f(): return resource.getrlimit(resource.RLIMIT_CPU)",
        "(-1, -1)",
    ),
    "number of tests by the limits of all": (
        "import os\ndef f():\n    seen = set()\n    for p in filter(str.isdigit, os.listdir('/proc')):\n"
        "        try: seen |= {l.split()[3] for l in open(f'/proc/{p}/limits') if l.startswith('Max cpu time')}\n"
        "        except OSError: pass\n    return seen",
        "{'unlimited'}",
    ),
    "notices and leases of files that others open": (
        "import fcntl, signal\nsignal.signal(signal.SIGIO, signal.SIG_IGN)\n"
        "def f():\n    got = []\n    for path, command, value in (('/usr/lib', fcntl.F_NOTIFY, 0x8000003f),\n"
        "            ('/usr/bin', fcntl.F_NOTIFY, 1), ('note', fcntl.F_SETLEASE, fcntl.F_RDLCK)):\n"
        "        if path == 'note': open(path, 'w').close()\n"
        "        try: fcntl.fcntl(__import__('os').open(path, 0), command, value); got.append(path)\n"
        "        except OSError: pass\n    return got",
        "[]",
    ),
    "files in memory, which are on nobody's account": (
        WORKS + "import os\ndef f(): return works(os.memfd_create, 'x')",
        "False",
    ),
}


@pytest.mark.parametrize("name", ATTACKS)
def test_leak(attack: Callable, name: str) -> None:
    program, value = ATTACKS[name]
    verdict = attack(program, "f()")
    assert (verdict.status, verdict.value) == (Status.PASSED, value), verdict


def test_a_program_may_read_its_own_clocks(attack: Callable) -> None:
    verdict = attack(
        "import fcntl, os, time\ndef f():\n    own = [time.process_time(), time.thread_time(), time.monotonic(), time.time()]\n"
        "    own += [time.clock_gettime(c) for c in (-6, -2)] + [time.clock_getres(time.CLOCK_PROCESS_CPUTIME_ID)]\n"
        "    r, w = os.pipe()\n    fcntl.fcntl(r, fcntl.F_DUPFD_CLOEXEC, 20); fcntl.fcntl(w, fcntl.F_GETPIPE_SZ)\n"
        "    return all(t > 0 for t in own)",
        "f()",
    )
    assert verdict.value == "True", verdict
