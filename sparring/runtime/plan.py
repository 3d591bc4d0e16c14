"""Plans a run before anything takes time: describes what it would do, and finds the reasons why it cannot start. Not
covered: memory, disk and software of other nodes of a cluster; only their GPUs are known.
"""

import math
import os
import shutil
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from itertools import islice
from pathlib import Path

from actors.settings import KV_CACHE_MB
from configs.load import read_recipe, recipe_path
from configs.schema import Config
from learners.checkpoints import CheckpointError, base_of
from learners.mirror import Mirror
from sandbox_workers.backends import choose_backend
from sandbox_workers.jobs import SandboxUnavailable
from sandbox_workers.languages import Q_INSIDE, UnknownLanguage, all_commands, require_commands
from sparring.core.problem import Problem
from sparring.core.project_files import located
from sparring.curriculum.curriculum import Curriculum
from sparring.problems.loader import load_problems
from sparring.runtime import host_plan, memory_plan
from sparring.runtime.architectures import unknown_to_vllm
from sparring.runtime.build import ordered_ids
from sparring.runtime.hardware import known_shapes, shapes_of
from sparring.runtime.parts import Start
from sparring.runtime.placement import Node, NoPlace, described, parts_of, place
from sparring.tracking.model_card import read_toy
from sparring.tracking.settings import PACKAGES, is_installed

_GIB, _MIB = 1 << 30, 1 << 20
_WEIGHTS, _ADAM = 4, 8
"""Bytes per parameter, fp32."""
_LARGE = 1 << 30
"""Size of a checkpoint, in bytes, from which it is no longer written after every step, unless the config asks for
that."""
SAVE_S = 900.0
"""Seconds between two such checkpoints."""
_RATE, _LORA_RATE = 5e-5, 5e-4
"""Number of parameters up to which any learning rate is accepted; beyond it, the highest learning rates without a
warning."""


@dataclass(frozen=True, kw_only=True)
class Plan:
    lines: Sequence[str]
    """Description of the run, one subject per line."""
    obstacles: Sequence[str]
    """Reasons why the run cannot start, each with its remedy. A run with obstacles does not start."""
    warnings: Sequence[str]
    """Messages that are printed; the run starts nevertheless."""


def make_plan(
    config: Config, start: Start, train: Sequence[Problem], held_out: Sequence[Problem], here: bool = True
) -> Plan:
    """Makes the plan of a run. here: False if the plan is for another machine (--plan-for); the sandbox, libraries,
    disk and CPU cores of this machine are then not checked."""
    lines = [f"run: {start.run_directory}", *_models(config, start)]
    schedule = Curriculum(**config.curriculum_arguments(ordered_ids(config, train)))
    at = config.curriculum
    first = start.state["step"] + 1 if start.state else 1
    steps = schedule.total_steps if first == 1 else f"{first} to {schedule.total_steps}"
    lines.append(
        f"steps: {steps}, each {min(at.problems_per_step, len(train))} problems x {at.attempts} attempts; "
        f"{len(train)} problems to train on, {len(held_out)} held out"
    )
    where = "this process" if config.local else _joins(config) or "a new Ray on this machine"
    if here:
        lines.append(f"runs in {where}; device {config.device}")
    else:
        lines.append(
            f"device {config.device}; not checked there: sandbox, installed packages, disk, /dev/shm"
        )
    obstacles = []
    most = schedule.total_steps - (
        0 if start.continues else 1
    )  # a finished run may be resumed, and ends at once
    if start.state is not None and start.state["step"] > most:
        obstacles.append(
            f"{start.checkpoint}: the checkpoint is at step {start.state['step']}, and this schedule has "
            f"{schedule.total_steps} steps, so nothing is left to do: raise the step counts or the stages, or give its models "
            "(--generator-model, --discriminator-model) to a new run"
        )
    if config.device == "cuda" and start.gpu_bytes and (shapes := shapes_of(config)):
        found = memory_plan.demands(config, shapes)
        lines += [f"memory of {demand.describe(start.gpu_bytes)}" for demand in found]
        if memory_plan.over(found, start.gpu_bytes):
            obstacles.append(memory_plan.refusal(found, start.gpu_bytes, [*islice(start.ways_out(), 3)]))
    nodes = start.nodes
    if config.device == "cpu":  # Ray counts as many CPUs, or fewer
        machine = Node(name="", address="this machine", gpus=0, cpus=os.cpu_count() or 1)
        nodes = (machine,) if here and not _joins(config) else ()
    if not config.local and nodes:
        try:
            found_places = place(parts_of(config), nodes)
            lines += described(found_places, nodes) if config.device == "cuda" else []
        except NoPlace as error:
            obstacles.append(str(error))
    spare = len(train) - config.curriculum.problems_per_step
    if config.curriculum.dynamic_sampling and spare <= 0:
        obstacles.append(
            f"curriculum.dynamic_sampling: a step plays all {len(train)} problems, so there are no further ones: "
            f"give a smaller --curriculum.problems-per-step (now {config.curriculum.problems_per_step}), or leave "
            "dynamic_sampling out"
        )
    anywhere = (_architectures, _tensor_parallel, _kv_cache, _memory)
    for look in (*anywhere, *((_engines, _shared_memory, _disk, _mirror) if here else ())):
        line, obstacle = look(config, start)
        lines += [line] if line else []
        obstacles += [obstacle] if obstacle else []
    if here:
        line, missing = _sandbox(config, {problem.language for problem in (*train, *held_out)})
        lines += [line] if line else []
        obstacles += [*missing, *trackers(config)]
    return Plan(
        lines=lines,
        obstacles=obstacles,
        warnings=[*_rates(config, start), *_wall_clock(config), *_slots(config), *_toys(config, train)],
    )


