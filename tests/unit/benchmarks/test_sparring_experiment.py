import argparse
from dataclasses import replace

import pytest

from benchmarks.experiments import particular, runs, sparring
from benchmarks.experiments.games import spread
from configs.load import load_run
from lab.problems import toy_problems, with_random_tests
from sparring.runtime.problem_sets import load_splits


def result(*by_stage: float) -> dict:
    before, after = (dict.fromkeys(sparring.KEYS, rate) for rate in (0.4, by_stage[-1]))
    stages = [{"held_out": {"generator_pass_rate": rate}} for rate in by_stage]
    return {"held_out": {"before": before, "after": after}, "stages": stages}


def test_arms_are_compared_by_what_each_gained(monkeypatch, capsys):
    by_stage = {"adversarial": [(0.5, 0.9), (0.7, 0.7)], "frozen": [(0.4, 0.6), (0.4, 0.6)]}
    monkeypatch.setattr(sparring, "run", lambda arm, words, seed, options: result(*by_stage[arm][seed - 1]))
    options = argparse.Namespace(arms=["adversarial", "frozen"], seeds=[1, 2])
    figures = sparring.compare(options, sparring.ARMS)
    assert figures["adversarial"]["pass rate by stage"] == [0.6, 0.8]
    assert figures["adversarial"]["generator_pass_rate after"] == [0.9, 0.7]
    assert [round(figures[arm]["gain"], 9) for arm in options.arms] == [0.4, 0.2]
    assert "0.600 0.800" in capsys.readouterr().out


def test_a_score_that_nobody_has_is_shown_as_missing(monkeypatch, capsys):
    lacks = result(0.5)
    del lacks["held_out"]["after"]["kill_rate"], lacks["stages"][0]["held_out"]["generator_pass_rate"]
    monkeypatch.setattr(sparring, "run", lambda *_: lacks)
    figures = sparring.compare(argparse.Namespace(arms=["frozen"], seeds=[1]), sparring.ARMS)
    assert figures["frozen"]["kill_rate after"] == figures["frozen"]["pass rate by stage"] == [None]
    assert "-" in capsys.readouterr().out.split()


def test_a_run_that_was_made_with_other_arguments_is_not_taken_for_this_one(tmp_path, monkeypatch):
    made = []
    monkeypatch.setattr(runs.subprocess, "run", lambda command, check: made.append(command))
    runs.finished_run("toy", "one", tmp_path, ["--sed", "1"])  # which made nothing
    runs.finished_run("toy", "one", tmp_path, ["--seed", "1"])
    (tmp_path / "one").mkdir()
    with pytest.raises(SystemExit, match=r"one was made with other arguments .*--output"):
        runs.finished_run("toy", "one", tmp_path, ["--seed", "2"])
    assert len(made) == 2, "that of the other arguments is not made"


def test_random_tests_replace_those_of_the_same_problems_in_the_same_order(tmp_path):
    options = argparse.Namespace(output=tmp_path, config="toy")
    blind, held_out = with_random_tests(toy_problems("train"), 12, False), toy_problems("held_out")
    arguments = sparring.on_files(blind, held_out, "blind", options)
    config = load_run(["--config", "toy", *sparring.ARMS["blind_tests"], *arguments])[0].to_config()
    assert load_splits(config) == (blind, held_out)


def test_where_few_inputs_show_a_mistake_every_arm_practises_the_same_problems(tmp_path):
    options = argparse.Namespace(output=tmp_path, config="toy:edges")
    own, played = [], []
    for arm, words in particular.ARMS.items():
        given = ["--config", options.config, *words, *particular.on_drawn_tests(arm, options)]
        train, held_out = load_splits(load_run(given)[0].to_config())
        own.append([len(p.baseline_tests) for p in train])
        played.append(([replace(p, baseline_tests=()) for p in train], held_out))
    assert [counts[0] for counts in own] == [4, 4, 4, 12, 96, 12, 4, 4]
    assert all(one == played[0] for one in played)


def test_a_game_s_scores_are_shown_with_their_spread():
    assert spread([1.0, 3.0]) == {"mean": 2, "std": 2**0.5, "by_seed": [1, 3]}
    assert spread([1.0])["std"] == 0
