"""docker/seccomp.json as the BPF program that the kernel takes, by the system's libseccomp (which apt itself
needs)."""

import ctypes
import json
import tempfile
from pathlib import Path

from sandbox_workers.jobs import SandboxUnavailable

ALLOW = 0x7FFF0000
ERRNO = 0x00050000
COMPARISONS = {"SCMP_CMP_EQ": 4, "SCMP_CMP_MASKED_EQ": 7}
UNKNOWN_SYSCALL = -1


class _Argument(ctypes.Structure):
    _fields_ = [
        ("arg", ctypes.c_uint),
        ("op", ctypes.c_int),
        ("datum_a", ctypes.c_uint64),
        ("datum_b", ctypes.c_uint64),
    ]


def export_bpf(profile_path: Path) -> bytes:
    """Raise SandboxUnavailable where libseccomp is missing."""
    try:
        lib = ctypes.CDLL("libseccomp.so.2")
    except OSError:
        raise SandboxUnavailable("libseccomp.so.2 is missing: install libseccomp2, or use Docker") from None
    lib.seccomp_init.restype = ctypes.c_void_p
    profile = json.loads(profile_path.read_text())
    context = ctypes.c_void_p(lib.seccomp_init(_action(profile["defaultAction"], profile["defaultErrnoRet"])))
    try:
        for rule in profile["syscalls"]:
            _add_rule(lib, context, rule)
        with tempfile.TemporaryFile() as file:
            if lib.seccomp_export_bpf(context, file.fileno()):
                raise SandboxUnavailable("libseccomp cannot export the profile")
            file.seek(0)
            return file.read()
    finally:
        lib.seccomp_release(context)


def _action(name: str, errno: int = 1) -> int:
    return ALLOW if name == "SCMP_ACT_ALLOW" else ERRNO | errno


def _add_rule(lib: ctypes.CDLL, context: ctypes.c_void_p, rule: dict) -> None:
    action = _action(rule["action"], rule.get("errnoRet", 1))
    arguments = [_argument(entry) for entry in rule.get("args", ())]
    array = (_Argument * max(1, len(arguments)))(*arguments)
    for name in rule["names"]:
        number = lib.seccomp_syscall_resolve_name(name.encode())
        if number == UNKNOWN_SYSCALL:
            continue  # newer than this libseccomp: stays denied
        if lib.seccomp_rule_add_array(context, ctypes.c_uint32(action), number, len(arguments), array):
            raise SandboxUnavailable(f"libseccomp refuses the rule for {name}")


def _argument(entry: dict) -> _Argument:
    operation = COMPARISONS[entry["op"]]
    if entry["op"] == "SCMP_CMP_MASKED_EQ":  # Docker: value is the mask, valueTwo the datum
        return _Argument(entry["index"], operation, entry["value"], entry["valueTwo"])
    return _Argument(entry["index"], operation, entry["value"], 0)
