import json

import pytest

from benchmarks.experiments import games, runs, sparring
from benchmarks.experiments.games import SCORES
from configs.load import load_run


@pytest.mark.parametrize("recipe", ["toy", *SCORES])
def test_every_recipe_runs_in_one_process(recipe):
    config = load_run(["--config", recipe, *runs.in_one_process(recipe)])[0].to_config()
    assert config.local
    for role in config.policies:
        seat = config.policy(role)
        assert (seat.engine.kind, seat.learner.threads) == ("transformers", 1)


@pytest.mark.parametrize("arm", sparring.ARMS)
def test_every_arm_s_arguments_are_keys(arm):
    load_run(["--config", "toy", *sparring.ARMS[arm], *runs.SHORT])[0].to_config()


def test_the_short_run_s_arguments_are_keys():
    load_run(["--config", "spiral_kuhn", *games.SHORT])[0].to_config()


def test_a_finished_run_is_not_run_again_and_an_interrupted_one_goes_on(tmp_path, monkeypatch):
    commands = []
    monkeypatch.setattr(runs.subprocess, "run", lambda command, check: commands.append(command))
    for name, file in (("done", "training_results.json"), ("begun", "config.yaml")):
        (tmp_path / name).mkdir()
        (tmp_path / name / file).write_text("{}")
    for name in ("done", "begun", "new"):
        assert runs.finished_run("debug", name, tmp_path, ["--seed", "3"]) == tmp_path / name
    names = [("--resume" in c, c[c.index("--run-name") + 1]) for c in commands]
    assert names == [(True, "begun"), (False, "new")]


def test_scores_of_the_evaluations(tmp_path):
    rows = [{"step": 0, "held_out": {"a": 1.0}}, {"step": 1}, {"step": 2, "held_out": {"a": 2.0}}]
    (tmp_path / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert runs.held_out(tmp_path) == [(0, {"a": 1.0}), (2, {"a": 2.0})]


def test_finished_default_runs_are_taken_as_they_are(tmp_path):
    for seed in (1, 2):
        (tmp_path / f"adversarial-seed{seed}").mkdir()
        (tmp_path / f"adversarial-seed{seed}" / "training_results.json").write_text("{}")
    found = runs.sparring_runs([1, 2], tmp_path)
    assert found == [tmp_path / "adversarial-seed1", tmp_path / "adversarial-seed2"]
