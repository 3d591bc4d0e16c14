"""The few system calls that Python 3.11 does not wrap."""

import contextlib
import ctypes
import os
import signal
import time

_libc = ctypes.CDLL(None, use_errno=True)

(
    PR_SET_PDEATHSIG,
    PR_SET_NAME,
    PR_CAPBSET_DROP,
    PR_SET_SECCOMP,
    PR_SET_CHILD_SUBREAPER,
    PR_SET_NO_NEW_PRIVS,
) = (
    1,
    15,
    24,
    22,
    36,
    38,
)
CLONE_NEWNS, CLONE_NEWIPC, CLONE_NEWUSER, CLONE_NEWPID, CLONE_NEWNET = (
    0x20000,
    0x8000000,
    0x10000000,
    0x20000000,
    0x40000000,
)
MS_NOSUID_NODEV = 6
MS_REC_PRIVATE = 0x44000
SECCOMP_MODE_FILTER = 2
CAPABILITY_VERSION_3 = 0x20080522


def _check(result: int, what: str) -> None:
    if result:
        raise OSError(ctypes.get_errno(), what)


def prctl(option: int, value: int) -> None:
    _check(_libc.prctl(option, value, 0, 0, 0), f"prctl {option}")


def set_name(name: bytes) -> None:
    """Of this thread, as /proc/PID/comm shows it to everybody."""
    _libc.prctl(PR_SET_NAME, name, 0, 0, 0)


def name_of(pid: int) -> bytes:
    """What the process calls itself; empty once it is gone."""
    try:
        with open(f"/proc/{pid}/comm", "rb") as comm:
            return comm.read().rstrip(b"\n")
    except OSError:
        return b""


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
    """Owner of the pipes this thread creates next; setfsuid reports no errors."""
    _libc.setfsuid(uid)


def drop_all_capabilities() -> None:
    for capability in range(64):
        _libc.prctl(PR_CAPBSET_DROP, capability, 0, 0, 0)  # EINVAL beyond the kernel's last capability
    clear_capabilities()


_no_capabilities = (ctypes.c_uint32 * 2)(CAPABILITY_VERSION_3, 0), (ctypes.c_uint32 * 6)()
"""Made before the forks: a new ctypes type costs a child a hundred page faults."""


def clear_capabilities() -> None:
    """The inheritable ones outlive setuid."""
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


def cpu_seconds(pid: int) -> float | None:
    """CPU time of all threads of a live process; None once it was reaped."""
    try:
        return time.clock_gettime((~pid << 3) | 2)
    except OSError:
        return None


def _stat(pid: int | str) -> list[bytes]:
    """Fields of /proc/PID/stat from the third on. The second is a name that a program may choose: any bytes.

    Raises:
        OSError: the process is gone.
    """
    with open(f"/proc/{pid}/stat", "rb") as stat:
        return stat.read().rpartition(b")")[2].split()


def descendants(pid: int) -> list[int]:
    """Live processes below `pid`, those excepted that lost their parent."""
    children: dict[int, list[int]] = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            with contextlib.suppress(OSError, IndexError):
                children.setdefault(int(_stat(name)[1]), []).append(int(name))
    found = [pid]
    for parent in found:
        found += children.get(parent, ())
    return found[1:]


def kill_if_alive(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


def run_delay_seconds(pid: int) -> float:
    """How long the process's first thread has waited for a CPU that others had; 0 where the kernel does not
    tell."""
    try:
        with open(f"/proc/{pid}/schedstat") as schedstat:
            return int(schedstat.read().split()[1]) / 1e9
    except (OSError, IndexError):
        return 0.0


def oom_kills() -> int:
    """How often this container's memory cgroup killed; 0 where none can be read."""
    for path in ("/sys/fs/cgroup/memory.events", "/sys/fs/cgroup/memory/memory.oom_control"):
        try:
            with open(path) as events:
                return sum(int(line.split()[1]) for line in events if line.startswith("oom_kill "))
        except (OSError, ValueError):
            continue
    return 0


def own_pid_namespace() -> int:
    return os.open("/proc/self/ns/pid", os.O_RDONLY | os.O_CLOEXEC)
