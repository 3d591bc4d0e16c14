"""The description from which a learner is built, in this process or in a Ray Train worker.

torch is imported when a learner is built, so that a process which only describes one need not load it.
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
    """The model that KL is measured against (the initial model)."""
    state_path: str | None
    """Directory of a checkpoint from which optimizers, critic and counters are loaded; None: they start anew."""
    device: str
    seed: int
    from_checkpoint: bool = False
    """Whether the learner starts with a checkpoint's weights, which the engines do not have."""
    adapter: bool = False
    """Whether only the adapter is sent to the engine, which has the backbone."""
    engine_dtype: str | None = None
    """torch's name of the dtype in which weights are sent; None: they keep their own."""
    probe: tuple[int, ...] = ()
    """See learners.weights.export_weights."""
    checkpoints: str | None = None
    """Directory of the run's joint checkpoints, to which the learner goes back if its updates keep being not finite;
    None: there are none."""

    def recovery_point(self, name: str, version: int) -> Path | None:
        """Returns the policy's directory in the newest joint checkpoint with weights no newer than `version`, or None."""
        if self.checkpoints is None:
            return None
        found = CheckpointStore(Path(self.checkpoints), 1).newest_with(name, version)
        return found / name if found else None

    def build(self, name: str = "policy", backbone: Backbone | None = None) -> Learner:
        """Builds the learner. Raises OSError if there is no such model, ValueError if the model cannot be trained with
        the settings."""
        from learners.learner import Learner
        from learners.state import load_adapter, load_learner

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
        elif self.model_path != self.reference_path:  # a full learner has them already
            load_adapter(learner, Path(self.model_path))
        return learner


def build_learners(specs: Mapping[str, LearnerSpec]) -> dict[str, Learner]:
    """Builds the learners of one group. If all train adapters of one model, they share it. Raises what LearnerSpec.build
    raises."""
    import torch

    from learners.tuning import Backbone

    backbone, (first, *others) = None, specs.values()
    if others and all(
        spec.reference_path == first.reference_path and spec.settings.shares_backbone_with(first.settings)
        for spec in others
    ):
        backbone = Backbone(first.settings, first.reference_path, torch.device(first.device))
    return {name: spec.build(name, backbone) for name, spec in specs.items()}
