"""Which classes of the standard library go by their names."""

import collections
import datetime
import operator
import pickle
import subprocess
import types

import pytest

from sandbox_workers.runner.library import class_name, class_named


@pytest.mark.parametrize(
    "cls",
    [int, KeyError, collections.Counter, datetime.date, subprocess.CalledProcessError, pickle.PicklingError],
)
def test_classes_go_by_their_names(cls: type) -> None:
    name = class_name(cls)
    assert name is not None and class_named(name) is cls


@pytest.mark.parametrize(
    "name",
    [
        "subprocess:Popen",
        "ctypes:CDLL",
        "socket:socket",
        "pickle:Unpickler",
        "_pickle:Unpickler",
        "operator:attrgetter",
        "operator:methodcaller",
        "types:FunctionType",
        "types:CodeType",
        "builtins:eval",
        "unittest.__main__:main",
        "sandbox_workers.runner.peer:Peer",
    ],
)
def test_what_would_run_code_in_a_test_does_not(name: str) -> None:
    with pytest.raises(Exception):  # noqa: B017 - any Exception is the contract
        class_named(name)


@pytest.mark.parametrize("cls", [subprocess.Popen, operator.attrgetter, types.FunctionType, pytest.Item])
def test_such_a_class_is_described_like_a_programs_own(cls: type) -> None:
    assert class_name(cls) is None
