"""Length-prefixed JSON frames, over sockets and over file objects."""

import json
import socket
import struct
from typing import Any, Protocol

MAX_FRAME = 16 << 20
"""Bytes. A program cannot make its reader allocate more than this."""
MAX_VALUE = 32 << 20
"""Bytes of a value between a program and its test."""


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


def recv_exactly(connection: socket.socket, count: int) -> bytes:
    """Raise EOFError where the other end closed first."""
    received = bytearray()
    while len(received) < count:
        chunk = connection.recv(min(count - len(received), 1 << 20))
        if not chunk:
            raise EOFError
        received += chunk
    return bytes(received)


def recv_frame(connection: socket.socket) -> Any:
    (length,) = struct.unpack(">I", recv_exactly(connection, 4))
    if length > MAX_FRAME:
        raise FrameTooLarge(f"{length} bytes")
    return json.loads(recv_exactly(connection, length).decode("utf-8", "surrogatepass"))


class Frames:
    """Frames of one connection, a system call each where they are short."""

    def __init__(self, connection: socket.socket, cap: int) -> None:
        self._connection, self._cap = connection, cap
        self._read = b""

    def waiting(self) -> bool:
        """Something was read and not yet taken."""
        return bool(self._read)

    def next(self) -> Any:
        """Raise EOFError where the other end closed, FrameTooLarge."""
        read = self._read
        while len(read) < 4:
            read += self._more()
        end = 4 + struct.unpack_from(">I", read)[0]
        if end > self._cap:
            raise FrameTooLarge(f"{end} bytes")
        if end > len(read):
            read += recv_exactly(self._connection, end - len(read))
        self._read = read[end:]
        return json.loads(read[4:end].decode("utf-8", "surrogatepass"))

    def _more(self) -> bytes:
        chunk = self._connection.recv(65536)
        if not chunk:
            raise EOFError
        return chunk


class Readable(Protocol):
    """What `read_frame` needs of a stream."""

    def read(self, count: int, /) -> bytes: ...


def read_frame(stream: Readable) -> Any | None:
    """The next frame of a trusted stream; None at its end."""
    header = stream.read(4)
    if len(header) < 4:
        return None
    body = stream.read(struct.unpack(">I", header)[0])
    return json.loads(body.decode("utf-8", "surrogatepass"))
