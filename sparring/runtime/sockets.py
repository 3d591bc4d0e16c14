"""Where Ray puts its sockets on this machine."""

import os

from sparring.core.errors import SparringError
from sparring.tracking.progress import say

_LONGEST_TEMPORARY = 38
"""Characters of a directory in which Ray starts: the path of a socket has at most 107, and Ray's own part of it 68."""


def keep_socket_paths_short() -> None:
    """Moves Ray's files to /tmp if the directory for temporary files has a path that is too long for sockets, or not ASCII.
    To be called before Ray starts on this machine. Raises SparringError if the user gave that directory to Ray."""
    place = os.environ.get("RAY_TMPDIR", os.environ.get("TMPDIR", ""))
    if len(place) <= _LONGEST_TEMPORARY and place.isascii():
        return
    if "RAY_TMPDIR" in os.environ:
        raise SparringError(
            f"RAY_TMPDIR={place}: Ray's sockets need a path of at most {_LONGEST_TEMPORARY} ASCII characters: give another"
        )
    os.environ["RAY_TMPDIR"] = "/tmp"
    say(
        f"TMPDIR={place}: too long for Ray's sockets, or not ASCII; Ray's files are in /tmp/ray (else set RAY_TMPDIR)"
    )
