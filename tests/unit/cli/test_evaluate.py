import asyncio
import json
import re
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from configs.evaluate import EvaluateOptions
from sparring.cli.evaluate import _problems, changed_game, evaluate, main, own_tests_report, suites_report
from sparring.core.errors import SparringError
from sparring.core.problem import Problem
from sparring.core.project_files import EXAMPLES
from sparring.games.multistage.game import MultistageGame
from sparring.games.multistage.rules import MultistageRules
from sparring.problems.formats import load_dataset
from sparring.problems.loader import load_problems
from sparring.runtime.model import open_model
from sparring.runtime.problem_sets import _learnable
from tests.datasets import DATA, written
from tests.playing import Breaking

RIGHT, HALF, WRONG = (f"def f(n):\n    return {v}\n" for v in ("n * 2", "n + 2", "7"))
REPORT = {
    "dataset", "format", "policy", "problems", "scores", "statuses", "pass_rates", "tasks", "failures", "seconds",
    "versions", "settings",
}  # fmt: skip


def entry(name: str, description: str) -> dict:
    return {
        "id": name,
        "description": description,
        "function_signature": "def f(n):",
        "baseline_tests": ["assert f(2) == 4"],
        "hidden_tests": ["assert f(2) == 4", "assert f(3) == 6"],
        "reference_solution": RIGHT,
        "difficulty": 1,
        "tags": [],
    }


@pytest.fixture
def dataset(tmp_path: Path) -> str:
    file = tmp_path / "problems.json"
    entries = [entry("a", "Double n."), entry("b", "Twice n.")]
    file.write_text(json.dumps({"problems": entries}))
    return str(file)


def options(dataset: str, **more) -> EvaluateOptions:
    return EvaluateOptions(dataset=dataset, sandbox="process", **more)


# ---------------------------------------------------------------------- what is wrong is said in one line
@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ("--policy sparring/examples/toy --format mbpp", "--format has no effect without --dataset"),
        ("--dataset x", "give --policy or --discriminator"),
        ("--dataset x --policy a/b --discriminator c/d", "give --policy or --discriminator"),
        ("--dataset x --polcy empty", "unrecognized arguments: --polcy"),
        ("--dataset x --policy empty --format nope", "--format: Input should be 'problems'"),
        ("--dataset x --policy a/b --samples two", "--samples: Input should be a valid integer"),
        ("--dataset x --policy a/b --pass-at 5", "--pass-at has no effect without --samples"),
        ("--dataset x --policy a/b --top-p .9", "--top-p has no effect without --samples"),
        ("--dataset x --policy a/b --samples 2 --top-p 0", "--top-p: Input should be greater than 0"),
        ("--dataset x --policy a/b --samples 4 --pass-at 1 --pass-at 5", "--pass-at 5 needs as many --samples"),
        ("--dataset x --policy a/b --samples 4 --pass-at 0", "--pass-at: Input should be greater than or equal to 1"),
        ("--dataset x --policy a/b --ablate --stages 2", "--stages has no effect with --ablate"),
        ("--dataset x --policy empty --shown-tests 1", "--shown-tests has no effect with --policy empty"),
        ("--dataset x --policy a/b --suites 3", "--suites has no effect with --policy"),
        ("--dataset x --policy reference --max-tokens 9", "--max-tokens has no effect with --policy reference"),
        ("--dataset x --discriminator baseline --suites 3", "--suites has no effect with --discriminator baseline"),
        ("--dataset x --discriminator baseline --max-tokens 3", "--max-tokens has no effect with --discriminator base"),
        ("--dataset x --discriminator a/b --samples 3", "--samples has no effect with --discriminator"),
        ("--dataset x --policy a/b --stages 3 --answer-format direct", "--answer-format has no effect"),
        ("--policy empty", "--dataset is missing"),
        ("--dataset x --policy empty --json /nowhere/out.json", "--json /nowhere/out.json"),
        ("--dataset x --policy empty --json /tmp", "--json /tmp: is a directory"),
        ("--dataset none.json --policy empty", "none.json: no such file"),
        (f"--dataset {DATA / 'mbpp.jsonl'} --policy empty", "mbpp.jsonl: malformed JSON"),
        (f"--dataset {DATA / 'mbpp.jsonl'} --format humaneval --policy empty", "mbpp.jsonl: entry"),
        (f"--dataset {DATA / 'lua'} --format q --policy empty", "set the split"),
        (f"--dataset {DATA / 'livecodebench.jsonl'} --format livecodebench --policy reference",
         "no problem has a reference solution"),
    ],
)  # fmt: skip
def test_errors(arguments: str, said: str, refused):
    told = refused(main, *arguments.split(), "--sandbox", "process")
    assert told.startswith("error: ") and said in told and told.count("\n") == 1


