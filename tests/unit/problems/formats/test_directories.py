"""Directories of problems: Q and other languages."""

import shutil

import pytest

from sparring.core.verdict import OutputTest, Status, Verdict
from sparring.problems.formats import load_dataset
from sparring.problems.formats.directories import AnswerTest
from sparring.problems.loader import ProblemFileError
from tests.datasets import DATA, error_of


def test_q_directories() -> None:
    (problem,) = load_dataset(DATA / "q", "q")
    assert (problem.id, problem.language) == ("q/twice", "q")
    assert problem.reference_solution == "solve:{2*x}\n"
    codes = [test.code for test in problem.baseline_tests if isinstance(test, OutputTest)]
    assert codes == ["show solve 2\n", "show solve 10\n"]


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
    for lost, said in (("q_exact_ans_test_case_2.txt", "no such file"), ("q_sol.q", "no reference solution")):
        (folder / lost).unlink()
        with pytest.raises(ProblemFileError, match=rf"twice.*: {said}.*") as caught:
            load_dataset(tmp_path, "q", split="train")
        assert lost in str(caught.value)
    assert "no such directory" in error_of(tmp_path / "none", "q")
