"""A learner on disk: the model in Hugging Face format, everything else in learner_state.pt."""

from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import torch
from torch.distributed.checkpoint.state_dict import (
    StateDictOptions,
    get_optimizer_state_dict,
    set_optimizer_state_dict,
)

from learners.checkpoints import STATE_FILE
from learners.health import Health
from learners.learner import Learner
from learners.tuning import save_model

WHOLE = StateDictOptions(full_state_dict=True, cpu_offload=True)
"""By parameter name and in one piece, however many workers hold it: any other number can go on."""


def save_learner(learner: Learner, directory: Path) -> None:
    """By rank 0; all workers must call it."""
    learner.policy.activate()
    save_model(learner.policy, directory, learner.world)
    model, optimizer = learner.policy.model, learner.optimizer
    # asked before the first update, torch would make one, of nothing, that counts
    moments = get_optimizer_state_dict(model, optimizer, options=WHOLE) if optimizer.state else None
    state: dict[str, Any] = {
        "version": learner.version,
        "updates": learner.updates,
        "health": asdict(learner.health),
        "scaler": learner.scaler.state_dict(),
        "optimizer": moments,
        "critic": learner.critic.state_dict() if learner.critic else None,
        "critic_optimizer": learner.critic_optimizer.state_dict() if learner.critic_optimizer else None,
        "adapter": dict(learner.policy.trainable()) if learner.settings.lora else None,
    }
    if learner.world.rank == 0:
        torch.save(state, directory / STATE_FILE)


def load_learner(learner: Learner, directory: Path) -> None:
    """Optimizers, critic, adapter and counters of a checkpoint whose model the learner was built from; it has been
    found to fit (checkpoints.check_fits)."""
    # on a GPU it would lie beside the moments that it is spread to
    state = torch.load(directory / STATE_FILE, map_location="cpu", weights_only=True)
    assert (state["critic"] is None) == (learner.critic is None), f"{directory}: another critic"
    assert (state["adapter"] is None) == (learner.settings.lora is None), f"{directory}: another tuning"
    # the kind of step goes by the device, not by the file
    for saved in (state["optimizer"], state["critic_optimizer"]):
        for group in saved["param_groups"] if saved is not None else ():
            group["fused"] = learner.device.type == "cuda" or None
    learner.version, learner.updates = state["version"], state["updates"]
    learner.health = Health(**state["health"])
    learner.scaler.load_state_dict(state["scaler"])
    if learner.critic and learner.critic_optimizer:
        learner.critic.load_state_dict(state["critic"])
        learner.critic_optimizer.load_state_dict(state["critic_optimizer"])
    if state["adapter"] is not None:
        with torch.no_grad():
            for name, parameter in learner.policy.trainable().items():
                parameter.copy_(state["adapter"][name])
    if state["optimizer"] is not None:
        _load_moments(learner, state["optimizer"])


def _load_moments(learner: Learner, moments: dict[str, Any]) -> None:
    """A parameter that has had no gradient yet has none; torch would make it some, that count."""
    known = set(moments["state"])
    options = replace(WHOLE, strict=False)
    set_optimizer_state_dict(learner.policy.model, learner.optimizer, moments, options=options)
    for name, parameter in learner.policy.trainable().items():
        if name not in known:
            learner.optimizer.state.pop(parameter, None)