@pytest.mark.parametrize(("option", "role"), [("policy", "generator"), ("discriminator", "discriminator")])
def test_a_model_may_be_named_by_its_run(option, role, monkeypatch, tmp_path):
    (tmp_path / "metrics.jsonl").touch()
    shutil.copytree(EXAMPLES / "toy", tmp_path / "checkpoints" / "best")
    opened = []

    def look(name, key):
        opened.append((name, key))
        raise SparringError("seen")

    monkeypatch.setattr("sparring.cli.evaluate.open_model", look)
    with pytest.raises(SparringError, match="seen"):
        evaluate(EvaluateOptions(**{option: str(tmp_path)}))
    assert opened == [(str(tmp_path / "checkpoints" / "best" / role), f"--{option}")]


# ---------------------------------------------------------------------- without a model
def test_references_and_empty_programs(dataset, tmp_path, capsys):
    report = evaluate(options(dataset, policy="reference", json_file=tmp_path / "out.json"))
    kept = json.loads((tmp_path / "out.json").read_text())
    assert kept == report and report.keys() == REPORT | {"without_reference"}
    assert report["scores"] == {"generator_pass_rate": 1.0, "generator_test_rate": 1.0, "unjudged": 0}
    assert (report["problems"], report["failures"], report["statuses"]) == (2, [], {"PASSED": 2})
    assert report["settings"]["limits"]["cpu_s"] == 5.0 and report["settings"]["limits"]["wall_s"] == 20.0
    empty = evaluate(options(dataset, policy="empty", problems=1))
    assert empty["problems"] == 1 and empty["pass_rates"] == {"a": 0.0}
    assert empty["scores"]["generator_test_rate"] == 0.0
    assert "generator pass rate" in capsys.readouterr().out


def test_fields_and_what_has_no_solution(tmp_path, capsys):
    plain = {"text": "Double n.", "tests": ["assert f(2) == 4"]}
    data = written(
        tmp_path, *(plain | {"n": n, "code": code} for n, code in enumerate((RIGHT, WRONG, ""), 1))
    )
    fields = '{"id": "n", "description": "text", "baseline_tests": "tests"}'
    arguments = ["--format", "fields", "--fields", fields, "--fields", "reference_solution=code"]
    arguments += ["--policy", "reference", "--sandbox", "process", "--json", str(tmp_path / "out.json")]
    main(["--dataset", str(data), *arguments])
    report = json.loads((tmp_path / "out.json").read_text())
    assert report["pass_rates"] == {"1": 1.0, "2": 0.0} and report["without_reference"] == 1
    assert report["scores"]["generator_pass_rate"] == 0.5
    (failure,) = report["failures"]
    assert (failure["id"], failure["status"]) == ("2", "WRONG_ANSWER")
    told = capsys.readouterr().out
    assert "1 problems have no reference solution" in told and "2: WRONG_ANSWER" in told


