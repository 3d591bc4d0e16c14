"""Loading problem files: what is accepted, and the one line that every mistake becomes."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from sparring.core.project_files import EXAMPLES as TOYS
from sparring.core.source import parse_signature
from sparring.core.verdict import OutputTest
from sparring.problems.formats import load_dataset
from sparring.problems.formats.outputs import AppsTest
from sparring.problems.loader import ProblemFileError, entry_of, load_problems, load_to_solve
from sparring.problems.splits import split_problems

EXAMPLES = Path(__file__).parents[3] / "sparring" / "problems" / "example_problems.json"

GOOD = {
    "id": "double",
    "description": "Return n doubled.",
    "function_signature": "def double(n: int) -> int:",
    "baseline_tests": ["assert double(2) == 4"],
    "reference_solution": "def double(n):\n    return n * 2\n",
    "difficulty": "easy",
    "tags": ["math"],
}


def write(folder: Path, *entries) -> Path:
    path = folder / "problems.json"
    path.write_text(json.dumps({"problems": entries}))
    return path


def changed(**fields) -> dict:
    return {**GOOD, **fields}


def without(field: str) -> dict:
    return {name: value for name, value in GOOD.items() if name != field}


def error_of(path: Path) -> str:
    with pytest.raises(ProblemFileError) as caught:
        load_problems(path)
    message = str(caught.value)
    assert "\n" not in message
    assert message.startswith(f"{path}: ")
    return message.removeprefix(f"{path}: ")


def test_loads_every_field(tmp_path):
    entry = changed(hidden_tests=["assert double(-1) == -2"], difficulty=3)
    (problem,) = load_problems(write(tmp_path, entry))
    assert problem.id == "double"
    assert problem.entry_point == "double"
    assert problem.baseline_tests == ("assert double(2) == 4",)
    assert problem.hidden_tests == problem.evaluation_tests == ("assert double(-1) == -2",)
    assert problem.difficulty == 3
    assert problem.tags == ("math",)


LUA = {
    **GOOD,
    "function_signature": "",
    "language": "lua",
    "baseline_tests": [{"code": "print(double(2))", "stdout": "4\n"}],
    "hidden_tests": [{"stdin": "2", "stdout": "4\n"}, {"stdout": ""}],
    "reference_solution": "function double(n) return n * 2 end",
}


def test_tests_may_compare_outputs_of_programs_in_any_language(tmp_path):
    (problem,) = load_problems(write(tmp_path, LUA))
    assert problem.language == "lua" and not problem.is_function
    assert problem.baseline_tests == (OutputTest(code="print(double(2))", stdout="4\n"),)
    assert problem.hidden_tests == (OutputTest(stdin="2", stdout="4\n"), OutputTest(stdout=""))


@pytest.mark.parametrize(
    "entry",
    [
        GOOD,
        LUA,
        changed(hidden_tests=["assert double(3) == 6"], wrong_solutions=["def double(n): return 0"]),
        changed(preamble="import math", epilogue="double(1)", limits={"cpu_s": 5}),
    ],
)
def test_a_problem_is_written_as_it_was_read(tmp_path, entry):
    (problem,) = load_problems(write(tmp_path, entry))
    assert entry_of(problem) == entry
    assert load_problems(write(tmp_path, entry_of(problem))) == [problem]


@pytest.mark.parametrize("name", sorted(path.parent.name for path in TOYS.glob("*/train.json")))
def test_the_toy_problems_are_written_as_they_were_read(name):
    file = TOYS / name / "train.json"
    assert [entry_of(problem) for problem in load_problems(file)] == json.loads(file.read_text())["problems"]


def test_a_problem_with_a_contests_own_comparison_cannot_be_written(tmp_path):
    (problem,) = load_problems(write(tmp_path, LUA))
    graded = replace(problem, hidden_tests=(AppsTest(stdin="2", stdout="4"),))
    with pytest.raises(ProblemFileError, match="problem double: its tests compare outputs"):
        entry_of(graded)


@pytest.mark.parametrize("lacks", [{"function_signature": ""}, {"description": ""}, {"baseline_tests": ()}])
def test_a_problem_that_could_not_be_read_again_is_not_written(tmp_path, lacks):
    (problem,) = load_problems(write(tmp_path, GOOD))
    with pytest.raises(ProblemFileError, match=r"^problem double: "):
        entry_of(replace(problem, **lacks))


def test_parameters_of_signature_and_solution_may_differ(tmp_path):
    entry = changed(function_signature="def double(args):")
    assert load_problems(str(write(tmp_path, entry)))[0].entry_point == "double"


def test_a_byte_order_mark_is_no_fault(tmp_path):
    path = tmp_path / "problems.json"
    entry = changed(reference_solution="\ufeffdef double(n):\n    return n * 2\n")
    path.write_text(json.dumps({"problems": [entry]}), encoding="utf-8-sig")
    assert "def double" in load_problems(path)[0].reference_solution


@pytest.mark.parametrize(
    ("content", "fact"),
    [
        (b"", "the file is empty"),
        (b" \n", "the file is empty"),
        (b"\xff\xfe", "not UTF-8 text (byte 0)"),
        (b'{"problems": [\n  {"id": "a",}\n]}', "malformed JSON at line 2, column "),
        (b"[]", "expected a JSON object with the key 'problems'"),
        (b"{}", "expected a JSON object with the key 'problems'"),
        (b'{"problems": [1], "version": 2}', "unknown key 'version' beside 'problems'"),
        (b'{"problems": {}}', "field 'problems': expected a list, found an empty object"),
        (b'{"problems": []}', "field 'problems' is an empty list"),
    ],
)
def test_unusable_files(tmp_path, content, fact):
    path = tmp_path / "problems.json"
    path.write_bytes(content)
    said = error_of(path)
    assert said.startswith(fact) and "; " in said, "what to do"


def test_no_file(tmp_path):
    assert error_of(tmp_path / "none.json").startswith("no such file")
    assert error_of(tmp_path).startswith("cannot be read (Is a directory)")


AT = "problem 'double' (index 0), "


@pytest.mark.parametrize(
    ("entry", "fact"),
    [
        (7, "problem at index 0: expected an object, found a number"),
        (without("id"), "problem at index 0, field 'id': missing"),
        (changed(id=7), "problem at index 0, field 'id': found a number"),
        (changed(description=""), f"{AT}field 'description': found an empty string"),
        (changed(function_signature=None), f"{AT}field 'function_signature': found null"),
        (
            changed(function_signature="double(n)"),
            f"{AT}field 'function_signature': no function in 'double(n)'",
        ),
        (
            changed(function_signature="def double(n: -> int:"),
            f"{AT}field 'function_signature': no function in",
        ),
        (changed(baseline_tests=[]), f"{AT}field 'baseline_tests': found an empty list"),
        (changed(baseline_tests="assert double(2) == 4"), f"{AT}field 'baseline_tests': found a string"),
        (changed(baseline_tests=[{"stdin": "2"}]), f"{AT}field 'baseline_tests[0]': key 'stdout': missing"),
        (changed(baseline_tests=["# later"]), f"{AT}field 'baseline_tests[0]': holds no statement"),
        (
            changed(baseline_tests=["assert double(2) == 4", "assert double(2 =="]),
            f"{AT}field 'baseline_tests[1]': not valid Python (line 1: '(' was never closed)",
        ),
        (changed(hidden_tests=["double(1"]), f"{AT}field 'hidden_tests[0]': not valid Python (line 1: "),
        (
            changed(hidden_tests=[{"stdout": "4", "input": "2"}]),
            f"{AT}field 'hidden_tests[0]': unknown key 'input'",
        ),
        (changed(hidden_tests={"a": 1}), f"{AT}field 'hidden_tests': found an object"),
        (changed(language="lua"), f"{AT}field 'baseline_tests[0]': a string is a test in Python"),
        (changed(tags=["a", 3]), f"{AT}field 'tags[1]': found a number"),
        (changed(limits=3), f"{AT}field 'limits': found a number"),
        (changed(limits={"seconds": 3}), f"{AT}field 'limits', key 'seconds': unknown"),
        (changed(limits={"cpu_s": 0}), f"{AT}field 'limits', key 'cpu_s': Input should be greater than 0"),
        (changed(difficulty=True), f"{AT}field 'difficulty': found a boolean"),
        (changed(reference_solution={}), f"{AT}field 'reference_solution': found an empty object"),
        (
            changed(reference_solution="def double(n):\nreturn n"),
            f"{AT}field 'reference_solution': not valid Python (line 2: ",
        ),
        (
            changed(reference_solution="def twice(n):\n    return n * 2"),
            f"{AT}field 'reference_solution': defines no function 'double'",
        ),
        (changed(wrong_solutions="def double(n): return 4"), f"{AT}field 'wrong_solutions': found a string"),
        ({**without("baseline_tests"), "baseline_test": []}, f"{AT}field 'baseline_test': unknown field"),
    ],
)
def test_faulty_problems(tmp_path, entry, fact):
    said = error_of(write(tmp_path, entry))
    assert said.startswith(fact) and "; " in said, "what to do"


@pytest.mark.parametrize("source", ["-" * 20_000 + "1", "1" + " + 1" * 100_000, "x = 1 \0"])
def test_python_that_the_parser_cannot_hold_is_told_in_one_line(tmp_path, source):
    for place, entry in (
        ("hidden_tests[0]", changed(hidden_tests=[source])),
        ("reference_solution", changed(reference_solution=source)),
    ):
        assert f"field '{place}': not valid Python" in error_of(write(tmp_path, entry))


@pytest.mark.parametrize("field", [name for name in GOOD if name != "id"])
def test_every_field_but_hidden_tests_is_required(tmp_path, field):
    assert error_of(write(tmp_path, without(field))).startswith(f"{AT}field '{field}': missing; add ")


def test_duplicate_id(tmp_path):
    path = write(tmp_path, GOOD, changed(id="other"), GOOD)
    with pytest.raises(ProblemFileError, match=r"'double' \(index 2\), field 'id': already used at index 0"):
        load_dataset(path, "problems")


def test_a_file_may_bring_further_programs(tmp_path):
    right, wrong = "def double(n): return n + n", "def double(n): return 4"
    (problem,) = load_problems(write(tmp_path, changed(other_solutions=[right], wrong_solutions=[wrong])))
    assert (problem.other_solutions, problem.wrong_solutions) == ((right,), (wrong,))


@pytest.mark.parametrize(
    ("signature", "name"),
    [
        ("def f(x):", "f"),
        ("def f(x)", "f"),
        ("async def f(x):", "f"),
        ("def f(x):  # doubled", "f"),
        ("from typing import List\n\ndef f(x: List[int]) -> int:", "f"),
        ('def f(x):\n    """Doubled."""', "f"),
        ("class A:\n    def f(self): pass", None),
        ("f = 3", None),
        ("", None),
    ],
)
def test_parse_signature(signature, name):
    function = parse_signature(signature)
    assert (function.name if function else None) == name


def test_split_depends_on_ids_alone():
    problems = load_problems(EXAMPLES)
    train, held_out = split_problems(problems, 0.25)
    assert len(held_out) == 6
    assert sorted(train + held_out, key=problems.index) == problems
    turned_train, turned_held_out = split_problems(problems[::-1], 0.25)
    assert (turned_train[::-1], turned_held_out[::-1]) == (train, held_out)


def test_split_sizes():
    problems = load_problems(EXAMPLES)
    assert len(split_problems(problems, 0.001)[1]) == 1
    with pytest.raises(ProblemFileError, match="leaves none to train on"):
        split_problems(problems[:2], 0.9)
    with pytest.raises(ProblemFileError, match=r"--problems\.held-out\.file"):
        split_problems(problems[:1], 0.1)
    assert split_problems(problems[:1], 0.1, least=0) == (problems[:1], []), "nobody evaluates"


def test_a_problem_to_solve_needs_no_more_than_a_description(tmp_path: Path) -> None:
    entries = [
        {"description": "Double n."},
        {"id": "b", "description": "Add.", "baseline_tests": ["assert ("]},
        {"id": "c", "description": "Add.", "function_signature": "def add(a, b):", "tests": []},
        {"id": "d", "description": "Add.", "function_signature": "add(a, b)"},
        {"id": "e"},
        {"id": "f", "description": "One."},
        {"id": "f", "description": "The same name."},
        7,
    ]
    problems, faults = load_to_solve(write(tmp_path, *entries))
    assert [p.id for p in problems] == ["problem 0", "f"] and problems[0].description == "Double n."
    assert faults.keys() == {"b", "c", "d", "e", "f (index 6)", "problem 7"}
    assert "not valid Python" in faults["b"] and "unknown field" in faults["c"] and "missing" in faults["e"]
    assert "no function in 'add(a, b)'" in faults["d"] and "expected an object" in faults["problem 7"]


def test_a_file_without_a_problem_to_solve_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ProblemFileError, match="empty list"):
        load_to_solve(write(tmp_path))


def test_json_lines_are_sent_to_the_formats(tmp_path):
    file = tmp_path / "lines.jsonl"
    file.write_text('{"task_id": 1}\n{"task_id": 2}\n')
    with pytest.raises(ProblemFileError, match="JSON lines"):
        load_problems(file)


@pytest.mark.parametrize("field", ["baseline_tests", "hidden_tests"])
def test_a_test_that_every_program_passes_is_refused(tmp_path, field):
    said = error_of(write(tmp_path, changed(**{field: ["double(2) == 4"]})))
    assert f"'{field}[0]'" in said and "'double(2) == 4' checks nothing" in said
