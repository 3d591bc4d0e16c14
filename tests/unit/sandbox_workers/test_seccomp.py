"""The filter of system calls: its made files are what the profile says, on both kinds of processor."""

import importlib.util
import json
import platform
import struct
from types import ModuleType

import pytest

from sandbox_workers.jobs import SandboxUnavailable
from sandbox_workers.runner import kernel
from sandbox_workers.seccomp import HERE, PROFILE, bpf_path

ALLOWED, KILLED = 0x7FFF0000, 0
EPERM, EINVAL, ENOSYS, EAFNOSUPPORT = (0x50000 | number for number in (1, 22, 38, 97))
ARCHITECTURES = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
NEW_USER, SIGCHLD = 0x10000000, 17
CALLS = {
    # number on x86_64, on aarch64, arguments, what becomes of it
    "read": (0, 63, (), ALLOWED),
    "getpid": (39, 172, (), ALLOWED),
    "clone": (56, 220, (SIGCHLD,), ALLOWED),
    "clone, new user namespace": (56, 220, (NEW_USER | SIGCHLD,), EPERM),
    "clone3": (435, 435, (), ENOSYS),
    "socket": (41, 198, (1,), EAFNOSUPPORT),
    "stream pair": (53, 199, (1, 1), ALLOWED),
    "datagram pair": (53, 199, (1, 2), EPERM),
    "personality": (135, 92, (0,), ALLOWED),
    "personality without address randomization": (135, 92, (0x40000,), EPERM),
    "fcntl, read flags": (72, 25, (3, 1), ALLOWED),
    "fcntl, duplicate": (72, 25, (3, 1030, 9), ALLOWED),
    "fcntl, notify": (72, 25, (3, 1026, 7), EPERM),
    "fcntl, notify, with bits that the kernel drops": (72, 25, (3, 1 << 32 | 1026, 7), EPERM),
    "fcntl, lease": (72, 25, (3, 1024, 1), EPERM),
    "memfd_create": (319, 279, (), EPERM),
    "ptrace": (101, 117, (), EPERM),
    "unshare": (272, 97, (), EPERM),
    "mount": (165, 40, (), EPERM),
    "io_uring_setup": (425, 425, (), EPERM),
    "beyond the last": (9999, 9999, (), EPERM),
}


@pytest.fixture(scope="module")
def make_seccomp() -> ModuleType:
    spec = importlib.util.spec_from_file_location("make_seccomp", HERE.parent / "docker" / "make_seccomp.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def made_for(architecture: str) -> bytes:
    return (HERE / f"seccomp.{architecture}.bpf").read_bytes()


def run(program: bytes, architecture: int, number: int, arguments: tuple[int, ...]) -> int:
    """What the kernel does with a call: the few instructions of classic BPF that libseccomp uses."""
    data = struct.pack("<IIQ6Q", number, architecture, 0, *arguments, *[0] * (6 - len(arguments)))
    accumulator, at = 0, 0
    while True:
        code, if_true, if_false, k = struct.unpack_from("<HBBI", program, 8 * at)
        at += 1
        match code:
            case 0x20:
                (accumulator,) = struct.unpack_from("<I", data, k)
            case 0x54:
                accumulator &= k
            case 0x05:
                at += k
            case 0x06:
                return k
            case _:
                compare = {0x15: int.__eq__, 0x25: int.__gt__, 0x35: int.__ge__, 0x45: int.__and__}[code]
                at += if_true if compare(accumulator, k) else if_false


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_the_made_files_are_what_the_profile_gives_now(make_seccomp: ModuleType, architecture: str) -> None:
    try:
        lib = make_seccomp.libseccomp()
    except OSError as missing:
        pytest.skip(f"libseccomp is missing: {missing}")
    if make_seccomp.version(lib) != make_seccomp.LIBSECCOMP:
        pytest.skip(f"the files are of libseccomp {make_seccomp.LIBSECCOMP}")
    now = make_seccomp.export_bpf(lib, json.loads(PROFILE.read_text()), architecture)
    assert made_for(architecture) == now, "stale: python docker/make_seccomp.py"


@pytest.mark.parametrize("architecture", ARCHITECTURES)
@pytest.mark.parametrize("name", CALLS)
def test_calls_fare_as_the_profile_says(architecture: str, name: str) -> None:
    x86_64, aarch64, arguments, expected = CALLS[name]
    number = x86_64 if architecture == "x86_64" else aarch64
    assert run(made_for(architecture), ARCHITECTURES[architecture], number, arguments) == expected


CLOCKS = {
    # clock_gettime, clock_nanosleep and timer_create with a clock; getpid with the same argument
    "realtime": (0, ALLOWED),
    "of the process": (2, ALLOWED),
    "of this very process": (-6, ALLOWED),
    "of this very thread": (-2, ALLOWED),
    "of process 7": (~7 << 3 | 2, EINVAL),
    "of thread 7": (~7 << 3 | 6, EINVAL),
    "of process 7, with bits that the kernel drops": ((~7 << 3 | 2) & 0xFFFFFFFF, EINVAL),
    "of a device": (~3 << 3 | 3, EINVAL),
}


@pytest.mark.parametrize(
    ("architecture", "numbers", "getpid"),
    [("x86_64", (222, 228, 229, 230), 39), ("aarch64", (107, 113, 114, 115), 172)],
)
@pytest.mark.parametrize("name", CLOCKS)
def test_clocks_of_other_processes_are_refused(
    architecture: str, numbers: tuple[int, ...], getpid: int, name: str
) -> None:
    clock, expected = CLOCKS[name]
    program = kernel.foreign_clocks_filter(architecture)
    argument = clock & 0xFFFFFFFFFFFFFFFF
    for number in numbers:
        assert run(program, ARCHITECTURES[architecture], number, (argument,)) == expected
        assert run(program, 0x40000003, number, (argument,)) == ALLOWED  # the other filter's to refuse
    assert run(program, ARCHITECTURES[architecture], getpid, (argument,)) == ALLOWED


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_calls_of_another_architecture_kill(architecture: str) -> None:
    """getpid by i386's door, and by x32's, whose numbers have bit 30."""
    program = made_for(architecture)
    assert run(program, 0x40000003, 20, ()) == KILLED
    if architecture == "x86_64":
        assert run(program, ARCHITECTURES[architecture], 0x40000000 | 39, ()) == KILLED


def test_another_processor_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(platform, "machine", lambda: "riscv64")
    with pytest.raises(SandboxUnavailable, match="riscv64"):
        bpf_path()
