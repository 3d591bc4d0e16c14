"""What a run trains on, and what it is measured on."""

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from configs.evaluate import EvaluateOptions
from configs.schema import Config
from lab.problems import toy_problems
from sparring.cli.evaluate import _problems as evaluated_problems
from sparring.core.stages import REASONING_STAGES
from sparring.core.verdict import OutputTest
from sparring.games.multistage.messages import attack, solve
from sparring.games.multistage.rules import MultistageRules
from sparring.games.programs.code_execution import CodeExecutionRules
from sparring.problems.formats import load_written
from sparring.problems.loader import ProblemFileError
from sparring.runtime.problem_sets import load_splits
from tests.datasets import DATA
from tests.datasets import written as rows_file
from tests.unit.runtime.makers import both


def entry(name: str, reference: str | None = None, **more: object) -> dict:
    """A problem as a file holds it; by default the identity is asked for."""
    return {
        "id": name,
        "description": f"Return n, as {name} does.",
        "function_signature": f"def {name}(n: int) -> int:",
        "baseline_tests": [f"assert {name}({n}) == {n}" for n in (2, 1, 3)],
        "difficulty": "easy",
        "tags": [],
        "reference_solution": f"def {name}(n): return n" if reference is None else reference,
    } | more


def written(file: Path, *entries: dict) -> Path:
    file.write_text(json.dumps({"problems": entries}))
    return file


def config_of(file: Path | str, held_out: Path | str | None = None, **problems: object) -> Config:
    if held_out is not None:
        problems["held_out"] = {"file": str(held_out)}
    return both({"model": "a"}, problems={"file": str(file), **problems})


def of_one(problems: dict, **sections: object) -> Config:
    return Config.model_validate(
        {"game": {"kind": "unit_tests"}, "problems": problems, "generator": {"model": "a"}} | sections
    )


@pytest.fixture
def two_files(tmp_path: Path) -> list[Path]:
    """To train on, and held out: a problem each, train and held_out."""
    return [written(tmp_path / f"{name}.json", entry(name)) for name in ("train", "held_out")]


def refuse(monkeypatch: pytest.MonkeyPatch, config: Config, *refused: str) -> None:
    monkeypatch.setattr(
        type(config.game), "refuse", lambda rules, problem: "no" if problem.id in refused else None
    )


@pytest.mark.parametrize("refused", ["train", "held_out"])
def test_a_problem_that_the_game_refuses_is_named_with_its_own_file(two_files, monkeypatch, refused):
    config = config_of(*two_files)
    refuse(monkeypatch, config, refused)
    with pytest.raises(ProblemFileError, match=rf"/{refused}\.json: problem {refused}: no$"):
        load_splits(config)


def test_problems_that_the_game_refuses_are_left_out_if_some_remain(tmp_path, monkeypatch, capsys):
    names = [f"f{i}" for i in range(10)]
    file = written(tmp_path / "problems.json", *map(entry, names))
    config = config_of(file, failing_references="leave_out")
    refuse(monkeypatch, config, *names[::3])
    train, held_out = load_splits(config)
    assert {p.id for p in train + held_out} == set(names) - set(names[::3])
    assert "left out; f0: no" in capsys.readouterr().out
    with pytest.raises(ProblemFileError, match="failing_references leave_out"):
        load_splits(config_of(file))
    refuse(monkeypatch, config, *names)
    with pytest.raises(ProblemFileError, match=r"no$"):
        load_splits(config)


def test_entries_that_are_no_problems_are_refused_or_left_out(tmp_path, capsys):
    files = [
        written(tmp_path / f"{bad}.json", entry(bad, reference="def f("), entry(good))
        for bad, good in ("fg", "hi")
    ]
    with pytest.raises(ProblemFileError, match="field 'reference_solution': not valid Python") as raised:
        load_splits(config_of(*files))
    assert any("problems.failing_references leave_out" in note for note in raised.value.__notes__)
    train, held_out = load_splits(config_of(*files, failing_references="leave_out"))
    assert [p.id for p in train] == ["g"] and [p.id for p in held_out] == ["i"]
    out = capsys.readouterr().out
    assert f"2 entries that cannot be read as problems left out, such as {files[0]}" in out


@pytest.fixture
def four_problems(tmp_path: Path) -> Path:
    """Of three tests each."""
    return written(tmp_path / "problems.json", *map(entry, ("f1", "f2", "f3", "f4")))


@pytest.mark.parametrize(("known", "left"), [(1, 1), (2, 2), (9, 3), (None, 3)])
def test_training_knows_as_many_tests_as_it_is_told_and_evaluation_has_all(four_problems, known, left):
    for problems in load_splits(config_of(four_problems, known_tests=known)):
        for one in problems:
            assert len(one.baseline_tests) == left and len(one.evaluation_tests) == 3
            assert one.baseline_tests == one.evaluation_tests[:left]


