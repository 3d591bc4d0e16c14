"""Sends metrics to Weights & Biases, which reads WANDB_API_KEY, WANDB_MODE, WANDB_BASE_URL and its other variables itself.

If there is no key, or if the server does not answer, the run is written offline, and `wandb sync` uploads it later. The
training step is a separate metric (`step`), since a run that is resumed from a checkpoint repeats some steps, and W&B's
own step can only increase.
"""

import html
import os
import secrets
from collections.abc import Mapping
from pathlib import Path
from typing import Literal

import requests
import wandb

from sparring.core.errors import SparringError
from sparring.tracking.writers import Ending, TrackedRun

_PATIENCE_S = 5
_TO_FINISH_S = 120.0
"""Maximum time to send the remaining data at the end of a run. Data not sent by then stays in the run's directory."""


class WandbWriter:
    def __init__(self, run: TrackedRun) -> None:
        """Raises SparringError if the server refuses the run."""
        run_id = run.remembered("wandb") or secrets.token_hex(4)
        try:
            timeout = {"finish_timeout": _TO_FINISH_S, "finish_timeout_raises": True}
            wandb.setup(wandb.Settings(console="off", silent=True, **timeout))
            mode, why = _mode()
            self._run = wandb.init(
                project=run.project or os.environ.get("WANDB_PROJECT") or "sparring",
                name=run.name,
                id=run_id,
                resume="allow",
                dir=run.directory,
                mode=mode,
                config={**run.settings, **{f"environment.{k}": v for k, v in run.environment.items()}},
            )
        except (wandb.Error, ValueError) as error:  # ValueError: a malformed key or mode
            raise SparringError(
                f"tracking.to wandb: {error}; mend WANDB_API_KEY or tracking.project, set "
                "WANDB_MODE=offline, or leave wandb out (--no-use-wandb)"
            ) from error
        run.remember("wandb", run_id)
        self._run.define_metric("*", step_metric="step")
        if self._run.disabled:
            self.where = f"wandb: nothing, as {why}"
        elif not self._run.offline:
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


def _mode() -> tuple[Literal["online", "offline"] | None, str]:
    """Returns the mode, and the reason if the mode is not online. A mode of None leaves the choice to WANDB_MODE."""
    if said := os.environ.get("WANDB_MODE"):
        return None, f"WANDB_MODE is {said}"
    if not wandb.login(prompt=False, verify=False):
        return "offline", "there is no WANDB_API_KEY"
    server = wandb.setup().settings.base_url
    try:
        status = requests.head(server, timeout=_PATIENCE_S).status_code
    except requests.RequestException:
        return "offline", f"{server} does not answer"
    if status >= 500 or status == requests.codes.proxy_authentication_required:
        return "offline", f"{server} answers {status}"
    return "online", ""
