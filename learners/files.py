"""Models in Hugging Face's files: written a part at a time, read by several workers each what it keeps.

A model that is to be sharded is made without memory (torch's meta device), spread, and filled then: no worker holds more
of it at any moment than its own parts and what it reads at once.
"""

import json
import logging
import math
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import torch
import torch.distributed.checkpoint as dcp
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
from learners.parallel import World

FILE_BYTES = 2 << 30
"""Of one file: as much of the model, and of a worker's part of the state, is in memory twice."""
WEIGHTS_FILE = "model.safetensors"
log = logging.getLogger(__name__)


# ---------------------------------------------------------------------- read
def read_tensors(place: Path, tensors: Mapping[str, torch.Tensor], world: World) -> None:
    """Fill these from the safetensors files of a directory; each worker reads what it keeps. Raises CheckpointError."""
    if not tensors:
        return
    reader = HuggingFaceStorageReader(str(place))
    if lacking := _lacking(reader, tensors):
        raise CheckpointError(f"{place}: without {', '.join(lacking[:3])}: not this model's")
    with its_cause():
        dcp.load(dict(tensors), storage_reader=reader, process_group=world.host_group())


def _lacking(reader: HuggingFaceStorageReader, tensors: Mapping[str, torch.Tensor]) -> list[str]:
    """Names that are not in the files, or of another size there."""
    saved: Any = reader.read_metadata().state_dict_metadata
    return sorted(
        name
        for name, tensor in tensors.items()
        if name not in saved or sum(math.prod(c.sizes) for c in saved[name].chunks) != tensor.numel()
    )


@contextmanager
def its_cause() -> Iterator[None]:
    """torch's error, which is no Exception, as what happened in the first of the workers where something did."""
    try:
        yield
    except CheckpointException as error:
        raise next(iter(error.failures.values()))[0] from error


def open_empty(path: str | Path, dtype: torch.dtype = torch.float32) -> PreTrainedModel:
    """load_model's, but its parameters have no memory: see fill. Where the files name them otherwise than the model (or
    are no safetensors) it is load_model's own, on the CPU: then each worker holds it whole until it is sharded."""
    from accelerate import init_empty_weights  # peft's own way; seconds, which only those pay who use it
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
    """The directory of its safetensors; those of a hub id are downloaded."""
    from huggingface_hub import snapshot_download

    place = Path(model)
    return (
        place if place.is_dir() else Path(snapshot_download(str(model), allow_patterns="model*.safetensors*"))
    )


def fill(module: nn.Module, model: PreTrainedModel, world: World) -> None:
    """Give a sharded open_empty() its weights; any other stays as it is. All workers must call it. module: FSDP's root."""

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
def write_model(model: PreTrainedModel, tensors: Iterable[tuple[str, torch.Tensor]], directory: Path) -> None:
    """A plain model of these tensors, of which no more than FILE_BYTES are in memory at a time."""
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
        save_file(part, directory / f"{len(names)}.safetensors", metadata={"format": "pt"})
        names.append(list(part))
        total += sum(tensor.nbytes for tensor in part.values())
    stem, suffix = WEIGHTS_FILE.split(".")
    files = [f"{stem}-{n:05d}-of-{len(names):05d}.{suffix}" for n in range(1, len(names) + 1)]
    if len(files) == 1:
        files = [WEIGHTS_FILE]
    else:
        places = {name: file for file, of_file in zip(files, names, strict=True) for name in of_file}
        index = {"metadata": {"total_size": total}, "weight_map": places}
        (directory / f"{WEIGHTS_FILE}.index.json").write_text(json.dumps(index, indent=1))
    for n, file in enumerate(files):
        (directory / f"{n}.safetensors").rename(directory / file)


def write_generation(generation: GenerationConfig, directory: Path) -> None:
    """As it is: save_pretrained refuses flags of hub models that were loaded with a warning, such as a temperature without
    do_sample."""
    generation.to_json_file(directory / GENERATION_CONFIG_NAME, keys_to_pop=["compile_config"])


def _parts(tensors: Iterable[tuple[str, torch.Tensor]]) -> Iterator[dict[str, torch.Tensor]]:
    """In their order, on the host, up to FILE_BYTES at a time. What was yielded is emptied."""
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
