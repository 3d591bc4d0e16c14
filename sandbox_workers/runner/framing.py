"""Length-prefixed JSON frames."""

import json
import socket
import struct
from collections.abc import Callable
from typing import Any

MAX_FRAME = 16 << 20
"""Bytes."""
MAX_VALUE = 32 << 20
"""Bytes of a value between a program and its test."""
CHUNK, MOST_AT_ONCE = 1 << 16, 1 << 20
"""Bytes asked for in one system call."""


class FrameTooLarge(ValueError):
    """The sender announced, or was asked to send, more than the cap."""


_encode = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), check_circular=False).encode


def pack(message: Any) -> bytes:
    body = _encode(message).encode("utf-8", "surrogatepass")
    return struct.pack(">I", len(body)) + body


def send_frame(connection: socket.socket, message: Any, cap: int = MAX_FRAME) -> None:
    frame = pack(message)
    if len(frame) > cap:
        raise FrameTooLarge(f"{len(frame)} bytes")
    connection.sendall(frame)


class Frames:
    """Frames of a connection.

    Args:
        receive: gives at most so many of its bytes, and none at its end.
        most: bytes of a frame; a program cannot make its reader allocate more.
        ahead: so many bytes are asked for at least, that short frames cost a system call each; 0: none is taken of what
            comes after a frame.
    """

    def __init__(self, receive: Callable[[int], bytes], most: int = MAX_FRAME, ahead: int = CHUNK) -> None:
        self._receive, self._most, self._ahead = receive, most, ahead
        self._read = bytearray()

    def waiting(self) -> bool:
        """Something was read and not yet taken."""
        return bool(self._read)

    def next(self) -> Any:
        """Raise EOFError where the other end closed, FrameTooLarge."""
        (length,) = struct.unpack(">I", self._take(4))
        if 4 + length > self._most:
            raise FrameTooLarge(f"{4 + length} bytes")
        return json.loads(self._take(length).decode("utf-8", "surrogatepass"))

    def _take(self, count: int) -> bytearray:
        while (missing := count - len(self._read)) > 0:
            chunk = self._receive(min(max(missing, self._ahead), MOST_AT_ONCE))
            if not chunk:
                raise EOFError
            self._read += chunk
        taken = self._read[:count]
        del self._read[:count]
        return taken


def recv_frame(connection: socket.socket) -> Any:
    """One frame, and nothing of what comes after it. Raise EOFError, FrameTooLarge."""
    return Frames(connection.recv, ahead=0).next()
