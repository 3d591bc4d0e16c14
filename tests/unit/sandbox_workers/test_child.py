"""What the supervisor sees of a process and all that it started."""

import contextlib
import mmap
import os
import signal
import socket
import time
from collections.abc import Callable, Iterator

import pytest

from sandbox_workers.runner import child as child_module
from sandbox_workers.runner import kernel
from sandbox_workers.runner.child import Child

TICK_S = 0.01


@pytest.fixture
def start() -> Iterator[Callable[[Callable[[], None]], int]]:
    """Forks children of this process, which say so once they have done what they should, and wait."""
    pids = []

    def start(act: Callable[[], None]) -> int:
        read, write = os.pipe()
        pid = os.fork()
        if pid == 0:
            try:
                act()
                os.write(write, b".")
                signal.pause()
            finally:
                os._exit(1)
        pids.append(pid)
        assert os.read(read, 1) == b"."
        os.close(read)
        os.close(write)
        return pid

    yield start
    for pid in pids:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)


@pytest.mark.parametrize("hide", [False, True])
def test_a_child_that_was_waited_for_is_on_its_parents_account(start: Callable, hide: bool) -> None:
    """What the kernel does not tell of children that are hidden is why the supervisor looks time and again."""

    def fork_and_wait() -> None:
        if hide:
            signal.signal(signal.SIGCHLD, signal.SIG_IGN)
        if os.fork() == 0:
            while time.process_time() < 5 * TICK_S:
                pass
            os._exit(0)
        with contextlib.suppress(ChildProcessError):  # none is left, and nobody was told
            os.wait()

    pid = start(fork_and_wait)
    stat = kernel.family(os.getpid())[pid]
    assert kernel.has_reaped(stat) is not hide
    assert (kernel.reaped_cpu_seconds(stat) >= 3 * TICK_S) is not hide


def test_memory_that_was_touched_counts(start: Callable) -> None:
    kept = []

    def touch() -> None:  # not by malloc, which may give again what this process has had before
        kept.append(mmap.mmap(-1, 40 << 20, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS))
        for _ in range(40):
            kept[0].write(b"x" * (1 << 20))

    large = start(touch)
    small = start(lambda: None)
    assert 39 << 20 < kernel.anonymous_bytes(large) - kernel.anonymous_bytes(small) < 42 << 20
    assert kernel.peak_kib(large) >= 40 << 10
    assert kernel.anonymous_bytes(1 << 30) == kernel.peak_kib(1 << 30) == 0


def test_giving_way_to_all_others_is_seen(start: Callable) -> None:
    if not os.path.exists("/proc/self/autogroup"):
        pytest.skip("this kernel does not group by session")

    def give_way() -> None:
        os.setsid()
        with open("/proc/self/autogroup", "w") as autogroup:
            autogroup.write("19")

    assert kernel.is_reniced(start(give_way))
    assert not kernel.is_reniced(start(os.setsid))


class Family:
    """CPU seconds by process, as they are said beforehand."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.alive: dict[int, float] = {}
        self.reaped: dict[int, float] = {}
        stat = [b"R", b"1"] + [b"0"] * 20
        monkeypatch.setattr(kernel, "family", lambda pid: dict.fromkeys(self.alive, stat))
        monkeypatch.setattr(kernel, "has_reaped", lambda stat: bool(self.reaped))
        monkeypatch.setattr(
            kernel, "reaped_cpu_seconds", lambda stat: sum(self.reaped.values()) / len(self.alive)
        )
        monkeypatch.setattr(kernel, "cpu_seconds", lambda pid: self.alive.get(pid))
        monkeypatch.setattr(kernel, "anonymous_bytes", lambda pid: 0)
        monkeypatch.setattr(kernel, "run_delay_seconds", lambda pid: 0.0)
        monkeypatch.setattr(kernel, "is_reniced", lambda pid: False)


@pytest.fixture
def program(monkeypatch: pytest.MonkeyPatch) -> Iterator[Child]:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    monkeypatch.setattr(child_module, "_output_pipe", lambda role, settings: os.pipe())
    settings: object = None
    child = Child(ours, "program", settings, {}, streams=("stdout",))  # pyright: ignore[reportArgumentType]
    theirs.send(b'{"pid": 7, "parent": 6}')
    child.take_news()
    yield child
    child.close()
    ours.close()
    theirs.close()


@pytest.mark.parametrize(
    ("looks", "cpu_s"),
    [
        ([({7: 1.0}, {})], 1.0),
        ([({7: 1.0, 8: 0.5}, {})], 1.0 + 0.5),
        ([({7: 1.0, 8: 0.5}, {}), ({7: 1.0}, {8: 0.5}), ({7: 1.2, 9: 0.1}, {8: 0.5})], 1.2 + 0.5 + 0.1),
        ([({7: 1.0, 8: 0.5}, {}), ({7: 1.0}, {}), ({7: 1.0, 9: 0.4}, {}), ({7: 1.1}, {})], 1.1 + 0.5 + 0.4),
    ],
    ids=[
        "it starts nothing",
        "children that run",
        "one that was waited for",
        "some that vanished without a trace",
    ],
)
def test_all_that_it_started_is_charged_once(
    monkeypatch: pytest.MonkeyPatch, program: Child, looks: list[tuple[dict, dict]], cpu_s: float
) -> None:
    family = Family(monkeypatch)
    for family.alive, family.reaped in looks:
        program.look()
    assert program.cpu_s() == pytest.approx(cpu_s) and program.alone is (len(looks[0][0]) == 1)
