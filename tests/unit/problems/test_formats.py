"""Reading data sets: what each format becomes, and the one line that every mistake becomes."""

import asyncio
import base64
import gzip
import json
import os
import pickle
import shutil
import sys
import types
import zlib
from pathlib import Path

import pytest

from core.problem import Problem
from core.verdict import Limits, OutputTest, Status, Verdict
from problems.formats import FORMATS, load_dataset
from problems.formats.directories import AnswerTest
from problems.formats.evalplus import _typed_input, literal
from problems.formats.livecodebench import unpickled_text
from problems.formats.sources import limits_for, signature_of, signature_under_test
from problems.loader import ProblemFileError, validate_references

DATA = Path(__file__).parent / "data"


def load(name: str, format: str, **options) -> dict[str, Problem]:
    return {problem.id: problem for problem in load_dataset(DATA / name, format, **options)}


def rows(name: str) -> list[dict]:
    return [json.loads(line) for line in (DATA / name).read_text().splitlines()]


def error_of(path: Path, format: str, **options) -> str:
    with pytest.raises(ProblemFileError) as caught:
        load_dataset(path, format, **options)
    assert "\n" not in str(caught.value)
    assert str(caught.value).startswith(str(path))
    return str(caught.value).removeprefix(f"{path}: ")


def written(folder: Path, *entries: object, name: str = "set.jsonl") -> Path:
    path = folder / name
    path.write_text("".join(json.dumps(entry) + "\n" for entry in entries))
    return path


def outcome(program: str, test: str) -> str:
    """Of a test in this process: what these files hold is ours."""
    namespace: dict = {}
    exec(program, namespace)
    try:
        exec(test, namespace)
    except Exception as error:
        return type(error).__name__
    return "passed"


# ------------------------------------------------------------ one format after the other


def test_mbpp() -> None:
    problems = load("mbpp.jsonl", "mbpp")
    count, total = problems["mbpp/11"], problems["mbpp/601"]
    assert count.description == "Write a function to count how often a digit occurs in a number."
    assert count.function_signature == "def count_digit(n, d):"  # not the helper above it
    assert count.baseline_tests == ("assert count_digit(1211, 1) == 3", "assert count_digit(7, 1) == 0")
    assert count.evaluation_tests == count.baseline_tests
    assert "\r" not in count.reference_solution
    assert total.entry_point == "total"  # a class is not what is under test
    assert (
        total.baseline_tests[0] == "light = Parcel(1)\nheavy = Parcel(40)\nassert total(light, heavy) == 41"
    )


def test_mbpp_sanitized_is_told_by_itself() -> None:
    (problem,) = load_dataset(DATA / "mbpp_sanitized.json", "mbpp")
    assert problem.description == "Write a function to find the half of a number."
    assert problem.baseline_tests == (
        "import math\nassert math.isclose(half(3), 1.5)",
        "import math\nassert half(0) == 0",
    )


def test_mbpp_splits_by_number() -> None:
    assert list(load("mbpp.jsonl", "mbpp", split="test")) == ["mbpp/11"]
    assert list(load("mbpp.jsonl", "mbpp", split="train")) == ["mbpp/601"]
    assert "no problem is left" in error_of(DATA / "mbpp.jsonl", "mbpp", split="prompt")
    assert "no split 'dev'; give one of prompt, test" in error_of(DATA / "mbpp.jsonl", "mbpp", split="dev")


def test_mbpp_plus() -> None:
    shared = load("mbpp_plus.jsonl", "mbpp_plus")["Mbpp/9001"]
    assert shared.description.startswith("Write a function to find what two tuples share.")
    assert shared.baseline_tests == ("assert set(shared((1, 2), (2, 3))) == set((2,))",)
    assert len(shared.hidden_tests) == 3  # 23 inputs
    assert "for _input in [[(1, 2, ), (2, 3, )], [(), (1, )], " in shared.hidden_tests[0]
    good = "def shared(a, b): return [x for x in b if x in a]"  # in any order, as a list: the asserts compare sets
    assert {outcome(good, test) for test in shared.hidden_tests} == {"passed"}
    assert outcome("def shared(a, b): return ()", shared.hidden_tests[0]) == "AssertionError"


