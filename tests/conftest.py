"""For every test."""

import os
from collections.abc import Iterator

import pytest


@pytest.fixture(scope="session", autouse=True)
def loopback_without_a_proxy() -> Iterator[None]:
    """What tests serve is on this machine, which a proxy of the environment cannot see."""
    with pytest.MonkeyPatch.context() as patch:
        for name in ("NO_PROXY", "no_proxy"):
            patch.setenv(name, ",".join(filter(None, ("127.0.0.1,localhost", os.environ.get(name)))))
        yield
