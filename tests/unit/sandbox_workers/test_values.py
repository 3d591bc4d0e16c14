"""The canonical repr, and the agreement of Python and shell on the image's tag."""

import collections
import fractions
import subprocess
from typing import Any

import numpy as np
import pytest

from sandbox_workers.backends import ROOT, runner_version
from sandbox_workers.runner.values import NotPlain, TooLong, plain_repr


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
        (collections.Counter("aab"), "{'a': 2, 'b': 1}"),
        ([np.int64(3), np.float32(0.5), np.bool_(True), np.str_("a")], "[3, 0.5, True, 'a']"),
        ([type("Sub", (int,), {"__repr__": lambda self: "right"})(3)], "[3]"),
    ],
)
def test_canonical_repr(value: Any, text: str) -> None:
    assert plain_repr(value) == text


def test_repr_refuses_objects_and_lengths() -> None:
    for value in (object(), [len], {1: object()}):
        with pytest.raises(NotPlain):
            plain_repr(value)
    shared: Any = "x" * 100
    for _ in range(12):
        shared = [shared, shared]
    for value in ("x" * 5000, list(range(3000)), shared, 10**5000):
        with pytest.raises(TooLong):
            plain_repr(value)


def test_shell_and_python_agree_on_the_image_tag() -> None:
    pipeline = "LC_ALL=C; cat docker/sandbox.Dockerfile sandbox_workers/runner/*.py | sha256sum | cut -c1-16"
    assert pipeline in (ROOT / "docker" / "engine.sh").read_text()
    shell = subprocess.run(["bash", "-c", pipeline], cwd=ROOT, capture_output=True, text=True, check=True)
    assert shell.stdout.strip() == runner_version()
