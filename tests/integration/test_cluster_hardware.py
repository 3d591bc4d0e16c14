"""What a driver finds on a cluster: its GPUs may be on other nodes. Ray is told of GPUs that are not there."""

from collections.abc import Iterator
from dataclasses import replace

import pytest
import ray
import torch

import sparring.runtime.cluster
from configs.schema import Config
from sparring.runtime.cluster import ClusterTooSmall, detect_on_cluster
from sparring.runtime.hardware import detect
from tests.ray_clusters import own_ray

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU"),
]


@pytest.fixture
def cluster(monkeypatch, request) -> Iterator[None]:
    """Of this machine alone, with as many GPUs as the parameter says."""
    with own_ray(num_cpus=1, num_gpus=request.param) as context:
        monkeypatch.setenv("RAY_ADDRESS", context.address_info["gcs_address"])
        yield


@pytest.mark.parametrize("cluster", [0], indirect=True)
def test_a_cluster_without_gpus_is_as_this_machine(cluster) -> None:
    found = detect_on_cluster(Config())
    # free memory changes from one look to the next
    assert found == replace(detect(), free_gib=found.free_gib)
    assert found.free_gib is not None, "free memory is a limit on a machine that is alone"


@pytest.mark.parametrize("cluster", [2], indirect=True)
def test_a_node_with_a_gpu_is_asked_and_one_that_is_taken_is_waited_for(cluster, monkeypatch) -> None:
    assert detect_on_cluster(Config()).device == "cpu", "torch has the last word, not Ray"

    @ray.remote(num_cpus=0, num_gpus=2)
    class Greedy:
        def ready(self) -> bool:
            return True

    greedy = Greedy.remote()
    assert ray.get(greedy.ready.remote())
    monkeypatch.setattr(sparring.runtime.cluster, "_PATIENCE_S", 2)
    with pytest.raises(ClusterTooSmall, match="none of the cluster's 2 GPUs was free for 2 s"):
        detect_on_cluster(Config())
