"""Weights & Biases, with WANDB_API_KEY, WANDB_MODE, WANDB_BASE_URL and its other variables as it reads them itself.

Without a key, or where its server does not answer, offline: `wandb sync` sends it later. Steps are a metric of their own
(`step`): a run that goes on from a checkpoint does some of them again, and W&B's own step only counts up.
"""

import html
import os
import secrets
from collections.abc import Mapping
from pathlib import Path
from typing import Literal

import requests
import wandb

from core.errors import SparringError
from tracking.writers import Ending, TrackedRun

_PATIENCE_S = 5


class WandbWriter:
    def __init__(self, run: TrackedRun) -> None:
        """Raises SparringError where the server refuses it."""
        wandb.setup(wandb.Settings(console="off", silent=True))
        mode, why = _mode()
        run_id = run.remembered("wandb") or secrets.token_hex(4)
        try:
            self._run = wandb.init(
                project=run.project or os.environ.get("WANDB_PROJECT") or "sparring",
                name=run.name,
                id=run_id,
                resume="allow",
                dir=run.directory,
                mode=mode,
                config={**run.settings, **{f"environment.{k}": v for k, v in run.environment.items()}},
            )
        except wandb.Error as error:
            raise SparringError(
                f"tracking.to wandb: {error}; mend WANDB_API_KEY or tracking.project, or set WANDB_MODE=offline"
            ) from error
        run.remember("wandb", run_id)
        self._run.define_metric("*", step_metric="step")
        if mode == "online":
            self.where = f"wandb: {self._run.url}"
        else:
            self.where = f"wandb: offline, as {why}; later: wandb sync {Path(self._run.dir).parent}"

    def metrics(self, step: int, figures: Mapping[str, float]) -> None:
        self._run.log({**figures, "step": step})

    def text(self, step: int, title: str, text: str) -> None:
        self._run.log({title: wandb.Html(f"<pre>{html.escape(text)}</pre>"), "step": step})

    def image(self, step: int, title: str, file: Path) -> None:
        self._run.log({title: wandb.Image(str(file)), "step": step})

    def close(self, ending: Ending) -> None:
        self._run.finish(exit_code=0 if ending == "finished" else 1)


def _mode() -> tuple[Literal["online", "offline"], str]:
    """With the reason for offline."""
    if os.environ.get("WANDB_MODE") in ("offline", "dryrun"):
        return "offline", "WANDB_MODE says"
    if not wandb.login(prompt=False, verify=False):
        return "offline", "there is no WANDB_API_KEY"
    server = wandb.setup().settings.base_url
    try:
        requests.head(server, timeout=_PATIENCE_S)
    except requests.RequestException:
        return "offline", f"{server} does not answer"
    return "online", ""
