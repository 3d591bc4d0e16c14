"""The scheduler actor: the Ray shell around the curriculum."""

from collections.abc import Collection, Mapping
from typing import Any

import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from core.episode import Mistakes
from curriculum.curriculum import Assignment, Curriculum


@ray.remote(num_cpus=0)
class SchedulerActor(Curriculum):
    """Owns the curriculum's state for the whole run."""

    def __repr__(self) -> str:
        """Its name in Ray's dashboard."""
        return "scheduler"


class RayScheduler:
    """The driver's handle: Curriculum's methods, answered by the actor."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        """Curriculum's arguments."""
        here = NodeAffinitySchedulingStrategy(ray.get_runtime_context().get_node_id(), soft=False)
        # with the driver, or it may be on a node that is lost while the run goes on
        self._actor = SchedulerActor.options(scheduling_strategy=here).remote(*args, **kwargs)
        self._plan = Curriculum(*args, **kwargs)  # the plan itself is a pure function of the config

    @property
    def total_steps(self) -> int:
        return self._plan.total_steps

    def is_last_of_stage(self, step: int) -> bool:
        return self._plan.is_last_of_stage(step)

    def leave_out(self, problem_ids: Collection[str]) -> None:
        ray.get(self._actor.leave_out.remote(problem_ids))

    def next(self, ahead: int = 0) -> Assignment | None:
        return ray.get(self._actor.next.remote(ahead))

    def observe(
        self,
        step: int,
        best_programs: Mapping[str, tuple[float, str]],
        mistakes: Mapping[str, Mistakes],
    ) -> None:
        ray.get(self._actor.observe.remote(step, best_programs, mistakes))

    def state_dict(self) -> dict[str, Any]:
        return ray.get(self._actor.state_dict.remote())

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        ray.get(self._actor.load_state_dict.remote(state))