# ---------------------------------------------------------------------- programs of a model
def test_scores_by_hand(dataset, scripted, tmp_path):
    """Greedy: a is solved, b half. Sampled, with truncation: two of four seeds solve a; none solves b."""
    seeds: list[int] = []
    asked: set[tuple[float, float, int]] = set()

    def answer(prompt: str, sampling) -> str:
        asked.add((sampling.temperature, sampling.top_p, sampling.top_k))
        if sampling.temperature == 0:
            return RIGHT if "Double" in prompt else HALF
        seeds.append(sampling.seed)
        return RIGHT if "Double" in prompt and len(seeds) % 2 else WRONG

    scripted(answer)
    rates = tmp_path / "rates.json"
    sampled = {"samples": 4, "pass_at": [1, 2], "temperature": 0.7, "top_p": 0.9, "top_k": 20}
    report = evaluate(options(dataset, policy="m/m", stages="none", json_file=rates, **sampled))
    assert asked == {(0.0, 1.0, 0), (0.7, 0.9, 20)}
    scores = report["scores"]
    assert (scores["generator_pass_rate"], scores["generator_test_rate"]) == (0.5, 0.75)
    assert (scores["pass_at_1"], scores["pass_at_2"]) == (0.25, pytest.approx((1 - 1 / 6) / 2))
    assert (scores["unjudged"], scores["cut_off"]) == (0, 0)
    assert report.keys() == REPORT | {"stages", "max_tokens", "failing_references"} and len(set(seeds)) == 8
    assert report["pass_rates"] == {"a": 0.5, "b": 0.0}
    samples = report["tasks"]["b"].pop("samples")
    assert report["tasks"]["b"] == {"test_rate": 0.5, "status": "WRONG_ANSWER", "program": HALF}
    assert samples == [{"program": WRONG, "test_rate": 0.0}] * 4
    assert [p.id for p in _learnable(load_problems(dataset), rates)] == ["a"]


@pytest.mark.parametrize("policy", ["m/m", "reference"])
def test_programs_of_problems_without_tests_are_refused_at_once(scripted, policy):
    scripted(lambda prompt, sampling: pytest.fail("nothing is written"))
    with pytest.raises(SparringError, match=r"has no tests, .* give --discriminator"):
        evaluate(options(str(DATA / "ult.jsonl"), format="ult", policy=policy))


def test_problems_whose_own_references_fail_are_named(scripted, tmp_path, capsys):
    scripted(lambda prompt, sampling: RIGHT)
    file = tmp_path / "lost.json"
    lost = entry("c", "Thrice n.") | {"baseline_tests": ["assert f(2) == 6"]}
    file.write_text(json.dumps({"problems": [entry("a", "Double n."), lost]}))
    report = evaluate(options(str(file), policy="m/m", stages="none"))
    assert report["failing_references"] == {"c": ["WRONG_ANSWER"]}
    assert "1 problems cannot be solved: their own references fail a test" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("stages", "expected", "turns"),
    [(None, "all", 5), ("all", "all", 5), ("4", "4", 5), ("2", "2", 3), ("0", "0", 1), ("none", "none", 1)],
)
def test_stages(dataset, scripted, stages, expected, turns):
    fake = scripted(lambda prompt, sampling: RIGHT)
    report = evaluate(options(dataset, policy="m/m", stages=stages, problems=1))
    assert report["stages"] == expected and report["scores"]["generator_pass_rate"] == 1.0
    assert len(fake.prompts) == turns
    markers = "<w>" if stages == "none" else "<s5>"
    assert fake.prompts[-1].startswith("<p>Double n.") and fake.prompts[-1].endswith(markers)


def test_an_ablation_reports_every_number_of_stages(dataset, scripted, capsys):
    """This model needs two stages of thought."""
    scripted(lambda prompt, sampling: RIGHT if "<s2>" in prompt else WRONG)
    report = evaluate(options(dataset, policy="m/m", ablate=True))
    solved = {arm: of["scores"]["generator_pass_rate"] for arm, of in report["ablation"].items()}
    assert solved == {"none": 0, "0": 0, "1": 0, "2": 1, "3": 1, "all": 1}
    assert report["scores"] == report["ablation"]["all"]["scores"]
    assert "generator pass rate" in capsys.readouterr().out


