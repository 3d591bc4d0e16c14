"""sparring solve with models that write what a test tells them to: what breaks, and what is left of the rest."""

import json
from pathlib import Path
from types import SimpleNamespace

import pytest

from configs.evaluate import EvaluateOptions
from configs.solve import SolveOptions
from sparring.cli.evaluate import evaluate as scores
from sparring.cli.solve import main, problems_of
from sparring.core.interfaces import EngineFailure
from tests.datasets import rows, written

RIGHT = "```python\ndef f(n):\n    return n * 2\n```"
NAMED = {
    "description": "Double n.",
    "function_signature": "def f(n):",
    "baseline_tests": ["assert f(2) == 4"],
}


@pytest.fixture
def problems(tmp_path: Path) -> Path:
    file = tmp_path / "problems.json"
    entries = [{"id": "named", **NAMED}, {"id": "nameless", "description": "Double it."}]
    file.write_text(json.dumps({"problems": entries}))
    return file


def solve(problems: Path, *more: object) -> dict:
    output = problems.parent / "out.json"
    main(["--checkpoint", "m/m", "--batch", "--problems-file", str(problems), "--output", str(output),
          "--max-tokens", "30", *map(str, more)])  # fmt: skip
    return json.loads(output.read_text())


def answer_of_two(*answers: str):
    """One after the other, the last one for ever."""
    left = list(answers)
    return lambda prompt, sampling: left.pop(0) if len(left) > 1 else left[0]


ONE = ("--checkpoint", "m/m", "--problem", "Double n.", "--sandbox", "process", "--stages", "none")
WRONG = "```python\ndef f(n):\n    return n * 3\n```"
BROKEN = "def f(n) return n"


@pytest.mark.parametrize("terminal", ["1", ""])
@pytest.mark.parametrize("answer", ["def f(n):\n    return n * 2", f"It doubles 🎉 xs[:key:]:\n{RIGHT}\n"])
def test_a_single_problems_answer_is_shown_once(scripted, capsys, monkeypatch, terminal, answer) -> None:
    monkeypatch.setenv("FORCE_COLOR", terminal)
    scripted(lambda prompt, sampling: answer)
    main([*ONE, "--tests", "assert f(2) == 4", "--execute-tests"])
    shown = capsys.readouterr().out
    assert shown.count(answer.strip()) == shown.count("def f(n):") == 1
    assert "PASSED" in shown and "no valid Python" not in shown


def test_without_the_stages_the_program_alone_is_shown(scripted, capsys) -> None:
    scripted(lambda prompt, sampling: RIGHT)
    main([*ONE[:4], "--no-reasoning"])
    shown = capsys.readouterr().out
    assert shown.count("def f(n):") == 1 and "```" not in shown


def test_of_several_attempts_each_is_shown_once_and_the_answer_is_marked(scripted, capsys) -> None:
    scripted(answer_of_two(WRONG, BROKEN))
    with pytest.raises(SystemExit) as ended:
        main([*ONE, "--tests", "assert f(2) == 4; assert f(0) == 0", "--attempts", "2"])
    assert ended.value.code == 1
    shown = capsys.readouterr().out
    assert shown.count("n * 3") == shown.count(BROKEN) == 1
    first, second = shown.split("attempt 1 (the answer)")[1].split("attempt 2 ")
    assert "WRONG_ANSWER" in first and "PASSED" in first and "no valid Python" not in first
    assert second.count("SYNTAX_ERROR") == 1 and "no valid Python" in second


def test_a_batch_says_which_programs_are_no_python_and_which_problems_are_not_solved(
    problems, scripted, capsys
):
    entries = [
        {"id": name, **NAMED, "description": f"Make it {name}."} for name in ("well", "badly", "broken")
    ]
    problems.write_text(json.dumps({"problems": entries}))
    answers = {"badly": WRONG, "broken": BROKEN}
    scripted(lambda prompt, _: next((said for name, said in answers.items() if name in prompt), RIGHT))
    report = solve(problems, "--execute-tests", "--sandbox", "process")
    assert [(r["id"], r["valid_python"]) for r in report["results"]] == [
        ("well", True),
        ("badly", True),
        ("broken", False),
    ]
    assert report["solved"] == 1
    shown = capsys.readouterr().out
    assert (
        "1 programs are no valid Python" in shown and "badly: WRONG_ANSWER" in shown and "well" not in shown
    )


