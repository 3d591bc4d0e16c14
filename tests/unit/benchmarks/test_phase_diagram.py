"""When sparring pays: the map's players by table."""

from dataclasses import replace
from pathlib import Path

from benchmarks.experiments.phase_diagram import (
    RANGES,
    SHARED,
    TESTERS,
    PhaseSettings,
    World,
    biting,
    draw,
    function,
    share_caught,
    showing,
)
from lab.problems import toy_specs

SMALL = PhaseSettings(shared="all problems", numbers="1 to 9", judged_by="oracle", problems=24, steps=40)


def right_after(settings: PhaseSettings, seed: int = 1) -> float:
    world = World(settings, seed)
    world.run()
    return world.right()


def test_whoever_sees_every_mistake_teaches_to_make_none_and_whoever_sees_none_teaches_nothing():
    before = World(SMALL, 1).right()
    assert before < 0.5
    assert right_after(SMALL) > 0.95
    assert abs(right_after(replace(SMALL, judged_by="1 that shows little")) - before) < 0.25


def test_what_one_problem_teaches_another_does_not_learn_where_mistakes_are_particular():
    few = replace(SMALL, judged_by="3 random")
    assert right_after(replace(few, shared="one problem")) < right_after(few) - 0.1


def test_a_discriminator_that_learns_leaves_off_what_shows_nothing():
    world = World(replace(SMALL, judged_by="sparring"), 1)
    kind = world.specs[0].kind
    before = max(world.ways[kind]) - min(world.ways[kind])
    world.run()
    assert world.ways[kind][0] - min(world.ways[kind]) < before


def test_the_same_seed_is_the_same_run():
    settings = replace(SMALL, judged_by="sparring", steps=5)
    assert right_after(settings, 3) == right_after(settings, 3)


def test_the_oracle_shows_every_mistake_that_shows_at_all():
    for spec in toy_specs("train")[:100]:
        right, inputs = function(spec), showing(spec)
        for misconception in biting(spec):
            wrong = function(misconception.distort(spec))
            assert any(wrong(i) != right(i) for i in inputs)


def test_more_tests_catch_more_and_small_numbers_more_than_large():
    small, large = ({name: share_caught(t, span) for name, t in TESTERS.items()} for span in RANGES.values())
    assert list(small.values()) == sorted(small.values(), reverse=True)
    assert all(large[name] <= small[name] for name in TESTERS)


def test_the_same_figures_draw_the_same_picture(tmp_path: Path) -> None:
    arms = ("sparring", "frozen", "random", "oracle", *TESTERS)
    names = [f"{numbers}: {arm}: {shared}" for numbers in RANGES for arm in arms for shared in SHARED]
    figures = {name: {"mean": 0.5, "half_width": 0.1} for name in names}
    one, other = tmp_path / "one.svg", tmp_path / "other.svg"
    draw(figures, one)
    draw(figures, other)
    assert one.read_bytes() == other.read_bytes()
    assert "a discriminator that learns" in one.read_text()
