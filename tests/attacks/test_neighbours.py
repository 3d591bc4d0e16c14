"""Two slots of one sandbox at once: a program neither harms its neighbour nor meets it."""

import asyncio
import os
from collections.abc import Iterator

import pytest

from sandbox_workers.local import LocalSandbox
from sparring.core.interfaces import SandboxKind
from sparring.core.verdict import Verdict
from tests.attacks.conftest import WORKS

HONEST = "import time\ndef g(x): time.sleep(0.05); return x"
UNTIL = (
    f"{WORKS}import os, time, socket, fcntl, ctypes\ndef f():\n    end = time.monotonic() + 0.4\n    seen = set()\n"
    "    while time.monotonic() < end:\n"
)
PIDS = (
    "        for pid in map(int, filter(str.isdigit, os.listdir('/proc'))):\n"
    "            if pid == os.getpid(): continue\n"
)
# a program that works while its neighbour does, and what it may report
ATTACKS: dict[str, tuple[str, str]] = {
    "kill the neighbour": (
        UNTIL + PIDS + "            if works(os.kill, pid, 9): seen.add(pid)\n    return len(seen)",
        "0",
    ),
    "kill every process there is": (
        UNTIL + "        works(os.kill, -1, 9)\n    return 'done'",
        "'done'",
    ),
    "read the neighbour": (
        UNTIL + PIDS + "            for name in ('mem', 'environ', 'fd/10', 'fd/11', 'root/etc'):\n"
        "                if works(lambda: os.close(os.open(f'/proc/{pid}/{name}', os.O_RDONLY))): seen.add(name)\n"
        "    return len(seen)",
        "0",
    ),
    "directories of the neighbour": (
        UNTIL + "        for name in os.listdir('/jobs'):\n"
        "            if os.getcwd() == '/jobs/' + name: continue\n"
        "            try: seen.update(os.listdir('/jobs/' + name)); open(f'/jobs/{name}/left', 'w'); "
        "seen.add(name)\n"
        "            except OSError: pass\n        time.sleep(0.001)\n    return len(seen)",
        "0",
    ),
    "processes of the neighbour's user": (
        UNTIL + "        try:\n            pid = os.fork()\n            if pid == 0: time.sleep(9)\n"
        "            seen.add(pid)\n        except OSError: time.sleep(0.01)\n    return len(seen) <= 16",
        "True",
    ),
}
MEETINGS: dict[str, str] = {
    "meet at an abstract name": (
        "import ctypes, os, socket, time\ndef f(me, you):\n    end = time.monotonic() + 0.8\n"
        "    try:\n        s = socket.socketpair(type=socket.SOCK_DGRAM)[0]\n"
        "        ctypes.CDLL(None).connect(s.fileno(), bytes(2), 2)\n        s.setblocking(False)\n"
        "        s.bind('\\0' + me)\n"
        "    except OSError: return 'alone'\n"
        "    while time.monotonic() < end:\n        try: s.sendto(b'hello', '\\0' + you)\n"
        "        except OSError: pass\n"
        "        try:\n            if s.recv(9) == b'hello': return 'met'\n"
        "        except OSError: time.sleep(0.01)\n    return 'alone'"
    ),
    "meet at a lock": (
        "import fcntl, os, time\ndef f(me, you):\n    fd = os.open('/bin/sh', os.O_RDONLY)\n"
        "    end = time.monotonic() + 0.8\n"
        "    try:\n        if me == 'a': fcntl.flock(fd, fcntl.LOCK_EX)\n    except OSError: return 'alone'\n"
        "    while time.monotonic() < end:\n        time.sleep(0.02)\n"
        "        if me == 'b':\n            try: fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB); "
        "fcntl.flock(fd, fcntl.LOCK_UN)\n"
        "            except BlockingIOError: return 'met'\n"
        "            except OSError: pass\n    return 'alone'"
    ),
}


@pytest.fixture(scope="module")
def two_slots(kind: SandboxKind) -> Iterator[LocalSandbox]:
    with LocalSandbox(kind, slots=2, run_id=f"neighbours-{os.getpid()}", cache_size=0) as local:
        yield local


@pytest.mark.parametrize("name", ATTACKS)
def test_neighbour(two_slots: LocalSandbox, name: str) -> None:
    program, found = ATTACKS[name]

    async def side_by_side() -> tuple[list[Verdict], list[Verdict]]:
        honest = two_slots.judge(HONEST, [f"assert g({n}) == {n}" for n in range(8)])
        return await asyncio.gather(two_slots.judge(program, ["f()"]), honest)

    (verdict,), honest = asyncio.run(side_by_side())
    assert verdict.value == found, verdict
    assert all(verdict.passed for verdict in honest)
    assert two_slots.stats()["infrastructure_failures"] == 0


@pytest.mark.parametrize("name", MEETINGS)
def test_meeting(two_slots: LocalSandbox, name: str) -> None:
    async def both() -> list[list[Verdict]]:
        jobs = [two_slots.judge(MEETINGS[name], [f"f({me!r}, {you!r})"]) for me, you in ("ab", "ba")]
        return await asyncio.gather(*jobs)

    assert [verdict.value for (verdict,) in asyncio.run(both())] == ["'alone'", "'alone'"]