def test_a_match_object_is_compared_by_truth() -> None:
    digits = load("mbpp_plus.jsonl", "mbpp_plus")["Mbpp/9002"]
    (test,) = digits.hidden_tests
    assert outcome(digits.reference_solution, test) == "passed"
    assert outcome("def digits(text): return any(c.isdigit() for c in text)", test) == "passed"
    assert outcome("def digits(text): return True", test) == "AssertionError"


@pytest.mark.parametrize(
    ("values", "examples", "expected"),
    [
        ([[1, [2]]], [[(1, [2])]], [(1, [2])]),
        ([[[1, 2], [3]]], [[[(1,)]]], [[(1, 2), (3,)]]),
        ([[], [[]]], [[(1,), [(2,)]]], [(), [()]]),
        ([[1, 2]], [[{3}]], [{1, 2}]),
        ([{"a": [1]}], [[{"b": (2,)}]], [{"a": (1,)}]),
        (["(1+2j)", "2"], [[0, 1.5]], [1 + 2j, 2.0]),
        (["(1+2j)"], [["text"]], ["(1+2j)"]),
        ([[1, 2, [3, 4]]], [[(5, (6, 7))]], [(1, 2, (3, 4))]),
        ([[1], 3], [], [[1], 3]),
    ],
)
def test_arguments_become_what_they_were_before_json(values, examples, expected) -> None:
    found = _typed_input(values, examples)
    assert found == expected and repr(found) == repr(expected)


def test_inputs_are_written_as_python() -> None:
    value = [1, (2,), (), {"b", "a"}, set(), {"k": [None, -0.5]}, "x'"]
    assert eval(literal(value)) == value
    assert "{'a', 'b'}" in literal(value)


def test_humaneval() -> None:
    problems = load("humaneval.jsonl", "humaneval")
    grow = problems["HumanEval/9000"]
    assert grow.function_signature == "def grow_all(numbers: List[int]) -> List[int]:"
    assert (
        grow.description.startswith("from typing import List") and ">>> grow_all([1, 2])" in grow.description
    )
    (test,) = grow.evaluation_tests
    assert test.endswith("check(grow_all)\n")
    assert outcome(grow.reference_solution, test) == "passed"
    without_helper = "def grow_all(numbers): return [n + 1 for n in numbers]"
    assert outcome(without_helper, test) == "passed"  # the test has the prompt's helper of its own
    assert outcome("def grow_all(numbers): return numbers", test) == "AssertionError"
    assert outcome("", problems["HumanEval/9001"].baseline_tests[0]) == "NameError"


def test_humaneval_plus() -> None:
    problems = load("humaneval_plus.jsonl", "humaneval_plus")
    grow, mean = problems["HumanEval/9000"], problems["HumanEval/9001"]
    assert grow.baseline_tests == load("humaneval.jsonl", "humaneval")["HumanEval/9000"].baseline_tests
    assert len(grow.hidden_tests) == 2  # the base inputs, then the plus inputs
    assert mean.baseline_tests == mean.hidden_tests[:1]  # this one has no test of HumanEval's
    for problem in problems.values():
        assert {outcome(problem.reference_solution, test) for test in problem.hidden_tests} == {"passed"}
    in_other_order = "def mean(v): return sum(x / len(v) for x in v)"
    assert outcome(in_other_order, mean.hidden_tests[1]) == "passed"  # as floats go
    assert (
        outcome("def mean(v): return sum(v) / len(v) + .001 if v else 0.0", mean.hidden_tests[0])
        == "AssertionError"
    )
    assert outcome("def mean(v): return str(sum(v))", mean.hidden_tests[0]) == "AssertionError"
    assert outcome("def grow_all(n): return [1 + x for x in n] * 2", grow.hidden_tests[1]) == "AssertionError"


