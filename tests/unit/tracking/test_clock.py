import time

from sparring.tracking.clock import Clock


def clock_at(*times: float) -> Clock:
    ticks = iter(times)
    return Clock(now=lambda: next(ticks), began=0.0)


def test_every_second_belongs_to_a_part() -> None:
    clock = clock_at(5.0, 8.0, 12.0)
    clock.lap("startup")
    clock.split({"sandbox": 1.0}, "rollout")
    clock.lap("learn")
    assert clock.seconds == {"startup": 5.0, "sandbox": 1.0, "rollout": 2.0, "learn": 4.0}
    assert clock.total == 12.0


def test_seconds_since_a_mark_are_those_of_a_step() -> None:
    clock = clock_at(5.0, 6.0, 9.0)
    clock.lap("startup")
    mark = dict(clock.seconds)
    clock.lap("rollout")
    clock.lap("learn")
    assert clock.since(mark) == {"rollout": 1.0, "learn": 3.0, "total": 4.0}


def test_the_first_lap_begins_with_the_process() -> None:
    clock = Clock()
    clock.lap("startup")
    assert 0 < clock.seconds["startup"] < time.time()


def test_the_seconds_of_an_earlier_half_are_added() -> None:
    first, second = clock_at(5.0, 8.0), clock_at(4.0, 6.0)
    first.lap("startup")
    first.lap("rollout")
    second.lap("startup")
    second.load_state_dict(first.state_dict())
    second.lap("learn")
    assert second.seconds == {"startup": 9.0, "rollout": 3.0, "learn": 2.0}
