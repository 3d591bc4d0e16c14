"""A trial as Tune sees it, without Tune's actors: what is told, continued, begun anew. The driver is a short script."""

from pathlib import Path
from types import SimpleNamespace

import pytest
import yaml
from ray.tune.result import TRIAL_INFO
from ray.tune.schedulers import ASHAScheduler, PopulationBasedTraining

import sparring.sweeps.driving
from sparring.core.errors import RunFailed
from sparring.sweeps.runs import RunFiles, mark_stopped
from sparring.sweeps.spec import Replicate, Setting, Sweep, write_recipe
from sparring.sweeps.tuning import DriverTrial, _keys, _mutation, _scheduler
from sparring.tracking.run_record import RunRecord

DRIVER = """
import json, pathlib, sys, yaml
words = dict(zip(sys.argv[1::2], sys.argv[2::2]))
run = pathlib.Path(words["--output-dir"]) / words["--run-name"]
config = yaml.safe_load(open(words["--config"]))
(run / "checkpoints").mkdir(parents=True, exist_ok=True)
(run / "config.yaml").write_text("{}")
done = [int(c.name[5:]) for c in (run / "checkpoints").iterdir()]
if "--resume-from" in words:
    (run / "started_from.txt").write_text(words["--resume-from"])
    done.append(int(words["--resume-from"][-6:]))
for step in range(max(done, default=-1) + 1, 4):
    row = {"step": step, "held_out": {"score": config["learning_rate"] * step}}
    with (run / "metrics.jsonl").open("a") as file:
        file.write(json.dumps(row) + "\\n")
    (run / "checkpoints" / f"step_{step:06d}").mkdir()
    if step == 2 and config["seed"] == 9:
        print("error: broken")
        sys.exit(2)
(run / "training_results.json").write_text("{}")
"""


@pytest.fixture
def directory(tmp_path, monkeypatch) -> Path:
    (tmp_path / "driver.py").write_text(DRIVER)
    monkeypatch.setattr(sparring.sweeps.driving, "_ROOT", tmp_path)
    sweep(tmp_path).save(tmp_path)
    return tmp_path


def sweep(directory: Path, kind: str = "pbt", **more) -> Sweep:
    recipe = directory / "recipe.yaml"
    recipe.write_text(yaml.safe_dump({"learning_rate": 0.5, "seed": 1}))
    rates = [Setting(name=f"rate {rate}", keys={"learning_rate": rate}) for rate in (0.25, 0.5)]
    return Sweep(
        **{"kind": kind, "config": str(recipe), "settings": tuple(rates), "metric": "score"} | more,
        replicates=(Replicate(name="seed1", seed=1),),
    )


def trial(directory: Path, name: str = "0-seed1", rate: float = 0.25) -> DriverTrial:
    keys = {"learning_rate": rate}
    asked = {"directory": str(directory), "omp_threads": None, "name": "another's", "keys": keys}
    return DriverTrial({"trial": asked, TRIAL_INFO: SimpleNamespace(trial_name=name, trial_id="x")})


def told(of: DriverTrial) -> list[tuple[int, float]]:
    """(step, score) of each report, until it is done."""
    found = []
    while not (result := of.step())["done"]:
        found.append((result["step"], result["score"]))
    assert found == [] or (result["step"], result["score"]) == found[-1]
    return found


def test_scores_are_told_and_a_finished_run_is_told_again_without_being_run(directory):
    assert told(trial(directory)) == [(1, 0.25), (2, 0.5), (3, 0.75)]
    (directory / "driver.py").unlink()
    assert told(trial(directory)) == [(1, 0.25), (2, 0.5), (3, 0.75)]


def test_a_run_that_was_interrupted_goes_on(directory):
    run = directory / "runs" / "0-seed1"
    (run / "checkpoints" / "step_000001").mkdir(parents=True)
    (run / "config.yaml").write_text("{}")
    for step in (0, 1):
        RunRecord(run).add({"step": step, "held_out": {"score": 8}})
    assert told(trial(directory)) == [(1, 8), (2, 0.5), (3, 0.75)]
    assert "--resume" not in (directory / "configs" / "0-seed1.yaml").read_text()


def test_what_was_stopped_stays_stopped(directory):
    told(trial(directory))
    run = directory / "runs" / "0-seed1"
    (run / "training_results.json").unlink()
    mark_stopped(run, 2, "asha")
    (directory / "driver.py").unlink()
    assert told(trial(directory))[-1] == (3, 0.75)


def test_a_run_that_dies_is_marked_with_its_error_and_can_be_tried_again(directory):
    (directory / "recipe.yaml").write_text(yaml.safe_dump({"seed": 9}))
    broken = trial(directory)
    assert [broken.step()["step"] for _ in range(2)] == [1, 2]
    with pytest.raises(RunFailed, match="broken"):
        broken.step()
    run = RunFiles(directory / "runs" / "0-seed1")
    assert (run.state, run.error) == ("failed", "broken")
    (directory / "recipe.yaml").write_text(yaml.safe_dump({"seed": 1}))
    assert told(trial(directory))[-1] == (3, 0.75) and run.state == "finished"


def test_a_metric_that_no_evaluation_has_ends_the_trial(directory):
    sweep(directory, metric="no_such").save(directory)
    with pytest.raises(RunFailed, match="has no no_such; held-out scores: score"):
        trial(directory).step()