def test_a_program_cannot_change_the_inputs_of_the_reference() -> None:
    grow = load("humaneval_plus.jsonl", "humaneval_plus")["HumanEval/9000"]
    cheat = "def grow_all(numbers):\n    numbers.clear()\n    return []"
    assert outcome(cheat, grow.hidden_tests[0]) == "AssertionError"


def test_livecodebench() -> None:
    problems = load("livecodebench.jsonl", "livecodebench")
    whole, function = problems["livecodebench/ours_a"], problems["livecodebench/9001"]
    assert whole.baseline_tests == (OutputTest(stdin="1 2\n", stdout="3\n"),)
    assert whole.hidden_tests[1:] == (
        OutputTest(stdin="5 5\n", stdout="10\n"),
        OutputTest(stdin="-1 1\n", stdout="0"),
    )
    assert whole.hidden_tests[:1] == whole.baseline_tests  # the official score has them too
    assert (whole.function_signature, whole.reference_solution, whole.difficulty) == ("", "", "easy")
    assert whole.tags == ("atcoder", "2024-05-04")
    assert function.function_signature == "def repeatAll(words: List[str], k: int) -> List[str]:"
    plain = "def repeatAll(words, k): return tuple(w * k for w in words)"
    method = "class Solution:\n    def repeatAll(self, words, k): return [w * k for w in words]"
    for program in (plain, method):
        assert [outcome(program, test) for test in function.evaluation_tests] == ["passed"] * 3
    wrong = "def repeatAll(words, k): return [w + w for w in words]"
    assert [outcome(wrong, test) for test in function.evaluation_tests] == [
        "passed",
        "passed",
        "AssertionError",
    ]


class _Hostile:
    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self):
        return os.mkdir, (str(self.mark),)


def test_a_malicious_pickle_is_refused_and_nothing_runs(tmp_path) -> None:
    mark = tmp_path / "it ran"
    packed = base64.b64encode(zlib.compress(pickle.dumps(_Hostile(mark)))).decode()
    path = written(tmp_path, {**rows("livecodebench.jsonl")[0], "private_test_cases": packed})
    message = error_of(path, "livecodebench")
    assert "field 'private_test_cases': cannot be unpacked (the pickle asks for " in message
    assert "mkdir" in message and not mark.exists()
    pickle.loads(pickle.dumps(_Hostile(mark)))
    assert mark.exists()  # it would have


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
@pytest.mark.parametrize("value", [len, Path("a"), Limits(), [1], b"bytes", 1.0])
def test_only_text_is_unpickled(value, protocol) -> None:
    with pytest.raises(pickle.UnpicklingError):
        unpickled_text(pickle.dumps(value, protocol))
    assert unpickled_text(pickle.dumps("täxt", protocol)) == "täxt"


@pytest.mark.parametrize(
    "packed", [b"", b"\x80", b"cos\nsystem\n(S'true'\ntR.", b"\x82\x01.", b"P1\n.", b"(lp0\n0."]
)
def test_malformed_pickles_are_refused(packed) -> None:
    with pytest.raises(pickle.UnpicklingError):
        unpickled_text(packed)


def test_code_contests() -> None:
    problems = load("code_contests.jsonl", "code_contests")
    double = problems["code_contests/9001_A. Double"]
    assert double.reference_solution == "print(int(input()) * 2)"
    assert double.other_solutions == ("n = int(input())\nprint(n + n)\n",)
    assert double.wrong_solutions == ("print(int(input()) ** 2)", "print(6)")
    assert double.baseline_tests == (OutputTest(stdin="3\n", stdout="6\n"),)
    assert len(double.hidden_tests) == 4
    assert double.limits == Limits(cpu_s=1.5, wall_s=6.0, memory_mb=244)
    assert (double.difficulty, double.tags) == (7, ("math",))
    assert problems["code_contests/9002_B. Lines"].limits is None


