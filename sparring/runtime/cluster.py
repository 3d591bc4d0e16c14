"""Runs all parts on Ray: the scheduler, the sandbox and rollout actors, and a Ray Train run for each group of
learners."""

import asyncio
import contextlib
import functools
import os
import shutil
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import ray
from ray._private.state import available_resources_per_node
from ray.exceptions import GetTimeoutError, RayError
from ray.util.placement_group import placement_group
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy, PlacementGroupSchedulingStrategy

from actors.engines import EngineActor, RemotePolicy
from actors.rollout import RayRollouts
from actors.rollout_actor import runtime_env
from actors.scheduler import RayScheduler
from actors.watching import end
from configs.schema import Config
from learners.train_loop import NODE_LABEL, RayLearner, TrainRun
from learners.train_spec import LearnerSpec
from sandbox_workers.nothing import NoSandbox
from sandbox_workers.pool import SandboxPool, start_pool
from sparring.core.endings import in_words, killed_for_memory
from sparring.core.errors import OutOfMemory, RunFailed, SparringError
from sparring.core.interfaces import Sandbox
from sparring.core.problem import Problem
from sparring.core.weights import Weights, WeightUpdate, joined
from sparring.runtime.build import build_engine, build_runner, learner_specs, ordered_ids
from sparring.runtime.hardware import Hardware, detect, host_memory, known_shapes
from sparring.runtime.memory_plan import object_store_bytes
from sparring.runtime.monitoring import Monitor
from sparring.runtime.parts import Parts, Start
from sparring.runtime.placement import (
    ROLLOUT_ACTOR,
    UNIT,
    Node,
    NoPlace,
    Place,
    engine_name,
    learner_groups,
    learner_name,
    parts_of,
    place,
)
from sparring.runtime.ray_start import join_ray, start_ray
from sparring.runtime.weight_files import read_weights, write_weights
from sparring.tracking.progress import say
from sparring.tracking.run_log import harmless

_A_LITTLE = 0.01
"""Share of a GPU for a task that only inspects the GPU."""
_SANDBOX_PATIENCE_S = 600.0
"""Time that a run waits if no node with the resource `sandbox` is left; then the step's attempts are dropped."""
_PATIENCE_S = 120
_LOOK_S = 2.0


class ClusterTooSmall(SparringError):
    """The Ray cluster cannot hold this run. Without this check Ray would wait forever without a message."""


@contextmanager
def cluster_parts(config: Config, problems: list[Problem], start: Start) -> Iterator[Parts]:
    """Yields the parts of a run on Ray, and stops them afterwards. Raises SparringError."""
    connect(config)
    try:
        places = find_places(config)
        with asyncio.Runner() as loop, _told_of_lost_nodes(config):
            yield from _parts(config, problems, start, places, loop)
    except RayError as error:
        raise for_the_user(error) from error
    finally:
        ray.shutdown()


def for_the_user(error: RayError) -> SparringError:
    """Returns the error to show to the user: an actor's SparringError without Ray's remote traceback around it, or else
    an error that says how the actor ended."""
    cause = getattr(error, "cause", None)
    if isinstance(cause, SparringError):
        return cause
    return (OutOfMemory if killed_for_memory(error) else RunFailed)(in_words(error))


def connect(config: Config) -> None:
    """Joins the cluster at RAY_ADDRESS, or starts Ray on this machine if the variable is not set. Raises SparringError."""
    os.environ.setdefault("RAY_TRAIN_HEALTH_CHECK_INTERVAL_S", "0.5")  # a dead learner is noticed at once
    # the same for a learner that is stopped; Ray's default is 600
    os.environ.setdefault("RAY_TRAIN_WORKER_HEALTH_CHECK_TIMEOUT_S", "120")
    os.environ.setdefault("RAY_DEDUP_LOGS", "1")
    # else Ray warns about its own start-up
    os.environ.setdefault("RAY_worker_maximum_startup_concurrency", "8")
    if os.environ.get("RAY_ADDRESS"):
        of_nodes = {"HF_HUB_CACHE": os.environ["HF_HUB_CACHE"]} if config.model_cache else {}
        join_ray(runtime_env={"env_vars": of_nodes})
        return
    os.environ.setdefault("RAY_TRAIN_ENABLE_PREEMPTION_WATCHER", "0")  # this machine is not preempted
    start_ray(
        resources={"sandbox": config.sandbox.workers},
        include_dashboard=None,
        object_store_memory=_store_bytes(config),
    )


