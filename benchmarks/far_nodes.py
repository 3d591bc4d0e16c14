"""Two network namespaces of this machine that are connected only to each other: directly, or with a delay.

A kernel without netem cannot delay packets, so this process forwards them: it reads packets from the TUN device of one
namespace and writes them to that of the other when they are due. Both ways need root.
"""

import ctypes
import fcntl
import os
import select
import shutil
import struct
import subprocess
import threading
import time
import uuid
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager, suppress

NEAR, FAR = "10.251.7.1", "10.251.7.2"
_PACKET = 65_535
_CLONE_NEWNET = 0x4000_0000
_TUNSETIFF, _IFF_TUN, _IFF_NO_PI = 0x4004_54CA, 0x0001, 0x1000


class NoNamespaces(Exception):
    """The namespaces cannot be created on this machine; the message gives the reason."""


@contextmanager
def namespaces(delay_s: float = 0.0) -> Iterator[tuple[str, str]]:
    """Yields the names of two namespaces with the addresses NEAR and FAR. At the end, all processes in them are killed.

    Args:
        delay_s: delay of each packet, in each direction.

    Raises:
        NoNamespaces: the namespaces cannot be created here.
    """
    tag = uuid.uuid4().hex[:6]
    near, far = f"spar-{tag}-a", f"spar-{tag}-b"
    ends = {near: (f"va{tag}", NEAR), far: (f"vb{tag}", FAR)}
    if os.geteuid() != 0 or not shutil.which("ip"):
        raise NoNamespaces("only root can make network namespaces, by `ip` (package iproute2)")
    pulled, cable = threading.Event(), None
    try:
        _ip(f"netns add {near}", f"netns add {far}")
        if delay_s:
            tuns = [_tun(name, device) for name, (device, _) in ends.items()]
            cable = threading.Thread(target=_carry, args=(*tuns, delay_s, pulled), daemon=True)
            cable.start()
        else:
            _ip(f"link add {ends[near][0]} netns {near} type veth peer name {ends[far][0]} netns {far}")
        for name, (device, address) in ends.items():
            _ip(f"-n {name} address add {address}/24 dev {device}", f"-n {name} link set lo up")
            _ip(f"-n {name} link set {device} up", f"-n {name} route add default dev {device}")
        yield near, far
    finally:
        pulled.set()
        if cable is not None:
            cable.join()
        for name in (near, far):
            with suppress(subprocess.CalledProcessError):  # the namespace was not created
                end_all(name)
            subprocess.run(["ip", "netns", "delete", name], capture_output=True, check=False)


def _ip(*commands: str) -> None:
    for command in commands:
        done = subprocess.run(["ip", *command.split()], capture_output=True, text=True, check=False)
        if done.returncode:
            raise NoNamespaces(f"ip {command}: {done.stderr.strip()}")


def pids(namespace: str) -> list[int]:
    """Returns the ids of the processes in the namespace. Raises CalledProcessError if the namespace does not exist."""
    listed = subprocess.run(["ip", "netns", "pids", namespace], capture_output=True, text=True, check=True)
    return list(map(int, listed.stdout.split()))


def end_all(namespace: str) -> None:
    """Kills all processes in the namespace at once, without notice, as if the machine were lost."""
    while running := pids(namespace):
        for pid in running:
            with suppress(ProcessLookupError):
                os.kill(pid, 9)
        time.sleep(0.05)


def _tun(namespace: str, device: str) -> int:
    """Returns the file descriptor of a new TUN device in the namespace. Raises NoNamespaces."""
    opened: list[int] = []
    failed: list[OSError] = []

    def enter() -> None:  # a network namespace is set per thread
        libc = ctypes.CDLL(None, use_errno=True)
        try:
            with open(f"/run/netns/{namespace}") as there:
                if libc.setns(there.fileno(), _CLONE_NEWNET):
                    raise OSError(ctypes.get_errno(), "setns")
            tun = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
            fcntl.ioctl(tun, _TUNSETIFF, struct.pack("16sH22x", device.encode(), _IFF_TUN | _IFF_NO_PI))
            opened.append(tun)
        except OSError as error:
            failed.append(error)

    thread = threading.Thread(target=enter)
    thread.start()
    thread.join()
    if failed:
        raise NoNamespaces(f"no delaying cable here: {failed[0]}")
    _ip(f"-n {namespace} link set {device} mtu {_PACKET - 35}")  # few large packets: Python is slow
    return opened[0]


def _carry(one: int, other: int, delay_s: float, pulled: threading.Event) -> None:
    """Forwards each packet to the other end when it is due."""
    on_the_way: deque[tuple[float, int, bytes]] = deque()
    across = {one: other, other: one}
    while not pulled.is_set():
        wait = max(0.0, on_the_way[0][0] - time.monotonic()) if on_the_way else 0.2
        for end in select.select([one, other], [], [], wait)[0]:
            with suppress(OSError):
                while packet := os.read(end, _PACKET):
                    on_the_way.append((time.monotonic() + delay_s, across[end], packet))
        while on_the_way and on_the_way[0][0] <= time.monotonic():
            _, end, packet = on_the_way.popleft()
            with suppress(OSError):  # a lost packet is sent again by its sender
                os.write(end, packet)
    os.close(one)
    os.close(other)
