"""Make sandbox_workers/seccomp.*.bpf from seccomp.json there; with an argument, make also that file from a default
profile.

    python docker/make_seccomp.py
    python docker/make_seccomp.py /usr/share/containers/seccomp.json     # Debian: golang-github-containers-common

It needs libseccomp (Debian: libseccomp2); reading the files that it makes does not.

Allowed: what the default profile allows to a process without capabilities. Removed from it: sockets of every kind
(pairs that have no name stay), System V and POSIX queues, ptrace and its relatives, namespaces, mounts, keyrings,
io_uring, scheduling, whole-file locks, leases and notifications of what others open, and extended attributes. Then two
jobs on one kernel, or one after the other, share no object by which they could signal each other. Files in memory are
removed, too, since no process's account includes them.
"""

import ctypes
import json
import sys
import tempfile
from pathlib import Path

TAKEN_NAMES = """
    ptrace process_vm_readv process_vm_writev pidfd_getfd kcmp process_madvise keyctl add_key request_key
    shmget shmat shmctl shmdt semget semop semctl semtimedop semtimedop_time64 msgget msgsnd msgrcv msgctl
    ipc mq_open mq_unlink mq_timedsend mq_timedreceive mq_timedsend_time64 mq_timedreceive_time64
    mq_notify mq_getsetattr io_uring_setup io_uring_enter io_uring_register userfaultfd bpf
    perf_event_open socket socketcall unshare setns mount umount umount2 pivot_root chroot mknod mknodat
    personality memfd_create memfd_secret name_to_handle_at open_by_handle_at fanotify_init fanotify_mark inotify_init
    inotify_init1 clone clone3 setpriority sched_setattr sched_setscheduler sched_setparam sched_setaffinity
    ioprio_set mlock mlock2 mlockall quotactl lookup_dcookie modify_ldt
    socketpair bind connect listen accept accept4 flock fcntl fcntl64 syslog
    setxattr lsetxattr fsetxattr setxattrat removexattr lremovexattr fremovexattr removexattrat
"""
TAKEN = set(TAKEN_NAMES.split())
NEW_NAMESPACES = 0x7E020000
"""The CLONE_NEW* bits of clone(2)."""
ENOSYS, EAFNOSUPPORT = 38, 97
SOCK_STREAM, SOCK_SEQPACKET = 1, 5
OLD_FCNTL, ALL_BITS = 0xFFFFFC00, 0xFFFFFFFF
"""Masks of fcntl's command, an int: the kernel ignores the bits above these. The old commands are below 1024."""
F_DUPFD_CLOEXEC, F_SETPIPE_SZ, F_GETPIPE_SZ = 1030, 1031, 1032

PROFILE = Path(__file__).parents[1] / "sandbox_workers" / "seccomp.json"
ARCHITECTURES = ("x86_64", "aarch64")
"""Names of the architectures in libseccomp and `uname -m`."""
LIBSECCOMP = (2, 5, 4)
"""The version that the files were made with. Another version knows other system calls, and orders them differently."""
ALLOW, ERRNO = 0x7FFF0000, 0x00050000
COMPARISONS = {"SCMP_CMP_EQ": 4, "SCMP_CMP_MASKED_EQ": 7}
UNKNOWN_SYSCALL = -1
NATIVE = 0


def unconditional(source: dict) -> set[str]:
    """Returns the names that the default profile allows without capabilities or argument checks."""
    names: set[str] = set()
    for group in source["syscalls"]:
        includes = group.get("includes") or {}
        if group["action"] != "SCMP_ACT_ALLOW" or group.get("args") or includes.get("caps"):
            continue
        if includes.get("arches") and not {"amd64", "arm64"} & set(includes["arches"]):
            continue
        names |= set(group["names"])
    return names


def derive(source: dict) -> dict:
    allowed = sorted((unconditional(source) - TAKEN) | {"arch_prctl"})
    no_namespaces = {"index": 0, "value": NEW_NAMESPACES, "valueTwo": 0, "op": "SCMP_CMP_MASKED_EQ"}
    # A datagram pair can take a name without bind(), so only the kinds that cannot are allowed.
    pairs = [
        {
            "names": ["socketpair"],
            "action": "SCMP_ACT_ALLOW",
            "args": [{"index": 1, "value": 0xF, "valueTwo": kind, "op": "SCMP_CMP_MASKED_EQ"}],
        }
        for kind in (SOCK_STREAM, SOCK_SEQPACKET)
    ]
    # Not F_SETLEASE and F_NOTIFY (1024 and 1026), which reveal what others do with a file.
    commands = [
        (OLD_FCNTL, 0),
        *((ALL_BITS, command) for command in (F_DUPFD_CLOEXEC, F_SETPIPE_SZ, F_GETPIPE_SZ)),
    ]
    fcntl = [
        {
            "names": ["fcntl"],
            "action": "SCMP_ACT_ALLOW",
            "args": [{"index": 1, "value": mask, "valueTwo": command, "op": "SCMP_CMP_MASKED_EQ"}],
        }
        for mask, command in commands
    ]
    no_persona = {"index": 0, "value": 0, "valueTwo": 0, "op": "SCMP_CMP_EQ"}
    return {
        "defaultAction": "SCMP_ACT_ERRNO",
        "defaultErrnoRet": 1,
        "archMap": [
            {"architecture": "SCMP_ARCH_X86_64", "subArchitectures": []},
            {"architecture": "SCMP_ARCH_AARCH64", "subArchitectures": []},
        ],
        "syscalls": [
            {"names": allowed, "action": "SCMP_ACT_ALLOW"},
            {"names": ["clone"], "action": "SCMP_ACT_ALLOW", "args": [no_namespaces]},
            *pairs,
            *fcntl,
            {"names": ["personality"], "action": "SCMP_ACT_ALLOW", "args": [no_persona]},
            # On ENOSYS libc falls back to clone(), whose flags a filter can read.
            {"names": ["clone3"], "action": "SCMP_ACT_ERRNO", "errnoRet": ENOSYS},
            {"names": ["socket"], "action": "SCMP_ACT_ERRNO", "errnoRet": EAFNOSUPPORT},
        ],
    }


