"""What a run trains on, and what it is measured on."""

import json
import subprocess
import sys
from dataclasses import replace
from types import SimpleNamespace

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
from sparring.runtime import cluster, local
from sparring.runtime.problem_sets import load_splits
from tests.datasets import DATA


def problem(name: str, reference: str) -> dict:
    return {
        "id": name,
        "description": f"Return n, as {name} does.",
        "function_signature": f"def {name}(n: int) -> int:",
        "baseline_tests": [f"assert {name}(2) == 2"],
        "difficulty": "easy",
        "tags": [],
        "reference_solution": reference,
    }


@pytest.mark.parametrize("refused", ["train", "held_out"])
def test_a_problem_that_the_game_refuses_is_named_with_its_own_file(tmp_path, monkeypatch, refused):
    files = {}
    for name in ("train", "held_out"):
        files[name] = tmp_path / f"{name}.json"
        files[name].write_text(json.dumps({"problems": [problem(name, f"def {name}(n): return n")]}))
    config = Config.model_validate(
        {
            "problems": {"file": str(files["train"]), "held_out": {"file": str(files["held_out"])}},
            "generator": {"model": "a"},
            "discriminator": {"model": "b"},
        }
    )
    monkeypatch.setattr(
        type(config.game), "refuse", lambda rules, problem: "no" if problem.id == refused else None
    )
    with pytest.raises(ProblemFileError, match=rf"/{refused}\.json: problem {refused}: no$"):
        load_splits(config)


def test_problems_that_the_game_refuses_are_left_out_if_some_remain(tmp_path, monkeypatch, capsys):
    file = tmp_path / "problems.json"
    names = [f"f{i}" for i in range(10)]
    file.write_text(json.dumps({"problems": [problem(name, f"def {name}(n): return n") for name in names]}))
    config = Config.model_validate(
        {
            "problems": {"file": str(file), "failing_references": "leave_out"},
            "generator": {"model": "a"},
            "discriminator": {"model": "b"},
        }
    )
    refused = set(names[::3])
    monkeypatch.setattr(
        type(config.game), "refuse", lambda rules, problem: "no" if problem.id in refused else None
    )
    train, held_out = load_splits(config)
    assert {p.id for p in train + held_out} == set(names) - refused
    assert "left out; f0: no" in capsys.readouterr().out
    strict = config.model_copy(
        update={"problems": config.problems.model_copy(update={"failing_references": "refuse"})}
    )
    with pytest.raises(ProblemFileError, match="failing_references leave_out"):
        load_splits(strict)
    refused |= set(names)
    with pytest.raises(ProblemFileError, match=r"no$"):
        load_splits(config)


def test_entries_that_are_no_problems_are_refused_or_left_out(tmp_path, capsys):
    files = [tmp_path / "train.json", tmp_path / "test.json"]
    for file, names in zip(files, ("fg", "hi"), strict=True):
        entries = [problem(name, f"def {name}(n): return n") for name in names]
        file.write_text(json.dumps({"problems": [entries[0] | {"reference_solution": "def f("}, entries[1]]}))
    with pytest.raises(ProblemFileError, match="field 'reference_solution': not valid Python") as raised:
        load_splits(_config(*files))
    assert any("problems.failing_references leave_out" in note for note in raised.value.__notes__)
    train, held_out = load_splits(_config(*files, failing_references="leave_out"))
    assert [p.id for p in train] == ["g"] and [p.id for p in held_out] == ["i"]
    assert (
        f"2 entries that cannot be read as problems left out, such as {files[0]}" in capsys.readouterr().out
    )


@pytest.mark.parametrize(("known", "left"), [(1, 1), (2, 2), (9, 3), (None, 3)])
def test_training_knows_as_many_tests_as_it_is_told_and_evaluation_has_all(tmp_path, known, left):
    tests = [f"assert f{{}}({n}) == {n}" for n in (1, 2, 3)]
    entries = [
        problem(name, f"def {name}(n): return n")
        | {"baseline_tests": [test.format(name[1:]) for test in tests]}
        for name in ("f1", "f2", "f3", "f4")
    ]
    file = tmp_path / "problems.json"
    file.write_text(json.dumps({"problems": entries}))
    config = Config.model_validate(
        {
            "problems": {"file": str(file), "known_tests": known},
            "generator": {"model": "a"},
            "discriminator": {"model": "b"},
        }
    )
    for problems in load_splits(config):
        for one in problems:
            assert len(one.baseline_tests) == left and len(one.evaluation_tests) == 3
            assert one.baseline_tests == one.evaluation_tests[:left]


@pytest.mark.parametrize(("shown", "seen"), [(0, 0), (1, 1), (2, 2), (9, 3)])
def test_prompts_show_as_many_tests_as_they_are_told(tmp_path, shown, seen):
    """All players see them, in training and held out, and whoever evaluates the data set."""
    entries = [
        problem(name, f"def {name}(n): return n")
        | {"baseline_tests": [f"assert {name}({n}) == {n}" for n in (1, 2, 3)]}
        for name in ("f1", "f2", "f3", "f4")
    ]
    file = tmp_path / "problems.json"
    file.write_text(json.dumps({"problems": entries}))
    config = Config.model_validate(
        {
            "problems": {"file": str(file), "shown_tests": shown},
            "generator": {"model": "a"},
            "discriminator": {"model": "b"},
        }
    )
    options = EvaluateOptions(dataset=str(file), policy="a", shown_tests=shown)
    for problems in (*load_splits(config), evaluated_problems(options, None)):
        for one in problems:
            prompts = solve(one, REASONING_STAGES[-1]), attack(one, MultistageRules())
            assert len(one.baseline_tests) == 3
            assert [test in one.description for test in one.baseline_tests] == [n < seen for n in range(3)]
            assert all(one.description in prompt.full for prompt in prompts)


