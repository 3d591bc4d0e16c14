"""Describes machines that are not here, so that a run can be planned before a GPU is rented (--plan-for)."""

import re

from sparring.core.errors import SparringError
from sparring.runtime.hardware import Hardware, offline_by
from sparring.runtime.placement import Node

_CARDS: dict[str, tuple[float, tuple[int, int]]] = {
    "P100": (15.9, (6, 0)),
    "V100": (15.8, (7, 0)),
    "T4": (14.6, (7, 5)),
    "A10": (22.2, (8, 6)),
    "L4": (22.2, (8, 9)),
    "RTX3090": (23.6, (8, 6)),
    "RTX4090": (23.6, (8, 9)),
    "RTX5090": (31.4, (12, 0)),
    "A100-40GB": (39.4, (8, 0)),
    "L40S": (44.4, (8, 9)),
    "A100-80GB": (79.1, (8, 0)),
    "H100": (79.1, (9, 0)),
    "H200": (139.8, (9, 0)),
    "B200": (178.4, (10, 0)),
}
"""Memory in GiB, as drivers report it, and CUDA's compute capability."""
_OF_A_SIZE = (8, 0)
"""Compute capability that is assumed of a GPU of which only the size is given."""
_OF_THE_LOCK = (7, 5)
"""The oldest compute capability for which the torch of requirements/gpu.lock has kernels."""
_CORES = 1024
"""Such a plan is about memory: no part lacks CPU cores."""
_SYSTEM_GIB = 1.5
"""Memory that the system and its other processes are assumed to take."""
_SIZE = re.compile(r"(0*[1-9]\d*(?:\.\d+)?)GB", re.IGNORECASE)


def machine_named(text: str) -> Hardware:
    """Returns the hardware that a text stands for: `T4`, `24GB` (a GPU of that size), `8xH100`, `2x8xH100` (two nodes of
    eight), or `cpu-16GB` (a machine with that much memory and without a GPU). Raises SparringError for another text.

    A GPU of which only the size is given counts as slightly smaller than cards that are sold by that name, and has
    bfloat16.
    """
    offline = offline_by() is not None
    kind, _, memory = text.partition("-")
    if kind.lower() == "cpu" and (size := _SIZE.fullmatch(memory)):
        gib = _gib(size)
        return Hardware(
            gpus=0,
            gpu=None,
            gpu_memory_gib=0.0,
            capability=(0, 0),
            cpu_cores=_CORES,
            memory_gib=gib,
            free_gib=gib - _SYSTEM_GIB,
            offline=offline,
            name=text,
        )
    *counts, card = re.split(r"(?<=\d)x(?=\w)", text)
    names = {name.lower(): name for name in _CARDS}
    if size := _SIZE.fullmatch(card):
        card, found = f"GPU of {card}", (_gib(size), _OF_A_SIZE)
    elif card.lower() in names:
        found = _CARDS[names[card.lower()]]
    else:
        found = None
    if found is None or len(counts) > 2 or not all(count.isdigit() and int(count) for count in counts):
        raise SparringError(
            f"--plan-for {text}: give a GPU ({', '.join(_CARDS)}) or its size (24GB), several of them (8xH100), nodes "
            "(2x8xH100), or a machine without a GPU (cpu-16GB)"
        )
    each = int(counts[-1]) if counts else 1
    nodes = int(counts[0]) if len(counts) == 2 else 1
    gib, capability = found
    return Hardware(
        gpus=nodes * each,
        gpu=card,
        gpu_memory_gib=gib,
        capability=capability,
        least_capability=_OF_THE_LOCK,
        cpu_cores=_CORES,
        memory_gib=0.0,
        offline=offline,
        cluster=tuple(
            Node(name=f"node {i + 1}", address=f"node {i + 1}", gpus=each, cpus=_CORES) for i in range(nodes)
        ),
        name=text,
    )


def _gib(size: re.Match[str]) -> float:
    return float(size[1]) * 10**9 / 2**30
