"""Directories that plain processes leave."""

import os
import subprocess
import tempfile
from pathlib import Path

import pytest

from sandbox_workers.process_backend import _prefix, _remove_orphans


def test_directories_of_killed_owners_go_and_others_stay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    ended = subprocess.Popen(["true"])
    ended.wait()
    names = (
        f"{_prefix()}{ended.pid}-a",
        f"{_prefix()}{os.getpid()}-b",
        f"sparring-jobs-other-1-{ended.pid}-c",
    )
    directories = [tmp_path / name for name in names]
    for directory in directories:
        (directory / "0p").mkdir(parents=True)
    _remove_orphans()
    assert [directory.exists() for directory in directories] == [False, True, True]
