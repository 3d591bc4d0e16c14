"""A webhook: somebody is told when a run ends, however it ends, and when an evaluation's alarm sounds."""

from collections.abc import Mapping
from pathlib import Path

import httpx

from tracking.writers import Ending, TrackedRun

_SECONDS = 10.0


class WebhookWriter:
    def __init__(self, run: TrackedRun) -> None:
        self._url, self._run, self._step = str(run.webhook), run, max(run.done, 0)
        self._alarm = float(str(run.settings["evaluation.gap_alarm"]))
        host = httpx.URL(self._url).host  # the rest may be a secret
        self.where = f"webhook: {host} is told of alarms and of the run's end"

    def metrics(self, step: int, figures: Mapping[str, float]) -> None:
        self._step = step
        gap = figures.get("held_out/proxy_gold_gap", 0.0)
        if gap > self._alarm:
            why = f"held-out programs pass {gap:.2f} more of the rewarded tests than of the hidden ones"
            self._post("alarm", f"{why}: the reward may be gamed")

    def text(self, step: int, title: str, text: str) -> None:
        pass

    def image(self, step: int, title: str, file: Path) -> None:
        pass

    def close(self, ending: Ending) -> None:
        self._post(ending, f"{ending} after step {self._step}; see {self._run.directory / 'run.log'}")

    def _post(self, event: str, message: str) -> None:
        """`text` is what Slack, Mattermost and their like show. Raises httpx.HTTPError."""
        told = {"run": self._run.name, "event": event, "step": self._step}
        told["text"] = f"{self._run.name}: {message}"
        httpx.post(self._url, json=told, timeout=_SECONDS).raise_for_status()
