"""Exports a step's figures as Ray metrics, for Prometheus and Grafana (docker/grafana.json). Actors export other
figures themselves.

Not covered: what Ray measures anyway (CPU, memory and disk of nodes, GPUs, actors that restart).
"""

import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import psutil
from ray.util.metrics import Counter, Gauge

from sparring.core.episode import Episode
from sparring.runtime.parts import LearnerHandle

_GAUGES = {
    "sparring_step": ("The last step that is done.", ()),
    "sparring_tokens_per_s": ("Sampled tokens per second of rollout.", ()),
    "sparring_episodes_per_s": ("Episodes per second of rollout and judging.", ()),
    "sparring_step_seconds": ("Seconds of the last step, by part.", ("part",)),
    "sparring_reward": ("Mean reward of the last step.", ("player",)),
    "sparring_held_out": ("The last held-out scores.", ("score",)),
    "sparring_mismatch": (
        "Mean difference of the learner's and the engine's log-probabilities.",
        ("policy",),
    ),
    "sparring_policy_version": ("Updates of the policy.", ("policy",)),
    "sparring_policy_lag": ("Updates that the oldest tokens of the last step were behind.", ("policy",)),
    "sparring_sandbox_client": ("Counts of the rollouts' way to the sandbox, since the start.", ("count",)),
    "sparring_driver_memory_bytes": ("Resident memory of the driver.", ()),
    "sparring_disk_free_bytes": ("Room left where the run is written.", ()),
}


class Monitor:
    def __init__(self, directory: Path, learners: Mapping[str, LearnerHandle]) -> None:
        """directory: the run's directory."""
        self._directory, self._learners = directory, learners
        self._gauges = {name: Gauge(name, text, ("run", *tags)) for name, (text, tags) in _GAUGES.items()}
        self._episodes = Counter("sparring_episodes", "Episodes played for training.", ("run",))
        self._dropped = Counter("sparring_dropped_attempts", "Attempts without a reward.", ("run", "reason"))
        for metric in (*self._gauges.values(), self._episodes, self._dropped):
            metric.set_default_tags({"run": directory.name})

    def step(self, row: Mapping[str, Any], episodes: Sequence[Episode]) -> None:
        """Exports the figures of one step. row: as in metrics.jsonl."""
        seconds = row["seconds"]
        playing = seconds.get("rollout", 0.0) + seconds.get("sandbox", 0.0)
        self._set("sparring_step", row["step"])
        self._set("sparring_tokens_per_s", row["tokens_per_s"])
        self._set("sparring_episodes_per_s", len(episodes) / playing if playing else None)
        for part, value in seconds.items():
            self._set("sparring_step_seconds", value, part=part)
        for score, value in row.get("held_out", {}).items():
            self._set("sparring_held_out", value, score=score)
        for count, value in row["sandbox"].items():
            self._set("sparring_sandbox_client", value, count=count)
        for key, value in row.items():
            if key.endswith("_reward"):
                self._set("sparring_reward", value, player=key.removesuffix("_reward"))
        for policy, learner in self._learners.items():
            learned = row.get(policy, {})
            self._set("sparring_mismatch", learned.get("mismatch_mean"), policy=policy)
            self._set("sparring_policy_version", learner.version, policy=policy)
            self._set("sparring_policy_lag", learned.get("policy_lag_max"), policy=policy)
        self._set("sparring_driver_memory_bytes", psutil.Process().memory_info().rss)
        self._set("sparring_disk_free_bytes", shutil.disk_usage(self._directory).free)
        self._episodes.inc(len(episodes))
        for reason, count in row["dropped"].items():
            if count:
                self._dropped.inc(count, {"reason": reason})

    def _set(self, name: str, value: float | None, **tags: str) -> None:
        if value is not None:
            self._gauges[name].set(value, tags)
