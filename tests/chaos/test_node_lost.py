"""What far rollout actors have played: it is fetched all at once, and played again where it is lost with its node."""

import asyncio
import time
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import ray
from ray.cluster_utils import Cluster
from ray.experimental import get_object_locations

from actors.rollout import RayRollouts
from sparring.core.play import PlayRequest, PlayResult
from sparring.core.problem import Problem
from tests.ray_clusters import start_cluster

pytestmark = pytest.mark.slow


class Runner:
    """Its transcripts are too large to travel with the answer; its episodes say where they were played. The first is slow."""

    def __init__(self, index: int) -> None:
        self._seconds = 0 if index else 2

    async def play(self, request: PlayRequest, on_progress: Any) -> tuple[PlayResult, Any]:
        await asyncio.sleep(self._seconds)
        node = ray.get_runtime_context().get_node_id()
        episodes: Any = [SimpleNamespace(problem_id=p.id, node=node) for p in request.problems]
        return PlayResult(episodes=episodes, sandbox={}), np.zeros(1 << 20)

    async def close(self) -> None: ...


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    """The driver's node. What is far is on others: each test adds its own."""
    cluster = start_cluster(num_cpus=1, include_dashboard=False)
    try:
        ray.init(address=cluster.address, log_to_driver=False)
        yield cluster
    finally:
        ray.shutdown()
        cluster.shutdown()


def rollouts_on(nodes: str, actors: int) -> RayRollouts:
    """nodes: a resource that they alone have."""
    build: Any = Runner
    rollouts = RayRollouts(build, [{"num_cpus": 0, "num_gpus": 0, "resources": {nodes: 0.1}}] * actors, "cpu")
    rollouts.wait_ready()
    return rollouts


def request(*problems: str) -> PlayRequest:
    nothing = {"description": "", "function_signature": "", "baseline_tests": (), "reference_solution": ""}
    return PlayRequest(
        address=("step", 1),
        problems=tuple(Problem(id=i, **nothing) for i in problems),  # pyright: ignore[reportArgumentType]
        attempts={},
        temperatures={},
    )


def test_while_one_share_is_waited_for_the_others_are_fetched(cluster: Cluster) -> None:
    """A round trip each, one after the other, was half a minute for a hundred actors over 50 ms."""
    cluster.add_node(num_cpus=1, resources={"far": 1})
    rollouts = rollouts_on("far", 2)
    rollouts.begin(request("p", "q"))
    slow, quick = rollouts._open
    here = ray.get_runtime_context().get_node_id()

    def fetched() -> bool:
        return here in get_object_locations([quick.transcripts])[quick.transcripts]["node_ids"]

    assert ray.wait([quick.transcripts], timeout=60, fetch_local=False)[0] and not fetched()
    rollouts._result(slow, (slow, quick))
    until = time.monotonic() + 20
    while not fetched() and time.monotonic() < until:
        time.sleep(0.1)
    assert fetched()
    rollouts.close()


def test_a_finished_share_that_is_lost_with_its_node_is_played_again(cluster: Cluster) -> None:
    nodes = [cluster.add_node(num_cpus=1, resources={"shaky": 1})]
    rollouts = rollouts_on("shaky", 1)
    nodes.append(cluster.add_node(num_cpus=1, resources={"shaky": 1}))
    cluster.wait_for_nodes()
    wait = rollouts.begin(request("p"))
    (share,) = rollouts._open
    assert ray.wait([share.transcripts], timeout=60, fetch_local=False)[0], "it is played, and there"
    cluster.remove_node(nodes[0], allow_graceful=False)
    result = wait()
    assert result.played_again == 1
    (episode,) = result.episodes
    assert episode.node == nodes[1].node_id  # pyright: ignore[reportAttributeAccessIssue]
    rollouts.close()
