"""The scheduler: a Ray actor that holds the curriculum, and the driver's handle on it."""

import logging
from collections.abc import Collection, Mapping
from typing import Any

import ray
from ray.exceptions import GetTimeoutError
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from actors.watching import DIED, REPLACEMENTS, SILENCE_S, end
from sparring.core.endings import in_words
from sparring.core.episode import Mistakes
from sparring.core.errors import RunFailed
from sparring.curriculum.curriculum import Assignment, Curriculum

log = logging.getLogger(__name__)
_START_S = 300.0
"""Maximum time until a new actor's first answer. It is longer than SILENCE_S, since the process starts while others do."""
_Call = tuple[str, tuple[Any, ...]]


@ray.remote(num_cpus=0)
class SchedulerActor(Curriculum):
    """The Ray actor that holds the curriculum's state for the whole run."""

    def __repr__(self) -> str:
        """Returns the actor's name in Ray's dashboard."""
        return "scheduler"


class RayScheduler:
    """The driver's handle on the scheduler actor. It has Curriculum's methods, which the actor answers. A lost actor is
    replaced by a new one, which is brought to the same state."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        """Takes Curriculum's arguments."""
        here = NodeAffinitySchedulingStrategy(ray.get_runtime_context().get_node_id(), soft=False)
        # on the driver's node: on another one the actor could be lost while the run goes on
        self._start = lambda: SchedulerActor.options(scheduling_strategy=here).remote(*args, **kwargs)
        self._actor: Any = self._start()
        self._plan = Curriculum(*args, **kwargs)  # the plan itself is a pure function of the config
        self._left_out: list[_Call] = []
        self._saved: list[_Call] = []
        self._since: list[_Call] = []
        """Calls since the last saved state. After `_left_out` and `_saved`, they bring a new actor to this actor's state."""
        self._replaced, self._answered = 0, False

    @property
    def total_steps(self) -> int:
        return self._plan.total_steps

    def is_last_of_stage(self, step: int) -> bool:
        return self._plan.is_last_of_stage(step)

    def leave_out(self, problem_ids: Collection[str]) -> None:
        self._ask("leave_out", problem_ids)
        self._left_out.append(("leave_out", (problem_ids,)))

    def next(self, ahead: int = 0) -> Assignment | None:
        return self._ask("next", ahead)

    def observe(
        self,
        step: int,
        best_programs: Mapping[str, tuple[float, str]],
        mistakes: Mapping[str, Mistakes],
    ) -> None:
        self._ask("observe", step, best_programs, mistakes)
        self._since.append(("observe", (step, best_programs, mistakes)))

    def state_dict(self) -> dict[str, Any]:
        state = self._ask("state_dict")
        self._saved, self._since = [("load_state_dict", (state,))], []
        return state

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self._ask("load_state_dict", state)
        self._saved, self._since = [("load_state_dict", (state,))], []

    def _ask(self, method: str, *arguments: Any) -> Any:
        """Calls a method of the actor. If the actor has died or does not answer, a new actor is started, brought to the same
        state and called. Raises RunFailed if that happens too often."""
        last, calls = None, [(method, arguments)]
        while True:
            try:
                for name, given in calls:
                    patience = SILENCE_S if self._answered else _START_S
                    last = ray.get(getattr(self._actor, name).remote(*given), timeout=patience)
                    self._answered = True
                return last
            except (*DIED, GetTimeoutError) as error:
                self._replaced += 1
                if self._replaced > REPLACEMENTS:
                    raise RunFailed(
                        f"the scheduler was lost {self._replaced} times, the last time by {in_words(error)}"
                    ) from None
                log.warning("the scheduler was lost (%s): another takes its place", in_words(error))
            end(self._actor)
            self._actor, self._answered = self._start(), False
            calls = [*self._left_out, *self._saved, *self._since, (method, arguments)]
