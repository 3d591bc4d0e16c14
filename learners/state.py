"""Saves and loads a learner: the model in Hugging Face format or an adapter in PEFT's, the other state in
learner_state/.

    config.json  model.safetensors       or model-00001-of-00003.safetensors … with their index
    adapter_config.json  adapter_model.safetensors      instead, if learner.lora is set (learners/adapters.py)
    learner_state/state.json             counters, health, each parameter's number of updates
                  shard-*.safetensors    moments, critic: each worker writes the part that it holds

Any number of workers can continue, bit for bit, what any other number of workers has saved:
torch.distributed.checkpoint reads from each file what a worker needs. Nothing is pickled.
"""

import json
import shutil
import warnings
from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint import HuggingFaceStorageWriter

from learners import files
from learners.adapters import save_adapter
from learners.checkpoints import STATE
from learners.files import its_cause, read_tensors, write_model
from learners.health import Health
from learners.learner import Learner
from learners.parallel import WorkerGroup
from learners.tuning import LoraTuning, Tuning

_MOMENTS = ("exp_avg", "exp_avg_sq")
_COUNTERS = "state.json"
warnings.filterwarnings("ignore", "torch.distributed is disabled", UserWarning)  # a single worker is intended


def save_learner(learner: Learner, directory: Path) -> None:
    """Saves the learner. All workers must call it, and each writes its part. Raises OSError."""
    begin_save(learner, directory)()


def begin_save(learner: Learner, directory: Path) -> Callable[[], None]:
    """Begins to save the learner's present state; it may continue to learn meanwhile. All workers must call it, with
    the same directory.

    The model is written before this function returns. A thread writes the rest from a copy in host memory.

    Returns:
        A function that waits until this worker's part is written (on rank 0: all parts). It raises OSError.
    """
    world = learner.world
    learner.policy.activate()
    tensors = _tensors(learner)
    if world.rank == 0:
        place = directory / STATE
        shutil.rmtree(place, ignore_errors=True)  # files of an unfinished save by more workers
        place.mkdir(parents=True, exist_ok=True)
        (place / _COUNTERS).write_text(json.dumps(_counters(learner)), "utf-8")
    learner.memory.together(
        lambda: save_model(learner.policy, directory, world), f"while {directory} was saved"
    )
    if not tensors:
        return lambda: None
    writer = HuggingFaceStorageWriter(
        str(directory / STATE), _file_numbers(tensors, world.size), save_distributed=True
    )
    with its_cause():
        writing: Any = dcp.async_save(tensors, storage_writer=writer, process_group=world.host_group())

    def wait() -> None:
        with its_cause():
            writing.result()

    return wait


def load_learner(learner: Learner, directory: Path) -> None:
    """Loads optimizers, critic, adapter and counters from a checkpoint. The learner was built from the checkpoint's
    model, and the caller has checked that the checkpoint fits (checkpoints.check_fits). All workers must call it.
    Raises CheckpointError, OSError."""
    state = json.loads((directory / STATE / _COUNTERS).read_text("utf-8"))
    assert state["updated"].keys() == _optimizers(learner).keys(), f"{directory}: another critic"
    assert (state["lora"] or None) == _lora(learner), f"{directory}: another tuning"
    learner.version, learner.updates = state["version"], state["updates"]
    learner.health = Health(**state["health"])
    if state["scaler"]:  # it is empty if the precision was another one: the scale then starts anew
        learner.scaler.load_state_dict(state["scaler"])
    for part, (optimizer, parameters) in _optimizers(learner).items():
        optimizer.state.clear()
        # a parameter that has had no gradient yet has no moments
        for name, count in state["updated"][part].items():
            if name not in parameters:  # learner.trainable_layers is smaller now
                continue
            parameter = parameters[name]
            device = parameter.device if optimizer.defaults["fused"] else None  # as in torch's optimizers
            moments = {key: torch.empty_like(parameter, requires_grad=False) for key in _MOMENTS}
            optimizer.state[parameter] = {"step": torch.tensor(float(count), device=device), **moments}
    read_tensors(directory / STATE, _tensors(learner), learner.world)
    load_adapter(learner, directory)


def load_adapter(learner: Learner, directory: Path) -> None:
    """Loads the adapter of a checkpoint, if the learner trains one. All workers must call it. Raises CheckpointError,
    OSError."""
    if learner.settings.lora:
        read_tensors(directory, learner.policy.kept(), learner.world)


def save_model(policy: Tuning, directory: Path, world: WorkerGroup) -> None:
    """Writes the model, on rank 0, with at most FILE_BYTES in memory at a time; an adapter is written in PEFT's format."""
    if isinstance(policy, LoraTuning):
        if world.rank == 0:
            save_adapter(policy, directory)
    elif world.rank == 0:
        write_model(policy.model, policy.merged(), directory)
    else:
        for _ in policy.merged():  # rank 0 gathers
            pass


def _optimizers(
    learner: Learner,
) -> dict[str, tuple[torch.optim.Optimizer, Mapping[str, torch.nn.Parameter]]]:
    """Returns, for each part of the learner, its optimizer and its parameters by name."""
    found: dict[str, tuple[torch.optim.Optimizer, Mapping[str, torch.nn.Parameter]]]
    found = {"policy": (learner.optimizer, learner.policy.trainable())}
    if learner.critic and learner.critic_optimizer:
        found["critic"] = learner.critic_optimizer, dict(learner.critic.named_parameters())
    return found


def _counters(learner: Learner) -> dict[str, Any]:
    """Returns JSON-compatible values."""
    return {
        "version": learner.version,
        "updates": learner.updates,
        "health": asdict(learner.health),
        "scaler": learner.scaler.state_dict(),
        "lora": _lora(learner),
        "updated": {
            part: {
                name: int(optimizer.state[parameter]["step"])
                for name, parameter in parameters.items()
                if parameter in optimizer.state
            }
            for part, (optimizer, parameters) in _optimizers(learner).items()
        },
    }


def _lora(learner: Learner) -> dict[str, Any] | None:
    return learner.settings.lora and learner.settings.lora.model_dump(mode="json")


def _tensors(learner: Learner) -> dict[str, torch.Tensor]:
    """Returns the tensors themselves, not copies. A sharded tensor holds this worker's part."""
    tensors: dict[str, torch.Tensor] = {}
    for part, (optimizer, parameters) in _optimizers(learner).items():
        for name, parameter in parameters.items():
            for key in _MOMENTS if parameter in optimizer.state else ():
                tensors[f"{part}.{key}.{name}"] = optimizer.state[parameter][key]
    if learner.critic:
        tensors |= {f"critic.{name}": p.detach() for name, p in learner.critic.named_parameters()}
    return tensors


def _file_numbers(tensors: Mapping[str, torch.Tensor], workers: int) -> dict[str, int]:
    """Returns the number, from 1, of the worker's file to which each tensor is written. No file becomes much larger
    than FILE_BYTES."""
    numbers, size = {}, 0
    for name, tensor in tensors.items():
        numbers[name] = 1 + size // (files.FILE_BYTES * workers)
        size += tensor.nbytes
    return numbers
