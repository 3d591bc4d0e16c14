"""Derive docker/seccomp.json from the container world's default profile.

    python docker/make_seccomp.py /usr/share/containers/seccomp.json     # Debian:
    golang-github-containers-common

Kept: what the default allows to a process without capabilities. Taken away: sockets of every kind (pairs that
have no name stay), System V and POSIX queues, ptrace and its relatives, namespaces, mounts, keyrings, io_uring,
scheduling, whole-file locks, extended attributes: two jobs on one kernel, or one after the other, then share no
object that they could signal each other with.
"""

import json
import sys
from pathlib import Path

TAKEN_NAMES = """
    ptrace process_vm_readv process_vm_writev pidfd_getfd kcmp process_madvise keyctl add_key request_key
    shmget shmat shmctl shmdt semget semop semctl semtimedop semtimedop_time64 msgget msgsnd msgrcv msgctl
    ipc mq_open mq_unlink mq_timedsend mq_timedreceive mq_timedsend_time64 mq_timedreceive_time64
    mq_notify mq_getsetattr io_uring_setup io_uring_enter io_uring_register userfaultfd bpf
    perf_event_open socket socketcall unshare setns mount umount umount2 pivot_root chroot mknod mknodat
    personality memfd_secret name_to_handle_at open_by_handle_at fanotify_init fanotify_mark inotify_init
    inotify_init1 clone clone3 setpriority sched_setattr sched_setscheduler sched_setparam sched_setaffinity
    ioprio_set mlock mlock2 mlockall quotactl lookup_dcookie modify_ldt
    socketpair bind connect listen accept accept4 flock syslog
    setxattr lsetxattr fsetxattr setxattrat removexattr lremovexattr fremovexattr removexattrat
"""
TAKEN = set(TAKEN_NAMES.split())
NEW_NAMESPACES = 0x7E020000
"""CLONE_NEW* bits of clone(2)."""
ENOSYS, EAFNOSUPPORT = 38, 97
SOCK_STREAM, SOCK_SEQPACKET = 1, 5


def unconditional(source: dict) -> set[str]:
    """Names the default profile allows without capabilities or argument checks."""
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
    # A datagram pair can take a name without bind(): only the kinds that cannot.
    pairs = [
        {
            "names": ["socketpair"],
            "action": "SCMP_ACT_ALLOW",
            "args": [{"index": 1, "value": 0xF, "valueTwo": kind, "op": "SCMP_CMP_MASKED_EQ"}],
        }
        for kind in (SOCK_STREAM, SOCK_SEQPACKET)
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
            {"names": ["personality"], "action": "SCMP_ACT_ALLOW", "args": [no_persona]},
            # libc falls back to clone() on ENOSYS, whose flags a filter can read.
            {"names": ["clone3"], "action": "SCMP_ACT_ERRNO", "errnoRet": ENOSYS},
            {"names": ["socket"], "action": "SCMP_ACT_ERRNO", "errnoRet": EAFNOSUPPORT},
        ],
    }


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    profile = derive(json.loads(Path(sys.argv[1]).read_text()))
    Path(__file__).with_name("seccomp.json").write_text(json.dumps(profile, indent=1) + "\n")