def test_tests_that_cannot_be_shown_are_refused(tmp_path):
    """What a contest's program prints is no line of code."""
    config = Config.model_validate(
        {
            "game": {"kind": "unit_tests"},
            "problems": {"file": str(DATA / "taco.jsonl"), "format": "taco", "shown_tests": 1},
            "generator": {"model": "a"},
        }
    )
    with pytest.raises(ProblemFileError, match="source code") as raised:
        load_splits(config)
    assert raised.value.__notes__ == ["it is problems.shown_tests"]


@pytest.mark.parametrize("exact", [False, True])
def test_outputs_are_compared_as_the_set_does_or_line_by_line(exact):
    file = str(DATA / "code_contests.jsonl")
    held_out = {"kind": "file", "file": str(DATA / "taco.jsonl"), "format": "taco"}
    config = Config.model_validate(
        {
            "game": {"kind": "unit_tests"},
            "problems": {
                "file": file,
                "format": "code_contests",
                "held_out": held_out,
                "exact_outputs": exact,
            },
            "generator": {"model": "a"},
        }
    )
    evaluated = EvaluateOptions(dataset=file, policy="reference", format="code_contests", exact_outputs=exact)
    for problems in (*load_splits(config), load_written(evaluated.dataset, evaluated)):
        kinds = {
            type(t) is OutputTest for p in problems for t in p.evaluation_tests if isinstance(t, OutputTest)
        }
        assert kinds == {exact}


@pytest.mark.parametrize("way", ["run", "refuse"])
def test_what_becomes_of_code_tests_reaches_the_sandbox_of_either_runtime(tmp_path, monkeypatch, way):
    config = Config.model_validate(
        {
            "sandbox": {"code_tests": way},
            "problems": {"file": "a.json"},
            "generator": {"model": "a"},
            "discriminator": {"model": "b"},
        }
    )
    start, asked = SimpleNamespace(run_directory=tmp_path), []
    for module, opened, make in (
        (local, "LocalSandbox", local._sandbox),
        (cluster, "start_pool", cluster._pool),
    ):
        monkeypatch.setattr(module, opened, lambda *_, **how: asked.append(how["code_tests"]))
        make(config, start)
    assert asked == [way, way]


def test_a_bad_problem_file_is_refused_before_torch_is_imported() -> None:
    run = (
        "import sys, driver\n"
        "try: driver.main(['--problems.file', 'none.json'])\n"
        "finally: print('torch' in sys.modules)"
    )
    ended = subprocess.run([sys.executable, "-c", run], capture_output=True, text=True)
    assert "none.json: no such file" in ended.stderr
    assert ended.stdout.splitlines() == ["False"]


def _config(file, held_out, **problems) -> Config:
    return Config.model_validate(
        {
            "problems": {"file": str(file), "held_out": {"file": str(held_out)}, **problems},
            "generator": {"model": "a"},
            "discriminator": {"model": "b"},
        }
    )


def test_problems_of_two_parts_with_one_id_stay_apart(tmp_path):
    """Published sets number each part from 0."""
    files = [tmp_path / "train.json", tmp_path / "test.json"]
    for file, name in zip(files, ("f", "g"), strict=True):
        entry = problem(name, f"def {name}(n): return n") | {"id": "0"}
        file.write_text(json.dumps({"problems": [entry]}))
    train, held_out = load_splits(_config(*files))
    assert [p.id for p in train] == ["0"] and [p.id for p in held_out] == ["0/held_out"]


def test_pass_rates_of_other_problems_are_refused(tmp_path):
    files = [tmp_path / "train.json", tmp_path / "test.json"]
    for file, name in zip(files, ("f", "g"), strict=True):
        file.write_text(json.dumps({"problems": [problem(name, f"def {name}(n): return n")]}))
    rates = tmp_path / "rates.json"
    rates.write_text(json.dumps({"pass_rates": {"g": 0.5}}))
    with pytest.raises(ProblemFileError, match=r"has none of the training problems \(they are named as f\)"):
        load_splits(_config(*files, pass_rates=str(rates)))


def test_tests_are_shown_in_a_run_without_held_out_problems(tmp_path):
    file = tmp_path / "train.json"
    file.write_text(json.dumps({"problems": [problem("f", "def f(n): return n")]}))
    config = Config.model_validate(
        {
            "problems": {"file": str(file), "shown_tests": 1},
            "evaluation": {"enabled": False},
            "generator": {"model": "a"},
            "discriminator": {"model": "b"},
        }
    )
    (train,), held_out = load_splits(config)
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
    row = {"say": "Return n.", "tests": ["import os\nassert f(os.getpid())"], "answer": reference}
    file = tmp_path / "rows.jsonl"
    file.write_text(
        json.dumps(row)
        + "\n"
        + json.dumps(
            row
            | {"say": "The same.", "tests": ["assert f(1) == 1"], "answer": reference and f"{reference} + 0"}
        )
    )
    fields = {"description": "say", "baseline_tests": "tests", "reference_solution": "answer"}
    config = Config.model_validate(
        {
            "game": {"kind": "unit_tests"},
            "problems": {"file": str(file), "format": "fields", "fields": fields},
            "generator": {"model": "a"},
            "sandbox": {"code_tests": "refuse"},
        }
    )
    if reference:
        assert sum(map(len, load_splits(config))) == 2
    else:
        with pytest.raises(ProblemFileError, match="is code, which sandbox"):
            load_splits(config)
