"""Reads and writes models in Hugging Face's file format. Models are written a part at a time; of several workers each
reads only the parts that it keeps.

A model that is to be sharded is created without memory (on torch's meta device), sharded, and then filled. No worker
ever holds more than its own shards and the tensors that it is reading.
"""

import errno
import json
import logging
import math
import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import torch
import torch.distributed.checkpoint as dcp
from safetensors import SafetensorError
from safetensors.torch import save_file
from torch import nn
from torch.distributed.checkpoint import HuggingFaceStorageReader
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.tensor import DTensor
from transformers import GenerationConfig, PreTrainedModel
from transformers.utils import GENERATION_CONFIG_NAME

from learners.attention import PACKED
from learners.checkpoints import CheckpointError
from learners.models import buffers_of, load_model, remove_dropout
from learners.parallel import WorkerGroup

FILE_BYTES = 2 << 30
"""Maximum size of one file. This much of the model, and of a worker's part of the state, is in memory twice."""
WEIGHTS_FILE = "model.safetensors"
log = logging.getLogger(__name__)


# ---------------------------------------------------------------------- read
def read_tensors(place: Path, tensors: Mapping[str, torch.Tensor], world: WorkerGroup) -> None:
    """Fills the tensors from the safetensors files of a directory. Each worker reads the parts that it keeps. Raises
    CheckpointError."""
    if not tensors:
        return
    reader = HuggingFaceStorageReader(str(place))
    if lacking := _lacking(reader, tensors):
        raise CheckpointError(f"{place}: without {', '.join(lacking[:3])}: not this model's")
    with its_cause():
        dcp.load(dict(tensors), storage_reader=reader, process_group=world.host_group())


def _lacking(reader: HuggingFaceStorageReader, tensors: Mapping[str, torch.Tensor]) -> list[str]:
    """Returns the names of the tensors that are not in the files, or have another size there."""
    saved: Any = reader.read_metadata().state_dict_metadata
    return sorted(
        name
        for name, tensor in tensors.items()
        if name not in saved or sum(math.prod(c.sizes) for c in saved[name].chunks) != tensor.numel()
    )


@contextmanager
def its_cause() -> Iterator[None]:
    """Raises, in place of torch's CheckpointException (which is not an Exception), the error of the first worker that
    had one."""
    try:
        yield
    except CheckpointException as error:
        raise next(iter(error.failures.values()))[0] from error


def open_empty(path: str | Path, dtype: torch.dtype = torch.float32) -> PreTrainedModel:
    """Returns the model of load_model, but with parameters that have no memory (see fill). If the files name the
    tensors differently from the model, or are not safetensors, load_model loads the model on the CPU; then each worker
    holds the whole model until it is sharded."""
    from accelerate import init_empty_weights  # as peft does; here, since the import takes seconds
    from transformers import AutoConfig, AutoModelForCausalLM

    config = AutoConfig.from_pretrained(path)
    with init_empty_weights(include_buffers=False):
        model: Any = AutoModelForCausalLM.from_config(config, dtype=dtype, attn_implementation=PACKED)
    model.tie_weights()
    in_files = dict(model.named_parameters()) | buffers_of(model)
    if _lacking(HuggingFaceStorageReader(str(_files_of(path))), in_files):
        log.warning("%s: has other tensors than its model: each worker loads all of it", path)
        return load_model(path, dtype=dtype)
    with suppress(OSError):
        model.generation_config = GenerationConfig.from_pretrained(path)
    remove_dropout(model)
    return model


def _files_of(model: str | Path) -> Path:
    """Returns the directory of a model's safetensors files; the files of a hub id are downloaded."""
    from huggingface_hub import snapshot_download

    place = Path(model)
    return (
        place if place.is_dir() else Path(snapshot_download(str(model), allow_patterns="model*.safetensors*"))
    )


def fill(module: nn.Module, model: PreTrainedModel, world: WorkerGroup) -> None:
    """Loads the weights of a sharded model that open_empty() returned; any other model stays as it is. All workers must
    call it.

    Args:
        module: FSDP's root module.
    """

    def in_memory(tensor: torch.Tensor) -> torch.Tensor:
        if isinstance(tensor, DTensor) and tensor.is_meta:
            return torch.empty_like(tensor, device=tensor.device_mesh.device_type)
        return tensor

    if not any(p.is_meta for p in model.parameters()):
        return
    module._apply(in_memory)
    model.tie_weights()
    parameters = {name: p.detach() for name, p in model.named_parameters()}
    read_tensors(_files_of(str(model.name_or_path)), parameters | buffers_of(model), world)


# ---------------------------------------------------------------------- write
def save_tensors(tensors: dict[str, torch.Tensor], file: Path) -> None:
    """Writes a safetensors file. Raises OSError."""
    try:
        save_file(tensors, file, metadata={"format": "pt"})
    except SafetensorError as error:  # of a full disk, too
        full = os.strerror(errno.ENOSPC)
        number, reason = (errno.ENOSPC, full) if full in str(error) else (errno.EIO, str(error))
        raise OSError(number, reason, str(file)) from error


def write_model(model: PreTrainedModel, tensors: Iterable[tuple[str, torch.Tensor]], directory: Path) -> None:
    """Writes a plain model with these tensors, of which at most FILE_BYTES are in memory at a time."""
    config = model.config
    if hasattr(config, "quantization_config"):
        config = type(config).from_dict(
            {k: v for k, v in config.to_dict().items() if k != "quantization_config"}
        )
    config.save_pretrained(directory)
    if model.generation_config is not None:
        write_generation(model.generation_config, directory)
    names, total = [], 0
    for part in _parts(tensors):
        save_tensors(part, directory / f"{len(names)}.safetensors")
        names.append(list(part))
        total += sum(tensor.nbytes for tensor in part.values())
    stem, suffix = WEIGHTS_FILE.split(".")
    files = [f"{stem}-{n:05d}-of-{len(names):05d}.{suffix}" for n in range(1, len(names) + 1)]
    if len(files) == 1:
        files = [WEIGHTS_FILE]
    else:
        places = {name: file for file, of_file in zip(files, names, strict=True) for name in of_file}
        index = {"metadata": {"total_size": total}, "weight_map": places}
        (directory / f"{WEIGHTS_FILE}.index.json").write_text(json.dumps(index, indent=1), "utf-8")
    for n, file in enumerate(files):
        (directory / f"{n}.safetensors").rename(directory / file)


def write_generation(generation: GenerationConfig, directory: Path) -> None:
    """Writes the generation config unchanged. save_pretrained would refuse flags of hub models that were loaded with a
    warning, such as a temperature without do_sample."""
    generation.to_json_file(directory / GENERATION_CONFIG_NAME, keys_to_pop=["compile_config"])


def _parts(tensors: Iterable[tuple[str, torch.Tensor]]) -> Iterator[dict[str, torch.Tensor]]:
    """Yields the tensors on the host, in order, in parts of up to FILE_BYTES. A part is emptied when the next one is
    requested."""
    part: dict[str, torch.Tensor] = {}
    size = 0
    for name, tensor in tensors:
        if part and size + tensor.nbytes > FILE_BYTES:
            yield part
            part.clear()
            size = 0
        part[name] = tensor.cpu().contiguous()
        size += tensor.nbytes
    yield part
