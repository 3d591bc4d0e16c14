"""The clean fork server of one role of one slot. It is trusted and has no content: a fork server that reads jobs before
it forks leaks them into its children's memory.

For each request with descriptors it forks one child and reports its exit. On "end" it gives the child a moment to end
by itself. Then it kills whatever the child's uid still runs, reaps until no descendant of any kind is left, and empties
the child's directory. If the request says that the next child goes on in this directory, the directory is kept, and a
later request without descriptors empties it.
"""

import contextlib
import gc
import io
import json
import os
import resource
import select
import signal
import socket
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from . import command, kernel, roles, streams
from .framing import send_frame

ROLES: tuple[str, ...] = ("program", "test")
UIDS_PER_SANDBOX = 64
CONTROL, RPC = 10, 11
"""Descriptors of a child, in addition to 1 and 2 for its output."""
TEST_MEMORY_MB = 512
"""Smallest address space of the test process, MiB, so that a program's small limit cannot starve it."""
STACK_BYTES = 64 << 20
OPEN_FILES = 64
RLIMIT_MSGQUEUE = 12
RECURSION_LIMIT = 3000
TMP_OPTIONS = "size=16m,nr_inodes=2048,mode=700"
GRACE_MS = 20
"""Milliseconds that a child may take to end by itself. Killing costs more than waiting."""
MOST_KILLS = 500


@dataclass(frozen=True, kw_only=True, slots=True)
class Settings:
    """Uids, isolation and directories of a slot's children."""

    slot: int
    uid_base: int
    isolation: Literal["uids", "namespaces", "none"] = "uids"
    """How program and test are separated: by a uid each; by namespaces each, if there is only one uid; or not at all."""
    seccomp: bytes = b""
    """BPF filter to install in each child; empty if the launcher has installed one."""
    jobs: str = "/jobs"
    """Directory that holds a directory per slot and role."""

    def uid(self, role: str) -> int:
        return self.uid_base + 2 * self.slot + ROLES.index(role)

    @property
    def killer_uid(self) -> int:
        """Uid that runs nothing but the helpers that kill."""
        return self.uid_base + UIDS_PER_SANDBOX - 1

    def home(self, role: str) -> str:
        return f"{self.jobs}/{self.slot}{role[0]}"


# ---------------------------------------------------------------- a child, up to its first untrusted line


def set_up(role: str, settings: Settings, request: dict) -> None:
    """Limits this process, moves it to its directory and gives up every privilege."""
    os.setsid()
    _volunteer_for_oom(role)
    _limit_resources(request["limits"])
    home = settings.home(role)
    if settings.isolation == "namespaces":
        _private_namespaces(home)
    else:
        os.chdir(home)
        if settings.isolation == "uids":
            _become(settings.uid(role))
            kernel.clear_capabilities()
    kernel.prctl(kernel.PR_SET_NO_NEW_PRIVS, 1)
    kernel.prctl(kernel.PR_SET_PDEATHSIG, signal.SIGKILL)  # after setuid, which clears it
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    if settings.seccomp:
        kernel.install_seccomp(settings.seccomp)
    gc.enable()


def child(role: str, settings: Settings, request: dict, descriptors: list[int]) -> None:
    """Sets the process up, then runs the role, or the command if the request holds one."""
    _place_descriptors(descriptors)
    control = socket.socket(fileno=CONTROL)
    try:
        set_up(role, settings, request)
    except BaseException as error:
        send_frame(control, {"set_up": f"{type(error).__name__}: {error}"[:300]})
        os._exit(1)
    sys.set_int_max_str_digits(0)  # the limit of CPU time is enough
    if "command" in request:
        command.run(control, request["command"], request["environment"])
    elif role == "program":
        roles.run_program(control, socket.socket(fileno=RPC) if len(descriptors) > 3 else None)
    else:
        roles.evaluate(control)


def _place_descriptors(descriptors: list[int]) -> None:
    """Gives the descriptors their numbers: [control, stdout, stderr] and, for a program with a test process, [rpc]."""
    for position, descriptor in enumerate(descriptors):  # first to free numbers: one may have
        os.dup2(descriptor, 100 + position)  # the final number of another
    os.dup2(os.open("/dev/null", os.O_RDONLY), 0)
    os.dup2(101, 1)
    os.dup2(102, 2)
    os.dup2(100, CONTROL, inheritable=False)
    last = CONTROL
    if len(descriptors) > 3:
        os.dup2(103, RPC, inheritable=False)
        last = RPC
    os.closerange(3, CONTROL)
    os.closerange(last + 1, 4096)


def _volunteer_for_oom(role: str) -> None:
    """Makes the kernel choose a job rather than the supervisor if memory runs out, and a program rather than its test."""
    file = os.open("/proc/self/oom_score_adj", os.O_WRONLY)
    os.write(file, b"1000" if role == "program" else b"500")
    os.close(file)


