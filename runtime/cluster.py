"""All parts on Ray: scheduler, sandbox and rollout actors, one Ray Train run per policy."""

import asyncio
import functools
import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import ray

from actors.rollout import RayRollouts
from actors.scheduler import RayScheduler
from configs.schema import Config
from core.batch import Batch
from core.problem import Problem
from learners.train_loop import RayLearner
from runtime.build import ROLES, build_runner, learner_spec
from runtime.parts import Parts, Start
from sandbox_workers.pool import start_pool

_LOCAL_OBJECT_STORE_BYTES = 512 << 20


class ClusterTooSmall(RuntimeError):
    """The Ray cluster cannot hold this run; Ray itself would wait for ever without a word."""


class ClusterLearner:
    """RayLearner with the save context of the runtimes."""

    def __init__(self, learner: RayLearner) -> None:
        self._learner = learner

    @property
    def version(self) -> int:
        return self._learner.version

    def step(self, batch: Batch) -> tuple[Mapping[str, float], Any]:
        return self._learner.step(batch)

    @contextmanager
    def save(self) -> Iterator[Path]:
        yield self._learner.save()


@contextmanager
def cluster_parts(config: Config, problems: list[Problem], start: Start) -> Iterator[Parts]:
    """Raises ClusterTooSmall, SandboxUnavailable; Ray errors where an actor cannot start."""
    connect(config)
    try:
        check_resources(config)
        with asyncio.Runner() as loop:
            yield from _parts(config, problems, start, loop)
    finally:
        ray.shutdown()


def connect(config: Config) -> None:
    """Join the cluster that RAY_ADDRESS names (as under `ray job submit`), else start one on this machine."""
    os.environ.setdefault("RAY_TRAIN_HEALTH_CHECK_INTERVAL_S", "0.5")  # a dead learner is noticed at once
    os.environ.setdefault("RAY_DEDUP_LOGS", "1")
    os.environ.setdefault("RAY_worker_maximum_startup_concurrency", "8")  # else it warns of its own start-up
    quiet: dict[str, Any] = {"log_to_driver": False, "logging_level": "ERROR"}
    if os.environ.get("RAY_ADDRESS"):
        ray.init(**quiet)
        return
    ray.init(
        **quiet,
        address="local",  # without it Ray joins any cluster that `ray start` left on this machine
        resources={"sandbox": config.sandbox.workers},
        include_dashboard=None,
        object_store_memory=_LOCAL_OBJECT_STORE_BYTES,
    )


def check_resources(config: Config) -> None:
    have = ray.cluster_resources()
    learners = [config.policy(role).learner for role in ROLES]
    need = {
        "CPU": sum(s.cpus for s in learners) + config.rollout.actors * config.rollout.cpus,
        "GPU": sum(s.gpus for s in learners) + config.rollout.actors * config.rollout.gpus,
        "sandbox": float(config.sandbox.workers),
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


def _parts(config: Config, problems: list[Problem], start: Start, loop: asyncio.Runner) -> Iterator[Parts]:
    pool = start_pool(
        config.sandbox.workers,
        kind=config.sandbox.backend,
        slots=config.sandbox.slots,
        run_id=start.run_directory.name,
        limits=config.game.sandbox_limits,
    )
    rollouts, learners, finished = None, {}, False
    ray_train = start.run_directory / "ray_train"
    try:
        build = functools.partial(build_runner, config, dict(start.models), pool.client())
        rollout = config.rollout
        rollouts = RayRollouts(build, rollout.actors, rollout.cpus, rollout.gpus, config.device)
        for role in ROLES:
            checkpoint = start.checkpoint / role if start.checkpoint else None
            spec = learner_spec(config, role, start.models[role], checkpoint)
            learners[role] = RayLearner(
                role,
                spec,
                start.versions[role],
                ray_train,
                republish=checkpoint is not None,
            )
        rollouts.wait_ready()
        for role, learner in learners.items():
            if start.checkpoint is not None:
                rollouts.publish(role, learner.current_weights())
        yield Parts(
            scheduler=RayScheduler(config.curriculum, [p.id for p in problems], config.seed),
            rollouts=rollouts,
            learners={role: ClusterLearner(learner) for role, learner in learners.items()},
            sandbox=pool.client(),
            describe=f"Ray at {ray.get_runtime_context().gcs_address}{_dashboard()}; {pool.description}",
            wait=loop.run,
        )
        finished = True
    finally:
        for learner in learners.values():
            learner.stop()
        if rollouts is not None:
            rollouts.close()
        pool.shutdown()
        if finished:  # the joint checkpoints have all of it
            shutil.rmtree(ray_train, ignore_errors=True)


def _dashboard() -> str:
    context = ray.get_runtime_context()
    address = getattr(context, "dashboard_url", None)
    return f", dashboard at http://{address}" if address else ""
