"""Finds and checks the models of a service before anything starts."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from learners.checkpoints import base_of
from sparring.core.errors import SparringError
from sparring.core.play import GENERATOR
from sparring.runtime.architectures import unknown_to_vllm
from sparring.runtime.hardware import host_memory
from sparring.runtime.memory_plan import bytes_of, keys_of
from sparring.runtime.model import Model, check_writes_programs, find_policy, open_model
from sparring.runtime.plan import parameters

_ENGINE_BYTES = 900 << 20
"""Memory of a vLLM process without weights, in bytes."""
_BLOCK = 128
"""Size of vLLM's largest cache block, in tokens."""
_CONTEXT = 4096
"""Context length of a model that does not state one, in tokens."""


def open_models(named: Iterable[str], key: str) -> dict[str, Model]:
    """Returns the models by name. Raises SparringError.

    Args:
        named: texts of the form NAME=RUN, NAME=DIRECTORY, NAME=FILE.gguf or NAME=OWNER/HUB-ID.
        key: the command-line option, for error messages.
    """
    models: dict[str, Model] = {}
    for text in named:
        name, _, where = text.partition("=")
        if not name or not where:
            raise SparringError(
                f"{key} {text}: give a name and what is served by it, as NAME=RUN or NAME=DIRECTORY"
            )
        if name in models:
            raise SparringError(f"{key} {text}: {name} is the name of two models")
        models[name] = model = open_model(find_policy(where, GENERATOR, key), key)
        check_writes_programs(f"{key} {text}", model)
        if architecture := unknown_to_vllm(model.path):
            raise SparringError(
                f"{key} {text}: vLLM cannot load its architecture {architecture}; give another model"
            )
    return models


def with_context(
    models: Mapping[str, Model], wanted: int | None, dtype: str, kv_cache_mb: int | None
) -> dict[str, Model]:
    """Returns the models with the context length with which they are served.

    Args:
        wanted: context length in tokens. Default: as long as the model and the cache allow.
        kv_cache_mb: None if an engine takes its cache from its share of a GPU.

    Raises:
        SparringError: if `wanted` is more than the model and the cache allow.
    """
    found = {}
    for name, model in models.items():
        limits = {"its context": model.context or 0}
        if kv_cache_mb and (token := _cached_bytes(model, dtype)):
            limits[f"--kv-cache-mb {kv_cache_mb}"] = (kv_cache_mb << 20) // token // _BLOCK * _BLOCK
        key, most = min(((k, n) for k, n in limits.items() if n), key=lambda pair: pair[1], default=("", 0))
        if most and (wanted or 0) > most:
            raise SparringError(f"--max-model-len {wanted}: {name} can have {most} tokens by {key}")
        found[name] = replace(model, context=wanted or most or _CONTEXT)
    return found


def _cached_bytes(model: Model, dtype: str) -> int:
    """Returns the bytes of one token's keys and values. 0 if the model's config lacks the usual fields of a decoder."""
    from transformers import AutoConfig

    config = AutoConfig.from_pretrained(base_of(model.path) or model.path).get_text_config()
    try:
        heads, size = keys_of(config)
    except AttributeError:
        return 0
    return 2 * heads * size * config.num_hidden_layers * bytes_of(dtype)


def fitting(models: Mapping[str, Model], wanted: int, dtype: str, kv_cache_mb: int) -> int:
    """Returns how many of the models, at most `wanted`, can be loaded at once in the memory that is free now. The weights of
    a model whose config cannot be read count as 0 bytes. Raises SparringError if the largest model alone does not
    fit."""
    needs = {
        name: parameters(model.path) * bytes_of(dtype) + (kv_cache_mb << 20) + _ENGINE_BYTES
        for name, model in models.items()
    }
    return at_once(needs, wanted, host_memory().free)


def at_once(needs: Mapping[str, int], wanted: int, free: int) -> int:
    """Returns how many models, at most `wanted`, can be loaded at once, whichever they are. Raises SparringError if the
    largest one alone does not fit.

    Args:
        needs: by model, the memory that it needs, in bytes.
        free: free memory in bytes.
    """
    largest: Sequence[str] = sorted(needs, key=lambda name: needs[name], reverse=True)
    if needs[largest[0]] > free:
        raise SparringError(
            f"--model {largest[0]}: takes about {needs[largest[0]] / 2**30:.1f} GiB of memory, and {free / 2**30:.1f} GiB "
            "are free: give a smaller model, --dtype bfloat16, or a smaller --kv-cache-mb"
        )
    count = min(wanted, len(largest))
    while count > 1 and sum(needs[name] for name in largest[:count]) > free:
        count -= 1
    return count
