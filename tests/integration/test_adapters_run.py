"""A run whose policies are adapters beside one backbone: one engine, adapters published, resumed."""

from pathlib import Path

import pytest
import yaml

from tests.integration.conftest import ROLES, rows_of

pytestmark = [pytest.mark.slow, pytest.mark.vllm]


def test_two_adapters_learn_on_one_engine_and_are_resumed(drive, tmp_path: Path) -> None:
    name = drive.name()
    engines = [
        word
        for role in ROLES
        for option in (
            "model sparring/examples/toy/generator",
            "engine.kind vllm",
            "engine.adapter",
            "engine.dtype float32",  # a CPU that computes in bfloat16 would have that
            "engine.kv-cache-mb 64",
            "engine.max-num-seqs 32",
        )
        for word in f"--{role}.{option}".split()
    ]
    # one model plays both, and it writes no suites: the problems' own tests judge its programs
    arguments = (
        "--config",
        "notebook:small",
        *engines,
        "--game.baseline-in-reward",
        "--output-dir",
        tmp_path,
    )
    first = drive.run(*arguments, "--run-name", name)
    assert first.code == 0, first.err
    published(tmp_path / name)
    config = yaml.safe_load((tmp_path / name / "config.yaml").read_text())
    assert [config[role]["engine"]["adapter"] for role in ROLES] == [True, True]

    again = drive.name()
    checkpoint = tmp_path / name / "checkpoints" / "step_000002"
    resumed = drive.run(*arguments, "--run-name", again, "--resume-from", checkpoint)
    assert resumed.code == 0, resumed.err
    published(tmp_path / again)


def published(run: Path) -> None:
    """Both policies were, and their engine computes what they compute."""
    rows = rows_of(run)
    played = [row["weights"] for row in rows if "weights" in row]
    assert {role for weights in played for role in weights} == set(ROLES)
    assert max(of["probe_difference"] for weights in played for of in weights.values()) < 1e-3
