"""A learner whose updates keep being not finite goes back to a checkpoint."""

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

from safetensors.torch import load_file
from torch.distributed.checkpoint.state_dict import StateDictOptions, set_model_state_dict

from core.batch import Batch
from learners.checkpoints import CheckpointError
from learners.health import Remedy, remedy
from learners.learner import Learner, NotFinite
from learners.state import load_learner
from learners.tuning import WEIGHTS_FILE

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
        weights: dict[str, Any] = dict(load_file(directory / WEIGHTS_FILE))
        model = learner.policy.model
        # tied weights are there once, as named_parameters has them; torch takes whatever is missing from the model
        if missing := sorted({name for name, _ in model.named_parameters()} - weights.keys()):
            raise CheckpointError(
                f"{directory / WEIGHTS_FILE}: without {', '.join(missing[:3])}: not this model's"
            )
        options = StateDictOptions(full_state_dict=True, strict=False)
        set_model_state_dict(model, weights, options=options)
    learner.optimizer.state.clear()
    learner.optimizer.zero_grad()
    load_learner(learner, directory)
    health.went_back(learner.health)
    learner.health = health