def test_apps(caplog) -> None:
    problems = load("apps.jsonl", "apps")
    assert list(problems) == ["apps/9000", "apps/9001"]
    assert "1 of 3 problems have no tests: left out" in caplog.text
    backwards, pair = problems.values()
    assert backwards.reference_solution == "print(input()[::-1])"  # the first one is Python 2
    assert backwards.baseline_tests == (
        OutputTest(stdin="abc\n", stdout="cba\n"),
        OutputTest(stdin="xy", stdout="yx"),
    )
    assert pair.function_signature == "def pair(n: int) -> List[int]:"
    for program in (pair.reference_solution, *pair.other_solutions):
        assert [outcome(program, test) for test in pair.baseline_tests] == ["passed", "passed"]
    assert outcome("def pair(n): return [n, 2 * n]", pair.baseline_tests[1]) == "AssertionError"


def test_taco() -> None:
    even, longest = load("taco.jsonl", "taco").values()
    assert (even.id, even.difficulty, even.tags) == ("taco/0", "easy", ("Mathematics", "Number theory"))
    assert even.limits == Limits(cpu_s=1.5, wall_s=6.0, memory_mb=128)
    assert (longest.function_signature, longest.limits) == ("def longest(words):", None)
    assert outcome(longest.reference_solution, longest.baseline_tests[0]) == "passed"


def test_q_directories() -> None:
    (problem,) = load_dataset(DATA / "q", "q")
    assert (problem.id, problem.language) == ("q/twice", "q")
    assert problem.reference_solution == "solve:{2*x}\n"
    assert [test.code for test in problem.baseline_tests if isinstance(test, OutputTest)] == [
        "show solve 2\n",
        "show solve 10\n",
    ]


def test_directories_of_another_language() -> None:
    assert [p.id for p in load_dataset(DATA / "lua", "q", split="train")] == ["lua/add"]
    assert [p.id for p in load_dataset(DATA / "lua", "q", split="test")] == ["lua/shout"]
    assert [p.language for p in load_dataset(DATA / "lua" / "test", "q")] == ["lua"]
    assert "holds test and train; set the split" in error_of(DATA / "lua", "q")
    assert "has no directory 'test'" in error_of(DATA / "q", "q", split="test")


@pytest.mark.parametrize(
    ("expected", "printed", "same"),
    [
        ("8", "8\n", True),
        ("8", "  8 \n", True),
        ('""', "", True),
        ('""', '""\n', True),
        ("", '""\n', True),
        ("a\nb", "a  \nb", True),
        ('""', "0", False),
        ("8", "", False),
    ],
)
def test_answers(expected, printed, same) -> None:
    verdict = AnswerTest(stdout=expected).judge(Verdict(status=Status.PASSED, stdout=printed))
    assert verdict.passed is same and verdict.stdout == printed
    failed = Verdict(status=Status.TIME_LIMIT, stdout=printed)
    assert AnswerTest(stdout=expected).judge(failed) == failed


def test_an_incomplete_directory(tmp_path) -> None:
    folder = tmp_path / "train" / "twice"
    shutil.copytree(DATA / "q" / "twice", folder)
    (folder / "q_exact_ans_test_case_2.txt").unlink()
    with pytest.raises(
        ProblemFileError, match=r"q_exact_ans_test_case_2.txt: no such file; each problem needs it"
    ):
        load_dataset(tmp_path, "q", split="train")
    (folder / "q_sol.q").unlink()
    with pytest.raises(
        ProblemFileError, match=r"twice: no reference solution; add one of q_sol.q, lua_sol.lua"
    ):
        load_dataset(tmp_path, "q", split="train")
    assert "no such directory" in error_of(tmp_path / "none", "q")


# ------------------------------------------------------------ any other data set

FIELDS = {
    "id": "uid", "description": "instruction", "baseline_tests": "tests", "reference_solution": "answer",
    "difficulty": "level", "tags": "topics", "hidden_tests": "secret",
}  # fmt: skip