def _toys(config: Config, train: Sequence[Problem]) -> Iterator[str]:
    """Yields a warning if toy models are given none of their own problems, since they understand no others."""
    toys = {role: toy for role in config.policies if (toy := read_toy(located(config.policy(role).model)))}
    if not toys or "problems" not in config.game.uses:
        return
    toy = next(iter(toys.values()))
    own = read_recipe(*recipe_path(toy["recipe"])).get("problems", {}).get("file")
    if own is not None:
        if located(config.problems.file).resolve().parent == located(own).resolve().parent:
            return
        known = {problem.description for problem in load_problems(located(own))}
        if any(problem.description in known for problem in train):  # a part of them, as in a sweep
            return
    such = f', such as "{toy["example"]}"' if toy.get("example") else ""
    yield (
        f"{' and '.join(f'{role}.model' for role in toys)}: a toy model understands only the problems of recipe {toy['recipe']}"
        f"{such}; it will not learn those of problems.file {config.problems.file}: give a pretrained model, or the toy problems"
    )


Look = tuple[str | None, str | None]
"""(description, obstacle); either may be None."""


def _models(config: Config, start: Start) -> list[str]:
    lines = []
    for role in config.policies:
        policy = config.policy(role)
        size = parameters(start.models[role])
        known = f"{size / 1e6:.1f}M parameters" if size else "size unknown"
        tuning = f"LoRA of rank {policy.learner.lora.rank}" if policy.learner.lora else "full fine-tuning"
        lines.append(
            f"{role}: {policy.model} ({known}), engine {policy.engine.kind}, {tuning}, advantages by {policy.learner.estimator.kind}"
        )
    return lines


def _rates(config: Config, start: Start) -> Iterator[str]:
    """Yields warnings about learning rates: a recipe's rate stays even if another model replaces the recipe's model."""
    for role in config.policies:
        policy, rate = config.policy(role), config.policy_learning_rate(role)
        most = _LORA_RATE if policy.learner.lora else _RATE
        if (parameters(start.models[role]) or math.inf) > memory_plan.TINY and rate > most:
            yield (
                f"{role}: a learning rate of {rate:g} is for models of a million parameters, and is likely to "
                f"ruin a larger one; --learning-rate {most / 5:g} or less is usual"
            )


def _joins(config: Config) -> str | None:
    """Returns the address of the cluster that the run joins, or None."""
    return None if config.local else os.environ.get("RAY_ADDRESS") or None


def _engines(config: Config, start: Start) -> Look:
    roles = [role for role in config.policies if config.policy(role).engine.kind == "vllm"]
    if not roles or find_spec("vllm") or _joins(config):
        return None, None
    instead = " ".join(f"--{role}.engine.kind transformers" for role in roles)
    return (
        None,
        f"{roles[0]}.engine.kind vllm: vLLM is not installed: make setup, or do without it: {instead}",
    )


def _architectures(config: Config, start: Start) -> Look:
    for role in config.policies:
        policy, model = config.policy(role), start.models[role]
        if policy.engine.kind != "vllm":
            continue
        if architecture := unknown_to_vllm(model):
            return None, (
                f"{role}.model {model}: vLLM cannot load its architecture {architecture}: give another model, or do without "
                f"vLLM: --{role}.engine.kind transformers"
            )
    return None, None


