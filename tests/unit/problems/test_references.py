"""Reference solutions on their own tests."""

import asyncio
import pickle
import re
from dataclasses import replace
from typing import Any

import pytest

from sparring.core.interfaces import SandboxFailure
from sparring.core.verdict import KnownTest, OutputTest, ReferenceTest, Status, Verdict, known_by
from sparring.problems.loader import ProblemFileError, load_problems
from sparring.problems.references import Offence, judge_references, validate_references
from sparring.runtime.problem_sets import without_failing
from tests.playing import Breaking
from tests.unit.games.conftest import FakeSandbox
from tests.unit.problems.test_loader import EXAMPLES, GOOD, changed, write


def check_references(problems, sandbox: Any = None):
    asyncio.run(validate_references(problems, sandbox or FakeSandbox(), "my.json"))


def test_wrong_references_are_named(tmp_path):
    wrong_baseline = changed(id="a", baseline_tests=["assert double(2) == 4", "assert double(2) == 5"])
    crashes = changed(id="b", hidden_tests=["assert double(None) == 0"])
    with pytest.raises(ProblemFileError, match=r"my\.json: 2 of the tests fail") as caught:
        check_references(load_problems(write(tmp_path, GOOD, wrong_baseline, crashes)))
    for fact in (
        "problem 'a', baseline_tests[1] 'assert double(2) == 5': WRONG_ANSWER",
        "problem 'b', hidden_tests[0] 'assert double(None) == 0': RUNTIME_ERROR (TypeError: ",
        "--problems.failing-references leave_out",
    ):
        assert fact in str(caught.value)


def test_only_the_first_offenders_are_named(tmp_path):
    entries = [changed(id=f"p{number}", baseline_tests=["assert double(1)\\\n == 3"]) for number in range(5)]
    with pytest.raises(ProblemFileError) as caught:
        check_references(load_problems(write(tmp_path, *entries)))
    assert re.findall(r"problem '(\w+)'", str(caught.value)) == ["p0", "p1", "p2"]
    assert "; and 2 more; " in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_sandbox_failure_is_not_the_files_fault(tmp_path):
    with pytest.raises(SandboxFailure, match="broken"):
        check_references(load_problems(write(tmp_path, GOOD)), Breaking())


def test_shipped_examples_load_and_their_references_pass():
    problems = load_problems(EXAMPLES)
    assert len(problems) == 24
    assert {problem.difficulty for problem in problems} == {"easy", "medium", "hard"}
    assert all(4 <= len(problem.baseline_tests) <= 8 for problem in problems)
    check_references(problems)


def test_problems_whose_references_fail_can_be_left_out(tmp_path, capsys):
    wrong = changed(id="a", baseline_tests=["assert double(2) == 5", "assert double(2) == 6"])
    problems = load_problems(write(tmp_path, GOOD, wrong))
    _, failing = asyncio.run(judge_references(problems, FakeSandbox()))
    assert {name: len(offences) for name, offences in failing.items()} == {"a": 2}
    assert [p.id for p in without_failing(problems, failing)] == ["double"]
    assert "1 problems (a) left out" in capsys.readouterr().out
    with pytest.raises(ProblemFileError, match="every reference fails its own tests, such as problem 'a'"):
        without_failing(problems[1:], failing)


def test_tests_that_the_sandbox_cannot_serve_are_counted(tmp_path, capsys):
    problems = load_problems(write(tmp_path, GOOD, changed(id="a")))
    offences = [Offence(Status.UNSUPPORTED, "not served: ..."), Offence(Status.WRONG_ANSWER, "UNSUPPORTED?")]
    without_failing(problems, {"a": offences[:1]})
    assert "; of 1 a test is not run here" in capsys.readouterr().out
    without_failing(problems, {"a": offences[1:]})
    assert "not run here" not in capsys.readouterr().out


def test_a_test_is_known_by_what_the_reference_was_asked(tmp_path):
    class Asks(FakeSandbox):
        async def judge(self, program, tests, **options):
            verdicts = await super().judge(program, tests, **options)
            return [replace(v, asked_objects="double(2)" in t) for t, v in zip(tests, verdicts, strict=True)]

    problem = load_problems(
        write(tmp_path, changed(baseline_tests=["assert double(2) == 4", "assert double(3) == 6"]))
    )
    (known,), failing = asyncio.run(judge_references(problem, Asks()))
    assert [isinstance(t, KnownTest) and t.plain for t in known.baseline_tests] == [False, True]
    assert (known.baseline_tests, failing) == (problem[0].baseline_tests, {})


@pytest.mark.parametrize("status", [s for s in Status if s is not Status.PASSED])
def test_what_the_reference_did_not_pass_says_nothing_of_its_results(status):
    assert type(known_by("assert f(1).x == 2", [Verdict(status=status)])) is str
    refused = known_by(ReferenceTest("f(1)"), [Verdict(status=Status.PASSED), Verdict(status=status)])
    assert type(refused) is str  # no program is trusted as the reference was
    passed = [Verdict(status=Status.PASSED)] * 2
    assert type(known_by("f(1)", passed)) is KnownTest
    assert known_by(OutputTest(stdout="1"), passed) == OutputTest(stdout="1")


@pytest.mark.parametrize("seen", [{}, {"asked_objects": True}, {"isolation": "shared"}])
def test_a_test_is_known_as_its_reference_was_judged_wherever_it_goes(seen):
    asked = pickle.loads(pickle.dumps(ReferenceTest("assert f(1)", "f")))
    test = pickle.loads(
        pickle.dumps(known_by(asked, [Verdict(status=Status.PASSED, shadowed=("f",), **seen)]))
    )
    assert isinstance(test, KnownTest) and test == "assert f(1)" and test.shadowed == {"f"}
    assert (test.data, test.plain) == ("isolation" not in seen, "asked_objects" not in seen)
    twice: Any = known_by("f(1)", [Verdict(status=Status.PASSED, **seen), Verdict(status=Status.PASSED)])
    assert twice.data == test.data


def test_a_package_that_the_sandbox_lacks_is_told(tmp_path) -> None:
    path = write(
        tmp_path, changed(reference_solution="import no_such_package\n" + GOOD["reference_solution"])
    )
    with pytest.raises(ProblemFileError, match=r"No module named 'no_such_package'.*docs/sandbox\.md"):
        check_references(load_problems(path))
