"""The kinds of sandbox that attacks and honest jobs run in. Import `kind` into a conftest."""

import os

import pytest

from sandbox_workers.backends import choose_backend
from sandbox_workers.jobs import SandboxUnavailable


def kinds() -> list[object]:
    """The kind that a run would take here; the other one under `slow`."""
    first, second = "docker", "namespace"
    try:
        choose_backend("docker")
    except SandboxUnavailable:
        if os.environ.get("SPARRING_REQUIRE_DOCKER") != "1":
            first, second = second, first
    return [first, pytest.param(second, marks=pytest.mark.slow)]


@pytest.fixture(scope="session", params=kinds())
def kind(request: pytest.FixtureRequest) -> str:
    """A kind of sandbox that runs here."""
    try:
        choose_backend(request.param)
    except SandboxUnavailable as missing:
        if request.param == "docker" and os.environ.get("SPARRING_REQUIRE_DOCKER") == "1":
            pytest.fail(str(missing))
        pytest.skip(str(missing))
    return request.param
