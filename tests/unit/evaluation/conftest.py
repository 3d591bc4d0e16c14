"""A real sandbox for harmless programs, and one that fails where it is told to."""

from collections.abc import Iterator

import pytest

from sandbox_workers.local import LocalSandbox
from sparring.core.verdict import Limits
from tests.playing import Breaking


@pytest.fixture(scope="module")
def sandbox() -> Iterator[LocalSandbox]:
    """Plain processes run anywhere; the programs are the tests' own."""
    with LocalSandbox("process", limits=Limits(cpu_s=0.2, wall_s=3.0)) as local:
        yield local


@pytest.fixture
def breaking(sandbox: LocalSandbox) -> Breaking:
    return Breaking(sandbox, on=set())