def test_an_ablation_that_is_ended_keeps_the_arms_that_are_finished(dataset, scripted, tmp_path):
    def answer(prompt, sampling):
        if "<s2>" in prompt:
            raise KeyboardInterrupt
        return RIGHT

    scripted(answer)
    with pytest.raises(KeyboardInterrupt):
        evaluate(options(dataset, policy="m/m", ablate=True, json_file=tmp_path / "out.json"))
    kept = json.loads((tmp_path / "out.json").read_text())["ablation"]
    solved = {arm: of["scores"]["generator_pass_rate"] for arm, of in kept.items()}
    assert solved == {"none": 1, "0": 1, "1": 1}


def test_models_of_runs_without_stages_answer_at_once(dataset, scripted):
    run = {"game": {"kind": "unit_tests", "answer_format": "reasoning"}, "model": {"max_tokens": 77}}
    scripted(lambda p, s: f"<reasoning>It doubles.</reasoning><answer>{RIGHT}</answer>", run=run)
    report = evaluate(options(dataset, policy="m/m"))
    assert (report["stages"], report["max_tokens"]) == ("none", 77)
    assert report["scores"]["generator_pass_rate"] == 1.0


def test_answers_that_are_cut_off_are_counted(dataset, scripted, capsys):
    scripted(lambda prompt, sampling: RIGHT)
    report = evaluate(options(dataset, policy="m/m", stages="none", max_tokens=3))
    assert report["scores"]["cut_off"] == 2 and "--max-tokens (3)" in capsys.readouterr().out


def test_what_does_not_fit_the_model_is_counted(dataset, scripted, refused):
    scripted(lambda prompt, sampling: RIGHT, context=100)
    said = refused(main, "--dataset", dataset, "--policy", "m/m", "--sandbox", "process")
    assert "2 of 2 problems do not fit" in said


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--policy", "m/m", "--stages", "all"), "has no stages: give --stages none"),
        (("--discriminator", "m/m"), "suites need Python functions"),
    ],
)
def test_whole_programs_have_neither_stages_nor_suites(scripted, refused, arguments, said):
    scripted(lambda prompt, sampling: "")
    lua = ("--dataset", DATA / "lua", "--format", "q", "--split", "train", "--sandbox", "process")
    assert said in refused(main, *lua, *arguments)


# ---------------------------------------------------------------------- suites of a model
PROBLEM = Problem(
    id="larger",
    description="Return the larger number.",
    function_signature="def f(a: int, b: int) -> int:",
    baseline_tests=("assert f(1, 2) == 2", "assert f(2, 1) == 2"),
    reference_solution="def f(a, b):\n    return a if a > b else b\n",
    other_solutions=("def f(a, b):\n    return max(a, b)\n", "def f(a, b):\n    return float(max(a, b))\n"),
    wrong_solutions=("def f(a, b):\n    return a\n", "def f(a, b):\n    return b\n"),
)


INPUT_ONLY = MultistageGame(MultistageRules(test_format="input_only"))


def test_the_scores_of_suites_by_hand(scripted, sandbox):
    """One line of three is no test, one repeats; the tests that hold kill one wrong program of two."""
    fake = scripted(lambda prompt, sampling: "f(1, 3)\nf(1,3)\nf(1, 'x')\n")
    settings = options("x", discriminator="m/m", suites=2, mutants=50)
    report = asyncio.run(suites_report(settings, [PROBLEM], fake.model(), INPUT_ONLY, sandbox))
    scores = report["scores"]
    assert (scores["suites"], scores["unjudged"], scores["kill_rate"]) == (2, 0, 0.5)
    assert scores["validity"] == pytest.approx(1 / 3) and scores["duplicates"] == pytest.approx(1 / 3)
    assert scores["false_kill_rate"] == 0.0  # 2.0 is equal to 2
    assert report["bugs"] > 2 and scores["mutant_kill_rate"] == 1.0  # a >= b is no bug
    assert scores["kill_at_1"] == scores["kill_at_2"] == 1.0
    assert report["tasks"]["larger"]["suites"] == ["f(1, 3)\nf(1,3)\nf(1, 'x')\n"] * 2


