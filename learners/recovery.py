"""A learner whose updates keep being not finite goes back to a checkpoint."""

import logging
from collections.abc import Callable
from pathlib import Path

from core.batch import Batch
from learners.files import read_tensors
from learners.health import Remedy, remedy
from learners.learner import Learner, NotFinite
from learners.state import load_learner

log = logging.getLogger(__name__)


def learn(
    learner: Learner, batch: Batch, recovery_point: Callable[[str, int], Path | None]
) -> dict[str, float]:
    """learner.step(batch); where too many updates in a row were not finite, back to a checkpoint instead.

    The last update that was made may be what broke the weights: the newest checkpoint of weights that a whole step has
    begun with since is taken, any other only where there is none. The batch counts as done, and the learning rate
    stays as low as it has become.

    Args:
        recovery_point: (policy, version) -> its newest checkpoint of this version or an older one.

    Raises:
        NotFinite: no checkpoint yet, or going back has not helped.
    """
    try:
        return learner.step(batch)
    except NotFinite as error:
        directory = None
        if learner.world.rank == 0:
            versions = learner.health.proven_version, batch.step
            proven, newest = (recovery_point(learner.name, version) for version in versions)
            directory = proven or newest
        directory = learner.world.broadcast(directory)  # all workers the same
        if directory is None or remedy(learner.health, checkpoint=True) is Remedy.GIVE_UP:
            raise
        log.warning("%s; went back to %s", error, directory)
    go_back(learner, directory)
    learner.version = batch.step
    return {"samples": 0.0, "reloaded": 1.0, "learning_rate": learner.current_learning_rate()}


def go_back(learner: Learner, directory: Path) -> None:
    """Weights and state of an earlier version, in place. Raise CheckpointError where weights are missing."""
    health = learner.health
    if not learner.settings.lora:
        read_tensors(directory, learner.policy.kept(), learner.world)
    learner.optimizer.zero_grad()
    load_learner(learner, directory)
    health.went_back(learner.health)
    learner.health = health
