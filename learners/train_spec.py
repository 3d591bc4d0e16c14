"""What it takes to build a learner anywhere: in this process or in a Ray Train worker."""

from dataclasses import dataclass
from pathlib import Path

from learners.learner import Learner
from learners.settings import LearnerSettings


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

    def build(self) -> Learner:
        """Raises OSError (no such model), ValueError (a checkpoint of another estimator)."""
        learner = Learner(
            self.settings,
            self.learning_rate,
            self.model_path,
            self.reference_path,
            device=self.device,
            seed=self.seed,
        )
        if self.state_path is not None:
            learner.load_state(Path(self.state_path))
        return learner
