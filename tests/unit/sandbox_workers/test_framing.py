"""Frames: what is cut into pieces by a connection is put together again, and no more than asked for is taken."""

import itertools
import socket
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sandbox_workers.runner.framing import Frames, FrameTooLarge, pack, recv_frame

MESSAGES = [{"a": 1}, [], "x" * 100_000, {"lone": "\ud800"}, None]


def pieces_of(data: bytes, sizes: list[int]) -> Callable[[int], bytes]:
    """A connection that gives pieces of these sizes, over and over."""
    left = bytearray(data)
    turns = itertools.cycle(sizes)

    def receive(most: int) -> bytes:
        piece = bytes(left[: min(most, next(turns))])
        del left[: len(piece)]
        return piece

    return receive


@settings(deadline=None)
@given(st.lists(st.integers(1, 70_000), min_size=1, max_size=5), st.sampled_from([0, 1, 1 << 16]))
def test_frames_survive_however_they_are_cut(sizes: list[int], ahead: int) -> None:
    frames = Frames(pieces_of(b"".join(map(pack, MESSAGES)), [*sizes, 1000]), ahead=ahead)
    assert [frames.next() for _ in MESSAGES] == MESSAGES
    assert not frames.waiting()
    with pytest.raises(EOFError):
        frames.next()


def test_short_frames_cost_one_call_each() -> None:
    asked = []
    receive = pieces_of(pack(1) + pack(2), [1 << 20])
    frames = Frames(lambda most: asked.append(most) or receive(most))
    assert frames.next() == 1 and frames.waiting() and frames.next() == 2 and not frames.waiting()
    assert len(asked) == 1


def test_one_frame_is_taken_and_nothing_of_what_comes_after_it() -> None:
    ours, theirs = socket.socketpair()
    theirs.sendall(pack({"tests": ["f(1)"]}) + b"..")
    assert recv_frame(ours) == {"tests": ["f(1)"]}
    assert ours.recv(9) == b".."


@pytest.mark.parametrize("cut", [0, 2, 7])
def test_an_end_within_a_frame_is_an_end(cut: int) -> None:
    with pytest.raises(EOFError):
        Frames(pieces_of(pack("long enough")[:cut], [100])).next()


def test_what_is_announced_too_large_is_not_read() -> None:
    body = pack("x" * 100)
    assert Frames(pieces_of(body, [100]), most=len(body)).next() == "x" * 100
    asked = []
    receive = pieces_of(body, [4])
    with pytest.raises(FrameTooLarge):
        Frames(lambda most: asked.append(most) or receive(most), most=len(body) - 1).next()
    assert len(asked) == 1
