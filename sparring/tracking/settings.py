"""Settings of the trackers that receive a run's metrics besides its files."""

from importlib.util import find_spec
from typing import Literal, Self

from pydantic import field_validator, model_validator

from sparring.core.settings import Settings

PACKAGES = {"tensorboard": "tensorboard", "wandb": "wandb", "mlflow": "mlflow-skinny", "webhook": "httpx"}
"""The package that each writer needs."""


def is_installed(library: str) -> bool:
    found = find_spec(library)
    return found is not None and found.origin is not None  # a directory of that name is not the library


class TrackingSettings(Settings):
    to: tuple[Literal["tensorboard", "wandb", "mlflow", "webhook"], ...] = ()
    """Trackers that get the metrics in addition to the run's own files: tensorboard (files in the run's directory),
    wandb (Weights & Biases; offline if there is no key or no network), mlflow (at MLFLOW_TRACKING_URI, or in files in
    output_dir/mlruns), webhook (gets no metrics, only alarms
    and the end of the run)."""
    project: str | None = None
    """W&B's project and MLflow's experiment. Default: WANDB_PROJECT and MLFLOW_EXPERIMENT_NAME, or sparring."""
    name: str | None = None
    """Name of the run in W&B and MLflow. Default: the name of its directory."""
    webhook: str | None = None
    """Name of the environment variable that holds the webhook's URL; the URL itself is a secret and is not a setting. A
    POST request has the keys run, event (alarm, finished, failed or killed), step and text, as Slack and similar
    services take them."""
    trace: bool = False
    """Write trace.json, a timeline with a row per part, for ui.perfetto.dev."""

    @field_validator("to")
    @classmethod
    def _once(cls, to: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(dict.fromkeys(to))

    @model_validator(mode="after")
    def _keys_have_a_writer(self) -> Self:
        if not {"wandb", "mlflow"} & set(self.to):
            self.refuse_changed(("project", "name"), "has no effect unless `to` names wandb or mlflow")
        if ("webhook" in self.to) != (self.webhook is not None):
            raise ValueError(
                "webhook in `to`, and a variable's name in `webhook`, go together: give both or neither"
            )
        if (
            self.webhook is not None and not self.webhook.isidentifier()
        ):  # not shown: it may be the URL itself
            raise ValueError(
                "webhook: expected the name of an environment variable that holds the URL: settings are printed and kept"
            )
        return self
