import pytest
from pydantic import ValidationError

from core.verdict import Limits, Status, Verdict


def test_only_the_sandboxs_own_fault_is_infrastructure():
    assert [s for s in Status if s.is_infrastructure()] == [Status.SANDBOX_ERROR]


def test_resource_limits():
    assert [s for s in Status if s.is_resource_limit()] == [
        Status.TIME_LIMIT,
        Status.MEMORY_LIMIT,
        Status.OUTPUT_LIMIT,
    ]


def test_only_passed_passes():
    assert [s for s in Status if Verdict(status=s).passed] == [Status.PASSED]


@pytest.mark.parametrize(
    "wrong", [{"cpu_s": 0}, {"wall_s": -1}, {"memory_mb": 8}, {"processes": 0}, {"output_kb": 0}, {"cpus": 1}]
)
def test_limits_are_positive_and_spelt_right(wrong):
    with pytest.raises(ValidationError):
        Limits(**wrong)


def test_limits_do_not_change():
    with pytest.raises(ValidationError):
        Limits().cpu_s = 5.0
