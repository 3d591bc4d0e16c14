"""Programs that use more CPU or memory than theirs by processes that are hard to count, or starve themselves: a failure
of the sandbox would not be counted against them."""

from collections.abc import Callable

import pytest

from tests.attacks.conftest import ANSWER, MEMORY, PATIENT, TIME, asked

HIDE = "signal.signal(signal.SIGCHLD, signal.SIG_IGN)"
"""Its children's CPU time is on nobody's account once they ended."""
SPIN = (
    "import mmap, os, signal, time\n"
    "def spin(seconds):\n    end = time.monotonic() + seconds\n    while time.monotonic() < end: pass\n"
    "def spinners(count, seconds):\n    for _ in range(count):\n"
    "        if os.fork() == 0: spin(seconds); os._exit(0)\n"
    "def workers(count, seconds):\n    for _ in range(count):\n        if os.fork() == 0:\n"
    "            while time.process_time() < seconds: pass\n            os._exit(0)\n"
    "    try: os.wait()\n    except ChildProcessError: pass\n"
)
HOLD = (
    "import mmap, os, time\ndef touch(a):\n    for n in range(0, len(a), 4096): a[n] = 1\n"
    "def hold(make):\n    for _ in range(14):\n"
    "        if os.fork() == 0: touch(make()); time.sleep(60)\n    time.sleep(60)\n"
)
TIMEOUTS = {
    "starves itself by children of an orphan": (
        SPIN + "def f(x):\n    if os.fork() == 0:\n"
        f"        {HIDE}\n        if os.fork(): os._exit(0)\n        spinners(13, 1.4); time.sleep(60)\n"
        "    time.sleep(0.02)\n    while time.process_time() < 0.2: pass\n    time.sleep(60)"
    ),
    "starves itself by children of its own": (
        SPIN + f"def f(x):\n    {HIDE}\n    spinners(13, 1.4)\n"
        "    while time.process_time() < 0.2: pass\n    time.sleep(60)"
    ),
    "starves itself by one short child after another": (
        SPIN + f"def f(x):\n    {HIDE}\n    end = time.monotonic() + 1.4\n"
        "    for _ in range(6):\n        if os.fork() == 0:\n"
        f"            {HIDE}\n"
        "            while time.monotonic() < end:\n                spinners(1, 0.004)\n"
        "                try: os.wait()\n                except ChildProcessError: pass\n"
        "            os._exit(0)\n"
        "    while time.process_time() < 0.2: pass\n    time.sleep(60)"
    ),
}
MEMORY_LIMITS = {
    "memory of children": HOLD + "def f(x): hold(lambda: bytearray(90 << 20))",
    "shared memory of children": HOLD + "def f(x): hold(lambda: mmap.mmap(-1, 90 << 20))",
    "memory of children, for a test that is code": (
        HOLD + "def f(x): hold(lambda: bytearray(90 << 20))",
        "a = 1\nassert f(a) == 2",
    ),
    "memory of orphans": (
        HOLD
        + "def f(x):\n    for _ in range(7):\n        if os.fork() == 0:\n            if os.fork() == 0:\n"
        "                touch(bytearray(90 << 20)); time.sleep(60)\n            os._exit(0)\n        os.wait()\n"
        "    time.sleep(60)"
    ),
    "memory of children while the test holds much": (
        HOLD + "def f(x): return ['x'] * 2_000_000\ndef g(x): hold(lambda: bytearray(90 << 20))",
        "a = f(1)\nassert g(1) == len(a)",
    ),
}
MIXED: dict[str, tuple] = {
    "computes in children that nobody waits for": (
        SPIN + f"def f(x):\n    {HIDE}\n    workers(2, 0.6)\n    return 2",
        {TIME},
        PATIENT,
    ),
    "computes in a grandchild whose parent hides it": (
        SPIN + f"def f(x):\n    if os.fork() == 0:\n        {HIDE}\n        workers(2, 0.6)\n"
        "        os._exit(0)\n    os.wait()\n    return 2",
        {TIME},
        PATIENT,
    ),
}
ATTACKS = asked(TIMEOUTS, {TIME}) | asked(MEMORY_LIMITS, {MEMORY}) | asked(MIXED)


@pytest.mark.parametrize("name", ATTACKS)
def test_starvation(convict: Callable, name: str) -> None:
    convict(*ATTACKS[name])


def test_the_kernel_takes_a_program_before_its_test(attack: Callable) -> None:
    verdict = attack(
        "import os\ndef score(pid): return int(open(f'/proc/{pid}/oom_score_adj').read())\n"
        "def f():\n    others = [p for p in os.listdir('/proc') if p.isdigit() and int(p) != os.getpid()]\n"
        "    return all(score(p) < score('self') for p in others), len(others) > 2",
        "f()",
    )
    assert verdict.value == "(True, True)", verdict


def test_children_that_are_waited_for_and_use_little_are_allowed(attack: Callable) -> None:
    verdict = attack(
        SPIN + "def f(x):\n    for _ in range(20): spinners(1, 0.005); os.wait()\n    return 2", ANSWER
    )
    assert verdict.passed, verdict
