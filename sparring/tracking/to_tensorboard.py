"""Writes TensorBoard event files to the run's directory; `tensorboard --logdir output` shows those of all runs."""

from collections.abc import Mapping
from pathlib import Path

from torch.utils.tensorboard import SummaryWriter
from torch.utils.tensorboard.summary import hparams

from sparring.tracking.writers import Ending, TrackedRun


class TensorboardWriter:
    def __init__(self, run: TrackedRun) -> None:
        directory = run.directory / "tensorboard"
        self.where = f"tensorboard --logdir {directory}"
        # events after the checkpoint are purged, since those steps are done again
        self._writer = SummaryWriter(str(directory), purge_step=run.done + 1)
        plain = {k: v if isinstance(v, bool | int | float) else str(v) for k, v in run.settings.items()}
        for summary in hparams(plain, {}):  # add_hparams would write to a separate run
            self._writer._get_file_writer().add_summary(summary)
        told = {**run.environment, **plain}
        table = "\n".join(f"| {key} | {value} |" for key, value in told.items())
        self._writer.add_text("settings", f"| | |\n|---|---|\n{table}", max(run.done, 0))

    def metrics(self, step: int, figures: Mapping[str, float]) -> None:
        for name, value in figures.items():
            self._writer.add_scalar(name, value, step)
        self._writer.flush()

    def text(self, step: int, title: str, text: str) -> None:
        indented = "\n".join(f"    {line}" for line in text.splitlines())  # a code block in Markdown
        self._writer.add_text(title, indented, step)

    def image(self, step: int, title: str, file: Path) -> None:
        import numpy as np
        from PIL import Image

        self._writer.add_image(title, np.asarray(Image.open(file).convert("RGB")), step, dataformats="HWC")

    def close(self, ending: Ending) -> None:
        self._writer.close()