def test_a_field_map() -> None:
    cube, first = load("columns.jsonl", "fields", fields=FIELDS).values()
    assert cube.baseline_tests == ("assert cube(2) == 8", "assert cube(-1) == -1")
    assert cube.hidden_tests == ("assert cube(0) == 0",)
    assert (cube.function_signature, cube.difficulty, cube.tags) == ("def cube(n):", 1, ("math",))
    assert first.baseline_tests == ("assert first([3, 4]) == 3",)
    assert (first.id, first.difficulty, first.tags) == ("first", "easy", ("lists",))


def test_a_field_map_needs_little() -> None:
    fields = {"description": "instruction", "baseline_tests": "tests"}
    first = load_dataset(DATA / "columns.jsonl", "fields", fields=fields)[0]
    assert (first.id, first.reference_solution, first.function_signature) == ("columns/0", "", "")


@pytest.mark.parametrize("name", ["columns.parquet", "columns.jsonl.gz", "columns.json"])
def test_other_kinds_of_files(tmp_path, name) -> None:
    path, found = tmp_path / name, rows("columns.jsonl")
    if name.endswith("parquet"):
        pyarrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
        kept = [
            {k: v for k, v in row.items() if k in ("uid", "instruction", "tests", "answer")} for row in found
        ]
        parquet.write_table(pyarrow.Table.from_pylist(kept), path)
    elif name.endswith("gz"):
        path.write_bytes(gzip.compress((DATA / "columns.jsonl").read_bytes()))
    else:
        path.write_text(json.dumps(found, indent=2))
    fields = {k: v for k, v in FIELDS.items() if v in ("uid", "instruction", "tests", "answer")}
    assert [p.id for p in load_dataset(path, "fields", fields=fields)] == ["cube", "first"]


def test_faulty_field_maps(tmp_path) -> None:
    path = DATA / "columns.jsonl"
    assert "unknown field 'answers'; use some of id, " in error_of(path, "fields", fields={"answers": "a"})
    assert "no column for 'description'" in error_of(path, "fields", fields={"id": "uid"})
    wrong = error_of(path, "fields", fields={**FIELDS, "tags": "labels"})
    assert "field 'labels': missing; expected a column for 'tags'; columns are uid, instruction, " in wrong
    assert "go together" in error_of(path, "fields")
    assert "go together" in error_of(path, "mbpp", fields=FIELDS)


def test_a_data_set_on_the_hub(monkeypatch) -> None:
    fields = {**FIELDS, "id": "uid"}
    monkeypatch.setitem(sys.modules, "datasets", None)
    assert "run: pip install datasets" in error_of(Path("owner/name"), "fields", fields=fields)
    asked = []
    library = types.ModuleType("datasets")
    library.load_dataset = lambda name, split: asked.append((name, split)) or rows("columns.jsonl")  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "datasets", library)
    assert len(load_dataset("owner/name", "fields", fields=fields, split="validation")) == 2
    assert asked == [("owner/name", "validation")]


# ------------------------------------------------------------ what is wrong with a file


def without(row: dict, field: str) -> dict:
    return {name: value for name, value in row.items() if name != field}


def test_grid_tasks_are_read_as_problems(tmp_path) -> None:
    pair = {"input": [[1, 2]], "output": [[2, 1]]}
    task = {"train": [pair], "test": [pair], "arc-gen": [{"input": [[n]], "output": [[n]]} for n in range(9)]}
    (tmp_path / "task007.json").write_text(json.dumps(task))
    (problem,) = load_dataset(tmp_path, "grids")
    assert problem.id == "task007" and len(problem.baseline_tests) == 11
    assert "3" in problem.description and "8" not in problem.description  # of arc-gen, the first four


