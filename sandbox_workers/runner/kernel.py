"""The few system calls that Python 3.11 does not wrap."""

import contextlib
import ctypes
import errno
import os
import signal
import struct
import time

_libc = ctypes.CDLL(None, use_errno=True)

PR_SET_PDEATHSIG, PR_SET_SECCOMP, PR_CAPBSET_DROP = 1, 22, 24
PR_SET_CHILD_SUBREAPER, PR_SET_NO_NEW_PRIVS = 36, 38
CLONE_NEWNS, CLONE_NEWIPC, CLONE_NEWUSER = 0x20000, 0x8000000, 0x10000000
CLONE_NEWPID, CLONE_NEWNET = 0x20000000, 0x40000000
MS_NOSUID_NODEV = 6
MS_REC_PRIVATE = 0x44000
SECCOMP_MODE_FILTER = 2
CAPABILITY_VERSION_3 = 0x20080522
CLOCK_CALLS = {
    "x86_64": (0xC000003E, (222, 228, 229, 230)),
    "aarch64": (0xC00000B7, (107, 113, 114, 115)),
}
"""Architecture for a seccomp filter and numbers of timer_create, clock_gettime, clock_getres and clock_nanosleep, by
machine."""
OWN_PROCESS_CLOCK, OWN_THREAD_CLOCK = 0xFFFFFFFA, 0xFFFFFFFE
"""Among the clocks with a negative number, those of process 0 and of thread 0, which mean the caller's own."""
_M_ARENA_MAX = -8
TICKS_PER_S = os.sysconf("SC_CLK_TCK")


def _check(result: int, what: str) -> None:
    if result:
        raise OSError(ctypes.get_errno(), what)


def prctl(option: int, value: int) -> None:
    _check(_libc.prctl(option, value, 0, 0, 0), f"prctl {option}")


def share_one_heap() -> None:
    """Makes the threads of this process share one heap. Otherwise glibc takes 128 MiB of address space for the heap of
    each thread."""
    with contextlib.suppress(AttributeError):  # another libc
        _libc.mallopt(_M_ARENA_MAX, 1)


def unshare(flags: int) -> None:
    _check(_libc.unshare(flags), "unshare")


def setns(descriptor: int, kind: int) -> None:
    _check(_libc.setns(descriptor, kind), "setns")


def mount(filesystem: str | None, target: str, flags: int, options: str | None = None) -> None:
    kind = filesystem.encode() if filesystem else None
    _check(
        _libc.mount(b"none", target.encode(), kind, flags, options.encode() if options else None),
        f"mount {target}",
    )


def set_fs_uid(uid: int) -> None:
    """Sets the owner of the pipes that this thread creates next. setfsuid reports no errors."""
    _libc.setfsuid(uid)


def drop_all_capabilities() -> None:
    for capability in range(64):
        _libc.prctl(PR_CAPBSET_DROP, capability, 0, 0, 0)  # EINVAL beyond the kernel's last capability
    clear_capabilities()


_no_capabilities = (ctypes.c_uint32 * 2)(CAPABILITY_VERSION_3, 0), (ctypes.c_uint32 * 6)()
"""The arguments of capset. They are created before the forks, because a new ctypes type costs a child a hundred page
faults."""


def clear_capabilities() -> None:
    """Drops all capabilities. The inheritable ones would outlive setuid."""
    _check(_libc.capset(*_no_capabilities), "capset")


