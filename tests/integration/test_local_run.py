"""A whole run in one process, from the debug recipe to every file it promises."""

import json
import math
from pathlib import Path

import pytest
import yaml
from transformers import AutoModelForCausalLM, AutoTokenizer

from tests.integration.conftest import ROLES, require_synced, rows_of

SCORES = {"generator_pass_rate", "test_validity", "kill_rate"}
LEARNED = {
    "samples",
    "learning_rate",
    "mismatch_max",
    "gradient_norm",
    "kl_to_initial",
    "policy_loss",
    "value_loss",
}
ROW = {
    "step", "stage", "phase", "generator_reward", "discriminator_reward", "validity", "kill_rate", "dropped",
    "generator_components", "discriminator_components", "tokens", "tokens_per_s", "sandbox", "seconds",
}  # fmt: skip


def test_the_debug_recipe_leaves_every_file_it_promises(
    drive, tmp_path: Path, models: dict[str, str], short: tuple[str, ...]
) -> None:
    name = drive.name()
    done = drive.run("--config", "debug", *short, "--output-dir", tmp_path, "--run-name", name)
    assert done.code == 0, done.err
    assert not done.err.strip()
    run = tmp_path / name
    assert {p.name for p in run.iterdir()} == {
        "config.yaml", "versions.json", "metrics.jsonl", "task_history.jsonl", "bank.json", "samples", "checkpoints",
        "training_results.json", "learning_curves.png", "run.log", "episodes.jsonl", "categories.json", "evaluations",
    }  # fmt: skip

    rows = rows_of(run)
    assert [row["step"] for row in rows] == list(range(7))
    assert [row.get("stage") for row in rows] == [None, 1, 1, 1, 5, 5, 5]
    phases = ["discriminator", "generator", "alternating"]
    assert [row["phase"] for row in rows[1:]] == phases * 2
    assert [row["step"] for row in rows if "held_out" in row] == [0, 3, 6]
    for row in rows[1:]:
        assert row.keys() >= ROW
        for role in ROLES:
            if "samples" in row.get(role, {}):
                assert row[role].keys() >= LEARNED
                assert row[role]["mismatch_max"] < 1e-3
                assert all(map(math.isfinite, (row[role]["policy_loss"], row[role]["value_loss"])))
        assert (
            0 <= row["generator_components"]["pass_rate"] <= 1
        )  # R3, property 25: with the reward and the losses
        assert row["dropped"]["sandbox_failure"] == 0
    require_synced(rows)
    assert all(any("samples" in row.get(role, {}) for row in rows) for role in ROLES)

    results = json.loads((run / "training_results.json").read_text())
    assert results["held_out"]["before"] == rows[0]["held_out"]
    assert results["held_out"]["after"] == rows[6]["held_out"]
    assert results["held_out"]["before"].keys() >= SCORES
    assert [stage["stage"] for stage in results["stages"]] == [1, 5]
    seconds = results["wall_time_s"]
    assert seconds.keys() >= {
        "total", "startup", "rollout", "sandbox", "learn", "publish", "evaluation", "checkpoint", "shutdown",
    }  # fmt: skip
    assert all(value >= 0 for value in seconds.values())
    assert seconds["total"] == pytest.approx(sum(s for part, s in seconds.items() if part != "total"))
    config = yaml.safe_load((run / "config.yaml").read_text())
    assert results["config"] == config
    assert results["versions"].keys() >= {"python", "torch", "transformers", "ray", "git"}
    assert json.loads((run / "versions.json").read_text()) == results["versions"]

    assert (run / "learning_curves.png").read_bytes().startswith(b"\x89PNG\r\n\x1a\n")
    samples = sorted((run / "samples").glob("*.txt"))
    assert len(samples) == 2
    for file in samples:
        text = file.read_text()
        assert "=== " in text and "--- generator #0" in text and "valid tests:" in text
    assert (run / "checkpoints" / "best").resolve() in set((run / "checkpoints").glob("step_*"))
    assert "best checkpoint" in done.out and "generator pass rate" in done.out

    log = (run / "run.log").read_text()
    for line in done.out.splitlines():
        assert line in log or line.startswith((" ", "┏", "┃", "┡", "│", "└", "held out")), line
    attempts = [json.loads(line) for line in (run / "episodes.jsonl").read_text().splitlines()]
    assert {a["step"] for a in attempts} == {1, 2, 3, 4, 5, 6}, "held-out attempts are not among them"
    for row in rows[1:]:
        rewards = {role: [a["reward"] for a in attempts if a["step"] == row["step"] and a["player"] == role] for role in ROLES}  # fmt: skip
        for role in ROLES:
            judged = [reward for reward in rewards[role] if reward is not None]
            assert sum(judged) / len(judged) == pytest.approx(row[f"{role}_reward"])
    assert any(o["status"] == "WRONG_ANSWER" for a in attempts for o in a["outcomes"])

    probe = "Return the numbers in xs.\nr = []\nfor x in xs:\n    if x >= 2:\n        r.append(x * 3)\n"
    for checkpoint in sorted((run / "checkpoints").glob("step_*")):
        for role in ROLES:
            AutoModelForCausalLM.from_pretrained(checkpoint / role)
            tokenizer = AutoTokenizer.from_pretrained(checkpoint / role)
            original = AutoTokenizer.from_pretrained(models[role])
            assert tokenizer.get_vocab() == original.get_vocab()
            assert tokenizer.encode(probe) == original.encode(probe)