def _store_bytes(config: Config) -> int:
    """Returns the size of the object store that the models need, as far as memory allows: at most a third of the free
    memory, and at most 10 GB or what /dev/shm has free, since above 10 GB Ray refuses a store that /dev/shm cannot
    hold."""
    shared = shutil.disk_usage("/dev/shm").free if os.path.isdir("/dev/shm") else 0
    room = min(max(shared, 10**10), host_memory().free // 3)
    return max(512 << 20, min(object_store_bytes(config, known_shapes(config)), room))


def detect_on_cluster(config: Config) -> Hardware:
    """Detects the hardware on a GPU node and counts the cluster's GPUs. If the cluster has no GPU, detects this
    machine.

    Raises ClusterTooSmall if no GPU becomes free in time.
    """
    connect(config)
    gpus = int(ray.cluster_resources().get("GPU", 0))
    if not gpus:
        alone = sum(node["Alive"] for node in ray.nodes()) == 1
        # parts may be on any node, so this machine's free memory is no limit
        return detect() if alone else replace(detect(), free_gib=None)
    task = ray.remote(num_cpus=0, num_gpus=_A_LITTLE)(detect).options(name="look at the GPU").remote()
    try:
        found = ray.get(task, timeout=_PATIENCE_S)
    except GetTimeoutError:
        raise ClusterTooSmall(
            f"none of the cluster's {gpus} GPUs was free for {_PATIENCE_S} s: wait for the jobs that hold them"
        ) from None
    return replace(found, gpus=gpus if found.gpus else 0, cluster=tuple(nodes_of_cluster()))


def nodes_of_cluster(*, free: bool = False) -> list[Node]:
    """Returns the nodes that are alive. free: counts only the GPUs and CPUs that are not in use. Raises RayError."""
    left = available_resources_per_node() if free else {}
    found = []
    for node in ray.nodes():
        if node["Alive"]:
            name, has = node["NodeID"], left.get(node["NodeID"], {}) if free else node["Resources"]
            address = f"node {node['NodeManagerAddress']}"
            found.append(Node(name=name, address=address, gpus=has.get("GPU", 0), cpus=has.get("CPU", 0)))
    return found


def find_places(config: Config) -> list[Place]:
    """Finds the nodes for all parts, and waits while other jobs hold the GPUs. Raises ClusterTooSmall or NoPlace;
    without this check Ray would wait forever."""
    parts, have = parts_of(config), ray.cluster_resources()
    need = {
        "CPU": sum((part.least or part.count) * part.cpus for part in parts) / UNIT,
        "GPU": sum((part.least or part.count) * part.gpus for part in parts) / UNIT,
        "sandbox": float(config.sandbox.workers if config.sandbox_limits else 0),
    }
    missing = [
        f"{n:g} {name} (there are {have.get(name, 0):g})" for name, n in need.items() if n > have.get(name, 0)
    ]
    if missing:
        raise ClusterTooSmall(
            f"the Ray cluster is too small: the run needs {', '.join(missing)}; lower rollout.cpus, "
            "generator.learner.cpus or discriminator.learner.cpus, start Ray with --resources "
            f"'{{\"sandbox\": {config.sandbox.workers}}}', or add nodes"
        )
    found, until = place(parts, nodes_of_cluster()), time.monotonic() + _PATIENCE_S
    while config.device == "cuda":
        try:
            return place(parts, nodes_of_cluster(free=True))
        except NoPlace as error:
            if time.monotonic() > until:
                raise ClusterTooSmall(
                    f"other jobs have had the GPUs of this run for {_PATIENCE_S} s: wait for them, or: {error}"
                ) from None
            time.sleep(_LOOK_S)
    return found


def _reserved(places: Sequence[Place]) -> list[dict[str, Any]]:
    """Returns Ray's options for actors in these places. If any part has a GPU, all places are reserved at once. Raises
    ClusterTooSmall."""
    wanted = [{"CPU": taken.cpus / UNIT, "GPU": taken.gpus / UNIT} for taken in places]
    options: list[dict[str, Any]] = [{"num_cpus": one["CPU"], "num_gpus": one["GPU"]} for one in wanted]
    if not any(taken.gpus for taken in places):
        return options
    # Actors without a GPU are reserved as well: elsewhere they would take CPUs that are meant for a learner.
    bundled = [i for i, one in enumerate(wanted) if any(one.values())]
    group = placement_group(
        [{name: amount for name, amount in wanted[i].items() if amount} for i in bundled],
        bundle_label_selector=[{NODE_LABEL: places[i].node.name} for i in bundled],
    )
    if not group.wait(_PATIENCE_S):
        raise ClusterTooSmall(
            f"another job has taken the GPUs of this run in the last {_PATIENCE_S} s: wait for it"
        )
    for bundle, i in enumerate(bundled):
        options[i]["scheduling_strategy"] = PlacementGroupSchedulingStrategy(
            group, placement_group_bundle_index=bundle
        )
    return options


@contextmanager
def _told_of_lost_nodes(config: Config) -> Iterator[None]:
    """Prints a message when nodes with the resource `sandbox` are lost, and when there are enough again, since the
    output of actors is not shown. A Ray that this run started has one node, so nothing is watched there."""
    judged = config.sandbox_limits is not None and bool(os.environ.get("RAY_ADDRESS"))
    needed, over = config.sandbox.workers if judged else 0, threading.Event()

    def watch() -> None:
        enough = True
        while not over.wait(_LOOK_S):
            with contextlib.suppress(RayError):
                left = ray.cluster_resources().get("sandbox", 0)
                if enough and left < needed:
                    goes_on = "the rest goes on" if left else f"waiting up to {_SANDBOX_PATIENCE_S:g} s"
                    say(
                        f"lost a node: {left:g} of {needed} units of the Ray resource 'sandbox' are left, {goes_on}; "
                        "start a node with --resources '{\"sandbox\": 1}'"
                    )
                elif not enough and left >= needed:
                    say(f"{left:g} units of the Ray resource 'sandbox' are there again: the run goes on")
                enough = left >= needed

    watcher = threading.Thread(target=watch, name="watch-nodes", daemon=True)
    watcher.start()
    try:
        yield
    finally:
        over.set()
        watcher.join()


def _parts(
    config: Config,
    problems: list[Problem],
    start: Start,
    places: Sequence[Place],
    loop: asyncio.Runner,
) -> Iterator[Parts]:
    ray_train = start.run_directory / "ray_train"
    # an earlier session that did not finish may have left its own
    shutil.rmtree(ray_train, ignore_errors=True)
    with ExitStack() as ending:
        pool = _pool(config, start)
        ending.callback(pool.shutdown)
        rollouts = start_rollouts(config, start.models, pool.client, places)
        ending.callback(rollouts.close)
        # New learners have no work before the first evaluation, so they start while it runs. On a GPU, an engine that
        # measures its memory counts everything that is allocated meanwhile as its own, so learners start after it.
        if start.checkpoint is None or config.device == "cuda":
            rollouts.wait_ready()
        if config.device == "cuda":
            rollouts.sleep()  # learners are built, and read a checkpoint, on the GPU
        specs = learner_specs(config, start)
        learners: dict[str, RayLearner] = {}
        for roles in learner_groups(config):
            group = {role: specs[role] for role in roles}
            run = begin_learning(group, start.versions, ray_train, places)
            ending.callback(run.stop)
            learners |= run.learners
        rollouts.wait_ready()
        yield Parts(
            scheduler=RayScheduler(**config.curriculum_arguments(ordered_ids(config, problems))),
            rollouts=rollouts,
            learners=learners,
            sandbox=pool.client(),
            describe=f"Ray at {ray.get_runtime_context().gcs_address}{_dashboard()}; {pool.description}",
            wait=loop.run,
            keep_weights=lambda weights, file: ray.get(_here(_write_weights).remote(weights.update, file)),
            kept_weights=lambda version, file: Weights(
                version=version, update=_here(read_weights).remote(file)
            ),
            watch=harmless("metrics", Monitor(start.run_directory, learners).step),
        )
    shutil.rmtree(ray_train, ignore_errors=True)  # the run's checkpoints hold everything that is in it


def _here(work: Callable[..., Any]) -> Any:
    """Returns a task that runs on the driver's node, which has the run's directory: weights do not pass through the
    driver."""
    node = NodeAffinitySchedulingStrategy(ray.get_runtime_context().get_node_id(), soft=False)
    return ray.remote(num_cpus=0)(work).options(scheduling_strategy=node)


def _write_weights(update: WeightUpdate, file: Path) -> None:
    write_weights(joined(update, ray.get(list(update.parts))), file)


def start_rollouts(
    config: Config, models: Mapping[str, str], client: Callable[[], Sandbox], places: Sequence[Place]
) -> RayRollouts:
    """Starts the rollout actors, and the engines that are in separate actors. Raises ClusterTooSmall."""
    apart = {
        engine_name(roles): roles
        for roles in config.engines()
        if config.policy(roles[0]).engine.count is not None
    }
    there = [taken for taken in places if taken.part in apart or taken.part == ROLLOUT_ACTOR]
    seats = list(zip(there, _reserved(there), strict=True))
    engines: dict[str, list[Any]] = {}
    for taken, options in seats:
        if roles := apart.get(taken.part):
            # requests wait inside the engine and not in the actor's queue: new weights must not wait behind them
            actor = EngineActor.options(
                max_concurrency=100_000, runtime_env=runtime_env(config.device), **options
            )
            build = functools.partial(build_engine, config, dict(models), roles)
            engine = actor.remote(build, taken.part)
            for role in roles:
                engines.setdefault(role, []).append(engine)
    remote = {role: tuple(RemotePolicy(role, engine) for engine in held) for role, held in engines.items()}
    build = functools.partial(build_runner, config, dict(models), client, remote)
    own = [options for taken, options in seats if taken.part == ROLLOUT_ACTOR]
    sleeps = any(config.policy(role).engine.sleep for role in config.policies)
    return RayRollouts(build, own, config.device, engines, sleeps=sleeps)


def begin_learning(
    group: Mapping[str, LearnerSpec],
    versions: Mapping[str, int],
    storage: Path,
    places: Sequence[Place],
) -> TrainRun:
    """Starts a group of learners on the nodes that were chosen for its GPUs."""
    nodes = {taken.node.name for taken in places if taken.gpus and taken.part == learner_name(group)}
    return TrainRun(group, dict(versions), storage, nodes=nodes)


def _pool(config: Config, start: Start) -> SandboxPool | NoSandbox:
    if config.sandbox_limits is None:
        return NoSandbox()
    return start_pool(
        config.sandbox.workers,
        kind=config.sandbox.backend,
        runtime=config.sandbox.runtime,
        slots=config.sandbox.slots,
        run_id=str(start.run_directory.resolve()),
        limits=config.sandbox_limits,
        code_tests=config.sandbox.code_tests,
        trusted=config.trusts_programs,
        patience_s=_SANDBOX_PATIENCE_S,
        end=functools.partial(end, again=True),
    )


def _dashboard() -> str:
    context = ray.get_runtime_context()
    address = getattr(context, "dashboard_url", None)
    return f", dashboard at http://{address}" if address else ""
