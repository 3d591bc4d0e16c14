"""Whose programs a run's sandbox is told to trust."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from configs.load import load_run
from sparring.runtime import cluster, local

START: Any = SimpleNamespace(run_directory=Path("run"))
TOY = ["--config", "debug"]
ANOTHER = [*TOY, "--generator.model", "/models/mine"]


@pytest.mark.parametrize(("arguments", "trusted"), [(TOY, True), (ANOTHER, False)])
def test_only_programs_of_toy_models_are_trusted(
    arguments: list[str], trusted: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = load_run(arguments)[0].to_config()
    monkeypatch.setattr(local, "LocalSandbox", lambda *_, **settings: settings)
    monkeypatch.setattr(cluster, "start_pool", lambda *_, **settings: settings)
    for settings in (local._sandbox(config, START), cluster._pool(config, START)):
        assert isinstance(settings, dict) and settings["trusted"] is trusted