@pytest.mark.parametrize(("shown", "seen"), [(0, 0), (1, 1), (2, 2), (9, 3)])
def test_prompts_show_as_many_tests_as_they_are_told(four_problems, shown, seen):
    """All players see them, in training and held out, and whoever evaluates the data set."""
    options = EvaluateOptions(dataset=str(four_problems), policy="a", shown_tests=shown)
    splits = load_splits(config_of(four_problems, shown_tests=shown))
    for problems in (*splits, evaluated_problems(options, None)):
        for one in problems:
            prompts = solve(one, REASONING_STAGES[-1]), attack(one, MultistageRules())
            assert len(one.baseline_tests) == 3
            assert [test in one.description for test in one.baseline_tests] == [n < seen for n in range(3)]
            assert all(one.description in prompt.full for prompt in prompts)


def test_tests_that_cannot_be_shown_are_refused():
    """What a contest's program prints is no line of code."""
    taco = {"file": str(DATA / "taco.jsonl"), "format": "taco"}
    with pytest.raises(ProblemFileError, match="source code") as raised:
        load_splits(of_one(taco | {"shown_tests": 1}))
    assert raised.value.__notes__ == ["it is problems.shown_tests"]


@pytest.mark.parametrize("exact", [False, True])
def test_outputs_are_compared_as_the_set_does_or_line_by_line(exact):
    file = str(DATA / "code_contests.jsonl")
    held_out = {"kind": "file", "file": str(DATA / "taco.jsonl"), "format": "taco"}
    config = of_one({"file": file, "format": "code_contests", "held_out": held_out, "exact_outputs": exact})
    evaluated = EvaluateOptions(dataset=file, policy="reference", format="code_contests", exact_outputs=exact)
    for problems in (*load_splits(config), load_written(evaluated.dataset, evaluated)):
        tests = [t for p in problems for t in p.evaluation_tests if isinstance(t, OutputTest)]
        assert {type(t) is OutputTest for t in tests} == {exact}


def test_a_bad_problem_file_is_refused_before_torch_is_imported() -> None:
    run = (
        "import sys, driver\n"
        "try: driver.main(['--problems.file', 'none.json'])\n"
        "finally: print('torch' in sys.modules)"
    )
    ended = subprocess.run([sys.executable, "-c", run], capture_output=True, text=True)
    assert "none.json: no such file" in ended.stderr
    assert ended.stdout.splitlines() == ["False"]


def test_problems_of_two_parts_with_one_id_stay_apart(tmp_path):
    """Published sets number each part from 0."""
    files = [written(tmp_path / name, entry(name, id="0")) for name in ("f", "g")]
    train, held_out = load_splits(config_of(*files))
    assert [p.id for p in train] == ["0"] and [p.id for p in held_out] == ["0/held_out"]


def test_pass_rates_of_other_problems_are_refused(two_files, tmp_path):
    rates = tmp_path / "rates.json"
    rates.write_text(json.dumps({"pass_rates": {"held_out": 0.5}}))
    with pytest.raises(ProblemFileError, match=r"has none of the training problems .*named as train\)"):
        load_splits(config_of(*two_files, pass_rates=str(rates)))


def test_tests_are_shown_in_a_run_without_held_out_problems(tmp_path):
    problems = {"file": str(written(tmp_path / "train.json", entry("f"))), "shown_tests": 1}
    (train,), held_out = load_splits(both({"model": "a"}, problems=problems, evaluation={"enabled": False}))
    assert "assert f(2) == 2" in train.description and not held_out


def test_a_problem_without_tests_is_no_problem_of_the_multistage_game():
    bare = load_written(str(DATA / "ult.jsonl"), EvaluateOptions(dataset="x", policy="a", format="ult"))
    assert "no tests" in (MultistageRules().refuse(bare[0]) or "")
    assert "no tests" in (CodeExecutionRules().refuse(bare[0]) or "")


def test_tests_of_output_are_none_for_rewards_of_the_multistage_game():
    problem = replace(toy_problems("train")[0], baseline_tests=(OutputTest(code="print(f(3))", stdout="6"),))
    assert MultistageRules().refuse(problem) is None
    for rules in ({"baseline_in_reward": True}, {"attempts_per_episode": 2}):
        assert "tests of output" in (MultistageRules.model_validate(rules).refuse(problem) or "")


@pytest.mark.parametrize("reference", ["", "def f(n): return n"])
def test_code_tests_that_are_not_run_refuse_a_problem_without_a_reference(tmp_path, reference):
    """With one, they are judged on it before the run begins."""
    rows = [
        {"say": "Return n.", "tests": ["import os\nassert f(os.getpid())"], "answer": reference},
        {"say": "The same.", "tests": ["assert f(1) == 1"], "answer": reference and f"{reference} + 0"},
    ]
    fields = {"description": "say", "baseline_tests": "tests", "reference_solution": "answer"}
    problems = {"file": str(rows_file(tmp_path, *rows)), "format": "fields", "fields": fields}
    config = of_one(problems, sandbox={"code_tests": "refuse"})
    if reference:
        assert sum(map(len, load_splits(config))) == 2
    else:
        with pytest.raises(ProblemFileError, match="is code, which sandbox"):
            load_splits(config)
