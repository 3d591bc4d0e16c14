"""Sends metrics to MLflow: to a tracking server or database if a URI is given, else to files in output_dir/mlruns."""

import os
import re
import time
from collections.abc import Mapping
from pathlib import Path

from mlflow.entities import Metric, Param
from mlflow.exceptions import MlflowException
from mlflow.tracking import MlflowClient

from sparring.core.errors import SparringError
from sparring.tracking.writers import Ending, TrackedRun

_AT_ONCE = 100
"""Maximum number of parameters that a server accepts in one call."""
_LONGEST = 500
"""Maximum length of a parameter that every store accepts, in characters."""
_STATUS = {"finished": "FINISHED", "failed": "FAILED", "killed": "KILLED"}


class MlflowWriter:
    def __init__(self, run: TrackedRun) -> None:
        """Raises SparringError if the store cannot be written to."""
        uri = os.environ.get("MLFLOW_TRACKING_URI")
        if uri is None:
            uri = (run.directory.parent / "mlruns").resolve().as_uri()
            os.environ.setdefault("MLFLOW_ALLOW_FILE_STORE", "true")  # MLflow refuses a file store otherwise
        # an unreachable server delays the run by seconds, not by MLflow's default of four minutes
        os.environ.setdefault("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "2")
        os.environ.setdefault("MLFLOW_HTTP_REQUEST_TIMEOUT", "10")
        shown = re.sub(r"//[^/]*@", "//", uri)
        self.where = f"mlflow: run {run.name} at {shown}"
        try:
            self._client = MlflowClient(tracking_uri=uri, registry_uri=uri)
            self._id = self._opened(run)
        except (MlflowException, OSError, ImportError) as error:
            reason = str(error).splitlines()[0].replace(uri, shown)
            raise SparringError(
                f"tracking.to mlflow: {shown}: {reason}; mend MLFLOW_TRACKING_URI, or leave mlflow out"
            ) from error

    def _opened(self, run: TrackedRun) -> str:
        """Returns the run's id in MLflow, where the run is created unless it exists. MLflow does not allow parameters to be
        changed, so a resumed run keeps its first ones."""
        known = run.remembered("mlflow")
        if known is not None:
            self._client.update_run(known, status="RUNNING")
            return known
        name = run.project or os.environ.get("MLFLOW_EXPERIMENT_NAME") or "sparring"
        experiment = self._client.get_experiment_by_name(name)
        experiment_id = experiment.experiment_id if experiment else self._client.create_experiment(name)
        made = self._client.create_run(
            experiment_id, run_name=run.name, tags=dict(run.environment)
        ).info.run_id
        run.remember("mlflow", made)
        parameters = [Param(key, str(value)[:_LONGEST]) for key, value in run.settings.items()]
        for start in range(0, len(parameters), _AT_ONCE):
            self._client.log_batch(made, params=parameters[start : start + _AT_ONCE])
        return made

    def metrics(self, step: int, figures: Mapping[str, float]) -> None:
        now = int(time.time() * 1000)
        self._client.log_batch(self._id, [Metric(name, value, now, step) for name, value in figures.items()])

    def text(self, step: int, title: str, text: str) -> None:
        self._client.log_text(self._id, text, f"{title}/step_{step:06d}.txt")

    def image(self, step: int, title: str, file: Path) -> None:
        self._client.log_artifact(self._id, str(file))

    def close(self, ending: Ending) -> None:
        self._client.set_terminated(self._id, _STATUS[ending])
