import pytest

from sparring.tracking.step_time import StepTime


def lines(*steps: dict[str, float]) -> list[str | None]:
    time = StepTime(slots=2)
    return [time.add(seconds | {"total": sum(seconds.values())}) for seconds in steps]


def test_the_largest_part_comes_first_and_the_line_once():
    first, second, third, *later = lines(*[{"rollout": 2.0, "learn": 7.0, "publish": 1.0}] * 8)
    assert first is second is None and later == [None] * 5
    assert third is not None and third.endswith("learning 70%, rollouts 20%, publishing 10%")


@pytest.mark.parametrize(("judging", "told"), [(1.0, False), (5.0, True)])
def test_a_judge_for_which_rollouts_wait_is_named_with_the_key_to_change(judging, told):
    line = lines(*[{"rollout": 5.0, "sandbox": judging}] * 3)[-1]
    assert line is not None and ("sandbox.slots (2)" in line) == told


def test_a_run_without_time_has_no_line():
    assert lines({}, {}, {}) == [None, None, None]
