import json
from pathlib import Path

from benchmarks.experiments import coevolution
from benchmarks.experiments.coevolution import generations
from configs.load import load_run

CONFIG = load_run(["--config", "embedded"])[0].to_config()


def test_generations_are_those_before_training_and_at_the_ends_of_stages(monkeypatch):
    warm = {role: Path("warm") / role for role in CONFIG.policies}
    monkeypatch.setattr(coevolution, "ensure_embedded", lambda roles, rules, settings: warm)
    run = Path("run")
    results = json.dumps({"stages": [{"step": 13}, {"step": 26}]})
    monkeypatch.setattr(Path, "read_text", lambda path: results)
    found = generations(run, CONFIG)
    assert [g.name for g in found] == ["before", "stage 1", "stage 2"]
    assert found[0].models == warm
    assert found[2].models["discriminator"] == run / "checkpoints" / "step_000026" / "discriminator"