def test_a_discriminators_report_has_scores_that_the_page_describes(dataset, scripted, tmp_path, capsys):
    scripted(lambda prompt, sampling: "f(1)\n", run={"game": {"test_format": "input_only", "max_tests": 3}})
    report = evaluate(options(dataset, discriminator="m/m", suites=2, mutants=4, json_file=tmp_path / "o"))
    assert report.keys() >= {"dataset", "policy", "problems", "bugs", "rules", "scores", "tasks", "versions"}
    assert report["scores"]["validity"] == 1.0 and report["rules"]["max_tests"] == 3
    assert json.loads((tmp_path / "o").read_text()) == report
    assert "mutant kill rate" in capsys.readouterr().out
    page = (Path(__file__).parents[3] / "docs" / "evaluation.md").read_text()
    described = ", ".join(re.findall(r"^\| ([^|]+) \|", page, re.MULTILINE)).split(", ")
    printed = {re.sub(r"\d+$", "k", name).replace("_", " ") for name in report["scores"]}
    assert printed - {"cut off"} <= set(described)  # the answers that were cut off are reported in a sentence


@pytest.mark.parametrize(("max_tokens", "cut"), [(3, 2), (50, 0)])
def test_suites_that_ended_for_want_of_tokens_are_counted(dataset, scripted, capsys, max_tokens, cut):
    scripted(lambda prompt, sampling: "f(1)\nf(2)\nf(3)\n", run={"game": {"test_format": "input_only"}})
    report = evaluate(options(dataset, discriminator="m/m", suites=1, mutants=0, max_tokens=max_tokens))
    assert report["scores"]["cut_off"] == sum(task["cut_off"] for task in report["tasks"].values()) == cut
    told = f"2 answers were cut off: raise --max-tokens ({max_tokens})"
    assert (told in capsys.readouterr().out) == bool(cut)


def test_what_a_data_sets_own_tests_show_and_what_inputs_near_theirs(sandbox):
    """One number twice tells nothing of which is the larger; the numbers near it do."""
    blind = replace(PROBLEM, id="blind", baseline_tests=("assert f(2, 2) == 2",))
    settings = options("x", discriminator="baseline", mutants=50)
    report = asyncio.run(own_tests_report(settings, [PROBLEM, blind], sandbox))
    seeing, blinded = report["tasks"]["larger"], report["tasks"]["blind"]
    assert seeing["own_tests"] == seeing["bugs"] > 2
    assert blinded["own_tests"] < blinded["8_times_as_many"] <= blinded["bugs"]
    assert report["bugs"] == seeing["bugs"] + blinded["bugs"]
    shown = seeing["own_tests"] + blinded["own_tests"]
    assert report["scores"]["own_tests"] == shown / report["bugs"]


def test_tests_that_name_no_input_are_in_no_share_of_inputs_near_them(sandbox):
    named = replace(PROBLEM, id="named", baseline_tests=("x = (2, 1)\nassert f(*x) == 2",))
    settings = options("x", discriminator="baseline", mutants=50)
    report = asyncio.run(own_tests_report(settings, [PROBLEM, named], sandbox))
    assert report["without_near_inputs"] == 1 and report["tasks"]["named"].keys() == {"bugs", "own_tests"}
    seeing = report["tasks"]["larger"]
    assert report["scores"]["8_times_as_many"] == seeing["8_times_as_many"] / seeing["bugs"]


def test_the_report_of_a_data_sets_own_tests(dataset, tmp_path, capsys):
    report = evaluate(options(dataset, discriminator="baseline", mutants=4, json_file=tmp_path / "o"))
    assert json.loads((tmp_path / "o").read_text()) == report
    assert "own tests" in capsys.readouterr().out