def test_best_of_is_refused_before_a_model_is_looked_at(problems, monkeypatch, refused) -> None:
    monkeypatch.setattr("sparring.cli.solve.open_model", lambda *_: pytest.fail("looked at"))
    batch = ("--checkpoint", "m/m", "--batch", "--problems-file", problems, "--best-of", 2)
    assert "m/m comes with no discriminator; give --discriminator" in refused(main, *batch)
    assert "names no Python function" in refused(main, *ONE[:4], "--best-of", 2)


def test_an_engine_that_ends_is_an_error_and_what_was_answered_is_kept(problems, scripted, capsys) -> None:
    def answer(prompt: str, sampling) -> str:
        if "Double it" in prompt:
            raise EngineFailure("the engine has ended: out of memory")
        return RIGHT

    scripted(answer)
    with pytest.raises(SystemExit, match="2"):
        solve(problems, "--execute-tests", "--sandbox", "process")
    assert "the engine has ended: out of memory" in capsys.readouterr().err
    report = json.loads((problems.parent / "out.json").read_text())
    assert (report["solved"], report["failed"]) == (1, ["nameless"])


def test_a_problem_that_no_test_can_call_does_not_end_the_batch(problems, scripted) -> None:
    scripted(lambda prompt, sampling: RIGHT)
    report = solve(problems, "--best-of", 2, "--discriminator", "m/m", "--sandbox", "process")
    by_id = {result["id"]: result for result in report["results"]}
    assert by_id["named"]["solved"] and "give a signature" in by_id["nameless"]["error"]


@pytest.mark.parametrize(
    ("game", "more", "said"),
    [
        ({"kind": "tictactoe"}, (), "a checkpoint of game tictactoe, which writes no programs"),
        ({"kind": "unit_tests"}, ("--best-of", 2, "--discriminator", "m/m"), "its run was no game with test suites"),
        ({"kind": "multistage"}, ("--answer-format", "reasoning"), "give --stages none as well"),
    ],
)  # fmt: skip
def test_what_the_model_has_not_learnt_is_refused(problems, scripted, refused, game, more, said) -> None:
    scripted(lambda prompt, sampling: RIGHT, run={"game": game})
    assert said in refused(main, "--checkpoint", "m/m", "--batch", "--problems-file", problems, *more)


def test_a_signature_that_names_no_function_is_refused(scripted, refused) -> None:
    scripted(lambda prompt, sampling: RIGHT)
    said = refused(main, "--checkpoint", "m/m", "--problem", "Double n.", "--signature", "f(n)")
    assert "--signature f(n): expected one such as" in said


def test_a_function_without_a_signature_is_the_one_that_the_tests_call(problems) -> None:
    test = "assert double(2) == 4"
    problems.write_text(json.dumps({"problems": [{"description": "Double n.", "baseline_tests": [test]}]}))
    for arguments in (
        ("--problem", "Double n.", "--tests", test),
        ("--batch", "--problems-file", str(problems)),
    ):
        (problem,), _ = problems_of(SolveOptions.read(arguments))
        assert problem.function_signature == "def double(x1):"


def test_a_file_of_the_project_is_found_from_any_directory(tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    asked = SolveOptions.read(["--batch", "--problems-file", "sparring/examples/toy/held_out.json"])
    assert len(problems_of(asked)[0]) == 200


def test_the_engine_is_on_the_gpu_that_is_seen(problems, scripted, monkeypatch) -> None:
    model = scripted(lambda prompt, sampling: RIGHT)
    monkeypatch.setattr("sparring.runtime.hardware.detect", lambda: SimpleNamespace(device="cuda", bf16=True))
    settings = solve(problems)["settings"]
    assert (settings["device"], settings["dtype"]) == model.engines[0] == ("cuda", "bfloat16")
    data = "sparring/examples/toy/held_out.json"
    assert scores(EvaluateOptions(dataset=data, policy="m/m", problems=1, sandbox="process"))
    assert model.engines[1] == ("cuda", "bfloat16")


def test_rows_that_are_no_problems_do_not_end_the_batch(tmp_path: Path, scripted) -> None:
    """As in our own format: the faults are named, and the other problems are solved."""
    scripted(lambda prompt, sampling: RIGHT)
    good, bad = rows("mbpp.jsonl")[:2]
    report = solve(written(tmp_path, good, bad | {"code": "def f("}), "--format", "mbpp", "--stages", "none")
    assert report["problems"] == 2 and report["failed"] == ["faulty entry 1"]
    assert "field 'code': not valid Python" in report["results"][1]["error"]
