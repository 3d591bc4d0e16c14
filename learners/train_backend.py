"""Sets up and shuts down the torch process group of Ray Train's workers. Imports torch."""

import contextlib
from typing import Any

from ray.exceptions import OutOfMemoryError
from ray.train.torch import TorchConfig
from ray.train.torch.config import _TorchBackend


class _Backend(_TorchBackend):
    """Ray's torch backend, whose shutdown tolerates workers that were killed for memory.

    On shutdown Ray (2.60) asks dead workers, too, to leave the group. If Ray's memory monitor has killed a worker, Ray
    takes the resulting error for an internal error and ends the run, so no worker would replace the dead one.
    """

    def on_shutdown(self, worker_group: Any, backend_config: Any) -> None:
        with contextlib.suppress(OutOfMemoryError):
            super().on_shutdown(worker_group, backend_config)


class TorchGroup(TorchConfig):
    @property
    def backend_cls(self) -> type[_Backend]:
        return _Backend
