from collections import Counter
from dataclasses import replace

import pytest

from sparring.curriculum.curriculum import Assignment, Curriculum, Phase, Schedule

IDS = [f"p{i}" for i in range(10)]
SMALL = Schedule(
    stages=(1, 3),
    n_discriminator_steps=2,
    n_generator_steps=1,
    k_alternating_steps=1,
    problems_per_step=3,
    attempts=5,
    frozen_programs=4,
    frozen_suites=2,
)


def run(curriculum: Curriculum) -> list[Assignment]:
    assignments = []
    while (assignment := curriculum.next()) is not None:
        assignments.append(assignment)
        curriculum.observe(assignment.step, {})
    return assignments


def scheduled(seed: int = 1, ids=IDS, **changes) -> Curriculum:
    return Curriculum(SMALL.model_copy(update=changes), ids, seed=seed)


def test_steps_ahead_are_those_that_will_come_but_for_what_is_remembered():
    curriculum, whole = scheduled(), run(scheduled())
    assert [curriculum.next(ahead=n) for n in range(len(whole))] == whole
    assert curriculum.next(ahead=len(whole)) is None
    curriculum.observe(1, {whole[2].problem_ids[0]: (1.0, "good")})
    assert curriculum.next(ahead=1).memory == {whole[2].problem_ids[0]: ("good",)}


@pytest.mark.parametrize("order", ["random", "difficulty"])
def test_problems_to_spare_are_others_and_change_nothing_else(order):
    plain, sparing = run(scheduled(order=order)), run(scheduled(order=order, dynamic_sampling=4))
    for before, after in zip(plain, sparing, strict=True):
        assert before.spare == () and replace(after, spare=()) == before
        assert len(after.spare) == 4
        assert not set(after.spare) & set(after.problem_ids)
    if order == "difficulty":  # the next harder ones, and at the end those before
        first, last = IDS.index(after.problem_ids[0]), IDS.index(after.problem_ids[-1])
        assert last == len(IDS) - 1 and after.spare == tuple(IDS[first - 4 : first][::-1])
    assert scheduled(order=order, dynamic_sampling=4, problems_per_step=10).next().spare == ()


@pytest.mark.parametrize(("spare", "count"), [(0, 3), (7, 10)])
def test_the_problems_of_a_step_and_those_to_spare_bring_their_memory(spare, count):
    curriculum = scheduled(dynamic_sampling=spare)
    curriculum.observe(1, {i: (1.0, f"program of {i}") for i in IDS})
    assignment = curriculum.next()
    asked = (*assignment.problem_ids, *assignment.spare)
    assert len(asked) == count and assignment.memory == {i: (f"program of {i}",) for i in asked}


@pytest.mark.parametrize("order", ["random", "difficulty"])
def test_what_is_left_out_is_never_trained_on(order):
    curriculum = scheduled(order=order)
    curriculum.leave_out({"p0", "p5", "unknown"})
    steps = run(curriculum)
    assert len(steps) == curriculum.total_steps
    assert {i for step in steps for i in step.problem_ids} <= set(IDS) - {"p0", "p5"}


def test_the_schedule_is_r0s():
    curriculum = scheduled()
    steps = run(curriculum)
    assert [(a.stage, a.phase, a.learning) for a in steps] == [
        (stage, phase, learning)
        for stage in (1, 3)
        for phase, learning in (
            (Phase.DISCRIMINATOR, ("discriminator",)),
            (Phase.DISCRIMINATOR, ("discriminator",)),
            (Phase.GENERATOR, ("generator",)),
            (Phase.ALTERNATING, ("discriminator", "generator")),
        )
    ]
    assert [a.step for a in steps] == list(range(1, 9))
    assert [a.step for a in steps if curriculum.is_last_of_stage(a.step)] == [4, 8]


def test_who_learns_attempts_in_a_group_and_who_is_frozen_in_its_own_number():
    assert {a.phase: dict(a.attempts) for a in run(scheduled())} == {
        Phase.DISCRIMINATOR: {"generator": 4, "discriminator": 5},
        Phase.GENERATOR: {"generator": 5, "discriminator": 2},
        Phase.ALTERNATING: {"generator": 5, "discriminator": 5},
    }


def test_problems_are_distinct_and_depend_on_seed_and_step_only():
    first, again, other = ([a.problem_ids for a in run(scheduled(seed))] for seed in (1, 1, 2))
    assert first == again != other
    assert all(len(set(ids)) == 3 for ids in first) and len(set(first)) > 1


def test_fewer_problems_than_a_step_asks_for_are_all_played():
    assert sorted(scheduled(ids=["a", "b"]).next().problem_ids) == ["a", "b"]


def test_steps_are_observed_in_order():
    curriculum = scheduled()
    with pytest.raises(AssertionError):
        curriculum.observe(2, {})
    curriculum.observe(1, {})
    with pytest.raises(AssertionError):
        curriculum.observe(1, {})


@pytest.mark.parametrize(
    ("frozen", "counts"),
    [
        (("discriminator",), {("generator",): 4}),
        (("generator",), {("discriminator",): 6}),
        (("generator", "discriminator"), {}),
    ],
)
def test_a_frozen_player_never_learns_and_its_own_steps_are_left_out(frozen, counts):
    assert Counter(a.learning for a in run(scheduled(frozen_players=frozen))) == counts


# ---------------------------------------------------------------------- memory
def remembering(count: int) -> Curriculum:
    return scheduled(ids=["p"], remembered_programs=count)


@pytest.mark.parametrize(
    ("found", "kept"),
    [
        ([(0.5, "half"), (0.1, "bad"), (0.9, "good")], ("good", "half")),
        ([(0.5, "a"), (0.4, "b"), (0.2, "a"), (0.6, "b")], ("b", "a")),
    ],
    ids=["the best, best first", "each once, with its best reward"],
)
def test_the_best_programs_are_remembered(found, kept):
    curriculum = remembering(2)
    for step, program in enumerate(found, 1):
        curriculum.observe(step, {"p": (program[0], program[1])})
    assert curriculum.next().memory == {"p": kept}


# ---------------------------------------------------------------------- state


def test_the_state_is_a_copy():
    curriculum = remembering(2)
    curriculum.observe(1, {"p": (0.5, "half")})
    state = curriculum.state_dict()
    state["memory"]["p"].clear()
    state["memory"]["q"] = []
    assert curriculum.next().memory == {"p": ("half",)}
