"""What a report takes from a run's other files: its config, its checkpoint, its data sets."""

import json
from dataclasses import replace
from pathlib import Path

import yaml

from lab.problems import Split, toy_problems
from sparring.core.project_files import EXAMPLES
from sparring.sweeps.reporting import likeness, parameters, population
from sparring.sweeps.reports import by_setting, over
from sparring.sweeps.runs import RunFiles
from sparring.sweeps.spec import Replicate, Setting, Sweep
from sparring.tracking.run_record import RunRecord
from tests.datasets import problem_file


def test_a_models_size_is_that_of_what_was_saved(tmp_path, monkeypatch):
    saved = tmp_path / "checkpoints" / "step_000001"
    saved.mkdir(parents=True)
    (saved / "generator").symlink_to(EXAMPLES / "toy/generator")
    (tmp_path / "checkpoints" / "best").symlink_to("step_000001")
    found = parameters(RunFiles(tmp_path, "s", "seed1"))
    assert found is not None and 300_000 < found < 500_000
    assert parameters(RunFiles(tmp_path / "elsewhere", "s", "seed1")) is None
    (saved / "generator").unlink()
    (saved / "generator").mkdir()
    base = {"base_model_name_or_path": str(EXAMPLES / "toy/generator")}
    (saved / "generator" / "adapter_config.json").write_text(json.dumps(base))
    assert parameters(RunFiles(tmp_path, "s", "seed1")) == found, "of the model beneath the adapter"
    cached = tmp_path / "cache" / "models--nobody--mine"
    (cached / "refs").mkdir(parents=True)
    (cached / "refs" / "main").write_text("abc")
    (cached / "snapshots").mkdir()
    (cached / "snapshots" / "abc").symlink_to(EXAMPLES / "toy/generator")
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "cache"))
    (saved / "generator" / "adapter_config.json").write_text('{"base_model_name_or_path": "nobody/mine"}')
    assert parameters(RunFiles(tmp_path, "s", "seed1")) == found, "from the hub's cache"


def test_a_held_out_problem_is_like_the_nearest_one_trained_on(tmp_path, capsys):
    def saying(split: Split, *texts: str) -> Path:
        described = [replace(p, description=d) for p, d in zip(toy_problems(split), texts, strict=False)]
        return problem_file(tmp_path / f"{split}.json", described)

    train = saying("train", "Return the sum of n.", "Something else entirely")
    held_out = saying("held_out", "return the PRODUCT of n")
    problems = {"file": str(train), "held_out": {"file": str(held_out)}}
    models = {role: {"model": str(EXAMPLES / "toy" / role)} for role in ("generator", "discriminator")}
    (tmp_path / "config.yaml").write_text(yaml.safe_dump({**models, "problems": problems}))
    assert list(likeness(RunFiles(tmp_path, "s", "seed1")).values()) == [4 / 6]
    (tmp_path / "old").mkdir()
    (tmp_path / "old" / "config.yaml").write_text(yaml.safe_dump({**models, "no_such_key": 1}))
    assert likeness(RunFiles(tmp_path / "old", "s", "seed1")) == {}
    assert "its config is of another version" in capsys.readouterr().out
    train.unlink()
    assert likeness(RunFiles(tmp_path, "s", "seed1")) == {}, "the other tables do not need it"


def test_a_population_is_shown_best_first_with_the_keys_it_came_to(tmp_path):
    settings = tuple(Setting(name=f"learning_rate={r}", keys={"learning_rate": r}) for r in (0.1, 0.2))
    sweep = Sweep(
        kind="pbt",
        config="debug",
        settings=settings,
        replicates=(Replicate(name="seed1", seed=1),),
        metric="score",
        mutations={"learning_rate": [0.1, 0.2, 0.3]},
    )
    runs = []
    for name, began, ended, score in (("0-seed1.g2", 0.1, 0.3, 0.5), ("1-seed1", 0.2, 0.2, 0.75)):
        (tmp_path / name).mkdir()
        (tmp_path / name / "config.yaml").write_text(yaml.safe_dump({"learning_rate": ended}))
        RunRecord(tmp_path / name).add({"step": 4, "held_out": {"score": score}})
        RunRecord(tmp_path / name).finish({})
        runs.append(RunFiles(tmp_path / name, f"learning_rate={began}", "seed1"))
    assert population(by_setting(runs), "score", sweep).rows == [
        ["1-seed1", "learning_rate=0.2", "learning_rate=0.2", 0.75],
        ["0-seed1", "learning_rate=0.1", "learning_rate=0.3", 0.5],
    ]


def test_two_runs_with_one_seed_are_one_sample(tmp_path):
    for name, seed in (("first", 1), ("again", 1), ("other", 2)):
        (tmp_path / name).mkdir()
        (tmp_path / name / "config.yaml").write_text(f"seed: {seed}\n")
    runs = [RunFiles(tmp_path / name, "s", "") for name in ("first", "again", "other")]
    found = over(runs, lambda run: 1.0 if run.directory.name == "other" else 0.0)
    assert found is not None and list(found.by_seed) == [0.0, 1.0]
