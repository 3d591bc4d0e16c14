"""Places each part of a run on a node, with its share of a GPU, by arithmetic, before anything starts.

A GPU is counted as Ray counts it, in ten-thousandths, and assigned as Ray assigns it: a share comes from the GPU on
which it leaves the least, and whole GPUs are those that nothing else is on. So a placement that fits here fits in Ray
as well, in the order in which the parts start.

The GPUs of a tensor-parallel engine are always on one node. A learner's workers are on one node if a node has room for
all, else evenly on as few nodes as possible. Not covered: memory (sparring/runtime/memory_plan.py), and what other jobs use,
unless the nodes are given with what is left.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from configs.layers import with_values
from configs.schema import Config
from sparring.core.errors import SparringError

UNIT = 10_000
"""Number of units in a GPU or a CPU, as Ray counts: it rounds smaller fractions."""


ROLLOUT_ACTOR = "rollout actor"


class NoPlace(SparringError):
    """The parts of a run do not fit on the nodes. Without this check Ray would wait forever without a message."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Node:
    """A node of the cluster, or this machine.

    Example:
        Node(name="3f0c…", address="10.0.0.4", gpus=8, cpus=64)
    """

    name: str
    """Ray's id for the node."""
    address: str
    gpus: float
    cpus: float


@dataclass(frozen=True, kw_only=True, slots=True)
class Part:
    """Identical actors or workers, each on one node."""

    name: str
    count: int
    gpus: int
    """GPUs for each actor or worker, in UNIT: a share of one GPU, or whole GPUs."""
    cpus: int
    """CPUs for each actor or worker, in UNIT."""
    least: int = 0
    """For the workers of a learner: the number with which it continues at the least. 0: actors, each by itself."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Place:
    """The node of one actor or worker."""

    part: str
    node: Node
    gpus: int
    cpus: int


def engine_name(roles: Iterable[str]) -> str:
    return f"engine of the {' and the '.join(roles)}"


def learner_name(roles: Iterable[str]) -> str:
    return f"learner of the {' and the '.join(roles)}"


def units(share: float) -> int:
    return round(share * UNIT)


def learner_groups(config: Config) -> list[tuple[str, ...]]:
    """Returns the policies, grouped by the workers that they learn on."""
    first, *others = config.policies
    together = [
        role
        for role in others
        if share_backbone(config, first, role)
        or config.policy(role).learner.takes_turns_with(config.policy(first).learner)
    ]
    return [(first, *together), *((role,) for role in others if role not in together)]


def share_backbone(config: Config, one: str, other: str) -> bool:
    """Returns whether the learners of two policies tune adapters of the same model, which they hold once."""
    policies = config.policy(one), config.policy(other)
    return policies[0].model == policies[1].model and policies[0].learner.shares_backbone_with(
        policies[1].learner
    )


def learning_in_turn(config: Config, roles: Sequence[str]) -> list[tuple[str, ...]]:
    """Returns groups of policies that learn at the same time: all together if each has its own workers, on its own GPUs
    or on CPUs; else one after another."""
    apart = all(
        len(group) == 1 and (config.device == "cpu" or (config.policy(group[0]).learner.gpus or 0) >= 1)
        for group in learner_groups(config)
    )
    return [tuple(roles)] if apart and not config.local else [(role,) for role in roles]


def parts_of(config: Config) -> list[Part]:
    """Returns the parts of a run, in the order in which they start."""
    parts, rollout, width = [], config.rollout, _width(config)
    on_gpu = config.device == "cuda"
    for roles in config.engines():
        engine = config.policy(roles[0]).engine
        if engine.count is not None:
            gpus = engine.gpus_each * UNIT if on_gpu else 0
            parts.append(
                Part(name=engine_name(roles), count=engine.count, gpus=gpus, cpus=units(rollout.cpus))
            )
    share = width * UNIT if width > 1 and on_gpu else units(rollout.gpus or 0)
    actors = rollout.actors or 1
    parts.append(Part(name=ROLLOUT_ACTOR, count=actors, gpus=share, cpus=units(rollout.cpus)))
    for roles in learner_groups(config):
        settings = config.policy(roles[0]).learner
        parts.append(
            Part(
                name=learner_name(roles),
                count=settings.fewest_workers,
                gpus=units(settings.worker_gpus),
                cpus=units(settings.cpus),
                least=settings.min_workers or settings.fewest_workers,
            )
        )
    return parts


def _width(config: Config) -> int:
    """Returns the number of GPUs of the widest engine that a rollout actor holds; 0 if it holds none."""
    held = (config.policy(role).engine for role in config.policies)
    return max((engine.gpus_each for engine in held if engine.count is None), default=0)


# ---------------------------------------------------------------------- where
@dataclass
class _Room:
    """Resources that are left on a node."""

    node: Node
    gpus: list[int] = field(default_factory=list)
    """Units that are left on each GPU."""
    cpus: int = 0

    @classmethod
    def of(cls, node: Node) -> _Room:
        whole, rest = divmod(units(node.gpus), UNIT)
        return cls(node, [UNIT] * whole + [rest] * bool(rest), units(node.cpus))

    def holds(self, part: Part) -> int:
        """Returns how many actors or workers of this part fit on the node, at most as many as the part has."""
        room = replace(self, gpus=list(self.gpus))
        return next((n for n in range(part.count) if not room.take(part)), part.count)

    def take(self, part: Part) -> bool:
        """Takes the place of one actor or worker. Returns False if there is no room."""
        if part.gpus >= UNIT:
            found = [i for i, left in enumerate(self.gpus) if left == UNIT][: part.gpus // UNIT]
            fits = len(found) == part.gpus // UNIT
        else:
            enough = [i for i, left in enumerate(self.gpus) if left >= part.gpus]
            found = sorted(enough, key=lambda i: self.gpus[i])[: bool(part.gpus)]
            fits = bool(found) or not part.gpus
        if not fits or self.cpus < part.cpus:
            return False
        for i in found:
            self.gpus[i] -= min(part.gpus, UNIT)
        self.cpus -= part.cpus
        return True


def place(parts: Sequence[Part], nodes: Sequence[Node]) -> list[Place]:
    """Returns a place for each actor and worker, in the parts' order. If not all fit, learners that can continue with
    fewer workers get fewer. Raises NoPlace, which says what is needed and what is available."""
    fewest = [replace(part, count=part.least) if part.least else part for part in parts]
    for wanted, engines_first in itertools.product((parts, fewest), (False, True)):
        found = _placed(sorted(wanted, key=partial(_turn, engines_first)), nodes)
        if found is not None and _starts(wanted, found, nodes):
            return [
                Place(part=part.name, node=node, gpus=part.gpus, cpus=part.cpus)
                for part in wanted
                for node in found[part.name]
            ]
    raise NoPlace(_refusal(parts, nodes))


def _turn(engines_first: bool, part: Part) -> tuple[bool, int]:
    """Sort key: learners before engines, or engines first; among each, the largest first."""
    return bool(part.least) == engines_first, -part.gpus * (part.count if part.least else 1)


def _placed(order: Sequence[Part], nodes: Sequence[Node]) -> dict[str, list[Node]] | None:
    """Returns the nodes of each part if the parts are placed in this order, or None if one does not fit."""
    rooms = [_Room.of(node) for node in nodes]
    found: dict[str, list[Node]] = {}
    for part in order:
        taken = _together(part, rooms) if part.least else _each(part, rooms)
        if taken is None:
            return None
        found[part.name] = [room.node for room in taken]
    return found


def _each(part: Part, rooms: Sequence[_Room]) -> list[_Room] | None:
    """Places each actor on the node that has the fewest GPUs left, so that nodes with many free GPUs stay for larger
    parts."""
    taken = []
    for _ in range(part.count):
        fits = [room for room in rooms if room.holds(replace(part, count=1))]
        if not fits:
            return None
        best = min(fits, key=lambda room: (sum(room.gpus), -room.cpus))
        best.take(part)
        taken.append(best)
    return taken


def _together(part: Part, rooms: Sequence[_Room]) -> list[_Room] | None:
    """Places all workers on one node, or evenly on as few nodes as have room."""
    capacity = {id(room): room.holds(part) for room in rooms}
    whole = [room for room in rooms if capacity[id(room)] == part.count]
    if whole:
        chosen = [min(whole, key=lambda room: (sum(room.gpus), -room.cpus))]
    else:
        by_room = sorted(rooms, key=lambda room: -capacity[id(room)])
        sums = (sum(capacity[id(room)] for room in by_room[:n]) for n in range(1, len(rooms) + 1))
        enough = next((n for n, total in enumerate(sums, 1) if total >= part.count), None)
        if enough is None:
            return None
        chosen = by_room[:enough]
    share = {id(room): 0 for room in chosen}
    for _ in range(part.count):
        least = min(
            (room for room in chosen if share[id(room)] < capacity[id(room)]),
            key=lambda room: share[id(room)],
        )
        share[id(least)] += 1
        least.take(part)
    return [room for room in chosen for _ in range(share[id(room)])]


def _starts(parts: Sequence[Part], found: dict[str, list[Node]], nodes: Sequence[Node]) -> bool:
    """Returns whether Ray, which assigns a node's GPUs in the order in which the parts start, has GPUs left for each
    part."""
    rooms = {node.name: _Room.of(node) for node in nodes}
    return all(rooms[node.name].take(part) for part in parts for node in found[part.name])


def _refusal(parts: Sequence[Part], nodes: Sequence[Node]) -> str:
    """Returns what is needed and what is available, as an error message."""
    wanted = ", ".join(
        f"{part.count} x {part.name} of {part.gpus / UNIT:g} GPUs and {part.cpus / UNIT:g} CPUs"
        for part in parts
    )
    have = ", ".join(f"{node.gpus:g} GPUs and {node.cpus:g} CPUs" for node in nodes)
    return (
        f"the nodes have no room for this run: wanted are {wanted}; there are {len(nodes)} nodes ({have}): lower "
        "rollout.actors, learner.workers, engine.count, engine.tensor_parallel (whose GPUs are all of one node), rollout.cpus "
        "or learner.cpus, or add nodes"
    )


def described(places: Sequence[Place], nodes: Sequence[Node]) -> list[str]:
    """Returns a line for each node, and a line about idle GPUs."""
    lines = []
    for node in nodes:
        here = Counter((taken.part, taken.gpus) for taken in places if taken.node == node)
        counted = (f"{n} x {part} with {gpus / UNIT:g} GPU" for (part, gpus), n in here.items())
        lines.append(f"{node.address}, {node.gpus:g} GPUs: {', '.join(counted) or 'nothing'}")
    if idle := idle_gpus(places, nodes):
        lines.append(
            f"{idle} GPUs have nothing to do: raise rollout.actors (no more than curriculum.problems_per_step have work), "
            "engine.count, engine.tensor_parallel or learner.workers"
        )
    return lines


def idle_gpus(places: Sequence[Place], nodes: Sequence[Node]) -> int:
    """Returns the number of GPUs that nothing uses."""
    rooms = {node.name: _Room.of(node) for node in nodes}
    for taken in places:
        rooms[taken.node.name].take(Part(name=taken.part, count=1, gpus=taken.gpus, cpus=taken.cpus))
    return sum(left == UNIT for room in rooms.values() for left in room.gpus)


# ---------------------------------------------------------------------- how much
def shares(config: Config, nodes: Sequence[Node]) -> dict[str, Any]:
    """Returns rollout.actors, rollout.gpus, learner.gpus and (where open) learner.workers for a run on GPUs, by dotted key.

    Each part has whole GPUs if there are enough. Else the learners, which take turns, share one GPU and the actors have
    the others; on a single GPU the actors have one half and the learners the other. If the number of a learner's workers is
    open, workers fill the GPUs that nothing else is on; if only the number of actors is open, actors do.
    """
    gpus = sum(int(node.gpus) for node in nodes) or 1  # a cluster that has yet to start one
    groups, width = learner_groups(config), _width(config)
    engines = [config.policy(roles[0]).engine for roles in config.engines()]
    gpus -= sum((engine.count or 0) * engine.gpus_each for engine in engines)
    open_groups = [group for group in groups if config.policy(group[0]).learner.gpus is None]
    given = sum(units(config.policy(g[0]).learner.gpus or 0) for g in groups if g not in open_groups)
    workers = {group: config.policy(group[0]).learner.fewest_workers for group in groups}
    filling = [group for group in groups if config.policy(group[0]).learner.workers is None]
    actors = config.rollout.actors or 1
    on, actor = _of_actors(actors, width, gpus, sum(workers.values()), config.rollout.gpus)
    if filling:
        free = gpus - on - sum(workers[group] for group in groups if group not in filling)
        workers |= {group: max(workers[group], free // len(filling)) for group in filling}
    learner = UNIT
    if gpus - on < sum(workers.values()) and open_groups:
        left = UNIT if gpus > on else UNIT - actors * actor
        rest = (left - given) // len(open_groups)
        learner = rest if rest > 0 else UNIT  # this does not fit, and is refused later
    chosen: dict[str, Any] = {"rollout.gpus": actor / UNIT if width else 0.0}
    for group in groups:  # NCCL refuses two workers of one group on a GPU
        for role in group:
            chosen[f"{role}.learner.gpus"] = 1.0 if workers[group] > 1 else learner / UNIT
            if group in filling:
                chosen[f"{role}.learner.workers"] = workers[group]
    return chosen | {"rollout.actors": _filling(config, chosen, nodes)}


def _of_actors(actors: int, width: int, gpus: int, learning: int, given: float | None) -> tuple[int, int]:
    """Returns (number of GPUs that the actors are on, an actor's share in UNIT). learning: number of the learners'
    workers."""
    if given is not None or not width:
        each = units(given or 0)
        on = math.ceil(actors / (UNIT // each)) if 0 < each < UNIT else actors * width
        return on, each
    if width > 1 or gpus >= actors + min(1, learning):
        return actors * width, UNIT
    on = next((n for n in range(gpus - 1, 0, -1) if actors % n == 0), 0)
    return (on, UNIT * on // actors) if on else (1, UNIT // 2 // actors)


def _filling(config: Config, chosen: dict[str, Any], nodes: Sequence[Node]) -> int:
    """Returns the number of rollout actors: as many as there are problems and GPUs for, at least one."""
    rollout = config.rollout
    if rollout.actors is not None or not _width(config):
        return rollout.actors or 1
    gpus = rollout.gpus if rollout.gpus is not None else chosen["rollout.gpus"]
    keys: dict[str, Any] = {"device": "cuda", "rollout.gpus": gpus}
    for role in config.policies:
        learner = config.policy(role).learner
        own = learner.gpus if learner.gpus is not None else chosen[f"{role}.learner.gpus"]
        workers = chosen.get(f"{role}.learner.workers", learner.workers)
        keys |= {f"{role}.learner.gpus": own, f"{role}.learner.workers": workers}
    for actors in range(config.curriculum.problems_per_step, 1, -1):
        try:
            place(parts_of(with_values(config, keys | {"rollout.actors": actors})), nodes)
        except NoPlace:
            continue
        return actors
    return 1