@pytest.mark.parametrize("lacks", [0, 1])
def test_a_metric_may_be_missing_while_nothing_could_be_judged(directory, lacks):
    """The evaluation before training had it, or nobody has had it yet: then it is judged what the sandbox could judge."""
    lines = f'if step == 1: row["held_out"] = {{"unjudged": 8}}\n    if step == 0 and {lacks}: row["held_out"] = {{}}\n'
    written = '    with (run / "metrics.jsonl")'
    (directory / "driver.py").write_text(DRIVER.replace(written, f"    {lines}{written}"))
    assert told(trial(directory)) == [(2, 0.5), (3, 0.75)]


def test_a_mutation_stays_within_the_users_range_and_may_be_a_mapping(directory):
    rates = {"low": 0.1, "high": 0.4, "log": False}
    mutations = {"learning_rate": rates, "generator.learner.lora": [{"rank": 4}]}
    explored = _scheduler(sweep(directory, mutations=mutations))._custom_explore_fn
    for value, expected in ((0.48, 0.4), (0.08, 0.1), (0.2, 0.2)):
        config = {"trial": {"keys": {"learning_rate": value, "generator.learner.lora": {"rank": 4}}}}
        assert explored(config)["trial"]["keys"]["learning_rate"] == expected
    of = sweep(directory, settings=(Setting(name="s", keys={"generator.learner.lora": {"rank": 4}}),))
    write_recipe(directory, "0-seed1.g1", {"generator": {"learner": {"lora": {"rank": 8}}}})
    (directory / "runs" / "0-seed1.g1").mkdir(parents=True)
    assert _keys(of, of.trials[0], directory) == {"generator.learner.lora": {"rank": 8}}


def saved_by_another(directory: Path, tmp_path: Path) -> Path:
    """After its first step, at another rate."""
    donor = trial(directory, "1-seed1", 0.5)
    donor.step()
    saved = tmp_path / "saved"
    saved.mkdir()
    donor.save_checkpoint(str(saved))
    return saved


def test_a_member_that_goes_on_from_anothers_checkpoint_is_a_new_run_with_new_keys(directory, tmp_path):
    saved = saved_by_another(directory, tmp_path)
    told(trial(directory))
    member = trial(directory, rate=0.75)
    member.load_checkpoint(str(saved))
    assert told(member) == [(2, 1.5), (3, 2.25)]
    run = RunFiles(directory / "runs" / "0-seed1.g1")
    assert run.state == "finished"
    assert run.curve("score") == [(0, 0), (1, 0.5), (2, 1.5), (3, 2.25)], "the donor's up to there"
    keys = _keys(sweep(directory), sweep(directory).trials[0], directory)
    assert keys == {"learning_rate": 0.75}, "an interrupted member keeps them"


def test_a_member_that_was_only_paused_goes_on_in_its_own_run(directory, tmp_path):
    member = trial(directory)
    member.step()
    member.save_checkpoint(str(tmp_path))
    member.cleanup()
    again = trial(directory)
    again.load_checkpoint(str(tmp_path))
    assert told(again) == [(2, 0.5), (3, 0.75)]
    assert [path.name for path in (directory / "runs").iterdir()] == ["0-seed1"]


def test_a_member_that_was_paused_at_its_last_step_is_done(directory, tmp_path):
    member = trial(directory)
    assert told(member)[-1] == (3, 0.75)
    member.save_checkpoint(str(tmp_path))
    again = trial(directory)
    again.load_checkpoint(str(tmp_path))
    result = again.step()
    assert (result["step"], result["score"], result["done"]) == (3, 0.75, True)


def test_schedulers_and_what_a_member_may_change_to(tmp_path):
    ranges = {"learning_rate": {"low": 0.1, "high": 0.4, "log": True}, "curriculum.attempts": [2, 4]}
    pbt = _scheduler(sweep(tmp_path, mutations=ranges, interval=2))
    asha = _scheduler(sweep(tmp_path, "asha", interval=2))
    assert isinstance(pbt, PopulationBasedTraining) and isinstance(asha, ASHAScheduler)
    assert _mutation([2, 4]) == [2, 4]
    assert all(0.1 <= _mutation(ranges["learning_rate"]).sample() <= 0.4 for _ in range(20))
    whole = {_mutation({"low": 2, "high": 3, "log": False}).sample() for _ in range(50)}
    assert whole == {2, 3}


def test_a_member_that_was_interrupted_before_it_began_anew_begins_there(directory, tmp_path):
    saved = saved_by_another(directory, tmp_path)
    told(trial(directory))
    script = (directory / "driver.py").read_text()
    (directory / "driver.py").write_text("import sys; sys.exit('error: no room')")
    member = trial(directory, rate=0.75)
    member.load_checkpoint(str(saved))
    with pytest.raises(RunFailed, match="no room"):
        member.step()

    (directory / "driver.py").write_text(script)
    again = trial(directory, rate=0.75)
    assert told(again) == [(2, 1.5), (3, 2.25)]
    assert RunFiles(directory / "runs" / "0-seed1.g1").curve("score")[:2] == [(0, 0), (1, 0.5)], "the donor's"