def test_suites_are_judged_by_the_rules_of_their_run(scripted):
    model = scripted(lambda p, s: "", run={"game": {"test_format": "input_only", "max_tests": 3}}).model()
    assert changed_game(options("x", discriminator="m/m"), model).rules.test_format == "input_only"
    changed = changed_game(options("x", discriminator="m/m", test_format="strict", cpu_s=1.0), model).rules
    assert (changed.test_format, changed.max_tests) == ("strict", 3)
    assert (changed.sandbox_limits.cpu_s, changed.sandbox_limits.wall_s) == (1.0, 4.0)


def test_without_a_data_set_a_run_that_holds_nothing_out_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sparring.cli.evaluate.load_splits", lambda config: ([], []))
    with pytest.raises(SparringError, match="holds out no problems"):
        evaluate(EvaluateOptions(policy=str(EXAMPLES / "toy/generator")))


@pytest.mark.parametrize("name", ["toy", "edges"])
def test_without_a_data_set_the_problems_are_those_held_out_by_the_models_run(name: str) -> None:
    policy = str(EXAMPLES / name / "generator")
    held_out = load_dataset(EXAMPLES / name / "held_out.json", "problems")
    assert _problems(EvaluateOptions(policy=policy), open_model(policy, "--policy")) == held_out


def test_a_problem_whose_bugs_cannot_be_seeded_leaves_the_suites_of_the_others(scripted, sandbox) -> None:
    """The sandbox fails on one reference: its suites are counted as not judged, and the report has the rest."""
    fake = scripted(lambda prompt, sampling: "f(1, 3)\n")
    settings = options("x", discriminator="m/m", suites=2, mutants=4)
    other = replace(PROBLEM, id="other", reference_solution="def f(a, b):\n    return max(b, a)\n")
    breaking = Breaking(sandbox, on={other.in_harness(other.reference_solution)})
    report = asyncio.run(suites_report(settings, [PROBLEM, other], fake.model(), INPUT_ONLY, breaking))
    assert (report["scores"]["suites"], report["scores"]["unjudged"]) == (2, 2)
    assert report["tasks"]["other"]["kill_rate"] is None


def test_without_a_data_set_problems_that_the_run_left_out_are_left_out(tmp_path: Path) -> None:
    """References that fail and problems that are too long: the run lists those that it evaluates."""
    shutil.copytree(EXAMPLES / "toy", tmp_path / "checkpoints" / "best")
    (tmp_path / "metrics.jsonl").touch()
    config = open_model(str(EXAMPLES / "toy" / "generator"), "--policy").run
    (tmp_path / "config.yaml").write_text(yaml.safe_dump(config))
    model = open_model(str(tmp_path / "checkpoints" / "best" / "generator"), "--policy")
    held_out = load_dataset(EXAMPLES / "toy" / "held_out.json", "problems")

    def problems(listed: list[Problem], **more) -> list[Problem]:
        categories = {"held_out": {p.id: [] for p in listed}, "trained": []}
        (tmp_path / "categories.json").write_text(json.dumps(categories))
        return _problems(EvaluateOptions(policy=str(tmp_path), **more), model)

    evaluated = held_out[1:4] + held_out[6:7]
    assert problems(evaluated) == evaluated and problems(evaluated, problems=2) == evaluated[:2]
    assert problems([]) == held_out, "evaluation was off"


def test_without_a_data_set_the_report_names_how_the_runs_problems_are_read(scripted) -> None:
    generator = str(EXAMPLES / "toy" / "generator")
    config = dict(open_model(generator, "--policy").run)
    config["problems"] = {
        "file": str(EXAMPLES / "toy" / "train.json"),
        "held_out": {"kind": "file", "file": str(DATA / "mbpp.jsonl"), "format": "mbpp"},
        "shown_tests": 1,
    }
    scripted(lambda p, s: "", run=config)
    report = evaluate(EvaluateOptions(policy=generator, sandbox="process", problems=1, stages="none"))
    assert report["format"] == report["settings"]["format"] == "mbpp"
    assert report["settings"]["shown_tests"] == 1
    assert report["dataset"] == f"held-out problems of {generator}"
