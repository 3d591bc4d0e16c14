"""The same runner without a Docker Engine: Linux namespaces by bubblewrap.

Same separation of program and test, same seccomp filter, no network, read-only root. Not covered without an
engine: a memory cap over the sandbox as a whole (each process has its address-space limit), and the kernel is
shared as always.

    root                     two uids per slot
    user with subuids        the same, inside a user namespace (needs newuidmap)
    any other user           one uid; program and test each get namespaces of their own instead
"""

import os
import shutil
import subprocess
import sys
from enum import StrEnum
from pathlib import Path

from sandbox_workers.jobs import SandboxUnavailable
from sandbox_workers.languages import all_commands, mounts
from sandbox_workers.piped import PipedBackend
from sandbox_workers.seccomp import export_bpf

RUNNER = Path(__file__).parent / "runner"
SECCOMP = Path(__file__).parent.parent / "docker" / "seccomp.json"
ENTRY = "import sys; sys.path.insert(0, '/opt/sparring'); from runner.supervisor import main; main()"
DIRECTORY_BYTES = 16 << 20
MAPPED_UIDS = 60_000
"""Uids that a usual subuid range (65536) maps, with room for a slot's."""


class Privilege(StrEnum):
    ROOT = "root"
    SUBUIDS = "user with subuids"
    ONE_UID = "user with one uid"


def privilege() -> Privilege:
    """What this process may do about uids."""
    if os.geteuid() == 0:
        return Privilege.ROOT
    mapped = ["unshare", "--map-root-user", "--map-auto", "true"]
    if shutil.which("unshare") and subprocess.run(mapped, capture_output=True, timeout=10).returncode == 0:
        return Privilege.SUBUIDS
    return Privilege.ONE_UID


def require_bubblewrap() -> str:
    """Path of bwrap. Raise SandboxUnavailable where it is missing."""
    path = shutil.which("bwrap")
    if path is None:
        raise SandboxUnavailable(
            "bwrap is not on PATH: install bubblewrap (apt-get install bubblewrap) or Docker"
        )
    return path


def interpreter() -> tuple[str, str | None]:
    """A Python of at least 3.11 for the sandbox, and the prefix to bind for it where that is not under
    /usr."""
    for candidate in ("/usr/bin/python3", "/usr/local/bin/python3"):
        check = [candidate, "-I", "-c", "import sys, ctypes, resource; sys.exit(sys.version_info < (3, 11))"]
        if (
            os.path.exists(candidate)
            and subprocess.run(check, capture_output=True, timeout=10).returncode == 0
        ):
            return candidate, None
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    return f"{sys.base_prefix}/bin/{version}", sys.base_prefix


class NamespaceBackend(PipedBackend):
    """One bubblewrap sandbox of `slots` slots.

    Args:
        uid_base: first of 2 * slots uids; RLIMIT_NPROC counts per uid across sandboxes, so ranges must not
        overlap. mode: what to do about uids; found out where None.
    """

    def __init__(self, *, slots: int = 2, uid_base: int = 200_000, mode: Privilege | None = None) -> None:
        super().__init__(slots)
        self._uid_base = uid_base
        self._mode = mode

    def start(self) -> None:
        bubblewrap = require_bubblewrap()
        mode = self._mode or privilege()
        bpf = os.memfd_create("seccomp")
        try:
            os.write(bpf, export_bpf(SECCOMP))
            os.lseek(bpf, 0, os.SEEK_SET)
            # No --die-with-parent: it means the *thread* that started it. The runner ends with its stdin
            # instead.
            self._launch(self._command(bubblewrap, mode, bpf), f"bubblewrap as {mode}", keep=(bpf,))
        finally:
            os.close(bpf)

    def _command(self, bubblewrap: str, mode: Privilege, bpf: int) -> list[str]:
        python, prefix = interpreter()
        base = self._uid_base if mode is Privilege.ROOT else 1000 + self._uid_base % MAPPED_UIDS
        environment = {
            "PATH": "/usr/bin:/bin",
            "LANG": "C.UTF-8",
            "PYTHONHASHSEED": "0",
            "SLOTS": str(self.slots),
            "COMMANDS": " ".join(all_commands()),
        }
        command = [bubblewrap, "--unshare-pid", "--unshare-net", "--unshare-ipc", "--unshare-uts"]
        command += ["--unshare-cgroup-try", "--new-session"]
        if mode is Privilege.ONE_UID:
            command += ["--unshare-user", "--uid", "0", "--gid", "0", "--cap-add", "ALL"]
            environment |= {"ISOLATION": "namespaces", "SECCOMP_BPF": "/opt/sparring/job.bpf"}
        else:
            command += ["--cap-drop", "ALL"]
            for capability in ("CAP_SETUID", "CAP_SETGID", "CAP_CHOWN"):
                command += ["--cap-add", capability]
            environment |= {"CHOWN_JOBS": "1"}
        environment["UID_BASE"] = str(base)
        command += self._root(prefix) + self._directories(mode)
        for host, inside in mounts():
            command += ["--perms", "0755", "--dir", os.path.dirname(inside), "--ro-bind", host, inside]
        if mode is Privilege.ONE_UID:
            # The runner itself must still make namespaces: each child installs the filter on its own.
            command += ["--ro-bind-data", str(bpf), "/opt/sparring/job.bpf"]
        else:
            command += ["--seccomp", str(bpf)]
        command += [
            "--remount-ro",
            "/jobs",
            "--remount-ro",
            "/dev",
            "--remount-ro",
            "/",
            "--clearenv",
            "--chdir",
            "/",
        ]
        for name, value in environment.items():
            command += ["--setenv", name, value]
        # Not -I: it would ignore PYTHONHASHSEED, and programs' sets would differ in order from sandbox to
        # sandbox.
        command += [python, "-s", "-P", "-B", "-c", ENTRY]
        if mode is Privilege.SUBUIDS:
            command = ["unshare", "--map-root-user", "--map-auto", "--", *command]
        return command

    def _root(self, prefix: str | None) -> list[str]:
        """A root file system of the host's /usr, read-only, and nothing of /etc, /home or /var."""
        arguments = ["--ro-bind", "/usr", "/usr"]
        for name in ("/bin", "/sbin", "/lib", "/lib64"):
            if os.path.islink(name):
                arguments += ["--symlink", os.readlink(name), name]
            elif os.path.isdir(name):
                arguments += ["--ro-bind", name, name]
        arguments += [
            "--ro-bind-try",
            "/etc/ld.so.cache",
            "/etc/ld.so.cache",
            "--proc",
            "/proc",
            "--dev",
            "/dev",
        ]
        if prefix is not None:
            arguments += ["--ro-bind", prefix, prefix]
        return [
            *arguments,
            "--perms",
            "0755",
            "--dir",
            "/opt/sparring",
            "--ro-bind",
            str(RUNNER),
            "/opt/sparring/runner",
        ]

    def _directories(self, mode: Privilege) -> list[str]:
        arguments = ["--perms", "0755", "--tmpfs", "/jobs"]
        for slot in range(self.slots):
            for role in "pt":
                if mode is Privilege.ONE_UID:  # each child mounts its own
                    arguments += ["--dir", f"/jobs/{slot}{role}"]
                else:
                    arguments += [
                        "--size",
                        str(DIRECTORY_BYTES),
                        "--perms",
                        "0770",
                        "--tmpfs",
                        f"/jobs/{slot}{role}",
                    ]
        return arguments
