import pytest

from core.tracing import Occupancy


@pytest.fixture
def clock(monkeypatch):
    class Clock:
        now = 100.0

    monkeypatch.setattr("core.tracing.time.perf_counter", lambda: Clock.now)
    return Clock


def test_a_moment_counts_for_the_first_kind_that_is_busy(clock):
    occupancy = Occupancy("generate", "sandbox")
    clock.now += 5  # idle
    with occupancy.working("sandbox"):
        clock.now += 1
        with occupancy.working("generate"):
            clock.now += 2
            with occupancy.working("generate"):
                clock.now += 4
        clock.now += 8
    clock.now += 16  # idle
    assert occupancy.take() == {"generate": 6.0, "sandbox": 9.0}


def test_taking_starts_anew_also_in_the_middle_of_work(clock):
    occupancy = Occupancy("generate", "sandbox")
    with occupancy.working("generate"):
        clock.now += 3
        assert occupancy.take() == {"generate": 3.0, "sandbox": 0.0}
        clock.now += 4
    assert occupancy.take() == {"generate": 4.0, "sandbox": 0.0}
    assert occupancy.take() == {"generate": 0.0, "sandbox": 0.0}


def test_failing_work_ends_too(clock):
    occupancy = Occupancy("sandbox")
    with pytest.raises(RuntimeError), occupancy.working("sandbox"):
        clock.now += 2
        raise RuntimeError
    clock.now += 5
    assert occupancy.take() == {"sandbox": 2.0}
