"""How Ray Train's workers become a process group of torch's, and cease to be one. Imports torch."""

import contextlib
from typing import Any

from ray.exceptions import OutOfMemoryError
from ray.train.torch import TorchConfig
from ray.train.torch.config import _TorchBackend


class _Backend(_TorchBackend):
    """Ray's own (2.60) asks dead workers to leave the group. If it was Ray's memory monitor that ended one, it takes the answer
    for an error of its own, and ends the run: no worker would take the dead one's place."""

    def on_shutdown(self, worker_group: Any, backend_config: Any) -> None:
        with contextlib.suppress(OutOfMemoryError):
            super().on_shutdown(worker_group, backend_config)


class TorchGroup(TorchConfig):
    @property
    def backend_cls(self) -> type[_Backend]:
        return _Backend
