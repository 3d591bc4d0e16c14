"""The value codec, the canonical repr, and the agreement of Python and shell on the image's tag."""

import datetime
import decimal
import enum
import fractions
import itertools
import json
import math
import subprocess
from typing import Any

import pytest

from sandbox_workers.backends import ROOT, uid_range
from sandbox_workers.runner.values import Codec, NotPlain, TooLong, plain_repr


def codec() -> Codec:
    return Codec(lambda number, name: ("remote", number, name), lambda value: None)


PLAIN: list[Any] = [
    None,
    True,
    -7,
    1 << 200,
    -(1 << 62),
    0.1,
    "täxt\0",
    [1, [2, (3,)]],
    (),
    {1, 2},
    frozenset({"a"}),
    {"k": [1], (1, 2): None},
    b"\x00\xff",
    bytearray(b"x"),
    1 + 2j,
    fractions.Fraction(-1, 3),
    decimal.Decimal("1.10"),
    datetime.date(2020, 1, 2),
    datetime.datetime(2020, 1, 2, 3, 4, 5, 6),
]


@pytest.mark.parametrize("value", PLAIN, ids=repr)
def test_plain_values_cross_unchanged(value: Any) -> None:
    there = codec().decode(json.loads(json.dumps(codec().encode(value))))
    assert there == value and type(there) is type(value)


def test_infinities_and_nan_cross() -> None:
    there = codec().decode(json.loads(json.dumps(codec().encode([math.inf, -math.inf, math.nan]))))
    assert there[:2] == [math.inf, -math.inf] and math.isnan(there[2])


def test_subclasses_are_reduced_by_base_methods() -> None:
    class Liar(list):
        def __iter__(self) -> Any:
            return iter([42])

    class Number(enum.IntEnum):
        ONE = 1

    encoder = codec()
    assert encoder.encode(Liar([1, 2])) == [1, 2]
    assert encoder.encode(Number.ONE) == {"h": 0, "n": "Number"}
    assert encoder.objects == {0: Number.ONE}


def test_bad_messages_raise() -> None:
    for message in ({"x": 1}, {"I": "zz"}, {"r": 5}, {"D": "sNaN"}, {"d": [[[1], 2]]}, {"a": 1, "b": 2}):
        with pytest.raises(Exception):  # noqa: B017 - any Exception is the contract
            codec().decode(message)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ({"b", "a", 1}, "{'a', 'b', 1}"),
        (set(), "set()"),
        (frozenset(), "frozenset()"),
        (frozenset({2, 1}), "frozenset({1, 2})"),
        ((1,), "(1,)"),
        ({"z": 1, "a": {3, 2}}, "{'z': 1, 'a': {2, 3}}"),
        (-0.0, "-0.0"),
        (fractions.Fraction(1, 2), "Fraction(1, 2)"),
        ([], "[]"),
        ({}, "{}"),
    ],
)
def test_canonical_repr(value: Any, text: str) -> None:
    assert plain_repr(value) == text


def test_repr_refuses_objects_and_lengths() -> None:
    for value in (object(), [len], {1: object()}, type("Sub", (int,), {})(3)):
        with pytest.raises(NotPlain):
            plain_repr(value)
    shared: Any = "x" * 100
    for _ in range(12):
        shared = [shared, shared]
    for value in ("x" * 5000, list(range(3000)), shared, 10**5000):
        with pytest.raises(TooLong):
            plain_repr(value)


def test_uid_ranges_of_a_run_do_not_overlap() -> None:
    starts = sorted(uid_range("run", index) for index in range(100))
    assert all(later - earlier >= 64 for earlier, later in itertools.pairwise(starts))


def test_shell_and_python_agree_on_the_image_tag() -> None:
    from sandbox_workers.backends import runner_version

    pipeline = "LC_ALL=C; cat docker/sandbox.Dockerfile sandbox_workers/runner/*.py | sha256sum | cut -c1-16"
    assert pipeline in (ROOT / "docker" / "engine.sh").read_text()
    shell = subprocess.run(["bash", "-c", pipeline], cwd=ROOT, capture_output=True, text=True, check=True)
    assert shell.stdout.strip() == runner_version()


def test_docker_folder_does_not_shadow_the_sdk() -> None:
    assert not (ROOT / "docker" / "__init__.py").exists()
