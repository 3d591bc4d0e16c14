"""Length-prefixed JSON frames."""

import json
import socket
import struct
from collections.abc import Callable
from typing import Any

MAX_FRAME = 16 << 20
"""Largest size of a frame, bytes."""
MAX_VALUE = 32 << 20
"""Largest size of a frame between a program and its test, bytes."""
ANY_SIZE = 1 << 40
"""Largest size of a frame with a job's tests, of which there may be many."""
CHUNK, MOST_AT_ONCE = 1 << 16, 1 << 20
"""Smallest and largest number of bytes that one system call asks for."""


class FrameTooLarge(ValueError):
    """Raised if a frame that was announced, or is to be sent, is too large."""


_encode = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), check_circular=False).encode


_decode = json.JSONDecoder(
    parse_constant=float
).decode  # each NaN is an object of its own: containers compare by identity


def pack(message: Any) -> bytes:
    body = _encode(message).encode("utf-8", "surrogatepass")
    return struct.pack(">I", len(body)) + body


def send_frame(connection: socket.socket, message: Any, cap: int = MAX_FRAME) -> None:
    frame = pack(message)
    if len(frame) > cap:
        raise FrameTooLarge(f"{len(frame)} bytes")
    connection.sendall(frame)


class Frames:
    """The frames of a connection.

    Args:
        receive: returns at most the given number of the connection's bytes, and no bytes at its end.
        most: largest size of a frame, bytes, so that a program cannot make its reader allocate more.
        ahead: smallest number of bytes to ask for, so that a short frame costs one system call. With 0, nothing that
            follows a frame is read.
    """

    def __init__(self, receive: Callable[[int], bytes], most: int = MAX_FRAME, ahead: int = CHUNK) -> None:
        self._receive, self._most, self._ahead = receive, most, ahead
        self._read = bytearray()

    def waiting(self) -> bool:
        """Returns whether bytes were read that are not yet part of a returned frame."""
        return bool(self._read)

    def next(self) -> Any:
        """Returns the next frame.

        Raises:
            EOFError: the other end closed the connection.
            FrameTooLarge: the frame is larger than `most`.
        """
        (length,) = struct.unpack(">I", self._take(4))
        if 4 + length > self._most:
            raise FrameTooLarge(f"{4 + length} bytes")
        return _decode(self._take(length).decode("utf-8", "surrogatepass"))

    def _take(self, count: int) -> bytearray:
        while (missing := count - len(self._read)) > 0:
            chunk = self._receive(min(max(missing, self._ahead), MOST_AT_ONCE))
            if not chunk:
                raise EOFError
            self._read += chunk
        taken = self._read[:count]
        del self._read[:count]
        return taken


def recv_frame(connection: socket.socket, most: int = MAX_FRAME) -> Any:
    """Receives one frame, and nothing that follows it.

    Raises:
        EOFError: the other end closed the connection.
        FrameTooLarge: the frame is larger than `most`.
    """
    return Frames(connection.recv, most, ahead=0).next()
