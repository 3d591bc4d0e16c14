import pytest

from games.programs.gap import GapAlarm, proxy_gold_gap


def test_the_gap_is_of_the_same_programs():
    assert proxy_gold_gap([1.0, 0.5, 1.0], [0.5, 0.5, 0.0]) == pytest.approx(0.5)
    assert proxy_gold_gap([0.0], [1.0]) == -1
    with pytest.raises(ValueError):
        proxy_gold_gap([1.0], [])


def test_what_the_sandbox_could_not_judge_is_left_out():
    assert proxy_gold_gap([1.0, None, 1.0], [0.0, 0.0, None]) == 1
    assert proxy_gold_gap([None], [1.0]) is None
    assert proxy_gold_gap([], []) is None


def test_the_alarm_is_raised_above_the_threshold_only():
    alarm = GapAlarm(0.25)
    assert alarm.message(0.25) is None and alarm.message(-1.0) is None and alarm.message(None) is None
    message = alarm.message(0.3)
    assert message and "0.30" in message and "0.25" in message and "\n" not in message