def test_every_format_names_a_missing_field(tmp_path) -> None:
    cases = {
        "mbpp": ("mbpp.jsonl", "test_list", 'asserts, such as ["assert f(1) == 2"]'),
        "mbpp_plus": ("mbpp_plus.jsonl", "assertion", "the base tests, as asserts"),
        "humaneval": ("humaneval.jsonl", "test", "source that defines check(candidate)"),
        "humaneval_plus": ("humaneval_plus.jsonl", "base_input", "a list of lists of arguments"),
        "livecodebench": ("livecodebench.jsonl", "public_test_cases", "a JSON list of "),
        "code_contests": ("code_contests.jsonl", "public_tests", '{"input": [strings], '),
        "apps": ("apps.jsonl", "question", "the problem's text"),
        "taco": ("taco.jsonl", "question", "the problem's text"),
    }
    assert set(cases) | {"problems", "q", "grids", "fields"} == set(FORMATS)
    for format, (name, field, expected) in cases.items():
        good, bad = rows(name)[0], without(rows(name)[1], field)
        message = error_of(written(tmp_path, good, bad), format)
        assert f"field {field!r}: missing; expected {expected}" in message
        assert "1" in message.split(", field")[0] and f"(this is read as {format!r})" in message


@pytest.mark.parametrize(
    ("format", "change", "message"),
    [
        ("mbpp", {"task_id": "x"}, "entry 'x' (index 0), field 'task_id': found a string; expected the task's number"),
        ("mbpp", {"text": None}, "field 'text': found null; expected what the function shall do"),
        ("mbpp", {"test_list": ["assert 1", 2]}, "field 'test_list[1]': found a number; expected asserts"),
        ("mbpp", {"code": "def f("}, "field 'code': not valid Python; expected the reference solution"),
        ("mbpp", {"code": "def f(): pass"}, "field 'test_list': calls no function that 'code' defines"),
        ("humaneval", {"entry_point": "other"}, "field 'entry_point': neither prompt nor solution defines it"),
        ("humaneval", {"canonical_solution": "   return ("}, "field 'canonical_solution': no valid Python after"),
        ("mbpp_plus", {"assertion": "shared(1)"}, "field 'assertion': no asserts in it"),
        (
            "mbpp_plus",
            {"assertion": "assert shared({1}, {2}) == {3}", "plus_input": [[[[1]], [2]]]},
            "field 'plus_input': unlike the assertion's arguments",
        ),
        ("livecodebench", {"private_test_cases": "?"}, "field 'private_test_cases': cannot be unpacked"),
        ("livecodebench", {"private_test_cases": "[]", "public_test_cases": "[]"}, "no tests, public or private"),
        ("livecodebench", {"private_test_cases": '[{"input": ""}]'}, "field 'private_test_cases[0].output': "),
        ("livecodebench", {"metadata": "{"}, "field 'metadata': not valid JSON; expected JSON such as"),
        ("code_contests", {"public_tests": {"input": ["1"]}}, "field 'public_tests': 1 inputs but 0 outputs"),
        ("code_contests", {"solutions": {"language": [3]}}, "field 'solutions': 1 languages but 0 solutions"),
        ("code_contests", {"time_limit": "1 s"}, "field 'time_limit': found a string; expected seconds, or "),
        ("apps", {"input_output": "{"}, "field 'input_output': not valid JSON"),
        ("apps", {"input_output": "[]"}, "field 'input_output': JSON of an empty list"),
        ("apps", {"input_output": '{"inputs": [1]}'}, "inputs and outputs are no lists of one length"),
        ("apps", {"solutions": '{"a": 1}'}, "field 'solutions': JSON of an object; expected a JSON list"),
        ("taco", {"tags": "Math"}, "field 'tags': no Python list"),
    ],
)  # fmt: skip
def test_faulty_entries(tmp_path, format, change, message) -> None:
    path = written(tmp_path, {**rows(f"{format}.jsonl")[0], **change})
    assert message in error_of(path, format)


def test_a_functional_test_needs_a_name(tmp_path) -> None:
    path = written(tmp_path, {**rows("livecodebench.jsonl")[1], "metadata": "{}"})
    assert "field 'metadata': no func_name, but functional tests" in error_of(path, "livecodebench")


