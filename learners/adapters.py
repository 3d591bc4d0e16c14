"""LoRA adapters on disk, in PEFT's own format, and the plain models that result from merging them into their base
models.

adapter_config.json            rank, alpha, layers, and the base model: a hub id, or a directory of this machine
adapter_model.safetensors      fp32
"""

import json
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from copy import copy
from pathlib import Path
from typing import Any

import torch

from learners.checkpoints import ADAPTER, STATE, CheckpointError, base_of
from learners.files import save_tensors, write_model
from learners.models import buffers_of, load_model
from learners.settings import LoraSettings
from learners.tuning import LoraTuning, merged, quantisation

WEIGHTS = "adapter_model.safetensors"


def save_adapter(policy: LoraTuning, directory: Path) -> None:
    """Saves the adapter. `peft.PeftModel.from_pretrained` can load it, as can transformers' own classes if peft is
    installed."""
    config: Any = copy(policy.model.peft_config[policy.name])
    config.base_model_name_or_path, config.inference_mode = policy.base, True
    # peft keeps a set, whose order differs between processes
    config.target_modules = sorted(config.target_modules)
    config.save_pretrained(str(directory))
    tensors = {name: tensor.cpu().contiguous() for name, tensor in policy.kept().items()}
    save_tensors(tensors, directory / WEIGHTS)


def write_merged(adapter: Path, directory: Path, dtype: str) -> None:
    """Writes the plain model that an adapter and its base model make. The base model is loaded with the quantization
    that it had in training.

    Args:
        adapter: Directory of the adapter.
        dtype: torch's name of the dtype.

    Raises:
        CheckpointError: The base model cannot be loaded.
    """
    base = base_of(adapter)
    assert base is not None
    counters = adapter / STATE / "state.json"
    tuned = (
        LoraSettings(**json.loads(counters.read_text("utf-8"))["lora"])
        if counters.is_file()
        else LoraSettings()
    )
    try:
        model = load_model(base, **quantisation(tuned))
    except OSError as error:
        raise CheckpointError(
            f"{adapter}: its base model {base} cannot be loaded ({str(error).splitlines()[0]}); bring it back, or name "
            f"another place in its {ADAPTER}"
        ) from error
    model.load_adapter(str(adapter), adapter_name="policy")
    model.config.dtype = torch_dtype = getattr(torch, dtype)
    as_they_are = buffers_of(model)
    tensors = ((n, t if n in as_they_are else t.to(torch_dtype)) for n, t in merged(model, "policy"))
    write_model(model, tensors, directory)


@contextmanager
def merged_folder(adapter: Path, dtype: str) -> Iterator[Path]:
    """Yields a temporary directory with the merged model of an adapter's directory and with its tokenizer, from which
    an engine can be started. The directory is deleted afterwards."""
    with tempfile.TemporaryDirectory(prefix="merged_") as place:
        folder = Path(place)
        for file in adapter.iterdir():
            if file.is_file() and not file.name.startswith("adapter_"):
                shutil.copy(file, folder)
        write_merged(adapter, folder, dtype)
        yield folder
