"""What it takes to build a learner anywhere: in this process or in a Ray Train worker.

torch is imported where a learner is built: who only describes one need not wait for it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from learners.checkpoints import CheckpointStore
from learners.settings import LearnerSettings

if TYPE_CHECKING:
    from learners.learner import Learner
    from learners.tuning import Backbone


@dataclass(frozen=True, kw_only=True)
class LearnerSpec:
    settings: LearnerSettings
    learning_rate: float
    model_path: str
    reference_path: str
    """The warm start: what KL is measured against."""
    state_path: str | None
    """Directory of a checkpoint whose optimizer state is taken too; None starts afresh."""
    device: str
    seed: int
    adapter: bool = False
    """The engine has the backbone, and is sent the adapter alone."""
    engine_dtype: str | None = None
    """Weights travel in it, by torch's name; None: as they are."""
    checkpoints: str | None = None
    """The run's joint checkpoints, to go back to after updates that stay broken; None: there are none."""

    def recovery_point(self, name: str, version: int) -> Path | None:
        """The policy's directory in the newest joint checkpoint with weights no newer than `version`."""
        if self.checkpoints is None:
            return None
        found = CheckpointStore(Path(self.checkpoints), 1).newest_with(name, version)
        return found / name if found else None

    def build(self, name: str = "policy", backbone: Backbone | None = None) -> Learner:
        """Raises OSError (no such model), ValueError (a model that cannot be trained so)."""
        from learners.learner import Learner
        from learners.state import load_learner

        learner = Learner(
            self.settings,
            self.learning_rate,
            self.model_path,
            self.reference_path,
            device=self.device,
            seed=self.seed,
            name=name,
            backbone=backbone,
        )
        if self.state_path is not None:
            load_learner(learner, Path(self.state_path))
        return learner


def build_learners(specs: Mapping[str, LearnerSpec]) -> dict[str, Learner]:
    """Build the learners of one group; several share a backbone. Raises what LearnerSpec.build raises."""
    import torch

    from learners.tuning import Backbone

    backbone = None
    if len(specs) > 1:
        first = next(iter(specs.values()))
        backbone = Backbone(first.settings, first.reference_path, torch.device(first.device))
    return {name: spec.build(name, backbone) for name, spec in specs.items()}
