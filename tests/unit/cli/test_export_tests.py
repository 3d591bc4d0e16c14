"""The data set of the tests that failed programs in a run."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from sparring.cli.export_tests import main
from sparring.games.multistage.rules import MultistageRules
from sparring.problems.formats import load_dataset
from sparring.problems.loader import load_problems
from tests.recorded import DOUBLE, PROGRAMS, record_with_problems, spar

SUITES = [
    "assert f(1) == 2\nassert f(3) == 6\nassert f(2) == 4\nassert f(5) == 11",
    "assert f(3) == 6\nassert f(n=4) > 7",
]
"""f(3) fails two of PROGRAMS, f(1) one; f(2) is the problem's own test, and f(5) is wrong."""


@pytest.fixture
def run(tmp_path: Path, sandbox) -> Path:
    rules = MultistageRules(test_format="strict")
    steps = [[spar(rules, PROGRAMS, [suite], sandbox)] for suite in SUITES]
    return record_with_problems(tmp_path / "a", rules, *steps)


def row_of(data: Path) -> dict:
    (row,) = map(json.loads, (data / "train.jsonl").read_text().splitlines())
    return row


def test_the_tests_that_failed_programs_are_read_by_others_and_by_us(run: Path, tmp_path: Path, capsys):
    main([str(run), "--to", str(tmp_path / "set")])
    assert "3 tests of 1 of 1 problems" in capsys.readouterr().out
    row = row_of(tmp_path / "set")
    kills = {"assert f(3) == 6": 4, "assert f(n=4) > 7": 1, "assert f(1) == 2": 1}
    assert dict(zip(row["tests"], row["kills"], strict=True)) == kills
    assert row["tests"][0] == "assert f(3) == 6"
    (of_apps,) = load_dataset(tmp_path / "set/train.jsonl", "apps")
    assert len(of_apps.hidden_tests or of_apps.baseline_tests) == 2
    (problem,) = load_problems(tmp_path / "set/problems.json")
    assert set(problem.hidden_tests) == set(row["tests"])  # one of them is its own hidden test
    assert problem.baseline_tests == DOUBLE.baseline_tests


def test_problems_keep_all_that_a_problem_file_can_hold(run: Path, tmp_path: Path) -> None:
    """Their own hidden tests, limits and further solutions, too."""
    file = run / "problems.json"
    (entry,) = json.loads(file.read_text())["problems"]
    more = {
        "hidden_tests": ["assert f(-9) == -18"], "limits": {"cpu_s": 3}, "preamble": "import math",
        "other_solutions": ["def f(n): return n + n"], "wrong_solutions": ["def f(n): return n"],
    }  # fmt: skip
    file.write_text(json.dumps({"problems": [entry | more]}))
    main([str(run), "--to", str(tmp_path / "set")])
    (before,) = load_problems(file)
    (problem,) = load_problems(tmp_path / "set/problems.json")
    assert problem.hidden_tests[:3] == before.evaluation_tests + problem.hidden_tests[1:3]
    assert len(problem.hidden_tests) == 4 and len(set(problem.hidden_tests)) == 4
    assert replace(problem, hidden_tests=()) == replace(before, hidden_tests=())


def test_a_program_counts_once_however_many_suites_of_a_step_hold_the_test(tmp_path: Path, sandbox) -> None:
    rules = MultistageRules(test_format="strict")
    step = [spar(rules, PROGRAMS, ["assert f(3) == 6"] * 3, sandbox)]
    main([str(record_with_problems(tmp_path / "b", rules, step)), "--to", str(tmp_path / "set")])
    row = row_of(tmp_path / "set")
    assert (row["tests"], row["kills"]) == (["assert f(3) == 6"], [2])


def test_only_tests_that_failed_enough_programs(run: Path, tmp_path: Path, refused) -> None:
    main([str(run), "--to", str(tmp_path / "set"), "--least-kills", "2"])
    assert row_of(tmp_path / "set")["tests"] == ["assert f(3) == 6"]
    for least, said in ((9, "no test of a discriminator failed 9"), (0, "give 1 or more")):
        assert said in refused(main, run, "--to", tmp_path / "none", "--least-kills", least)
    assert not (tmp_path / "none").exists()
    assert "not an empty directory" in refused(main, run, "--to", tmp_path / "set")