def test_unusable_files(tmp_path) -> None:
    def message(content: bytes, name: str = "set.jsonl") -> str:
        path = tmp_path / name
        path.write_bytes(content)
        return error_of(path, "mbpp")

    assert error_of(tmp_path / "none.jsonl", "mbpp") == "no such file; check the path to the data set"
    assert "cannot be read (Is a directory)" in error_of(tmp_path, "mbpp")
    assert message(b"") == "holds no entries; give a file with at least one"
    assert message(b"[]") == "holds no entries; give a file with at least one"
    assert message(b"[1]") == "entry 0: expected an object, found a number; remove it"
    assert "malformed JSON at line 2, column 2" in message(b"\n{]\n")
    assert "malformed JSON at line 3, column 2" in message(b"[\n{},\n x]\n")
    assert "not UTF-8 text" in message(b"\xff\xfe")
    assert "not a whole gzip file" in message(b"{}", "set.jsonl.gz")
    assert "not a whole gzip file" in message(gzip.compress(b"{}" * 99)[:-9], "set.jsonl.gz")
    assert "not a parquet file" in message(b"{}", "set.parquet")


def test_ids_are_unique_and_formats_known(tmp_path) -> None:
    row = rows("humaneval.jsonl")[0]
    assert "id 'HumanEval/9000' is used twice" in error_of(written(tmp_path, row, row), "humaneval")
    assert "unknown format 'x'; give one of problems, mbpp, " in error_of(tmp_path, "x")
    assert "files of the format 'apps' have no splits" in error_of(DATA / "apps.jsonl", "apps", split="test")


def test_our_own_format_is_one_of_them() -> None:
    examples = Path(__file__).parents[3] / "problems" / "example_problems.json"
    assert len(load_dataset(examples, "problems")) == 24


# ------------------------------------------------------------ what the readers share


@pytest.mark.parametrize(
    ("source", "signature"),
    [
        ("def f(a, b=2, *c, d: int, **e) -> str: pass", "def f(a, b=2, *c, d: int, **e) -> str:"),
        ("class S:\n    def f(self, x): pass", "def f(x):"),
        ("class S:\n    def f(self, x: List[int]) -> int:\n        ", "def f(x: List[int]) -> int:"),
        ("async def f(x): pass", "def f(x):"),
        ("def g(x): pass", None),
        ("def f(x", None),
        ("", None),
    ],
)
def test_signatures(source, signature) -> None:
    assert signature_of(source, "f") == signature


def test_the_function_under_test_is_the_outermost_that_is_called() -> None:
    source = "def inner(x): pass\ndef outer(x, y): pass"
    assert (
        signature_under_test(source, ["x = 3", "assert len(outer(inner(1), 2)) == 1"]) == "def outer(x, y):"
    )
    assert signature_under_test(source, ["assert other(1)"]) is None


def test_limits_have_room_for_the_expected_output() -> None:
    assert limits_for(["assert f(1)", OutputTest(stdout="x" * 1000)]) is None
    limits = limits_for([OutputTest(stdout="x" * 2**20)], memory_mb=1)
    assert limits is not None
    assert (limits.output_kb, limits.memory_mb, limits.cpu_s) == (2049, 32, Limits().cpu_s)


class RecordingSandbox:
    def __init__(self) -> None:
        self.asked = []

    async def judge(self, program, tests, *, limits=None, run=0, language="python"):
        self.asked.append((program, limits, language))
        return [Verdict(status=Status.PASSED) for _ in tests]


def test_references_are_judged_in_their_language_and_limits() -> None:
    limits = Limits(cpu_s=9, wall_s=30)
    common = {"description": "d", "function_signature": "", "baseline_tests": (OutputTest(stdout="1"),)}
    problems = [
        Problem(id="a", reference_solution="print(1)", language="lua", limits=limits, **common),
        Problem(id="b", reference_solution="", **common),
        Problem(id="c", reference_solution="print(1)", **common),
    ]
    sandbox = RecordingSandbox()
    asyncio.run(validate_references(problems, sandbox, "x"))
    assert sandbox.asked == [("print(1)", limits, "lua"), ("print(1)", None, "python")]
