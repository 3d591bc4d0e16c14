"""Sends a run's metrics to TensorBoard, Weights & Biases, MLflow and a webhook while the run goes on.

Each writer is a thin wrapper around its library (to_tensorboard.py, to_wandb.py, to_mlflow.py, to_webhook.py). If a
writer does not start, the run is refused before any model is loaded. If a writer fails later, it is removed with a
warning, and the run goes on, since its own files have all data.
"""

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Protocol

from sparring.tracking.rows import read_json, write_json

log = logging.getLogger(__name__)
Ending = Literal["finished", "failed", "killed"]


@dataclass(frozen=True, kw_only=True)
class TrackedRun:
    """The data that a writer gets at the start of a run."""

    directory: Path
    name: str
    project: str | None
    """Optional; if None, the writer uses its library's environment variable, or its default."""
    webhook: str | None = None
    """Name of the environment variable that holds the webhook's URL."""
    settings: Mapping[str, Any]
    """The resolved settings by dotted key."""
    environment: Mapping[str, str]
    """Versions, commit, machine."""
    done: int
    """The last step that is done already; -1 if none is."""

    def remembered(self, writer: str) -> str | None:
        """Returns the id that this run got from the tracker before it was resumed. None if it has none."""
        known = read_json(self._file)
        if not known and self._file.exists():
            log.warning(
                "%s is damaged: at %s this run begins anew, without its earlier half", self._file, writer
            )
        return known.get(writer)

    def remember(self, writer: str, run_id: str) -> None:
        write_json(self._file, read_json(self._file) | {writer: run_id})

    @property
    def _file(self) -> Path:
        return self.directory / "tracking.json"


class Writer(Protocol):
    where: str
    """A line for the user that says where the metrics are."""

    def metrics(self, step: int, figures: Mapping[str, float]) -> None: ...

    def text(self, step: int, title: str, text: str) -> None: ...

    def image(self, step: int, title: str, file: Path) -> None: ...

    def close(self, ending: Ending) -> None: ...


class Writers:
    """All writers of a run; there may be none."""

    def __init__(self) -> None:
        self._writers: dict[str, Writer] = {}
        self._failed: list[Writer] = []
        """Writers that are told of nothing more but the run's end."""

    def add(self, name: str, writer: Writer) -> None:
        self._writers[name] = writer

    @property
    def where(self) -> Sequence[str]:
        return [writer.where for writer in self._writers.values()]

    def metrics(self, step: int, figures: Mapping[str, float]) -> None:
        self._tell(lambda writer: writer.metrics(step, figures))

    def text(self, step: int, title: str, text: str) -> None:
        self._tell(lambda writer: writer.text(step, title, text))

    def image(self, step: int, title: str, file: Path) -> None:
        self._tell(lambda writer: writer.image(step, title, file))

    def close(self, ending: Ending) -> None:
        failed = list(self._failed)
        self._tell(lambda writer: writer.close(ending))
        for writer in failed:
            with suppress(Exception):
                writer.close(ending)

    def _tell(self, what: Callable[[Writer], None]) -> None:
        for name, writer in list(self._writers.items()):
            try:
                what(writer)
            # whatever a library raises must not end the run
            except Exception as error:
                self._failed.append(self._writers.pop(name))
                reason = str(error).strip().splitlines() or [""]
                log.warning(
                    "tracking.to %s: no more is written there (%s: %s); the run and its own files go on",
                    name,
                    type(error).__name__,
                    reason[0],
                )


def open_writer(name: str, run: TrackedRun) -> Writer:
    """Returns the writer of this name. Its library is imported here, so that only the chosen ones are needed. Raises
    SparringError if the writer does not start."""
    if name == "tensorboard":
        from sparring.tracking.to_tensorboard import TensorboardWriter

        return TensorboardWriter(run)
    if name == "wandb":
        from sparring.tracking.to_wandb import WandbWriter

        return WandbWriter(run)
    if name == "webhook":
        from sparring.tracking.to_webhook import WebhookWriter

        return WebhookWriter(run)
    from sparring.tracking.to_mlflow import MlflowWriter

    return MlflowWriter(run)


@contextmanager
def open_writers(names: Sequence[str], run: TrackedRun) -> Iterator[Writers]:
    """Opens the named writers. At the end, closes them and tells them whether the run finished, failed or was killed.
    Raises SparringError if a writer does not start."""
    writers, ending = Writers(), "failed"
    try:
        for name in names:
            writers.add(name, open_writer(name, run))
        yield writers
        ending = "finished"
    except (KeyboardInterrupt, SystemExit):  # SIGTERM, under Ray
        ending = "killed"
        raise
    finally:
        writers.close(ending)
