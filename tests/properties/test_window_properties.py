"""The window of steps: which updates are published when a step is begun, whatever the schedule."""

from collections import deque
from types import SimpleNamespace
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from sparring.curriculum.curriculum import Curriculum
from sparring.runtime.session import Session
from tests.properties.test_curriculum_properties import IDS, examples, schedules


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
