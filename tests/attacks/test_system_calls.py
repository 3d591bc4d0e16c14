"""System calls by their numbers, past what Python wraps: the filter or a check of rights refuses each."""

from collections.abc import Callable

import pytest

from sparring.core.verdict import Status

# Calls are (number, arguments ...), numbers of x86-64; `reached` lists those that nothing refused.
SYSTEM_CALLS = """
import ctypes, os, platform
libc = ctypes.CDLL(None, use_errno=True)
REFUSED = (1, 13, 38)  # EPERM, EACCES, ENOSYS
def reached(*calls):
    if platform.machine() != "x86_64": return []
    return [call[0] for call in calls if libc.syscall(*call) != -1 or ctypes.get_errno() not in REFUSED]
"""
ATTACKS: dict[str, str] = {
    "parts of another process": (
        "def f():\n    p = os.getppid() or 1\n"
        "    return reached((101, 0x4206, p, 0, 0), (101, 0, 0, 0, 0),\n"
        "        (310, p, 0, 0, 0, 0, 0), (311, p, 0, 0, 0, 0, 0), (312, p, p, 0, 0, 0), (279, p, 0, 0, 0, "
        "0, 0), (256, p, 0, 0, 0))"
    ),
    "descriptors of another process": ("def f(): return reached((438, os.pidfd_open(os.getpid()), 0, 0))"),
    "programs for the kernel": (
        "def f(): return reached((321, 0, bytes(64), 64), (298, bytes(128), 0, -1, -1, 0), (323, 1), "
        "(323, 0))"
    ),
    "asynchronous rings": ("def f(): return reached((425, 8, bytes(128)), (426, 0, 0, 0, 0, 0))"),
    "keys of the kernel": (
        "def f(): return reached((248, b'user', b'left', b'x', 1, -4), (249, b'user', b'left', 0, -4), "
        "(250, 0, -4, 1))"
    ),
    "new kernel or module": (
        "def f(): return reached((246, 0, 0, 0, 0), (320, 0, 0, 0, 0, 0), (175, 0, 0, b''), (313, 0, "
        "b'', 0), (176, b'x', 0))"
    ),
    "reboot": "def f(): return reached((169, 0xFEE1DEAD, 672274793, 0, 0))",
    "name and clock of the machine": (
        "mode = ctypes.create_string_buffer(b'\\2', 256)\n"
        "def f(): return reached((170, b'x', 1), (171, b'x', 1), (164, bytes(16), 0), (227, 0, bytes(16)), "
        "(159, mode))"
    ),
    "swap, accounts and quotas": (
        "def f(): return reached((167, b'/jobs', 0), (168, b'/jobs'), (163, b'acct'), (179, 0, 0, 0, 0))"
    ),
    "other roots": ("def f(): return reached((155, b'.', b'.'), (161, b'.'), (166, b'/proc', 2))"),
    "mounts by the new calls": (
        "def f(): return reached((430, b'tmpfs', 0), (428, -100, b'/', 1), (429, -100, b'/usr', -100, "
        "b'.', 0),\n"
        "    (442, -100, b'/', 0, bytes(32), 32))"
    ),
    "clone into new namespaces": (
        "def f(): return reached(*((56, flag | 17, 0, 0, 0, 0) for flag in\n"
        "    (0x10000000, 0x20000, 0x20000000, 0x40000000, 0x8000000, 0x4000000, 0x2000000)), (435, "
        "bytes(88), 88), (272, 0x40000000))"
    ),
    "join other namespaces": (
        "def f(): return reached((308, 0, 0), (308, 11, 0x10000000), (308, os.pidfd_open(os.getpid()), "
        "0x20000))"
    ),
    "files by handle": (
        "b = ctypes.create_string_buffer(256)\n"
        "def f(): return reached((304, -100, b, 0), (303, -100, b'/', b, b, 0))"
    ),
    "watch what others open": (
        "def f(): return reached((300, 0, 0), (294, 0), (253,), (301, 0, 1, 1, -100, 0))"
    ),
    "ports and descriptor tables": (
        "def f(): return reached((172, 3), (173, 0x70, 2, 1), (154, 1, bytes(16), 16))"
    ),
    "personality": ("def f(): return reached((135, 0x0040000), (135, 0x0400000), (135, 8))"),
    "log of the kernel": (
        "b = bytes(4096)\ndef f(): return reached((103, 3, b, 4096), (103, 5, 0, 0), (103, 2, b, 9))"
    ),
    "real-time scheduling": (
        "def f():\n    got = reached((144, 0, 1, bytes([50, 0, 0, 0])), (251, 1, 0, 1 << 13))\n"
        "    try: os.nice(-5); return got + ['nice']\n    except OSError: return got"
    ),
    "calls of 32 bits": (
        # unshare(CLONE_NEWUSER) by int 0x80 and by the x32 table, in children: the filter may well kill them.
        "import mmap\ndef old():\n    page = mmap.mmap(-1, 4096, prot=7)\n"
        "    page.write(bytes.fromhex('53b836010000bb00000010cd805bc3'))\n"
        "    return ctypes.CFUNCTYPE(ctypes.c_int)(ctypes.addressof(ctypes.c_char.from_buffer(page)))()\n"
        "def f():\n    got = []\n    for call in (old, lambda: libc.syscall(0x40000000 | 272, 0x10000000)):\n"
        "        if platform.machine() != 'x86_64': continue\n        pid = os.fork()\n"
        "        if pid == 0: os._exit(call() >= 0)\n        got.append(os.waitpid(pid, 0)[1] == 256)\n"
        "    return any(got)"
    ),
}


@pytest.mark.parametrize("name", ATTACKS)
def test_system_call(attack: Callable, name: str) -> None:
    verdict = attack(SYSTEM_CALLS + ATTACKS[name], "f()")
    assert verdict.status is Status.PASSED, verdict
    assert str(verdict.value) in ("[]", "False")
