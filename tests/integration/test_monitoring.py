"""What a Prometheus sees of the parts at work on a real Ray."""

import asyncio
import re
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import ray

from actors.rollout import RayRollouts
from actors.watching import end
from learners.mailbox import MailboxActor
from sandbox_workers.pool import start_pool
from sparring.core.episode import Episode
from sparring.core.play import PlayRequest, PlayResult
from sparring.core.problem import Problem
from sparring.runtime.monitoring import Monitor
from tests.ray_clusters import own_ray

ROW = {
    "step": 7, "tokens_per_s": 50.0, "generator_reward": 0.5, "generator": {"policy_loss": 0.1, "mismatch_mean": 1e-6, "policy_lag_max": 2.0},
    "seconds": {"rollout": 2.0, "learn": 1.0, "total": 3.0}, "sandbox": {"jobs": 3, "retries": 0},
    "held_out": {"kill_rate": 0.25}, "dropped": {"sandbox_failure": 2},
}  # fmt: skip


class Runner:
    """Plays nothing."""

    async def play(self, request: PlayRequest, on_progress: Any) -> tuple[PlayResult, list[Any]]:
        return PlayResult(episodes=[], sandbox={}), []

    async def close(self) -> None:
        pass


class Learner:
    version = 4


@pytest.fixture
def endpoint() -> Iterator[str]:
    with own_ray(resources={"sandbox": 1}, _system_config={"metrics_report_interval_ms": 2000}):
        (node,) = ray.nodes()
        yield f"http://127.0.0.1:{node['MetricsExportPort']}/metrics"


def seen(endpoint: str, wanted: set[str], work: Callable[[int], None]) -> tuple[dict[str, float], int]:
    """The last value of each sample by name and labels, once all that is wanted has been seen, and how often the parts
    worked for that: Ray shows a gauge for 20 s after it was set, and a busy machine starts the parts for longer."""
    found: dict[str, float] = {}
    rounds = 0
    while rounds < 15 and not wanted <= {name.split("{")[0] for name in found}:
        work(rounds)
        rounds += 1
        for _ in range(10):
            time.sleep(0.5)
            text = urllib.request.urlopen(endpoint, timeout=10).read().decode()
            lines = re.finditer(r"^(ray_(?:sparring|node)_\S+?(?:\{.*\})?) (\S+)$", text, re.M)
            found |= {line[1]: float(line[2]) for line in lines}
    return found, rounds


def value(samples: dict[str, float], name: str, **labels: str) -> float:
    (found,) = {
        v
        for k, v in samples.items()
        if k.split("{")[0] == name and all(f'{a}="{b}"' in k for a, b in labels.items())
    }
    return found


@pytest.mark.slow
def test_every_part_is_seen_at_the_endpoint(endpoint: str, tmp_path: Path) -> None:
    pool = start_pool(1, kind="namespace", run_id="monitoring", end=end)
    build: Any = lambda index: Runner()  # noqa: E731
    rollouts = RayRollouts(build, [{"num_cpus": 0.1, "num_gpus": 0}], "cpu")
    mailbox = MailboxActor.options(num_cpus=0).remote("generator")
    client = pool.client()
    (tmp_path / "mine").mkdir()
    learners: Any = {"generator": Learner()}
    monitor = Monitor(tmp_path / "mine", learners)
    played = Episode(problem_id="p", trajectories=[])
    problem: Any = Problem(
        id="p", description="", function_signature="", baseline_tests=(), reference_solution=""
    )

    def work(seed: int) -> None:
        program = f"def f(x): return x  # {seed}"  # what was judged before is remembered
        asyncio.run(client.judge(program, ["assert f(1) == 1", "assert f(2) == 3"]))
        rollouts.begin(PlayRequest(address=("step", 1), problems=(problem,), attempts={}, temperatures={}))()
        ray.get(mailbox.put_batch.remote("generator", 1, [ray.put(None)]))
        monitor.step(ROW, [played, played])

    try:
        names = {
            "ray_sparring_judge_seconds_count", "ray_sparring_batches_kept",
            "ray_sparring_problems_in_flight", "ray_sparring_disk_free_bytes", "ray_node_mem_used", "ray_node_disk_free",
            "ray_sparring_sandbox_jobs_total", "ray_sparring_episodes_total", "ray_sparring_dropped_attempts_total",
            "ray_sparring_sandbox_batches", "ray_sparring_step", "ray_sparring_episodes_per_s", "ray_sparring_held_out",
            "ray_sparring_policy_lag", "ray_sparring_step_seconds",
        }  # fmt: skip
        samples, rounds = seen(endpoint, names, work)
        assert names <= {name.split("{")[0] for name in samples}
        assert value(samples, "ray_sparring_judge_seconds_count", actor="sandbox 0") in range(1, rounds + 1)
        assert value(samples, "ray_sparring_sandbox_batches", actor="sandbox 0") == 0
        assert value(samples, "ray_sparring_problems_in_flight", actor="rollout 0") == 0
        assert value(samples, "ray_sparring_batches_kept", learner="generator") == 1
        assert value(samples, "ray_sparring_step", run="mine") == 7
        assert value(samples, "ray_sparring_episodes_per_s", run="mine") == 1
        assert value(samples, "ray_sparring_episodes_total", run="mine") in range(2, 2 * rounds + 1, 2)
        assert value(samples, "ray_sparring_dropped_attempts_total", reason="sandbox_failure") in range(
            2, 2 * rounds + 1, 2
        )
        assert value(samples, "ray_sparring_held_out", score="kill_rate") == 0.25
        assert value(samples, "ray_sparring_policy_lag", policy="generator") == 2
        assert value(samples, "ray_sparring_step_seconds", part="learn") == 1
    finally:
        rollouts.close()
        pool.shutdown()
