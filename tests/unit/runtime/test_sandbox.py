"""What a run's sandbox is told, in either runtime."""

from pathlib import Path

import pytest

from configs.load import load_run
from sparring.runtime import cluster, local
from tests.unit.runtime.makers import start_at

TOY = ["--config", "debug"]


@pytest.mark.parametrize(
    ("arguments", "key", "value"),
    [
        (TOY, "trusted", True),
        ([*TOY, "--generator.model", "/models/mine"], "trusted", False),  # only programs of toy models are
        ([*TOY, "--sandbox.code-tests", "run"], "code_tests", "run"),
        ([*TOY, "--sandbox.code-tests", "refuse"], "code_tests", "refuse"),
    ],
)
def test_whose_programs_are_trusted_and_what_becomes_of_code_tests(
    arguments: list[str], key: str, value: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = load_run(arguments)[0].to_config()
    monkeypatch.setattr(local, "LocalSandbox", lambda *_, **settings: settings)
    monkeypatch.setattr(cluster, "start_pool", lambda *_, **settings: settings)
    for make in (local._sandbox, cluster._pool):
        settings = make(config, start_at(Path("run")))
        assert isinstance(settings, dict) and settings[key] is value
