"""Data sets of every format through a real sandbox: references pass, empty programs fail, wrong ones too."""

import asyncio
from collections.abc import Iterator
from dataclasses import replace

import pytest

from sandbox_workers.backends import choose_backend
from sandbox_workers.jobs import SandboxUnavailable
from sandbox_workers.languages import UnknownLanguage
from sandbox_workers.local import LocalSandbox
from sparring.core.problem import Problem
from sparring.core.verdict import Status, Verdict
from sparring.problems.formats import load_dataset
from sparring.problems.formats.sources import HARNESS_IMPORTS, call_test, method_of_solution
from sparring.problems.loader import ProblemFileError
from sparring.problems.references import validate_references
from tests.datasets import DATA

FILES = {
    "mbpp": "mbpp.jsonl",
    "mbpp sanitized": "mbpp_sanitized.json",
    "mbpp_plus": "mbpp_plus.jsonl",
    "humaneval": "humaneval.jsonl",
    "humaneval_plus": "humaneval_plus.jsonl",
    "livecodebench": "livecodebench.jsonl",
    "code_contests": "code_contests.jsonl",
    "apps": "apps.jsonl",
    "taco": "taco.jsonl",
    "kodcode": "kodcode.jsonl",
    "bigcodebench": "bigcodebench.jsonl",
    "q train": "lua",
    "q test": "lua",
}
SOLUTIONS = {  # of the data set that has none
    "livecodebench/ours_a": "a, b = map(int, input().split())\nprint(a + b)",
    "livecodebench/9001": "class Solution:\n    def repeatAll(self, words, k):\n        return [w * k for w in words]",
}
ANSWERS = {
    "humaneval": ("HumanEval/9000", "def grow_all(xs: List[int]): return [grow(x) for x in xs]"),
    "humaneval_plus": ("HumanEval/9000", "def grow_all(xs: List[int]): return [grow(x) for x in xs]"),
    "apps": ("apps/9001", "def pair(n) -> List[int]: return [n, pow(n, 2, inf and 10**9)]"),
    "taco": ("taco/1", "def longest(words): return reduce(lambda a, b: max(a, b, key=len), deque(words))"),
    "livecodebench": ("livecodebench/ours_a", "print(sum(map(int, stdin.read().split())))"),
}
"""By format, a problem's id and an answer that leaves out what the harness imports or the prompt defines."""


@pytest.fixture(scope="module")
def sandbox() -> Iterator[LocalSandbox]:
    try:
        choose_backend("auto")
    except SandboxUnavailable as missing:
        pytest.skip(str(missing))
    with LocalSandbox("auto") as local:
        yield local


@pytest.fixture(params=FILES)
def problems(request: pytest.FixtureRequest) -> list[Problem]:
    format, _, split = request.param.partition(" ")
    loaded = load_dataset(DATA / FILES[request.param], format, split=split if format == "q" else None)
    return [replace(p, reference_solution=p.reference_solution or SOLUTIONS[p.id]) for p in loaded]


def judge(sandbox: LocalSandbox, problem: Problem, program: str) -> list[Verdict]:
    tests = dict.fromkeys(problem.baseline_tests + problem.hidden_tests)
    try:
        return asyncio.run(
            sandbox.judge(
                problem.in_harness(program), list(tests), limits=problem.limits, language=problem.language
            )
        )
    except UnknownLanguage as missing:  # a sandbox without containers has what the host has
        pytest.skip(str(missing))


def test_references_pass(sandbox: LocalSandbox, problems: list[Problem]) -> None:
    for problem in problems:
        for program in (problem.reference_solution, *problem.other_solutions):
            assert all(verdict.passed for verdict in judge(sandbox, problem, program)), problem.id
    asyncio.run(validate_references(problems, sandbox, "ours"))


def test_an_empty_program_fails(sandbox: LocalSandbox, problems: list[Problem]) -> None:
    for problem in problems:
        assert not any(verdict.passed for verdict in judge(sandbox, problem, "")), problem.id


def test_wrong_solutions_fail(sandbox: LocalSandbox) -> None:
    problem = load_dataset(DATA / "code_contests.jsonl", "code_contests")[0]
    assert len(problem.wrong_solutions) == 2
    for program in problem.wrong_solutions:
        assert not all(v.passed for v in judge(sandbox, problem, program))


