"""Stored attempts, rewarded again."""

import asyncio
import json
from dataclasses import replace
from pathlib import Path

import pytest

from sparring.cli import league
from sparring.cli.rejudge import main
from sparring.evaluation.replaying import play_again
from sparring.games import GameRules
from sparring.games.boards.rules import TicTacToeRules
from sparring.games.multistage.rules import MultistageRules
from sparring.games.programs.code_execution import CodeExecutionRules
from sparring.games.programs.code_golf import CodeGolfRules
from sparring.games.programs.unit_tests import UnitTestsRules
from sparring.problems.references import judge_references
from tests.playing import play, reader
from tests.recorded import DOUBLE, PROGRAMS, match, record, record_with_problems, spar

SUITES = ["assert f(1) == 2\nassert f(3) == 7", "hm", "assert f(3) == 6"]


@pytest.fixture
def run(tmp_path: Path, sandbox) -> Path:
    rules = MultistageRules()
    steps = [[spar(rules, PROGRAMS, SUITES, sandbox)], [spar(rules, PROGRAMS[1:], SUITES[1:], sandbox)]]
    return record_with_problems(tmp_path / "a", rules, *steps)


def rejudged(run: Path, *arguments: str) -> dict:
    file = run / "rejudged.json"
    main([str(run), "--sandbox", "process", "--json", str(file), *arguments])
    return json.loads(file.read_text())


def test_by_the_same_rules_every_attempt_earns_what_it_earned(run: Path) -> None:
    report = rejudged(run)
    for player, attempts in (("generator", 5), ("discriminator", 5)):
        of = report[player]
        assert of["attempts"] == attempts and of["changed"] == 0 and of["mean_then"] == of["mean_now"]
        assert of["rank_agreement"] == 1.0


@pytest.mark.parametrize("rules", [UnitTestsRules(), CodeExecutionRules(gate_on_tests=True), CodeGolfRules()])
def test_the_other_games_with_programs_are_judged_again(tmp_path, sandbox, monkeypatch, rules: GameRules):
    monkeypatch.setattr(CodeGolfRules, "refuse", lambda rules, problem: None)  # DOUBLE is no grid task
    programs = ["def f(n): return n + n", "def f(n): return 0", "def f(n) return", "1 / 0"]
    episode = play(rules.game(), DOUBLE, [reader("generator", programs)], sandbox)
    found = rejudged(record_with_problems(tmp_path / "a", rules, [episode]))["generator"]
    assert (found["attempts"], found["changed"], found["rank_agreement"]) == (4, 0, 1)


def test_programs_are_judged_on_tests_in_the_form_that_the_reference_decided(tmp_path: Path, sandbox) -> None:
    """The reference returns an object, so its test is code; as data, the program's object would fail it."""
    program = (
        "class Box:\n    def __init__(self, n): self.n = n\n    def add(self, k): self.n += k\n"
        "    def total(self): return self.n\n\ndef f(n): return Box(n * 2)\n"
    )
    test = "x = f(2)\nx.add(1)\nassert x.total() == 5"
    boxed = replace(DOUBLE, reference_solution=program, baseline_tests=(test,))
    ((known,), failing) = asyncio.run(judge_references([boxed], sandbox))
    rules = UnitTestsRules()
    episode = play(rules.game(), known, [reader("generator", [program])], sandbox)
    assert not failing and episode.trajectories[0].components["solved"] == 1.0
    run = record_with_problems(tmp_path / "a", rules, [episode], problem=boxed)
    assert rejudged(run)["generator"]["changed"] == 0


def test_other_rules_pay_otherwise(run: Path) -> None:
    changes = ("--game.rewards.wrong-output-penalty", "1", "--game.rewards.partial-credit", "never")
    report = rejudged(run, "--", *changes)
    generator, discriminator = report["generator"], report["discriminator"]
    assert generator["changed"] == 1 / 5 and generator["mean_now"] == 1 / 5  # half a reward is none
    assert discriminator["changed"] == 1 / 5 and discriminator["mean_now"] < discriminator["mean_then"]


def test_a_reward_is_measured_by_the_tests_that_it_does_not_see(run: Path, capsys) -> None:
    """Of the second step's programs none is right, and none is paid without partial credit."""
    report = rejudged(run, "--hidden", "--", "--game.rewards.partial-credit", "never")
    assert "how well it tells right programs from wrong ones" in capsys.readouterr().out
    then, now = (report["told_apart"][when] for when in ("then", "now"))
    assert then["right_over_wrong"] == now["right_over_wrong"] == 1.0
    assert now["signal_without_right"] == 0.0


def test_other_tests_pay_otherwise(run: Path, tmp_path: Path, refused) -> None:
    """The second program is wrong for 3 only, which the problem's own tests do not try."""
    tests = tmp_path / "harder.json"
    (entry,) = json.loads((run / "problems.json").read_text())["problems"]
    first, third = "assert f(0) == 0", "assert f(3) == 6"
    entry |= {"baseline_tests": [first], "hidden_tests": [first, third]}
    tests.write_text(json.dumps({"problems": [entry]}))
    by_both = ("--", "--game.baseline-in-reward")
    own = rejudged(run, *by_both)["generator"]
    other = rejudged(run, "--tests", str(tests), *by_both)["generator"]
    assert other["mean_now"] < own["mean_now"]
    assert "add: -- --game.baseline-in-reward" in refused(main, run, "--tests", tests)
    tests.write_text(json.dumps({"problems": [entry | {"id": "another"}]}))
    told = refused(main, run, "--tests", tests, *by_both)
    assert "none of its problems is among those of the run" in told


def test_a_game_without_programs_is_refused(tmp_path: Path, refused) -> None:
    record(tmp_path / "b", TicTacToeRules(), [match()])
    assert "game tictactoe has no attempts that can be judged again" in refused(main, tmp_path / "b")


def test_a_result_that_could_not_be_written_is_refused_at_once(run: Path, tmp_path: Path, refused) -> None:
    assert "is a directory" in refused(main, run, "--json", tmp_path)
    assert "its directory does not exist" in refused(main, run, "--json", tmp_path / "no" / "file.json")


def test_options_of_another_kind_of_league_are_refused(run: Path, refused) -> None:
    assert "--matches has no effect" in refused(league.main, run, "--matches", "2")


@pytest.mark.parametrize(
    ("prompt", "fault"), [("<t>Double n.", 0.0), ("Write tests. For example f(0).", 1.0)]
)
def test_a_test_that_only_chat_prompts_show_is_valid_for_a_model_with_markers(sandbox, prompt, fault):
    rules = MultistageRules(stages=0)
    answers = {"generator": PROGRAMS[:1], "discriminator": ["assert f(0) == 0"]}
    prompts = {"generator": "<p>Double n.", "discriminator": prompt}
    found = asyncio.run(play_again(rules.game(), DOUBLE, answers, prompts, rules.stage_numbers, sandbox))
    assert found["discriminator"][0].components["fault_shown"] == fault
