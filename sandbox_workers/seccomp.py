"""The files of the seccomp filter: docker/seccomp.json, and what docker/make_seccomp.py made from it for this kind of
processor."""

import platform
from pathlib import Path

from sandbox_workers.jobs import SandboxUnavailable

DOCKER = Path(__file__).parent.parent / "docker"
PROFILE = DOCKER / "seccomp.json"


def bpf_path() -> Path:
    """Returns the path of the compiled filter.

    Raises:
        SandboxUnavailable: there is none for this kind of processor.
    """
    path = DOCKER / f"seccomp.{platform.machine()}.bpf"
    if not path.exists():
        made = " and ".join(sorted(p.name.split(".")[1] for p in DOCKER.glob("seccomp.*.bpf")))
        raise SandboxUnavailable(
            f"the filter of system calls is there for {made}, not for {platform.machine()}: use Docker"
        )
    return path
