"""The clean fork server of one slot. Trusted, and free of content: a fork server that reads jobs before it
forks leaks them into its children's memory.

For each request it forks a pair, reports exits, and on "end" kills whatever either uid still runs, reaps
until no descendant of any kind is left, and wipes the pair's directories.
"""

import gc
import json
import os
import random
import resource
import select
import signal
import socket
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from . import kernel, roles
from .peer import flush_output

ROLES: tuple[str, ...] = ("program", "test")
CONTROL, RPC, OUTPUT = 10, 11, 12
"""Descriptors of a child."""
TEST_MEMORY_MB = 512
"""Address space of the test process, MiB: a program must not be able to starve it by a small limit."""
STACK_BYTES = 64 << 20
OPEN_FILES = 64
RECURSION_LIMIT = 3000
TMP_OPTIONS = "size=16m,nr_inodes=2048,mode=700"


@dataclass(frozen=True, kw_only=True, slots=True)
class Settings:
    """Where a slot's children live."""

    slot: int
    uid_base: int
    single_uid: bool = False
    """True where one uid is all there is: each child then gets namespaces of its own instead."""
    seccomp: bytes = b""
    """BPF to install in each child; empty where the launcher has filtered already."""

    def uid(self, role: str) -> int:
        return self.uid_base + 2 * self.slot + ROLES.index(role)

    def home(self, role: str) -> str:
        return f"/jobs/{self.slot}{role[0]}"


# ---------------------------------------------------------------- a child, up to its first untrusted line


def child(role: str, settings: Settings, limits: dict, descriptors: list[int]) -> None:
    """Give up every privilege, then run the role."""
    os.setsid()
    _place_descriptors(descriptors)
    with open("/proc/self/oom_score_adj", "w") as file:
        file.write("1000")  # the kernel shall pick a job, not the supervisor
    _limit_resources(role, limits)
    uid, home = settings.uid(role), settings.home(role)
    if settings.single_uid:
        _private_namespaces(home)
    else:
        os.chdir(home)
        _become(uid)
    kernel.prctl(kernel.PR_SET_NO_NEW_PRIVS, 1)
    kernel.prctl(kernel.PR_SET_PDEATHSIG, signal.SIGKILL)  # after setuid, which clears it
    _clean_interpreter(home)
    if settings.seccomp:
        kernel.install_seccomp(settings.seccomp)
    run = roles.run_program if role == "program" else roles.run_tests
    run(socket.socket(fileno=CONTROL), socket.socket(fileno=RPC))


def _place_descriptors(descriptors: list[int]) -> None:
    for position, descriptor in enumerate(
        descriptors
    ):  # out of the way first: they may sit on one another's places
        os.dup2(descriptor, 100 + position)
    for position in range(3):
        os.dup2(100 + position, CONTROL + position, inheritable=False)
    os.dup2(os.open("/dev/null", os.O_RDONLY), 0)
    os.dup2(OUTPUT, 1)
    os.dup2(OUTPUT, 2)
    os.closerange(3, CONTROL)
    os.closerange(OUTPUT, 4096)


def _limit_resources(role: str, limits: dict) -> None:
    memory_mb = limits["memory_mb"] if role == "program" else max(TEST_MEMORY_MB, limits["memory_mb"])
    wanted = {
        resource.RLIMIT_CPU: limits["total_cpu_s"],
        resource.RLIMIT_AS: memory_mb << 20,
        resource.RLIMIT_FSIZE: limits["file_mb"] << 20,
        resource.RLIMIT_NPROC: limits["processes"],
        resource.RLIMIT_NOFILE: OPEN_FILES,
        resource.RLIMIT_STACK: STACK_BYTES,
        resource.RLIMIT_CORE: 0,
        resource.RLIMIT_MEMLOCK: 0,
        resource.RLIMIT_MSGQUEUE: 0,
    }
    for which, value in wanted.items():
        hard = resource.getrlimit(which)[1]
        value = value if hard == resource.RLIM_INFINITY else min(value, hard)
        resource.setrlimit(which, (value, value))


def _become(uid: int) -> None:
    os.setgroups([])
    os.setresgid(uid, uid, uid)
    os.setresuid(uid, uid, uid)


def _private_namespaces(home: str) -> None:
    """Where no second uid is to be had: own user, mount, network and IPC namespaces, no /proc, no
    capabilities."""
    uid, gid = os.getuid(), os.getgid()
    kernel.unshare(kernel.CLONE_NEWUSER | kernel.CLONE_NEWNS | kernel.CLONE_NEWNET | kernel.CLONE_NEWIPC)
    kernel.mount(None, "/", kernel.MS_REC_PRIVATE)
    for name, text in (("setgroups", "deny"), ("gid_map", f"1000 {gid} 1"), ("uid_map", f"1000 {uid} 1")):
        with open(f"/proc/self/{name}", "w") as file:
            file.write(text)
    kernel.mount("tmpfs", home, kernel.MS_NOSUID_NODEV, TMP_OPTIONS)
    kernel.mount("tmpfs", "/proc", kernel.MS_NOSUID_NODEV, "size=4k,mode=555")
    os.chdir(home)
    kernel.drop_all_capabilities()


def _clean_interpreter(home: str) -> None:
    os.umask(0o077)
    os.environ.clear()
    os.environ.update(PATH="/usr/local/bin:/usr/bin:/bin", HOME=home, TMPDIR=home, LANG="C.UTF-8")
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    sys.setrecursionlimit(RECURSION_LIMIT)
    random.seed(0)
    sys.stdin = open(0)
    sys.stdout = open(1, "w", encoding="utf-8", errors="replace")
    sys.stderr = open(2, "w", encoding="utf-8", errors="replace")
    sys.path[:] = [home, *(path for path in sys.path if path.startswith(sys.base_prefix))]
    gc.enable()


