"""Addresses that are printed and stored hold no passwords."""

import pytest

from configs.load import ConfigError, load_run
from learners.checkpoints import CheckpointError
from learners.mirror import Mirror
from sparring.core.settings import refuse_password

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


@pytest.mark.parametrize(
    ("arguments", "instead"),
    [
        (["--checkpoint.mirror", KEY], "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"),
        (
            ["--tracking.to", "mlflow", "--tracking.mlflow-uri", "http://me:hush@host"],
            "MLFLOW_TRACKING_USERNAME and MLFLOW_TRACKING_PASSWORD",
        ),
    ],
)
def test_a_run_says_where_the_password_belongs(arguments: list[str], instead: str) -> None:
    with pytest.raises(ConfigError, match=instead) as refused:
        load_run(arguments)
    assert "hush" not in str(refused.value)


def test_so_does_a_mirror_that_a_run_starts_from() -> None:
    with pytest.raises(CheckpointError, match="AWS_SECRET_ACCESS_KEY") as refused:
        Mirror(KEY, "one")
    assert "hush" not in str(refused.value)
