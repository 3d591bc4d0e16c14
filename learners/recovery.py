"""A learner whose updates keep being not finite goes back to a checkpoint."""

import logging
from collections.abc import Callable
from pathlib import Path

from learners.files import read_tensors
from learners.health import Remedy, remedy
from learners.learner import Learner, NotFinite
from learners.state import load_learner
from sparring.core.batch import Batch

log = logging.getLogger(__name__)


def learn(
    learner: Learner, batch: Batch, recovery_point: Callable[[str, int], Path | None]
) -> dict[str, float]:
    """Calls learner.step(batch). If too many updates in a row were not finite, goes back to a checkpoint instead.

    The last update that was made may be what broke the weights. Therefore the newest checkpoint is used whose weights
    are no newer than those with which the last faultless step began; only if there is none, the newest of all. The
    batch counts as done, and the learning rate stays at its reduced value.

    Args:
        recovery_point: (policy, version) -> the policy's newest checkpoint of this version or an older one.

    Raises:
        NotFinite: There is no checkpoint yet, or going back has not helped.
    """
    try:
        return learner.step(batch)
    except NotFinite as error:
        directory = None
        if learner.world.rank == 0:
            versions = learner.health.proven_version, batch.step
            proven, newest = (recovery_point(learner.name, version) for version in versions)
            directory = proven or newest
        directory = learner.world.broadcast(directory)  # the same for all workers
        if directory is None or remedy(learner.health, checkpoint=True) is Remedy.GIVE_UP:
            raise
        log.warning("%s; went back to %s", error, directory)
    go_back(learner, directory)
    learner.version = batch.step
    return {"samples": 0.0, "reloaded": 1.0, "learning_rate": learner.current_learning_rate()}


def go_back(learner: Learner, directory: Path) -> None:
    """Loads weights and state of an earlier version in place. Raises CheckpointError if weights are missing."""
    health = learner.health
    if not learner.settings.lora:
        read_tensors(directory, learner.policy.kept(), learner.world)
    learner.optimizer.zero_grad()
    load_learner(learner, directory)
    health.went_back(learner.health)
    learner.health = health