def install_seccomp(program: bytes) -> None:
    class Filter(ctypes.Structure):
        _fields_ = [("length", ctypes.c_ushort), ("program", ctypes.c_char_p)]

    _check(
        _libc.prctl(
            PR_SET_SECCOMP, SECCOMP_MODE_FILTER, ctypes.byref(Filter(len(program) // 8, program)), 0, 0
        ),
        "seccomp",
    )


def refuse_foreign_clocks() -> None:
    """Keeps this process and its children from reading the clocks of other processes and from setting timers by them. A
    program could find out by such a clock what its test does. This filter is separate from that of the sandbox,
    because the supervisor must read these clocks."""
    if program := foreign_clocks_filter(os.uname().machine):
        prctl(PR_SET_NO_NEW_PRIVS, 1)
        install_seccomp(program)


def foreign_clocks_filter(machine: str) -> bytes:
    """Returns the filter in classic BPF, or empty bytes if the machine's system calls are not known."""
    if machine not in CLOCK_CALLS:
        return b""
    architecture, numbers = CLOCK_CALLS[machine]
    load, equal, any_bit, done = 0x20, 0x15, 0x45, 0x06
    allowed, invalid = 0x7FFF0000, 0x50000 | errno.EINVAL
    # (code, instructions to skip if true, if false, operand). Offsets: 0 number, 4 architecture, 16 first argument.
    refuse = [
        (load, 0, 0, 16),
        (any_bit, 0, 3, 1 << 31),
        (equal, 2, 0, OWN_THREAD_CLOCK),
        (equal, 1, 0, OWN_PROCESS_CLOCK),
        (done, 0, 0, invalid),
        (done, 0, 0, allowed),
    ]
    to_refuse = range(len(numbers) - 1, -1, -1)
    program = [(load, 0, 0, 4), (equal, 0, len(numbers) + len(refuse), architecture), (load, 0, 0, 0)]
    program += [(equal, skip, 0, number) for skip, number in zip(to_refuse, numbers, strict=True)]
    program[-1] = (equal, 0, len(refuse) - 1, numbers[-1])
    return b"".join(struct.pack("HBBI", *instruction) for instruction in program + refuse)


def cpu_seconds(pid: int) -> float | None:
    """Returns the CPU time of all threads of a process, seconds, or None once the process was reaped."""
    try:
        return time.clock_gettime((~pid << 3) | 2)
    except OSError:
        return None


def _stat(pid: int | str) -> list[bytes]:
    """Returns the fields of /proc/PID/stat from the third on. The second is a name that a program may choose and may
    hold any bytes.

    Raises:
        OSError: the process is gone.
    """
    with open(f"/proc/{pid}/stat", "rb") as stat:
        return stat.read().rpartition(b")")[2].split()


def family(pid: int) -> dict[int, list[bytes]]:
    """Returns `_stat` of all processes below `pid`, by pid. If `pid` is a subreaper, these include the processes that
    lost their parent."""
    stats: dict[int, list[bytes]] = {}
    children: dict[int, list[int]] = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            with contextlib.suppress(OSError, IndexError):
                stats[int(name)] = _stat(name)
                children.setdefault(int(stats[int(name)][1]), []).append(int(name))
    found = [pid]
    for parent in found:
        found += children.get(parent, ())
    return {below: stats[below] for below in found[1:]}


def has_reaped(stat: list[bytes]) -> bool:
    """Returns whether a process has waited for a child. It has if page faults of children are counted, because no
    process runs without one."""
    return stat[8] != b"0"


def reaped_cpu_seconds(stat: list[bytes]) -> float:
    """Returns the CPU time of the children that a process has waited for, seconds, including that of the children's
    own."""
    return (int(stat[13]) + int(stat[14])) / TICKS_PER_S


def anonymous_bytes(pid: int) -> int:
    """Returns the resident memory of a process that is not backed by a file, bytes; 0 if the process is gone or the
    kernel does not report it."""
    return _status_kib(pid, b"RssAnon:", b"RssShmem:") << 10


def peak_kib(pid: int) -> int:
    """Returns the largest resident memory that the process ever had, KiB."""
    return _status_kib(pid, b"VmHWM:")


def _status_kib(pid: int, *keys: bytes) -> int:
    """Returns the sum of some lines of /proc/PID/status, KiB; 0 if the process is gone."""
    try:
        with open(f"/proc/{pid}/status", "rb") as status:
            return sum(int(line.split()[1]) for line in status if line.startswith(keys))
    except OSError:
        return 0


def kill_if_alive(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


def run_delay_seconds(pid: int) -> float:
    """Returns how long a thread of the process has waited for a CPU that others had, seconds, for the thread that
    waited most; 0 if the kernel does not report it."""
    most = 0.0
    with contextlib.suppress(OSError, IndexError):
        for thread in os.listdir(f"/proc/{pid}/task"):
            with open(f"/proc/{pid}/task/{thread}/schedstat") as schedstat:
                most = max(most, int(schedstat.read().split()[1]) / 1e9)
    return most


def is_reniced(pid: int) -> bool:
    """Returns whether the process has lowered its session's share of the CPU, which every process may do."""
    try:
        with open(f"/proc/{pid}/autogroup", "rb") as autogroup:
            return not autogroup.read().endswith(b"nice 0\n")
    except OSError:
        return False


def oom_kills() -> int:
    """Returns how many processes the memory cgroup of this container has killed; 0 if that cannot be read."""
    for path in ("/sys/fs/cgroup/memory.events", "/sys/fs/cgroup/memory/memory.oom_control"):
        try:
            with open(path) as events:
                return sum(int(line.split()[1]) for line in events if line.startswith("oom_kill "))
        except (OSError, ValueError):
            continue
    return 0


def own_pid_namespace() -> int:
    return os.open("/proc/self/ns/pid", os.O_RDONLY | os.O_CLOEXEC)
