"""The kinds of sandbox in which attacks and honest jobs run. A conftest imports `kind`."""

import os

import pytest

from sandbox_workers.backends import choose_backend
from sandbox_workers.jobs import SandboxUnavailable
from sparring.core.interfaces import SandboxKind

DOCKER_IS_REQUIRED = os.environ.get("SPARRING_REQUIRE_DOCKER") == "1"
"""Whether a missing Docker is a failure."""


def require(kind: SandboxKind) -> None:
    """Skips the test if a sandbox of this kind cannot run here."""
    try:
        choose_backend(kind)
    except SandboxUnavailable as missing:
        if kind == "docker" and DOCKER_IS_REQUIRED:
            pytest.fail(str(missing))
        pytest.skip(str(missing))


def kinds() -> list[object]:
    """Returns the kind that a run would take here, and the other one, marked `kinds` (make test-kinds)."""
    first, second = "docker", "namespace"
    try:
        choose_backend("docker")
    except SandboxUnavailable:
        if not DOCKER_IS_REQUIRED:
            first, second = second, first
    return [first, pytest.param(second, marks=pytest.mark.kinds)]


@pytest.fixture(scope="session", params=kinds())
def kind(request: pytest.FixtureRequest) -> SandboxKind:
    """A kind of sandbox that runs here."""
    require(request.param)
    return request.param
