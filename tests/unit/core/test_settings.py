"""Sections of the configuration: addresses that are printed and stored hold no passwords; a key changes no other."""

from collections.abc import Iterator
from typing import Any

import pytest

from configs.load import ConfigError, load_run
from configs.schema import Config
from learners.checkpoints import CheckpointError
from learners.mirror import Mirror
from sparring.core.settings import Settings, refuse_password

KEY = "s3://AKIA:hush@bucket/prefix"


@pytest.mark.parametrize(
    "address", [KEY, "s3://AKIA:hu/sh@bucket/p", "http://me:hush@host/x", "http://me@host"]
)
def test_a_user_or_a_password_in_an_address_is_refused_and_not_shown(address: str) -> None:
    with pytest.raises(ValueError, match=r"key: the address holds a user or a password.*set THIS") as refused:
        refuse_password("key", address, "THIS")
    assert "me" not in str(refused.value) and "hu" not in str(refused.value)


@pytest.mark.parametrize(
    "address",
    [
        None,
        "s3://bucket/a@b?endpoint_override=minio:9000",
        "http://host:5000",
        "file:///a@b",
        "sqlite:///x.db",
    ],
)
def test_other_addresses_are_not(address: str | None) -> None:
    refuse_password("key", address, "THIS")


def test_a_run_says_where_the_password_belongs() -> None:
    with pytest.raises(ConfigError, match="AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY") as refused:
        load_run(["--checkpoint.mirror", KEY])
    assert "hush" not in str(refused.value)


def test_so_does_a_mirror_that_a_run_starts_from() -> None:
    with pytest.raises(CheckpointError, match="AWS_SECRET_ACCESS_KEY") as refused:
        Mirror(KEY, "one")
    assert "hush" not in str(refused.value)


def _leaves(settings: Settings, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    for name in type(settings).model_fields:
        value = getattr(settings, name)
        if isinstance(value, Settings):
            yield from _leaves(value, (*path, name))
        else:
            yield (*path, name), value


@pytest.mark.parametrize(
    "kind", ["multistage", "code_execution", "unit_tests", "code_golf", "output_prediction"]
)
def test_a_key_that_is_given_changes_no_other_of_its_section(kind: str) -> None:
    base = {"game": {"kind": kind}}
    before = dict(_leaves(Config.model_validate(base)))
    for path, value in before.items():
        if len(path) < 2 or path[-1] == "kind" or value is None:
            continue
        given: Any = value
        for name in reversed(path):
            given = {name: given}
        if path[0] == "game":
            given["game"] = {**given["game"], "kind": kind}
        assert dict(_leaves(Config.model_validate(base | given))) == before, path