def _tensor_parallel(config: Config, start: Start) -> Look:
    spread = {role: config.policy(role).engine.gpus_each for role in config.policies}
    shapes = shapes_of(config) if max(spread.values()) > 1 else None
    for role, shape in (shapes or {}).items():
        keys = shape.key_heads  # vLLM divides them too, or gives one to several GPUs
        can = [
            n for n in range(1, shape.heads + 1) if not shape.heads % n and not max(n, keys) % min(n, keys)
        ]
        if spread[role] not in can:
            return None, (
                f"{role}.engine.tensor_parallel {spread[role]}: {config.policy(role).model} has {shape.heads} attention "
                f"heads and {keys} of keys: give one of {', '.join(map(str, can))}"
            )
    return None, None


def _kv_cache(config: Config, start: Start) -> Look:
    """Checks that the cache of vLLM on a CPU, which is given in bytes, holds a sequence of full length."""
    shapes = shapes_of(config) if config.device == "cpu" else None
    for role, shape in (shapes or {}).items():
        engine = config.policy(role).engine
        if engine.kind != "vllm":
            continue
        given = (engine.kv_cache_mb or KV_CACHE_MB) << 20
        if (of_one := memory_plan.cache_bytes(shape, engine)) > given:
            most = engine.max_model_len * given // of_one
            return None, (
                f"{role}.engine.kv_cache_mb {given >> 20}: a sequence of engine.max_model_len {engine.max_model_len} tokens "
                f"takes {math.ceil(of_one / _MIB)} MiB: give that much, or at most {most} tokens"
            )
    return None, None


def _sandbox(config: Config, languages: Collection[str]) -> tuple[str | None, list[str]]:
    """Returns (description, obstacles) of the sandbox, in which programs in these languages run."""
    if config.sandbox_limits is None:
        return "sandbox: none, the game runs no programs", []
    if _joins(config):
        return "sandbox: that of the nodes with the Ray resource `sandbox`; not checked here", []
    try:
        choice = choose_backend(
            config.sandbox.backend, config.sandbox.runtime, trusted=config.trusts_programs
        )
    except SandboxUnavailable as error:
        return None, [str(error)]
    return choice.description, _missing(choice.kind, languages)


def _missing(kind: str, names: Collection[str]) -> list[str]:
    """Returns why a kind of sandbox cannot run these languages here. A Docker image has all languages except q."""
    commands = set(all_commands()) - {Q_INSIDE}
    found = {c for c in commands if kind == "docker" or shutil.which(c, path="/usr/local/bin:/usr/bin:/bin")}
    found |= {Q_INSIDE} if os.environ.get("Q_BIN") else set()
    told = []
    for name in sorted(names):
        try:
            require_commands(name, found)
        except UnknownLanguage as error:
            told.append(str(error))
    return told


def _slots(config: Config) -> Iterator[str]:
    """Yields a warning if a suite cannot have as many tests as full validity needs."""
    game = config.game
    if game.kind == "multistage" and game.max_tests < game.rewards.validity_slots:
        yield (
            f"game.max_tests {game.max_tests} is below game.rewards.validity_slots {game.rewards.validity_slots}, so no suite "
            "is fully valid: lower the slots, too"
        )


def _wall_clock(config: Config) -> Iterator[str]:
    limits = config.sandbox_limits
    if limits is not None and limits.wall_s < limits.cpu_s:
        yield (
            f"game.sandbox_limits: wall_s {limits.wall_s:g} ends a test before cpu_s {limits.cpu_s:g} can; four times cpu_s is "
            "usual"
        )


def trackers(config: Config) -> list[str]:
    """Returns an obstacle for each tracker whose package is missing. This is not part of the config's validation,
    because the config of a run that was tracked elsewhere must be readable without these packages."""
    missing = [
        name for name in config.tracking.to if not is_installed("httpx" if name == "webhook" else name)
    ]
    return [
        f"tracking.to: {n} is not installed: pip install {PACKAGES[n]}, or leave {n} out" for n in missing
    ]


def _shared_memory(config: Config, start: Start) -> Look:
    store = Path("/dev/shm")
    if config.local or _joins(config) or not store.is_dir():
        return None, None
    free = shutil.disk_usage(store).free
    wanted = memory_plan.object_store_bytes(config, known_shapes(config))
    if free >= wanted:
        return None, None
    return (
        f"/dev/shm has {free / _MIB:.0f} MiB, and Ray's objects may take {wanted / _MIB:.0f}: they go to /tmp, which is "
        f"slower (docker run --shm-size {math.ceil(wanted / _GIB)}g)",
        None,
    )


