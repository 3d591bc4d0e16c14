"""Which models a service may serve: found and checked before anything starts."""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import psutil

from core.errors import SparringError
from runtime.model import Model, check_writes_programs, find_policies, open_model
from runtime.plan import parameters

_ENGINE_BYTES = 900 << 20
"""Of a process of vLLM's, before it has any weights."""


def open_models(named: Iterable[str], key: str) -> dict[str, Model]:
    """By name, of NAME=RUN, NAME=DIRECTORY or NAME=OWNER/HUB-ID. Raises SparringError."""
    models: dict[str, Model] = {}
    for text in named:
        name, _, where = text.partition("=")
        if not name or not where:
            raise SparringError(
                f"{key} {text}: give a name and what is served by it, as NAME=RUN or NAME=DIRECTORY"
            )
        if name in models:
            raise SparringError(f"{key} {text}: {name} is the name of two models")
        models[name] = model = open_model(find_policies(where, Path())[0], key)
        check_writes_programs(f"{key} {text}", model)
    return models


def fitting(models: Mapping[str, Model], wanted: int, dtype: str | None, kv_cache_mb: int) -> int:
    """How many of them may be loaded at once, at most `wanted`, in the memory that is free now. Raises SparringError
    where the largest does not fit by itself; a model that is not on this machine yet counts as nothing."""
    each = 2 if dtype == "bfloat16" else 4
    needs = {
        name: parameters(model.path) * each + (kv_cache_mb << 20) + _ENGINE_BYTES
        for name, model in models.items()
    }
    return at_once(needs, wanted, psutil.virtual_memory().available)


def at_once(needs: Mapping[str, int], wanted: int, free: int) -> int:
    """needs, free: bytes."""
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
