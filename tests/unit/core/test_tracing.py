import pytest

from sparring.core.tracing import BusyTimer, seconds_of


@pytest.fixture
def clock(monkeypatch):
    class Clock:
        now = 100.0

    monkeypatch.setattr("sparring.core.tracing.time.perf_counter", lambda: Clock.now)
    monkeypatch.setattr("sparring.core.tracing.time.time", lambda: 1000.0)
    return Clock


def test_a_moment_counts_for_the_first_kind_that_is_busy(clock):
    occupancy = BusyTimer("generate", "sandbox")
    clock.now += 5  # idle
    with occupancy.working("sandbox"):
        clock.now += 1
        with occupancy.working("generate"):
            clock.now += 2
            with occupancy.working("generate"):
                clock.now += 4
        clock.now += 8
    clock.now += 16  # idle
    assert occupancy.spans() == [
        ("sandbox", 1005.0, 1006.0),
        ("generate", 1006.0, 1012.0),
        ("sandbox", 1012.0, 1020.0),
    ]


def test_what_is_still_going_on_counts_up_to_now(clock):
    occupancy = BusyTimer("generate", "sandbox")
    with occupancy.working("generate"):
        clock.now += 3
        assert occupancy.spans() == [("generate", 1000.0, 1003.0)]
        clock.now += 4
    assert occupancy.spans() == [("generate", 1000.0, 1007.0)]


def test_failing_work_ends_too(clock):
    occupancy = BusyTimer("sandbox")
    with pytest.raises(RuntimeError), occupancy.working("sandbox"):
        clock.now += 2
        raise RuntimeError
    clock.now += 5
    assert occupancy.spans() == [("sandbox", 1000.0, 1002.0)]


def test_seconds_are_of_the_place_where_it_took_longest():
    spans = [
        ("a: generate", 0.0, 2.0),
        ("a: generate", 3.0, 4.0),
        ("b: generate", 0.0, 1.0),
        ("b: sandbox", 1.0, 9.0),
    ]
    assert seconds_of("generate", spans) == 3.0
    assert seconds_of("generate", spans, since=3.5) == 0.5
    assert seconds_of("sandbox", spans) == 8.0
    assert seconds_of("generate", [("generate", 1.0, 2.0)]) == 1.0
    assert seconds_of("generate", []) == 0.0


def test_what_overlaps_is_counted_once():
    """Steps that are played beside each other."""
    spans = [
        ("a: generate", 2.0, 5.0),
        ("a: generate", 0.0, 4.0),
        ("a: generate", 1.0, 3.0),
        ("a: generate", 7.0, 8.0),
    ]
    assert seconds_of("generate", spans) == 6.0
    assert seconds_of("generate", spans, since=4.5) == 1.5
