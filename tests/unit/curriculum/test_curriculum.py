import json
from collections import Counter
from dataclasses import replace

import pytest

from sparring.curriculum.curriculum import Curriculum, Phase, Schedule

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


def run(curriculum: Curriculum) -> list:
    assignments = []
    while (assignment := curriculum.next()) is not None:
        assignments.append(assignment)
        curriculum.observe(assignment.step, {})
    return assignments


def test_steps_ahead_are_those_that_will_come_but_for_what_is_remembered():
    curriculum = Curriculum(SMALL, IDS, seed=1)
    whole = run(Curriculum(SMALL, IDS, seed=1))
    assert [curriculum.next(ahead=n) for n in range(len(whole))] == whole
    assert curriculum.next(ahead=len(whole)) is None
    curriculum.observe(1, {whole[2].problem_ids[0]: (1.0, "good")})
    assert curriculum.next(ahead=1).memory == {whole[2].problem_ids[0]: ("good",)}


@pytest.mark.parametrize("order", ["random", "difficulty"])
def test_problems_to_spare_are_others_and_change_nothing_else(order):
    plain = SMALL.model_copy(update={"order": order})
    sparing = plain.model_copy(update={"dynamic_sampling": 4})
    for before, after in zip(
        run(Curriculum(plain, IDS, seed=1)), run(Curriculum(sparing, IDS, seed=1)), strict=True
    ):
        assert before.spare == () and replace(after, spare=()) == before
        assert len(after.spare) == 4
        assert not set(after.spare) & set(after.problem_ids)
    if order == "difficulty":  # the next harder ones, and at the end those before
        first, last = IDS.index(after.problem_ids[0]), IDS.index(after.problem_ids[-1])
        assert last == len(IDS) - 1 and after.spare == tuple(IDS[first - 4 : first][::-1])
    whole = Curriculum(sparing.model_copy(update={"problems_per_step": 10}), IDS, seed=1)
    assert whole.next().spare == ()


def test_problems_to_spare_come_with_what_is_remembered_of_them():
    curriculum = Curriculum(SMALL.model_copy(update={"dynamic_sampling": 7}), IDS, seed=1)
    curriculum.observe(1, {i: (1.0, i) for i in IDS})
    assert curriculum.next().memory == {i: (i,) for i in IDS}


@pytest.mark.parametrize("order", ["random", "difficulty"])
def test_what_is_left_out_is_never_trained_on(order):
    curriculum = Curriculum(SMALL.model_copy(update={"order": order}), IDS, seed=1)
    curriculum.leave_out({"p0", "p5", "unknown"})
    steps = run(curriculum)
    assert len(steps) == curriculum.total_steps
    assert {i for step in steps for i in step.problem_ids} <= set(IDS) - {"p0", "p5"}


def test_the_schedule_is_r0s():
    steps = run(Curriculum(SMALL, IDS, seed=1))
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


def test_who_learns_attempts_in_a_group_and_who_is_frozen_in_its_own_number():
    steps = run(Curriculum(SMALL, IDS, seed=1))
    by_phase = {a.phase: dict(a.attempts) for a in steps}
    assert by_phase == {
        Phase.DISCRIMINATOR: {"generator": 4, "discriminator": 5},
        Phase.GENERATOR: {"generator": 5, "discriminator": 2},
        Phase.ALTERNATING: {"generator": 5, "discriminator": 5},
    }


def test_problems_are_distinct_and_depend_on_seed_and_step_only():
    first, again, other = (run(Curriculum(SMALL, IDS, seed=s)) for s in (1, 1, 2))
    assert [a.problem_ids for a in first] == [a.problem_ids for a in again]
    assert [a.problem_ids for a in first] != [a.problem_ids for a in other]
    assert all(len(set(a.problem_ids)) == 3 for a in first)
    assert len({a.problem_ids for a in first}) > 1


def test_fewer_problems_than_a_step_asks_for_are_all_played():
    assignment = Curriculum(SMALL, ["a", "b"], seed=1).next()
    assert sorted(assignment.problem_ids) == ["a", "b"]


def test_asking_twice_gives_the_same_step():
    curriculum = Curriculum(SMALL, IDS, seed=1)
    assert curriculum.next() == curriculum.next()


def test_steps_are_observed_in_order():
    curriculum = Curriculum(SMALL, IDS, seed=1)
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
    schedule = SMALL.model_copy(update={"frozen_players": frozen})
    assert Counter(a.learning for a in run(Curriculum(schedule, IDS, seed=1))) == counts


def test_the_last_step_of_a_stage():
    curriculum = Curriculum(SMALL, IDS, seed=1)
    assert [step for step in range(1, 9) if curriculum.is_last_of_stage(step)] == [4, 8]


# ---------------------------------------------------------------------- memory
def remembering(count: int, ids=("p",)) -> Curriculum:
    schedule = SMALL.model_copy(update={"remembered_programs": count})
    return Curriculum(schedule, list(ids), seed=1)


def test_the_best_programs_are_remembered_best_first():
    curriculum = remembering(2)
    for step, (reward, program) in enumerate([(0.5, "half"), (0.1, "bad"), (0.9, "good")], 1):
        curriculum.observe(step, {"p": (reward, program)})
    assert curriculum.next().memory == {"p": ("good", "half")}


def test_a_program_is_remembered_once_with_its_best_reward():
    curriculum = remembering(2)
    for step, (reward, program) in enumerate([(0.5, "a"), (0.4, "b"), (0.2, "a"), (0.6, "b")], 1):
        curriculum.observe(step, {"p": (reward, program)})
    assert curriculum.next().memory == {"p": ("b", "a")}


def test_no_memory_is_kept_where_none_is_wanted():
    curriculum = remembering(0)
    curriculum.observe(1, {"p": (1.0, "good")})
    assert curriculum.next().memory.get("p", ()) == ()


def test_only_the_problems_of_the_step_bring_their_memory():
    curriculum = Curriculum(SMALL, IDS, seed=1)
    curriculum.observe(1, {i: (1.0, f"program of {i}") for i in IDS})
    assignment = curriculum.next()
    assert assignment.memory == {i: (f"program of {i}",) for i in assignment.problem_ids}


# ---------------------------------------------------------------------- state
def test_the_state_survives_json():
    first, second = remembering(2), remembering(2)
    first.observe(1, {"p": (0.5, "half")})
    second.load_state_dict(json.loads(json.dumps(first.state_dict())))
    assert second.next() == first.next()
    assert second.state_dict() == first.state_dict()


def test_the_state_is_a_copy():
    curriculum = remembering(2)
    curriculum.observe(1, {"p": (0.5, "half")})
    state = curriculum.state_dict()
    state["memory"]["p"].clear()
    state["memory"]["q"] = []
    assert curriculum.next().memory == {"p": ("half",)}


def test_a_finished_curriculum_has_no_next_step():
    curriculum = Curriculum(SMALL, IDS, seed=1)
    curriculum.load_state_dict(curriculum.state_dict() | {"done": curriculum.total_steps})
    assert curriculum.next() is None