def _memory(config: Config, start: Start) -> Look:
    """Checks the memory of a run on a CPU."""
    shapes = shapes_of(config) if config.device == "cpu" else None
    if shapes is None:
        return None, None
    parts, have = host_plan.parts_of(config, shapes), start.host_bytes
    needed, line = sum(parts.values()), host_plan.describe(parts)
    if have is None or _joins(config):
        return line, None
    line = f"{line}; {have / _GIB:.1f} GiB may be taken"
    if needed <= have or all(shape.is_tiny for shape in shapes.values()):  # then the figure is rough
        return line, None
    ways = "; or ".join([*islice(start.ways_out(), 3), "smaller models", "a GPU (--device cuda)"])
    return line, (
        f"the run needs about {needed / _GIB:.0f} GiB of memory, but only {have / _GIB:.0f} GiB may be taken: "
        f"give {ways}"
    )


@dataclass(frozen=True, kw_only=True)
class Saving:
    """When checkpoints are written, besides those after evaluations and at the ends of stages, and which are kept."""

    every: int | None
    """Steps between two checkpoints; None: one is written every SAVE_S seconds."""
    keep: int
    """Number of latest checkpoints that are kept, besides the best."""
    stages: bool
    """Whether the last checkpoint of each stage is kept."""

    def __str__(self) -> str:
        if self.every is None:
            return f"every {SAVE_S / 60:g} minutes"
        return "after every step" if self.every == 1 else f"after every {self.every} steps"


def saving(config: Config, start: Start) -> Saving:
    """Returns when checkpoints are written and kept. What the config leaves open follows from their size."""
    every, keep, size = config.checkpoint.every, config.checkpoint.keep, _checkpoint_bytes(config)
    large = size is None or size >= _LARGE  # a model that is not on this machine comes from a hub
    return Saving(
        every=every or (None if large else 1),
        keep=keep or 2,
        stages=bool(keep) or not large,
    )


def _checkpoint_bytes(config: Config) -> int | None:
    """Returns the bytes of a checkpoint, or None if the size of a model is not known."""
    if (shapes := shapes_of(config)) is None:
        return None
    sizes = {role: shape.parameters for role, shape in shapes.items()}
    weights, trained = dict(sizes), dict(sizes)
    for role, shape in shapes.items():
        learner = config.policy(role).learner
        if learner.lora:
            weights[role] = trained[role] = learner.lora.rank * shape.adapter
        elif learner.trainable_layers is not None:
            trained[role] = learner.trainable_layers * shape.linear // shape.layers
        if learner.estimator.kind == "gae" and learner.estimator.critic == "model":
            # whatever is trained of the policy
            weights[role] += sizes[role]
            trained[role] += sizes[role]
        if role in config.curriculum.frozen_players:
            trained[role] = 0
    return _WEIGHTS * sum(weights.values()) + _ADAM * sum(trained.values())


def _disk(config: Config, start: Start) -> Look:
    """Checks the disk space for the checkpoints that exist at once: the latest ones, the best, one per stage, and the
    one being written."""
    each, rule = _checkpoint_bytes(config), saving(config, start)
    if each is None:
        return f"disk: checkpoints are written {rule}", None
    count = rule.keep + 2 + len(config.stages) * rule.stages
    there_already = len(list((start.run_directory / "checkpoints").glob("step_*")))
    there = next(p for p in (start.run_directory, *start.run_directory.parents) if p.exists())
    free = shutil.disk_usage(there).free
    line = (
        f"disk: about {each / _MIB:.0f} MiB a checkpoint, written {rule}, at most {count} at once; "
        f"{free / _GIB:.0f} GiB are free at {there}"
    )
    more = each * max(1, count - there_already)  # a resumed run has some already
    if more <= free:
        return line, None
    fewer = f"keep fewer (--checkpoint.keep, now {rule.keep})"
    adapters = " ".join(f"--{role}.learner.lora.rank 16" for role in config.policies)
    return line, (
        f"{there} has {free / _GIB:.1f} GiB free, the checkpoints of this run take about {more / _GIB:.1f}: give "
        f"another --output-dir, or {fewer if rule.stages else f'train adapters, which are small ({adapters})'}"
    )


def _mirror(config: Config, start: Start) -> Look:
    mirror = config.checkpoint.mirror
    if mirror is None:
        return None, None
    try:
        Mirror(mirror, start.run_directory.name).check(
            begins=not (start.run_directory / "checkpoints").is_dir()
        )
    except CheckpointError as error:
        return None, str(error)
    return f"checkpoints also go to {mirror}", None


def parameters(model: str) -> int:
    """Returns the number of parameters of a model, or of an adapter's base, as its config has it; 0 if the config cannot be
    read."""
    shape = memory_plan.shape_of(base_of(model) or model)
    return shape.parameters if shape else 0