def _limit_resources(limits: dict) -> None:
    wanted = {
        resource.RLIMIT_AS: limits["memory_mb"] << 20,
        resource.RLIMIT_FSIZE: limits["file_mb"] << 20,
        resource.RLIMIT_NPROC: limits["processes"],
        resource.RLIMIT_NOFILE: OPEN_FILES,
        resource.RLIMIT_STACK: STACK_BYTES,
        resource.RLIMIT_CORE: 0,
        resource.RLIMIT_MEMLOCK: 0,
    }
    for which, value in wanted.items():
        try:
            resource.setrlimit(which, (value, value))
        except ValueError:  # above this process's own limit
            value = resource.getrlimit(which)[1]
            resource.setrlimit(which, (value, value))
    with contextlib.suppress(ValueError):  # gVisor refuses, and has no message queues
        resource.setrlimit(RLIMIT_MSGQUEUE, (0, 0))


def _become(uid: int) -> None:
    os.setgroups([])
    os.setresgid(uid, uid, uid)
    os.setresuid(uid, uid, uid)


def _private_namespaces(home: str) -> None:
    """Isolates the process if there is no second uid: it gets its own user, mount, network and IPC namespaces, no
    /proc, and no capabilities."""
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


# ---------------------------------------------------------------- the fork server


def _import_random() -> None:
    """Imports `random` without its hook that seeds it after each fork, so that every program draws the same numbers."""
    register, os.register_at_fork = os.register_at_fork, lambda **hooks: None
    import random

    os.register_at_fork = register
    random.seed(0)


