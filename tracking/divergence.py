"""When a run is to stop by itself: a policy has run away from its warm start, or its reward has collapsed."""

from collections.abc import Mapping
from statistics import fmean
from typing import Any, Self

from pydantic import Field, model_validator

from core.settings import Settings


class StopSettings(Settings):
    """Off unless given: the more a player improves, the less its opponent earns, and that is no collapse."""

    max_kl: float | None = Field(default=None, gt=0)
    """Largest mean KL(policy || warm start), nats per token, as it is logged (kl_to_warm_start: while KL is no part of
    the loss, of a share of the batch)."""
    reward_drop: float | None = Field(default=None, gt=0)
    """Largest fall of a policy's mean reward over `window` steps below the best such mean so far."""
    window: int = Field(default=10, ge=1)

    @model_validator(mode="after")
    def _window_has_a_use(self) -> Self:
        if self.reward_drop is None and self.window != 10:
            raise ValueError("window has no effect without reward_drop")
        return self


class Divergence:
    """Looks at each step's row of metrics."""

    def __init__(self, settings: StopSettings, roles: tuple[str, ...]) -> None:
        self._settings, self._roles = settings, roles
        self._recent: dict[str, list[float]] = {role: [] for role in roles}
        self._best: dict[str, float] = {}

    def found(self, row: Mapping[str, Any]) -> str | None:
        """What is wrong after this step; None where nothing is."""
        for role in self._roles:
            kl = row.get(role, {}).get("kl_to_warm_start")
            limit = self._settings.max_kl
            if limit is not None and kl is not None and kl > limit:
                return (
                    f"the {role} has run away from its warm start: KL {kl:.3g} is above stop.max_kl {limit:g} (to go on "
                    "from here, raise it)"
                )
            if (reason := self._collapse(role, row.get(f"{role}_reward"))) is not None:
                return reason
        return None

    def _collapse(self, role: str, reward: float | None) -> str | None:
        window, allowed = self._settings.window, self._settings.reward_drop
        if allowed is None or reward is None:
            return None
        recent = self._recent[role] = [*self._recent[role], reward][-window:]
        if len(recent) < window:
            return None
        mean = fmean(recent)
        best = self._best[role] = max(self._best.get(role, mean), mean)
        if best - mean <= allowed:
            return None
        self._recent[role], _ = [], self._best.pop(role)  # whoever continues is watched from anew
        return (
            f"the {role}'s reward has collapsed: {mean:.3g} over the last {window} steps after {best:.3g} at best, "
            f"more than stop.reward_drop {allowed:g} less"
        )

    def state_dict(self) -> dict[str, Any]:
        """Plain JSON."""
        return {"recent": self._recent, "best": self._best}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self._recent = {role: list(values) for role, values in state["recent"].items()}
        self._best = dict(state["best"])
