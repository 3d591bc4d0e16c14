import json
from collections import Counter, deque
from types import SimpleNamespace
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from sparring.curriculum.curriculum import Curriculum, Schedule
from sparring.runtime.session import Session

examples = settings(max_examples=100, deadline=None)

schedules = st.builds(
    Schedule,
    stages=st.lists(st.integers(1, 5), min_size=1, max_size=5, unique=True).map(tuple),
    n_discriminator_steps=st.integers(0, 3),
    n_generator_steps=st.integers(0, 3),
    k_alternating_steps=st.integers(0, 3),
    problems_per_step=st.integers(1, 5),
    frozen_players=st.sampled_from([(), ("generator",), ("discriminator",), ("generator", "discriminator")]),
    remembered_programs=st.integers(0, 3),
)
IDS = tuple(f"p{i}" for i in range(4))
observations = st.dictionaries(st.sampled_from(IDS), st.tuples(st.floats(0, 1), st.sampled_from("abcdef")))


def finish(curriculum: Curriculum, seen) -> list:
    assignments = []
    while (assignment := curriculum.next()) is not None:
        assignments.append(assignment)
        curriculum.observe(assignment.step, seen[assignment.step % len(seen)])
    return assignments


@examples
@given(schedules, st.integers(0, 2**62), st.lists(observations, min_size=1, max_size=4), st.data())
def test_a_resumed_curriculum_gives_the_same_remaining_steps(schedule, seed, seen, data):
    whole, stopped = Curriculum(schedule, IDS, seed), Curriculum(schedule, IDS, seed)
    at = data.draw(st.integers(0, whole.total_steps))
    for step in range(1, at + 1):
        whole.observe(step, seen[step % len(seen)])
        stopped.observe(step, seen[step % len(seen)])
    resumed = Curriculum(schedule, IDS, seed)
    resumed.load_state_dict(json.loads(json.dumps(stopped.state_dict())))
    assert finish(resumed, seen) == finish(whole, seen)


@examples
@given(schedules, st.integers(0, 2**62))
def test_every_player_learns_as_often_as_the_schedule_says(schedule, seed):
    curriculum = Curriculum(schedule, IDS, seed)
    steps = finish(curriculum, [{}])
    learned = Counter(player for a in steps for player in a.learning)
    stages, both = len(schedule.stages), schedule.k_alternating_steps
    own = {"generator": schedule.n_generator_steps, "discriminator": schedule.n_discriminator_steps}
    for player, count in own.items():
        frozen = player in schedule.frozen_players
        assert learned[player] == (0 if frozen else stages * (count + both))
    assert len(steps) == curriculum.total_steps
    assert all(a.learning for a in steps)


@examples
@given(schedules, st.integers(0, 2**62))
def test_every_stage_ends_once(schedule, seed):
    curriculum = Curriculum(schedule, IDS, seed)
    ends = [step for step in range(1, curriculum.total_steps + 1) if curriculum.is_last_of_stage(step)]
    assert len(ends) == (len(schedule.stages) if curriculum.total_steps else 0)


@examples
@given(schedules, st.integers(0, 2**62), st.lists(observations, min_size=1, max_size=4))
def test_memory_is_bounded_and_holds_what_was_seen(schedule, seed, seen):
    known = {(i, program) for observation in seen for i, (_, program) in observation.items()}
    for assignment in finish(Curriculum(schedule, IDS, seed), seen):
        assert set(assignment.memory) <= set(assignment.problem_ids)
        for i, programs in assignment.memory.items():
            assert len(programs) == len(set(programs)) <= schedule.remembered_programs
            assert {(i, p) for p in programs} <= known


# ---------------------------------------------------------------------- the window of steps
@examples
@given(schedules, st.integers(0, 4), st.integers(0, 20), st.integers(1, 5))
def test_no_token_is_older_than_the_lag_and_no_step_is_left_out(schedule, lag, done, every) -> None:
    """Also where a run goes on after a restart: what was begun and not learnt from is begun again. every: steps between
    evaluations, beside which the next steps are played."""
    curriculum = Curriculum(schedule, IDS, 1)
    done = min(done, curriculum.total_steps)
    for step in range(1, done + 1):
        curriculum.observe(step, {})
    published = done
    begun: dict[int, int] = {}
    """Step -> the last update that was published then."""

    def begin(step: int) -> Any:
        assert step not in begun
        begun[step] = published
        return lambda: step

    session: Any = SimpleNamespace(
        begun=deque(),
        _begin_steps=lambda: Session._begin_steps(session),
        config=SimpleNamespace(local=False, rollout=SimpleNamespace(max_policy_lag=lag)),
        parts=SimpleNamespace(scheduler=curriculum, rollouts=SimpleNamespace(begin=begin)),
        display=SimpleNamespace(phase=lambda _: None),
        play_request=lambda assignment: assignment.step,
        _played=lambda assignment, playing: playing(),
    )
    learnt = []
    for assignment, playing in Session.steps(session):
        assert playing() == assignment.step
        ahead = min(assignment.step + lag, curriculum.total_steps)
        assert max(begun) == ahead, "engines have the next steps to play while this one is learnt from"
        published = assignment.step
        curriculum.observe(assignment.step, {})
        learnt.append(assignment.step)
        if assignment.step % every == 0:
            session._begin_steps()
    assert learnt == list(begun) == list(range(done + 1, curriculum.total_steps + 1))
    assert all(step - 1 - before <= lag for step, before in begun.items())