# ---------------------------------------------------------------- the profile as BPF


class _Argument(ctypes.Structure):
    _fields_ = [
        ("arg", ctypes.c_uint),
        ("op", ctypes.c_int),
        ("datum_a", ctypes.c_uint64),
        ("datum_b", ctypes.c_uint64),
    ]


class _Version(ctypes.Structure):
    _fields_ = [(name, ctypes.c_uint) for name in ("major", "minor", "micro")]


def libseccomp() -> ctypes.CDLL:
    """Loads libseccomp. Raises OSError if it is missing."""
    lib = ctypes.CDLL("libseccomp.so.2")
    lib.seccomp_init.restype = ctypes.c_void_p
    lib.seccomp_version.restype = ctypes.POINTER(_Version)
    return lib


def version(lib: ctypes.CDLL) -> tuple[int, int, int]:
    found = lib.seccomp_version().contents
    return found.major, found.minor, found.micro


def export_bpf(lib: ctypes.CDLL, profile: dict, architecture: str) -> bytes:
    """Returns the BPF program for the kernel of this architecture; system calls of any other architecture kill the
    caller."""
    token = ctypes.c_uint32(lib.seccomp_arch_resolve_name(architecture.encode()))
    context = ctypes.c_void_p(lib.seccomp_init(_action(profile["defaultAction"], profile["defaultErrnoRet"])))
    try:
        if token.value != lib.seccomp_arch_native() & 0xFFFFFFFF:
            _check(lib.seccomp_arch_add(context, token), f"add {architecture}")
            _check(lib.seccomp_arch_remove(context, NATIVE), "remove the native architecture")
        for rule in profile["syscalls"]:
            _add_rule(lib, context, rule)
        with tempfile.TemporaryFile() as file:
            _check(lib.seccomp_export_bpf(context, file.fileno()), "export")
            file.seek(0)
            return file.read()
    finally:
        lib.seccomp_release(context)


def _check(result: int, what: str) -> None:
    if result:
        raise OSError(-result, f"libseccomp cannot {what}")


def _action(name: str, errno: int = 1) -> int:
    return ALLOW if name == "SCMP_ACT_ALLOW" else ERRNO | errno


def _add_rule(lib: ctypes.CDLL, context: ctypes.c_void_p, rule: dict) -> None:
    action = ctypes.c_uint32(_action(rule["action"], rule.get("errnoRet", 1)))
    arguments = [_argument(entry) for entry in rule.get("args", ())]
    array = (_Argument * max(1, len(arguments)))(*arguments)
    for name in rule["names"]:
        number = lib.seccomp_syscall_resolve_name(name.encode())
        if number == UNKNOWN_SYSCALL:
            continue  # newer than this libseccomp: stays denied
        _check(lib.seccomp_rule_add_array(context, action, number, len(arguments), array), f"add {name}")


def _argument(entry: dict) -> _Argument:
    operation = COMPARISONS[entry["op"]]
    if entry["op"] == "SCMP_CMP_MASKED_EQ":  # Docker: value is the mask, valueTwo the datum
        return _Argument(entry["index"], operation, entry["value"], entry["valueTwo"])
    return _Argument(entry["index"], operation, entry["value"], 0)


def main(arguments: list[str]) -> None:
    if len(arguments) > 1:
        sys.exit(__doc__)
    lib = libseccomp()
    if version(lib) != LIBSECCOMP:
        sys.exit(f"LIBSECCOMP says {LIBSECCOMP}, here is {version(lib)}: change it, and read what changes")
    if arguments:
        profile = derive(json.loads(Path(arguments[0]).read_text()))
        PROFILE.write_text(json.dumps(profile, indent=1) + "\n")
    for architecture in ARCHITECTURES:
        bpf = export_bpf(lib, json.loads(PROFILE.read_text()), architecture)
        PROFILE.with_name(f"seccomp.{architecture}.bpf").write_bytes(bpf)


if __name__ == "__main__":
    main(sys.argv[1:])