@pytest.mark.parametrize("format", ANSWERS)
def test_an_answer_finds_what_its_harness_puts_before_it(sandbox: LocalSandbox, format: str) -> None:
    id, answer = ANSWERS[format]
    (problem,) = (p for p in load_dataset(DATA / FILES[format], format) if p.id == id)
    assert all(verdict.passed for verdict in judge(sandbox, problem, answer))
    assert not any(v.passed for v in judge(sandbox, replace(problem, preamble=""), answer))


@pytest.mark.parametrize("format", ["apps", "taco", "livecodebench"])
def test_calls_are_judged_apart_from_the_program(sandbox: LocalSandbox, format: str) -> None:
    """Whether the program has a function or LeetCode's class Solution, and whatever JSON does not tell apart."""
    (called,) = (p for p in load_dataset(DATA / FILES[format], format) if p.epilogue)
    found = judge(sandbox, called, SOLUTIONS.get(called.id) or called.reference_solution)
    assert {(verdict.status, verdict.isolation) for verdict in found} == {(Status.PASSED, "separate")}


@pytest.mark.parametrize(
    ("value", "passes"),
    [
        ("[1, [2, 3]]", True),
        ("(1, (2, 3))", True),
        ("{1: 2}", False),
        ("{1, 2}", False),
        ("object()", False),
        ("(x for x in (1, [2, 3]))", False),
        ("type('Liar', (), {'__eq__': lambda *_: True})()", False),
        ("[1, [2, 3]]\nclass Solution:\n    def f(self, x): return f(x)", True),
        (
            "1\nclass Liar:\n    def __eq__(self, other): return True\n"
            "class Module(type(sys)):\n    def __call__(self, x): return Liar()\nf = Module('f')",
            False,
        ),
    ],
)
def test_another_value_than_the_expected_one_fails(sandbox: LocalSandbox, value: str, passes: bool) -> None:
    problem = Problem(
        id="p",
        description="",
        function_signature="def f(x):",
        baseline_tests=(call_test("f", [0], [[1, [2, 3]]]),),
        reference_solution="",
        preamble=HARNESS_IMPORTS,
        epilogue=method_of_solution("f"),
    )
    (found,) = judge(sandbox, problem, f"def f(x): return {value}")
    assert found.passed is passes and not found.error.startswith("test: ")


@pytest.mark.slow
def test_many_large_tests_are_judged_together(sandbox: LocalSandbox) -> None:
    """Each takes what one takes, and all of them are more than 16 MiB."""
    pairs = [[number, number] for number in range(60_000)]
    problem = Problem(
        id="p",
        description="",
        function_signature="def f(x):",
        baseline_tests=tuple(call_test("f", [[[n, n], *pairs]], [len(pairs) + 1]) for n in range(18)),
        reference_solution="",
    )
    assert all(verdict.passed for verdict in judge(sandbox, problem, "def f(x): return len(x)"))


def test_a_program_that_finds_the_reference_of_its_test_is_told_by_the_verdict(sandbox: LocalSandbox) -> None:
    """EvalPlus' tests compute what they expect, so they are code. A program can look for what its test compares with."""
    problem = load_dataset(DATA / "humaneval_plus.jsonl", "humaneval_plus")[0]
    thief = (
        "import gc, sys\n"
        "def grow_all(numbers):\n"
        "    spaces = [o for o in gc.get_objects() if isinstance(o, dict) and '_reference' in o]\n"
        "    frame = sys._getframe()\n"
        "    while frame:\n"
        "        spaces += [frame.f_globals, frame.f_locals] if '_reference' in frame.f_globals else []\n"
        "        frame = frame.f_back\n"
        "    return spaces[0]['_reference']['grow_all'](numbers)\n"
    )
    found = judge(sandbox, problem, thief)
    assert any(verdict.passed for verdict in found)
    assert all(verdict.isolation == "shared" for verdict in found if verdict.passed)


def test_a_wrong_reference_of_another_language_is_named(sandbox: LocalSandbox) -> None:
    (problem,) = load_dataset(DATA / "lua", "q", split="train")
    wrong = replace(problem, reference_solution="function add(a, b) return a end")
    judge(sandbox, problem, "")  # skips where there is no Lua
    with pytest.raises(ProblemFileError, match=r"ours: 2 of the tests fail .*'lua/add', baseline_tests\[0\]"):
        asyncio.run(validate_references([wrong], sandbox, "ours"))