def prepare_interpreter(home: str) -> None:
    """Does once, before the first fork, what every child would do alike."""
    _import_random()
    os.umask(0o077)
    packages = os.environ.get("PACKAGES", "")
    os.environ.clear()
    os.environ.update(PATH="/usr/local/bin:/usr/bin:/bin", HOME=home, TMPDIR=home, LANG="C.UTF-8")
    if packages:  # numpy's threads would take the memory of a job
        os.environ.update(PYTHONPATH=packages, OMP_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1")
    sys.setrecursionlimit(RECURSION_LIMIT)
    sys.path[:] = [home, *(path for path in sys.path if path.startswith(sys.base_prefix))]
    sys.path += filter(None, [packages])
    sys.stdin = io.TextIOWrapper(io.BufferedReader(io.FileIO(0, "r", closefd=False)), encoding="utf-8")
    sys.stdout, sys.stderr = (
        io.TextIOWrapper(
            io.BufferedWriter(io.FileIO(descriptor, "w", closefd=False)), encoding="utf-8", errors="replace"
        )
        for descriptor in (1, 2)
    )


class Zygote:
    """Serves one role of one slot. `supervisor` is its only connection to other processes."""

    def __init__(self, role: str, settings: Settings, supervisor: socket.socket) -> None:
        self.role = role
        self.settings = settings
        self.home = settings.home(role)
        self.supervisor = supervisor
        self.child_ended, wakeup = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(wakeup)
        self.private = settings.isolation == "namespaces"
        self.pid_namespace = kernel.own_pid_namespace() if self.private else -1
        self.reaps_orphans = True
        try:
            kernel.prctl(kernel.PR_SET_CHILD_SUBREAPER, 1)  # orphans come back to this process
        except OSError:
            self.reaps_orphans = False  # gVisor: they go to the supervisor
        prepare_interpreter(self.home)
        kernel.share_one_heap()
        kernel.refuse_foreign_clocks()
        gc.collect()
        gc.freeze()
        gc.disable()

    def serve(self) -> None:
        """Serves requests until the supervisor closes its end."""
        while True:
            message, descriptors, _, _ = socket.recv_fds(self.supervisor, 65536, 8)
            if not message:
                os._exit(0)
            request = json.loads(message)
            if descriptors:
                self._serve_child(request, descriptors)
            else:
                self._tell({"clean": self._wipe()})

    def _serve_child(self, request: dict, descriptors: list[int]) -> None:
        cpu_before = _children_cpu()
        self._alone = True
        pid = self._fork(request, descriptors)
        for descriptor in descriptors:
            os.close(descriptor)
        self._tell({"pid": pid, "parent": os.getpid()})
        end, order = self._watch(pid)
        if end is not None:
            self._tell({"exit": end, "alone": self._alone})
            order = self.supervisor.recv(16)
        elif order == b"end":
            end, _ = self._watch(pid, GRACE_MS)
        end = self._clear(pid, end)
        cpu_s = _children_cpu() - cpu_before
        clean = request.get("keep", False) or self._wipe()
        self._tell({"done": end, "clean": clean, "cpu_s": cpu_s})

    def _tell(self, message: Any) -> None:
        self.supervisor.send(json.dumps(message).encode())

    def _fork(self, request: dict, descriptors: list[int]) -> int:
        if self.private:
            kernel.setns(self.pid_namespace, kernel.CLONE_NEWPID)
            kernel.unshare(kernel.CLONE_NEWPID)
        pid = os.fork()
        if pid:
            return pid
        try:
            child(self.role, self.settings, request, descriptors)
        except BaseException as error:
            os.write(2, f"\n{type(error).__name__}: {error}\n"[:300].encode())
            os._exit(1)
        streams.flush()
        os._exit(0)

    def _watch(self, pid: int, timeout_ms: int | None = None) -> tuple[list | None, bytes]:
        """Waits for the child. Returns (how the child ended, b"") or, if an order of the supervisor comes first, (None,
        the order). With a time limit it reads no orders, and returns (None, b"") when the time is up."""
        poll = select.poll()
        poll.register(self.child_ended, select.POLLIN)
        if timeout_ms is None:
            poll.register(self.supervisor, select.POLLIN)
        while True:
            if (ended := os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)) is not None:
                if ended.si_status == signal.SIGKILL and ended.si_code == os.CLD_KILLED:
                    self._alone = self._is_alone(pid)
                _, status, usage = os.wait4(pid, 0)
                return _end(status, usage), b""
            ready = poll.poll(timeout_ms)
            if not ready:
                return None, b""
            for descriptor, _ in ready:
                if descriptor == self.child_ended:
                    os.read(self.child_ended, 4096)
                else:
                    return None, self.supervisor.recv(16)

    def _is_alone(self, pid: int) -> bool:
        """Returns whether a child that was killed never had a child process. The kernel may have killed it for lack of
        memory."""
        family = kernel.family(os.getpid())
        return list(family) == [pid] and not kernel.has_reaped(family[pid])

    def _clear(self, pid: int, end: list | None) -> list:
        """Kills and reaps until ECHILD: no child left means that no descendant of any kind is left. Returns how the
        child ended."""
        if not self.reaps_orphans:
            self._kill(pid)
        kills = 0
        while True:
            try:
                reaped, status, usage = os.wait4(-1, os.WNOHANG)
            except ChildProcessError:
                assert end is not None
                return end
            if reaped == pid:
                end = _end(status, usage)
            elif reaped == 0:
                kills += 1
                if kills > MOST_KILLS:
                    raise RuntimeError(f"something of a job survives {MOST_KILLS} kills")
                self._kill(pid)
                self._wait_for_exit(GRACE_MS)

    def _wait_for_exit(self, timeout_ms: int) -> None:
        poll = select.poll()
        poll.register(self.child_ended, select.POLLIN)
        if poll.poll(timeout_ms):
            os.read(self.child_ended, 4096)

    def _kill(self, pid: int) -> None:
        if self.private:
            kernel.setns(self.pid_namespace, kernel.CLONE_NEWPID)
            os.kill(pid, signal.SIGKILL)  # all processes in its pid namespace die with it
        elif self.settings.isolation == "uids":
            # kill(-1) with the job's own rights is atomic against fork bombs, and needs no CAP_KILL.
            os.waitpid(self._fork_helper(self._kill_all), 0)
        else:
            for below in kernel.family(os.getpid()):
                kernel.kill_if_alive(below)

    def _kill_all(self) -> None:
        """Kills whatever the job's uid runs, until nothing is left or only zombies are. The helper has this uid only as
        its effective uid: a job may signal a process whose real or saved uid it has, and could stop the helper."""
        os.setgroups([])
        os.setresuid(self.settings.killer_uid, self.settings.uid(self.role), self.settings.killer_uid)
        for _ in range(20):
            try:
                os.kill(-1, signal.SIGKILL)
            except ProcessLookupError:
                return
            time.sleep(0.0005)

    def _fork_helper(self, act: Callable[[], Any]) -> int:
        pid = os.fork()
        if pid:
            return pid
        try:
            act()
        finally:
            os._exit(0)

    def _wipe(self) -> bool:
        """Empties the directory as the job: root can list root:job 0770 without CAP_DAC_OVERRIDE, and the job cannot
        chmod it. Returns True if nothing is left."""
        if self.private or not os.listdir(self.home):
            return True

        def remove() -> None:
            if self.settings.isolation == "uids":
                _become(self.settings.uid(self.role))
            os.chdir(self.home)
            script = "chmod -R u+rwx . 2>/dev/null; find . -mindepth 1 -delete 2>/dev/null"
            os.execvp("sh", ["sh", "-c", script])

        os.waitpid(self._fork_helper(remove), 0)
        return not os.listdir(self.home)


def _children_cpu() -> float:
    """Returns the CPU seconds of all processes that were ever reaped, including orphans."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def _end(status: int, usage: resource.struct_rusage) -> list:
    """Returns [exit code, CPU seconds, peak resident KiB]."""
    return [os.waitstatus_to_exitcode(status), round(usage.ru_utime + usage.ru_stime, 4), usage.ru_maxrss]
