"""The files of the seccomp filter: seccomp.json, and what docker/make_seccomp.py made from it for this kind of
processor."""

import platform
from pathlib import Path

from sandbox_workers.jobs import SandboxUnavailable

HERE = Path(__file__).parent
PROFILE = HERE / "seccomp.json"


def bpf_path() -> Path:
    """Returns the path of the compiled filter.

    Raises:
        SandboxUnavailable: there is none for this kind of processor.
    """
    path = HERE / f"seccomp.{platform.machine()}.bpf"
    if not path.exists():
        made = " and ".join(sorted(p.name.split(".")[1] for p in HERE.glob("seccomp.*.bpf")))
        raise SandboxUnavailable(
            f"the filter of system calls is there for {made}, not for {platform.machine()}: use Docker"
        )
    return path
