"""What sparring/cli/show prints of runs that were recorded by the games and the record themselves."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from sparring.cli.show import main
from sparring.core.problem import Problem
from sparring.core.verdict import OutputTest
from sparring.games import GameRules
from sparring.games.boards.rules import TicTacToeRules
from sparring.games.multistage.rewards import RewardRules
from sparring.games.multistage.rules import MultistageRules
from sparring.games.prediction.rules import OutputPredictionRules
from sparring.games.programs.code_execution import CodeExecutionRules
from sparring.games.programs.code_golf import CodeGolfRules
from sparring.games.programs.unit_tests import UnitTestsRules
from tests.playing import Breaking, play, reader
from tests.recorded import DOUBLE, PROGRAMS, match, record, spar

ROOT = Path(__file__).parents[3]
Show = Callable[..., str]
HELD_OUT = {
    "generator_pass_rate": 0.125,
    "generator_test_rate": 0.25,
    "test_validity": 0.5,
    "kill_rate": 0.25,
}
HEADS = {name.replace("_", " ") for name in HELD_OUT}


@pytest.fixture
def show(capsys) -> Show:
    def shown(*arguments: object) -> str:
        capsys.readouterr()
        main([str(argument) for argument in arguments])
        return capsys.readouterr().out

    return shown


@pytest.fixture
def run(tmp_path: Path, sandbox) -> Path:
    rewards = RewardRules(validity_slots=3, validity_weight=0.3)
    rules = MultistageRules(test_format="strict", rewards=rewards)
    suites = ["assert f(1) == 2\nassert f(3) == 6\nassert f(3)==6", "hm", "assert f(1) == 5"]
    record(tmp_path / "a", rules, [spar(rules, PROGRAMS, suites, sandbox)], [])
    return tmp_path / "a"


def record_solver(run: Path, rules, programs: list[str], sandbox=None, problem: Problem = DOUBLE) -> None:
    record(run, rules, [play(rules.game(), problem, [reader("generator", programs)], sandbox)])


def test_a_program_shows_what_each_test_did_to_it(show: Show, run: Path) -> None:
    said = show(run, "--step", 1, "--player", "generator")
    second = said[said.index("generator #1") : said.index("generator #2")]
    assert "generator #1 at double, step 1, stage 2, alternating" in second
    assert "reward 0.5 = share of the tests passed, of those that count (1 of 2 passed)" in second
    assert "| def f(n): return 7 if n == 3 else n * 2" in second
    assert "assert f(1) == 2  [discriminator #0]: PASSED" in second
    assert "assert f(3) == 6  [discriminator #0]: WRONG_ANSWER" in second
    third = said[said.index("generator #2") :]
    assert "RUNTIME_ERROR" in third and "division by zero" in third


def test_a_suite_shows_the_formula_of_its_reward_and_what_became_of_each_test(show: Show, run: Path) -> None:
    said = show(run, "--problem", "double", "--player", "discriminator")
    first, second, third = said.split("\n\n")[:3]
    # programs pass 1, 1/2 and 0 of its two valid tests: .65 * .667
    assert "reward 0.4333 = (0.3 + 0.7 * (1 - 0.50 pass rate)) * 0.67 validity (2 valid of 3 tests)" in first
    assert "assert f(1) == 2: valid; fails programs #2" in first
    assert "assert f(3) == 6: valid; fails programs #1 #2" in first
    assert "assert f(3) == 6: repeats an earlier test" in first
    assert "fault_" not in first and "valid 2" in first and "duplicates 1" in first
    assert "reward -1 = nothing in the suite parses" in second
    assert "hm: not a test in the asked form" in second
    assert "fault_parse 1" in second and "fault_size" not in second and "valid 0" in second
    assert "reward 0 = no test of the suite is valid" in third
    assert "assert f(1) == 5: the reference fails it (the reference: WRONG_ANSWER" in third


def test_a_program_that_does_not_parse_says_so_once_for_all_tests(show, tmp_path: Path, sandbox) -> None:
    record_solver(tmp_path, UnitTestsRules(), ["def f(n) return", "def f(n): return 1 / 0"], sandbox)
    first, second = show(tmp_path, "--step", 1).split("generator #1")
    assert first.count("SYNTAX_ERROR") == 1 and "all 2 tests: SYNTAX_ERROR" in first
    assert second.count("RUNTIME_ERROR") == 2, "which tests raise it is of interest"


def test_an_attempt_is_shown_with_what_it_was_asked_in_each_turn(show: Show, run: Path) -> None:
    asked = ("--step", 1, "--player", "generator", "--limit", 1)
    said = show(run, *asked, "--prompts")
    turns = [line.strip() for line in said.splitlines() if line.startswith(("  > ", "  < "))]
    assert turns[:3] == ["> Return n doubled.?", "< a thought", "> 2"] and turns[-1] == "> 5"
    assert said.index("> 5") < said.index("| def f(n): return n + n")
    assert "Return n doubled" not in show(run, *asked)
    rows = [json.loads(line) for line in (run / "episodes.jsonl").read_text().splitlines()]
    for row in rows:
        del row["prompts"]
    (run / "episodes.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert "its prompts are not stored" in show(run, *asked, "--prompts")


def test_the_worst_come_first_and_the_rest_is_counted(show: Show, run: Path) -> None:
    said = show(run, "--step", 1, "--worst", "--limit", 2)
    assert said.index("discriminator #1") < said.index("generator #2")
    assert "generator #0" not in said
    assert "4 more attempts: --limit 0 prints all" in said
    assert "more attempts" not in show(run, "--step", 1, "--limit", 0)
    with pytest.raises(SystemExit):
        show(run, "--limit", -1)


def test_without_a_question_the_steps_and_problems_of_a_run(show: Show, run: Path) -> None:
    said = show(run)
    for expected in ("generator", "valid", "held out", "alternating", "0.75", "0.25", "double: 1"):
        assert expected in said
    assert "problems played (1), by step:" in said


@pytest.mark.parametrize("width", [80, 120])
def test_no_word_of_a_runs_tables_is_cut_off_on_a_narrow_terminal(show: Show, run: Path, monkeypatch, width):
    row = {"step": 1, "stage": 2, "phase": "discriminator", "validity": 0.75, "kill_rate": 0.5}
    row |= {"generator_reward": 0.5, "discriminator_reward": -0.25, "held_out": HELD_OUT}
    rows = [{"step": 0, "held_out": HELD_OUT}, row]
    (run / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", str(width))
    said = re.sub(r"\x1b\[[\d;]*m", "", show(run))
    assert "…" not in said
    words = said.replace("│", " ").replace("┃", " ").split()
    for word in ("stage", "phase", "rate", "validity", "kill", "-0.25", "0.12", "held", "out"):
        assert word in words
    assert words.count("discriminator") == 2, "a head and a phase"
    assert any(set(re.split(r"  +", line)) >= HEADS for line in said.replace("┃", "  ").splitlines())
    tables = [line for line in said.splitlines() if line[:1] in "┏┃┡│└"]
    assert tables and all(len(line) <= width for line in tables)


def test_a_run_without_evaluations_has_no_table_of_them(show: Show, run: Path) -> None:
    (run / "metrics.jsonl").write_text(json.dumps({"step": 1, "phase": "alternating"}) + "\n")
    assert "held out" not in show(run)


def test_a_run_is_a_directory_a_name_or_the_latest(show: Show, run: Path) -> None:
    output = run.parent
    record(output / "nested" / "b", UnitTestsRules(), [])
    os.utime(run / "metrics.jsonl", (1, 1))
    assert str(run) in show(run) and str(run) in show("a", "--output-dir", output)
    assert "nested/b" in show("--output-dir", output)


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["--step", "7"], "no attempt with step 7 in episodes.jsonl; it has steps 1 to 1"),
        (["--problem", "doubel"], "problem doubel in episodes.jsonl; such as double (1 in all)"),
        (["--player", "author"], "such as generator, discriminator (2 in all)"),
        (["--worst"], "are about attempts: give --step, --problem or --player"),
    ],
)
def test_what_is_not_there(run: Path, refused, arguments: list[str], reason: str) -> None:
    assert reason in refused(main, run, *arguments)


def test_no_such_run(run: Path, tmp_path: Path, refused) -> None:
    said = refused(main, "other", "--output-dir", run.parent)
    assert f"other: no run (a directory with metrics.jsonl); the latest runs in {run.parent}: a" in said
    empty = tmp_path / "empty"
    assert f"there is none in {empty}" in refused(main, "--output-dir", empty)


def test_an_attempt_without_reward_says_why(show: Show, tmp_path: Path) -> None:
    record_solver(tmp_path, UnitTestsRules(), ["def f(n): return n"], Breaking())
    assert "no reward: the sandbox failed, so the attempt was dropped" in show(tmp_path, "--step", 1)


def test_another_versions_config_leaves_components_and_tests(show: Show, run: Path) -> None:
    (run / "config.yaml").write_text("game: {kind: multistage, gone: 1}\n")
    said = show(run, "--step", 1, "--player", "generator")
    assert "reward 0.5 (1 of 2 passed)" in said and "components: pass_rate 0.5" in said


def test_every_solver_game_says_what_it_paid_for(show: Show, tmp_path: Path, sandbox) -> None:
    programs = ["def f(n): return n + n", "def f(n): return 0", "def f(n) return", "1 / 0"]
    expected: dict[GameRules, list[str]] = {
        UnitTestsRules(): [
            "reward 2 = 1.00 for the share of tests passed + 1.00 for passing all (2 of 2 passed)",
            "reward 0.5 = 0.50 for the share of tests passed + 0.00 for passing all (1 of 2 passed)",
        ],
        UnitTestsRules(answer_format="reasoning"): ["reward 0 = the answer does not keep the format"],
        CodeExecutionRules(gate_on_tests=True): [
            "reward 0.5 = runs and prints nothing (3 of 3 passed)",
            "reward 0 = runs and prints nothing, but fails a test of the problem",
            "reward -0.5 = no valid Python",
            "reward -1 = fails while it runs, or is stopped by a limit",
        ],
        CodeGolfRules(): [
            "reward 1.41 = 1.00 for the share of tests passed + 0.41 for having 22 bytes",
            "reward 0.5 = 0.50 for the share of tests passed - 0 for its fault",
            "reward -1 = 0.00 for the share of tests passed - 1 for its fault",
        ],
    }
    for number, (rules, reasons) in enumerate(expected.items()):
        record_solver(tmp_path / str(number), rules, programs, sandbox)
        said = show(tmp_path / str(number), "--step", 1)
        for reason in reasons:
            assert reason in said


def test_predictions_and_boards_say_what_they_paid_for(show: Show, tmp_path: Path, sandbox) -> None:
    rules = OutputPredictionRules()
    author = reader("author", ["print(6)", "import os"])
    opponent = reader("opponent", ["6", "5"], attempts=2, seed=2)
    record(tmp_path / "p", rules, [play(rules.game(), DOUBLE, [author, opponent], sandbox)])
    record(tmp_path / "b", TicTacToeRules(), [match()])
    said = show(tmp_path / "p", "--step", 1) + show(tmp_path / "b", "--step", 1)
    for expected in (
        "reward 0 = 50% of the predictions were wrong",
        "the program breaks a rule: banned",
        "reward 1 = predicted the output",
        "reward -1 = predicted another output",
        "the program prints '6'  [author #0]: WRONG_ANSWER",
        "reward -2 = made an illegal move",
        "reward 0 = the other side made an illegal move",
    ):
        assert expected in said


def test_whole_programs_show_what_was_asked_and_expected(show: Show, tmp_path: Path, sandbox) -> None:
    adding = replace(
        DOUBLE, id="add", function_signature="", baseline_tests=(OutputTest(stdin="1 2", stdout="3\n"),)
    )
    record_solver(tmp_path, UnitTestsRules(), ["print(4)"], sandbox, adding)
    said = show(tmp_path, "--problem", "add")
    assert "stdin '1 2' prints '3\\n'  [problem]: WRONG_ANSWER (other output than expected: 4)" in said


def test_help_needs_neither_torch_nor_rich() -> None:
    code = (
        "import sys; from sparring.cli.show import main\n"
        "try: main(['--help'])\n"
        "except SystemExit: print([m for m in ('torch', 'ray', 'rich', 'pydantic', 'yaml') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert "--worst" in done.stdout and done.stdout.splitlines()[-1] == "[]"
