import json
from pathlib import Path

from benchmarks.experiments.coevolution import generations
from configs.load import load_run

CONFIG = load_run(["--config", "toy"])[0].to_config()


def test_generations_are_those_before_training_and_at_the_ends_of_stages(monkeypatch):
    run = Path("run")
    results = json.dumps({"stages": [{"step": 13}, {"step": 26}]})
    monkeypatch.setattr(Path, "read_text", lambda path: results)
    found = generations(run, CONFIG)
    assert [g.name for g in found] == ["before", "stage 1", "stage 2"]
    assert found[0].models == {role: Path("sparring/examples/toy", role) for role in CONFIG.policies}
    assert found[2].models["discriminator"] == run / "checkpoints" / "step_000026" / "discriminator"
