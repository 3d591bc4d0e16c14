"""Starts Ray on this machine, or joins the cluster that RAY_ADDRESS names. Every command that needs Ray begins here."""

import os
import socket
from collections.abc import Mapping
from typing import Any

import ray

from sparring.core.errors import SparringError
from sparring.tracking.progress import say

_QUIET: Mapping[str, Any] = {"log_to_driver": False, "logging_level": "ERROR"}
_ANSWER_S = 3.0
_LONGEST_TEMPORARY = 38
"""Characters of a directory in which Ray starts: the path of a socket has at most 107, and Ray's own part of it 68."""


def join_ray(**options: Any) -> None:
    """Joins the cluster at RAY_ADDRESS (`ray job submit` sets it), which must be set. Raises SparringError.

    options: of ray.init, which takes none about resources here.
    """
    address = os.environ["RAY_ADDRESS"]
    if ray.is_initialized():
        return
    _require_answer(address)
    try:
        ray.init(**_QUIET, **options)
    except (ConnectionError, RuntimeError, ValueError) as error:
        raise SparringError(
            f"RAY_ADDRESS={address}: Ray cannot join it ({' '.join(str(error).split())})"
        ) from error


def start_ray(**options: Any) -> None:
    """Starts Ray on this machine. Raises SparringError.

    options: of ray.init.
    """
    keep_socket_paths_short()
    for last in (False, False, True):
        try:
            # without `local`, Ray joins any cluster that `ray start` left on this machine
            ray.init(**_QUIET, address="local", **options)
            return
        except Exception as error:  # Ray gives its node half a minute to start, however busy the machine is
            ray.shutdown()
            if "timed out during startup" not in str(error):
                raise
            if last:
                raise SparringError(f"Ray does not start on this machine: {error}") from error


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


def _require_answer(address: str) -> None:
    """Raises SparringError if nothing answers at the address. Without this check Ray would try for a quarter of an
    hour."""
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if not host or not port.isdigit():
        return
    try:
        socket.create_connection((host.strip("[]"), int(port)), _ANSWER_S).close()
    except OSError as error:
        raise SparringError(
            f"RAY_ADDRESS={address}: no cluster answers there ({error.strerror or error}): start one (ray start --head), or "
            "unset RAY_ADDRESS to run on this machine"
        ) from None
