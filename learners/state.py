"""A learner on disk: the model in Hugging Face format, everything else in learner_state.pt."""

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file

from core.batch import Batch
from learners.checkpoints import STATE_FILE
from learners.learner import Learner, NotFinite
from learners.parallel import like, whole
from learners.tuning import WEIGHTS_FILE, save_model

MAX_RELOADS = 2
"""In a row: what comes back each time is not cured by going back."""
log = logging.getLogger(__name__)


def save_learner(learner: Learner, directory: Path) -> None:
    """By rank 0; all workers must call it. How many they are does not show: any other number can go on."""
    learner.policy.activate()
    save_model(learner.policy, directory, learner.world)
    state: dict[str, Any] = {
        "version": learner.version,
        "updates": learner.updates,
        "learning_rate_factor": learner.learning_rate_factor,
        "halvings": learner.halvings,
        "skipped_in_a_row": learner.skipped_in_a_row,
        "reloads_in_a_row": learner.reloads_in_a_row,
        "proven_version": learner.proven_version,
        "shape": _shape(learner),
        "scaler": learner.scaler.state_dict(),
        "optimizer": _optimizer_state(learner),
        "critic": learner.critic.state_dict() if learner.critic else None,
        "critic_optimizer": learner.critic_optimizer.state_dict() if learner.critic_optimizer else None,
        "adapter": dict(learner.policy.trainable()) if learner.settings.lora else None,
    }
    if learner.world.rank == 0:
        torch.save(state, directory / STATE_FILE)


def load_learner(learner: Learner, directory: Path) -> None:
    """Optimizers, critic, adapter and counters of a checkpoint whose model the learner was built from.

    Raises:
        ValueError: it was saved with another critic, or another way of tuning.
    """
    state = torch.load(directory / STATE_FILE, map_location=learner.device, weights_only=True)
    for key, now in _shape(learner).items():
        if (was := state["shape"][key]) != now:
            raise ValueError(
                f"{directory}: saved with {key} {was}, this run uses {now}: resume with the same {key} or start a new run"
            )
    learner.version, learner.updates = state["version"], state["updates"]
    learner.learning_rate_factor = state["learning_rate_factor"]
    for counter in ("halvings", "skipped_in_a_row", "reloads_in_a_row", "proven_version"):
        setattr(learner, counter, state[counter])
    learner.scaler.load_state_dict(state["scaler"])
    if learner.critic and learner.critic_optimizer:
        learner.critic.load_state_dict(state["critic"])
        learner.critic_optimizer.load_state_dict(state["critic_optimizer"])
    if state["adapter"] is not None:
        with torch.no_grad():
            for name, parameter in learner.policy.trainable().items():
                parameter.copy_(state["adapter"][name])
    for name, parameter in learner.policy.trainable().items():
        if name in state["optimizer"]:
            learner.optimizer.state[parameter] = {
                key: like(value, parameter) for key, value in state["optimizer"][name].items()
            }


def _shape(learner: Learner) -> dict[str, Any]:
    """What decides which tensors there are to train, and what they mean."""
    lora, estimator = learner.settings.lora, learner.settings.estimator
    return {
        "critic": estimator.critic if estimator.kind == "gae" else None,
        "value_hidden": estimator.value_hidden if estimator.kind == "gae" else None,
        "lora": (lora.rank, lora.alpha, lora.target_modules) if lora else None,
    }


def _optimizer_state(learner: Learner) -> dict[str, dict[str, Any]]:
    """By parameter, put together where it is sharded."""
    state = learner.optimizer.state
    return {
        name: {key: whole(value) for key, value in state[parameter].items()}
        for name, parameter in learner.policy.trainable().items()
        if parameter in state
    }


def learn(
    learner: Learner, batch: Batch, recovery_point: Callable[[str, int], Path | None]
) -> dict[str, float]:
    """learner.step(batch); where its updates keep being not finite, back to a checkpoint instead.

    The last update that was made may be what broke the weights: the newest checkpoint of weights that a whole step has
    begun with since is taken, any other only where there is none. The batch counts as done, and the learning rate
    stays as low as it has become.

    Args:
        recovery_point: (policy, version) -> its newest checkpoint of this version or an older one.

    Raises:
        NotFinite: no checkpoint yet, or going back has not helped.
    """
    try:
        metrics = learner.step(batch)
    except NotFinite as error:
        directory = None
        if learner.world.rank == 0:
            proven, newest = (recovery_point(learner.name, v) for v in (learner.proven_version, batch.step))
            directory = proven or newest
        directory = learner.world.broadcast(directory)  # all workers the same
        if directory is None or learner.reloads_in_a_row >= MAX_RELOADS:
            raise
        log.warning("%s; went back to %s", error, directory)
        reloads = learner.reloads_in_a_row + 1
        _reload(learner, directory)
        learner.version, learner.reloads_in_a_row = batch.step, reloads
        return {"samples": 0.0, "reloaded": 1.0, "learning_rate": learner.current_learning_rate()}
    if not metrics["skipped_updates"]:
        learner.reloads_in_a_row = 0
    return metrics


def _reload(learner: Learner, directory: Path) -> None:
    """Weights and state of an earlier version, in place; the learning rate's factor stays."""
    factor = learner.learning_rate_factor
    if not learner.settings.lora:
        saved = load_file(directory / WEIGHTS_FILE)
        with torch.no_grad():
            for name, parameter in learner.policy.model.named_parameters():
                parameter.copy_(like(saved[name].to(parameter.device), parameter))
    learner.optimizer.state.clear()
    load_learner(learner, directory)
    learner.learning_rate_factor = factor
    learner.skipped_in_a_row = 0
