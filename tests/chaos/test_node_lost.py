"""What a rollout actor had played, and nobody had fetched, is lost with its node."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import ray
from ray.cluster_utils import Cluster

from actors.rollout import RayRollouts
from core.play import PlayRequest, PlayResult
from core.problem import Problem


class Runner:
    """Its transcripts are too large to travel with the answer; its episodes say where they were played."""

    def __init__(self, index: int) -> None: ...

    async def play(self, request: PlayRequest) -> tuple[PlayResult, Any]:
        node = ray.get_runtime_context().get_node_id()
        episodes: Any = [SimpleNamespace(problem_id=p.id, node=node) for p in request.problems]
        return PlayResult(episodes=episodes, sandbox={}), np.zeros(1 << 20)

    async def close(self) -> None: ...


@pytest.mark.slow
def test_a_finished_share_that_is_lost_with_its_node_is_played_again() -> None:
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
    try:
        nodes = [cluster.add_node(num_cpus=1, resources={"far": 1})]
        ray.init(address=cluster.address, log_to_driver=False)
        build: Any = Runner
        rollouts = RayRollouts(build, [{"num_cpus": 0, "num_gpus": 0, "resources": {"far": 0.1}}], "cpu")
        rollouts.wait_ready()
        nodes.append(cluster.add_node(num_cpus=1, resources={"far": 1}))
        cluster.wait_for_nodes()
        problem = Problem(
            id="p", description="", function_signature="", baseline_tests=(), reference_solution=""
        )
        wait = rollouts.begin(
            PlayRequest(address=("step", 1), problems=(problem,), attempts={}, temperatures={})
        )
        (share,) = rollouts._open
        assert ray.wait([share.transcripts], timeout=60, fetch_local=False)[0], "it is played, and there"
        cluster.remove_node(nodes[0], allow_graceful=False)
        result = wait()
        assert result.played_again == 1
        (episode,) = result.episodes
        assert episode.node == nodes[1].node_id  # pyright: ignore[reportAttributeAccessIssue]
    finally:
        ray.shutdown()
        cluster.shutdown()
