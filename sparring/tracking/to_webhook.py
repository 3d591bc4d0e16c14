"""Sends a POST request to a webhook when a run ends, however it ends, and when an evaluation raises an alarm."""

import logging
import os
from collections.abc import Mapping
from pathlib import Path

import httpx

from sparring.core.errors import SparringError
from sparring.core.evaluation import hacking_alarm
from sparring.tracking.writers import Ending, TrackedRun

_SECONDS = 10.0
log = logging.getLogger(__name__)


class WebhookWriter:
    def __init__(self, run: TrackedRun) -> None:
        """Raises SparringError if the environment variable holds no URL."""
        self._url, self._run, self._step = os.environ.get(str(run.webhook), "").strip(), run, max(run.done, 0)
        try:
            url = httpx.URL(self._url)
        except httpx.InvalidURL:
            url = httpx.URL()
        if url.scheme not in ("http", "https"):  # not shown: it is a secret
            raise SparringError(
                f"tracking.webhook {run.webhook}: this environment variable holds no URL of http or https: set it where the run "
                "starts, or leave webhook out of tracking.to"
            )
        self._threshold = float(str(run.settings["evaluation.gap_alarm"]))
        self._host = url.host  # the rest may be a secret
        self.where = f"webhook: {self._host} is told of alarms and of the run's end"

    def metrics(self, step: int, figures: Mapping[str, float]) -> None:
        """Sends an alarm if the figures give cause. If sending fails, a warning is logged, and the end of the run is still
        sent."""
        self._step = step
        if message := hacking_alarm(figures.get("held_out/proxy_gold_gap"), self._threshold):
            try:
                self._post("alarm", message)
            except ConnectionError as error:
                log.warning("tracking.to webhook: the alarm of step %d is not told: %s", step, error)

    def text(self, step: int, title: str, text: str) -> None:
        pass

    def image(self, step: int, title: str, file: Path) -> None:
        pass

    def close(self, ending: Ending) -> None:
        self._post(ending, f"{ending} after step {self._step}; see {self._run.directory / 'run.log'}")

    def _post(self, event: str, message: str) -> None:
        """Sends an event. `text` is the key that Slack, Mattermost and similar services show. Raises ConnectionError, whose
        message does not contain the URL."""
        told = {"run": self._run.name, "event": event, "step": self._step}
        told["text"] = f"{self._run.name}: {message}"
        try:
            answer = httpx.post(self._url, json=told, timeout=_SECONDS)
        except httpx.HTTPError as error:
            raise ConnectionError(f"{self._host} does not answer ({type(error).__name__})") from None
        if not answer.is_success:
            raise ConnectionError(f"{self._host} answers {answer.status_code}")
