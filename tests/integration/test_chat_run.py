"""A user's own chat models on a user's own problems, by R0's flags alone: no recipe named, none needed."""

import shutil
from pathlib import Path

import yaml

from tests.integration.conftest import rows_of

EXAMPLES = Path(__file__).resolve().parents[2] / "sparring" / "problems" / "example_problems.json"


def test_r0s_flags_train_two_chat_models(drive, chat_model: Path, tmp_path: Path) -> None:
    """Stages of 16 tokens, in one process, to make it quick; the rest is what the flags choose by themselves. The
    discriminator's model is one of the hub's, which --model-cache has."""
    name = drive.name()
    cached = tmp_path / "cache" / "models--acme--tiny"
    shutil.copytree(chat_model, cached / "snapshots" / "abc")
    (cached / "refs").mkdir()
    (cached / "refs" / "main").write_text("abc")
    quick = (
        "--local", "--generator.engine.kind", "transformers", "--discriminator.engine.kind", "transformers",
        "--generator.max-tokens", "16", "--discriminator.max-tokens", "16", "--curriculum.stages", "1",
        "--evaluation.problems", "2", "--curriculum.problems-per-step", "2",
    )  # fmt: skip
    done = drive.run(
        "--generator-model", chat_model, "--discriminator-model", "acme/tiny", "--model-cache", tmp_path / "cache",
        "--problems-file", EXAMPLES, "--n-discriminator-steps", "1", "--n-generator-steps", "1", "--k-alternating-steps", "1",
        "--output-dir", tmp_path, "--run-name", name, *quick,
    )  # fmt: skip
    assert done.code == 0, done.err
    run = tmp_path / name
    config = yaml.safe_load((run / "config.yaml").read_text())
    assert (config["credit"]["kind"], config["learning_rate"], config["game"]["test_format"]) == (
        "stage",
        1e-5,
        "relabel",
    )
    rows = rows_of(run)
    assert [row["step"] for row in rows] == [0, 1, 2, 3]
    assert all(row["discriminator_reward"] == -1 for row in rows[1:]), (
        "what a random model writes is no suite"
    )
    assert (run / "checkpoints" / "step_000003" / "generator" / "model.safetensors").is_file()
