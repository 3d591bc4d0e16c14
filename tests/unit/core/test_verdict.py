import pytest
from pydantic import ValidationError

from sparring.core.verdict import Limits, OutputTest, Status, Verdict


def test_statuses():
    assert [s for s in Status if Verdict(status=s).passed] == [Status.PASSED]
    assert [s for s in Status if s.is_infrastructure()] == [Status.SANDBOX_ERROR]
    limits = [s for s in Status if s.is_resource_limit()]
    assert limits == [Status.TIME_LIMIT, Status.MEMORY_LIMIT, Status.OUTPUT_LIMIT]


def test_what_a_data_set_does_not_state_is_left_to_the_run():
    run = Limits(cpu_s=20, memory_mb=1024)
    assert Limits(output_kb=79).over(run) == Limits(cpu_s=20, memory_mb=1024, output_kb=79)
    assert Limits(cpu_s=2.0).over(run).cpu_s == 2.0, "stated, though it is what is usual"
    assert Limits().over(run) == run


def test_the_wall_clock_does_not_end_a_test_before_a_stated_cpu_limit():
    assert Limits(cpu_s=20).over(Limits()).wall_s == 80
    assert Limits(cpu_s=1).over(Limits()).wall_s == 8
    assert Limits(cpu_s=20, wall_s=30).over(Limits()).wall_s == 30


@pytest.mark.parametrize(
    "wrong", [{"cpu_s": 0}, {"wall_s": -1}, {"memory_mb": 8}, {"processes": 0}, {"output_kb": 0}, {"cpus": 1}]
)
def test_limits_are_positive_and_spelt_right(wrong):
    with pytest.raises(ValidationError):
        Limits(**wrong)


@pytest.mark.parametrize(
    ("expected", "printed", "same"),
    [
        ("1\n2\n", "1 \t\r\n2", True),
        ("1", "1\n\n \n", True),
        ("", "\n", True),
        ("1\n2", "1\f2", False),
        ("1\n2", "1\u20282", False),
        ("1", "1\xa0", False),
        ("1", "1\u2003", False),
        ("1", " 1", False),
        ("1", "\n1", False),
        ("1\n2", "1\n\n2", False),
    ],
)
def test_output_is_compared_by_lines(expected, printed, same):
    verdict = Verdict(status=Status.PASSED, stdout=printed)
    assert OutputTest(stdout=expected).judge(verdict).passed is same


def test_code_without_expected_output_is_refused():
    with pytest.raises(ValueError, match="have the code print what it found"):
        OutputTest(stdout=None, code="assert f(1) == 2")