# ---------------------------------------------------------------- the fork server


class Zygote:
    """Serves one slot. `supervisor` is its only tie to the rest."""

    def __init__(self, settings: Settings, supervisor: socket.socket) -> None:
        self.settings = settings
        self.supervisor = supervisor
        self.child_ended, wakeup = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(wakeup)
        self.pid_namespace = kernel.own_pid_namespace() if settings.single_uid else -1
        kernel.prctl(kernel.PR_SET_CHILD_SUBREAPER, 1)  # orphans of orphans come back to us
        gc.collect()
        gc.freeze()
        gc.disable()

    def serve(self) -> None:
        """Until the supervisor closes its end."""
        while True:
            message, descriptors, _, _ = socket.recv_fds(self.supervisor, 65536, 8)
            if not message:
                os._exit(0)
            self._serve_pair(json.loads(message), descriptors)

    def _serve_pair(self, limits: dict, descriptors: list[int]) -> None:
        cpu_before = _children_cpu()
        pids = {
            self._fork(role, limits, descriptors[3 * i : 3 * i + 3]): role for i, role in enumerate(ROLES)
        }
        for descriptor in descriptors:
            os.close(descriptor)
        self._tell({"pids": {role: pid for pid, role in pids.items()}})
        ends: dict[str, list] = {}
        ended = self._watch(pids, ends)
        self._kill(pids, ends)
        clean = self.settings.single_uid or all(self._wipe(role) for role in ROLES)
        if not ended:
            self.supervisor.recv(16)
        self._tell({"done": ends, "clean": clean, "cpu_s": _children_cpu() - cpu_before})

    def _tell(self, message: Any) -> None:
        self.supervisor.send(json.dumps(message).encode())

    def _fork(self, role: str, limits: dict, descriptors: list[int]) -> int:
        if self.settings.single_uid:
            kernel.setns(self.pid_namespace, kernel.CLONE_NEWPID)
            kernel.unshare(kernel.CLONE_NEWPID)
        pid = os.fork()
        if pid:
            return pid
        try:
            child(role, self.settings, limits, descriptors)
        except BaseException as error:
            os.write(2, f"\n{type(error).__name__}: {error}\n"[:300].encode())
            os._exit(1)
        flush_output()
        os._exit(0)

    def _watch(self, pids: dict[int, str], ends: dict[str, list]) -> bool:
        """Report exits until both children ended or the supervisor says "end"; whether it said so."""
        poll = select.poll()
        poll.register(self.supervisor, select.POLLIN)
        poll.register(self.child_ended, select.POLLIN)
        while len(ends) < len(pids):
            for descriptor, _ in poll.poll():
                if descriptor == self.supervisor.fileno():
                    self.supervisor.recv(16)
                    return True
                os.read(self.child_ended, 4096)
            for pid, role in pids.items():
                if role in ends:
                    continue
                reaped, status, usage = os.wait4(pid, os.WNOHANG)
                if reaped:
                    ends[role] = _end(status, usage)
                    self._tell({"exit": role, "end": ends[role]})
        return False

    def _kill(self, pids: dict[int, str], ends: dict[str, list]) -> None:
        """Kill and reap until ECHILD: no child left means no descendant of any kind left."""
        if self.settings.single_uid:
            kernel.setns(self.pid_namespace, kernel.CLONE_NEWPID)
            for pid, role in pids.items():
                if role not in ends:
                    os.kill(pid, signal.SIGKILL)  # init of its pid namespace: all within dies with it
                    _, status, usage = os.wait4(pid, 0)
                    ends[role] = _end(status, usage)
            return
        self._kill_uids()
        while True:
            try:
                pid, status, usage = os.wait4(-1, os.WNOHANG)
                if pid == 0:
                    self._kill_uids()
                    pid, status, usage = os.wait4(-1, 0)
            except ChildProcessError:
                return
            if pid in pids:
                ends[pids[pid]] = _end(status, usage)

    def _kill_uids(self) -> None:
        """kill(-1) with the job's own rights is atomic against fork bombs, and needs no CAP_KILL."""
        helpers = [self._as_job(role, lambda: os.kill(-1, signal.SIGKILL)) for role in ROLES]
        for helper in helpers:
            os.waitpid(helper, 0)

    def _as_job(self, role: str, act: Callable[[], Any]) -> int:
        pid = os.fork()
        if pid:
            return pid
        try:
            _become(self.settings.uid(role))
            act()
        finally:
            os._exit(0)

    def _wipe(self, role: str) -> bool:
        """Empty the role's directory, as the job: root lists root:job 0770 without CAP_DAC_OVERRIDE, and the
        job cannot chmod it. True when nothing is left."""
        home = self.settings.home(role)
        if not os.listdir(home):
            return True

        def remove() -> None:
            os.chdir(home)
            os.execvp(
                "sh", ["sh", "-c", "chmod -R u+rwx . 2>/dev/null; find . -mindepth 1 -delete 2>/dev/null"]
            )

        os.waitpid(self._as_job(role, remove), 0)
        return not os.listdir(home)


def _children_cpu() -> float:
    """CPU seconds of all that was ever reaped, strays included."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def _end(status: int, usage: resource.struct_rusage) -> list:
    """[exit code, CPU seconds, peak resident KiB]"""
    return [os.waitstatus_to_exitcode(status), round(usage.ru_utime + usage.ru_stime, 4), usage.ru_maxrss]
