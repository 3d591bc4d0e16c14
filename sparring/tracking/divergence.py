"""Decides whether a run must stop: a policy has diverged from its initial model, or a player's reward has collapsed."""

from collections.abc import Mapping
from statistics import fmean
from typing import Any, Self

from pydantic import Field, model_validator

from sparring.core.settings import Settings


class StopSettings(Settings):
    """Limits at which a run stops. By default there are none, because a player's reward also falls if its opponent
    improves, which is no collapse."""

    max_kl: float | None = Field(default=None, gt=0)
    """Maximum of the mean KL(policy || initial policy), in nats per token, as logged under kl_to_initial (measured on a part
    of the batch if KL is not part of the loss)."""
    reward_drop: float | None = Field(default=None, gt=0)
    """Maximum difference between a player's best mean reward over `window` steps so far and its current one."""
    window: int = Field(default=10, ge=1)

    @model_validator(mode="after")
    def _window_has_a_use(self) -> Self:
        if self.reward_drop is None and self.window != 10:
            raise ValueError("window has no effect without reward_drop")
        return self


class Divergence:
    """Checks the limits on each training step's row of metrics."""

    def __init__(self, settings: StopSettings, policies: tuple[str, ...], players: tuple[str, ...]) -> None:
        self._settings, self._policies, self._players = settings, policies, players
        self._recent: dict[str, list[float]] = {player: [] for player in players}
        self._best: dict[str, float] = {}

    def found(self, row: Mapping[str, Any]) -> str | None:
        """Returns a message if the row exceeds a limit, else None."""
        for role in self._policies:
            kl = row.get(role, {}).get("kl_to_initial")
            limit = self._settings.max_kl
            if limit is not None and kl is not None and kl > limit:
                return (
                    f"the {role} has moved too far from its initial model: KL {kl:.3g} is above stop.max_kl {limit:g} (to go on "
                    "from here, raise it)"
                )
        for player in self._players:
            if (reason := self._collapse(player, row.get(f"{player}_reward"))) is not None:
                return reason
        return None

    def _collapse(self, player: str, reward: float | None) -> str | None:
        window, allowed = self._settings.window, self._settings.reward_drop
        if allowed is None or reward is None:
            return None
        recent = self._recent[player] = [*self._recent[player], reward][-window:]
        if len(recent) < window:
            return None
        mean = fmean(recent)
        best = self._best[player] = max(self._best.get(player, mean), mean)
        if best - mean <= allowed:
            return None
        self._recent[player], _ = [], self._best.pop(player)  # a resumed run is checked from the start
        return (
            f"the {player}'s reward has collapsed: {mean:.3g} over the last {window} steps after {best:.3g} at best, "
            f"more than stop.reward_drop {allowed:g} less"
        )

    def state_dict(self) -> dict[str, Any]:
        """Returns the state as plain JSON."""
        return {"recent": self._recent, "best": self._best}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self._recent = {role: list(values) for role, values in state["recent"].items()}
        self._best = dict(state["best"])
