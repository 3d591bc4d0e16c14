"""Stores weight updates on disk, with digest and probe, so that they can be synced to engines again."""

import json
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np

from sparring.core.weights import PublishError, WeightUpdate, digest_of

_ABOUT = "__about__"


def write_weights(update: WeightUpdate, path: Path) -> None:
    """Writes the whole update, with digest and probe. The file is complete, or does not exist."""
    about = {f.name: getattr(update, f.name) for f in fields(update) if f.name != "tensors"}
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f".{path.name}.draft")
    with draft.open("wb") as file:
        arrays: dict[str, Any] = {_ABOUT: np.array(json.dumps(about)), **update.tensors}
        np.savez(file, **arrays)
    draft.replace(path)


def read_weights(path: Path) -> WeightUpdate:
    """Reads an update. Raises PublishError if the file is not what was written, OSError if it does not exist."""
    with np.load(path, allow_pickle=False) as file:
        about = json.loads(str(file[_ABOUT]))
        tensors = {name: file[name] for name in file.files if name != _ABOUT}
    if digest_of(tensors) != about["digest"]:
        raise PublishError(f"{path}: damaged: its digest is not that of the weights that were written")
    known: dict[str, Any] = {
        name: tuple(value) if isinstance(value, list) else value for name, value in about.items()
    }
    return WeightUpdate(tensors=tensors, **known)
