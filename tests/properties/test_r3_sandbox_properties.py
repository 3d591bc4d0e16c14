"""Properties of the code golf requirements (R3) about running programs, by their numbers. A hundred drawn programs are
judged at once: what an attacker would think of is in tests/attacks."""

import asyncio
from collections.abc import Callable, Iterator
from typing import TypeVar

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from sandbox_workers.local import LocalSandbox
from sparring.core.verdict import Limits, Status, Verdict
from tests.sandboxes import require

EXAMPLES = 100
LIMITS = Limits(cpu_s=0.2, wall_s=10.0, memory_mb=128, output_kb=16)
T = TypeVar("T")


@pytest.fixture(scope="module")
def sandbox() -> Iterator[LocalSandbox]:
    require("auto")
    with LocalSandbox("auto", limits=LIMITS) as local:
        yield local


def drawn(strategy: st.SearchStrategy[T], count: int = EXAMPLES) -> list[T]:
    """Examples of Hypothesis, to be tried all at once."""
    found: list[T] = []

    @settings(max_examples=count, deadline=None, database=None, phases=[Phase.generate])
    @given(strategy)
    def collect(example: T) -> None:
        found.append(example)

    collect()
    return found


def judged(sandbox: LocalSandbox, examples: list[T], program: Callable[[T], str]) -> list[tuple[T, Verdict]]:
    """Each program's f() is called."""

    async def all_at_once() -> list[list[Verdict]]:
        return await asyncio.gather(*(sandbox.judge(program(e), ["f()"]) for e in examples))

    verdicts = asyncio.run(all_at_once())
    return [(example, verdict) for example, (verdict,) in zip(examples, verdicts, strict=True)]


names = st.text("abcdefgh_0123456789.", min_size=1, max_size=12).filter(lambda n: set(n) != {"."})
places = st.sampled_from(
    ["/", "/etc", "/usr", "/tmp", "/var/tmp", "/dev/shm", "/home", "..", "../..", "/proc/self"]
)


# R3, property 18: execution isolation.
def test_what_a_program_writes_anywhere_no_other_program_finds(sandbox):
    paths = [f"{place}/r3-{name}" for place, name in drawn(st.tuples(places, names))]
    write = "def f():\n    try:\n        open({!r}, 'w').write('left')\n    except OSError:\n        pass\n    return 1"
    assert all(v.passed for _, v in judged(sandbox, paths, lambda p: write.format(p)))
    look = "import os\ndef f(): return os.path.exists({!r})"
    assert [p for p, v in judged(sandbox, paths, lambda p: look.format(p)) if v.value != "False"] == []


LOOPS = ["while True: pass", "n = 0\n    while True: n += 1", "sum(iter(int, 1))", "9 ** 9 ** 9"]


# R3, property 19: timeout enforcement.
def test_what_takes_too_long_is_stopped_and_what_does_not_is_not(sandbox):
    """Some of each, in any order: a stopped neighbour costs nobody a verdict."""
    examples = drawn(st.tuples(st.integers(0, 10**6), st.sampled_from([None] * 46 + LOOPS)))

    def program(example: tuple[int, str | None]) -> str:
        number, loop = example
        return f"def f():\n    {loop or 'pass'}\n    return {number}"

    for (number, loop), verdict in judged(sandbox, examples, program):
        expected = (Status.PASSED, str(number)) if loop is None else (Status.TIME_LIMIT, None)
        assert (verdict.status, verdict.value) == expected, loop


# R3, property 20: memory limit enforcement.
def test_more_memory_than_the_limit_is_refused_and_less_is_not(sandbox):
    sizes = drawn(st.integers(1, 60) | st.integers(LIMITS.memory_mb, 5000))
    program = "def f():\n    return len(bytearray({} << 20)) >> 20"
    for size, verdict in judged(sandbox, sizes, program.format):
        if size < LIMITS.memory_mb:
            assert (verdict.status, verdict.value) == (Status.PASSED, str(size))
        else:
            assert verdict.status is Status.MEMORY_LIMIT, size


addresses = st.ip_addresses().map(str) | st.sampled_from(["localhost", "127.0.0.1", "::1", "example.com"])


# R3, property 21: network isolation.
def test_no_address_can_be_reached_and_trying_raises(sandbox):
    targets = drawn(st.tuples(addresses, st.integers(1, 65535), st.sampled_from(["STREAM", "DGRAM"])))
    program = """import socket
def f():
    found = socket.getaddrinfo({0!r}, {1}, type=socket.SOCK_{2})
    family, kind, protocol, _, address = found[0]
    with socket.socket(family, kind, protocol) as s:
        s.settimeout(1)
        s.connect(address)
        s.send(b'hello')
    return 'reached'
"""
    for target, verdict in judged(sandbox, targets, lambda t: program.format(*t)):
        assert verdict.status is Status.RUNTIME_ERROR and verdict.error, target


messages = st.text(st.characters(exclude_categories=["Cs", "Cc"]), min_size=1, max_size=60)
errors = st.sampled_from(["ValueError", "RuntimeError", "ZeroDivisionError", "LookupError", "Own"])


# R3, property 22: error capture completeness.
def test_what_a_program_raises_is_told(sandbox):
    raised = drawn(st.tuples(errors, messages))
    program = "class Own(Exception): pass\ndef f(): raise {0}({1!r})"
    for (kind, message), verdict in judged(sandbox, raised, lambda e: program.format(*e)):
        assert verdict.status is Status.RUNTIME_ERROR
        assert kind in verdict.error and message.strip() in verdict.error, verdict.error
