"""Where Ray puts the parts of a run, on clusters of one machine whose GPUs are only said to be there. Rollout actors, engines
and Ray Train's workers start as in a run, but play and learn nothing."""

import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import ray
import ray.train
import torch
from ray.cluster_utils import Cluster

import learners.train_backend
import learners.train_loop
import sparring.runtime.cluster
from configs.schema import Config
from learners.train_loop import TrainRun
from learners.train_spec import LearnerSpec
from sparring.core.errors import SparringError
from sparring.runtime.cluster import (
    ClusterTooSmall,
    begin_learning,
    find_places,
    nodes_of_cluster,
    start_rollouts,
)
from sparring.runtime.placement import (
    ROLLOUT_ACTOR,
    NoPlace,
    engine_name,
    idle_gpus,
    learner_groups,
    learner_name,
)
from tests.ray_clusters import start_cluster
from tests.unit.runtime.test_placement import both, fitted

pytestmark = [
    pytest.mark.timeout(500),
    pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU"),
]


@pytest.fixture(scope="module")
def nodes_and_gpus(request) -> Iterator[tuple[Cluster, tuple[int, int]]]:
    nodes, gpus = request.param
    made = start_cluster(num_cpus=16, num_gpus=gpus, resources={"sandbox": 1}, include_dashboard=False)
    try:
        for _ in range(nodes - 1):
            made.add_node(num_cpus=16, num_gpus=gpus)
        yield made, request.param
    finally:
        made.shutdown()


@pytest.fixture
def cluster(nodes_and_gpus: tuple[Cluster, tuple[int, int]]) -> Iterator[tuple[int, int]]:
    """(nodes, GPUs of each). Tests of one size share it; what a test's job has taken goes with the job."""
    made, size = nodes_and_gpus
    ray.init(address=made.address, log_to_driver=False)
    try:
        made.wait_for_nodes()
        yield size
    finally:
        ray.shutdown()


def started(config: Config, directory: Path, monkeypatch) -> list[tuple[str, str, tuple[int, ...]]]:
    """(part, node, GPUs) of all that is, once all is."""

    def where() -> tuple[str, tuple[int, ...]]:
        context = ray.get_runtime_context()
        return context.get_node_id(), tuple(sorted(int(i) for i in context.get_accelerator_ids()["GPU"]))

    class Nothing:
        async def close(self) -> None: ...

    def loop(_: dict[str, Any]) -> None:
        rank = ray.train.get_context()
        seen = ray.get_actor("seen")
        ray.get(seen.add.remote(rank.get_experiment_name().rsplit("_", 1)[0], *where()))
        while not ray.get(seen.over.remote()):
            time.sleep(0.2)

    @ray.remote(num_cpus=0)
    class Seen:
        def __init__(self) -> None:
            self.found: list[tuple[str, str, tuple[int, ...]]] = []
            self.ended = False

        def add(self, part: str, node: str, gpus: tuple[int, ...]) -> None:
            self.found.append((part, node, gpus))

        def all(self) -> list[tuple[str, str, tuple[int, ...]]]:
            return self.found

        def end(self) -> None:
            self.ended = True

        def over(self) -> bool:
            return self.ended

    process_group = learners.train_backend.TorchGroup
    monkeypatch.setattr(
        learners.train_backend, "TorchGroup", lambda backend, timeout_s: process_group("gloo")
    )
    monkeypatch.setattr(learners.train_loop, "_train_loop", loop)
    monkeypatch.setattr(sparring.runtime.cluster, "build_runner", lambda *_: Nothing())
    monkeypatch.setattr(
        sparring.runtime.cluster,
        "build_engine",
        lambda config, models, roles: dict.fromkeys(roles, Nothing()),
    )
    models = {role: config.policy(role).model for role in config.policies}
    places, seen = find_places(config), Seen.options(name="seen").remote()
    rollouts = start_rollouts(config, models, lambda: SimpleNamespace(), places)
    runs: list[TrainRun] = []
    try:
        rollouts.wait_ready()
        groups = learner_groups(config)
        for roles in groups:
            group = {role: spec(config, role) for role in roles}
            runs.append(begin_learning(group, dict.fromkeys(group, 0), directory, places))
        holders = {f"engine {role}": actors for role, actors in rollouts.engines.items()} | {
            "rollout": rollouts.actors
        }
        held = [
            (part, *ray.get(a.__ray_call__.remote(lambda self: where())))
            for part in holders
            for a in holders[part]
        ]
        workers = sum(config.policy(roles[0]).learner.workers for roles in groups)
        while len(ray.get(seen.all.remote())) < workers:  # the test's timeout ends a wait for ever
            time.sleep(0.2)
        found = held + ray.get(seen.all.remote())
        names = {ROLLOUT_ACTOR: "rollout"} | {learner_name(group): "_".join(group) for group in groups}
        names |= {engine_name([role]): f"engine {role}" for role in config.policies}
        chosen = Counter((names[taken.part], taken.node.name) for taken in places)
        assert Counter((part, node) for part, node, _ in found) == chosen
        assert idle_gpus(places, nodes_of_cluster()) == 0
        return found
    finally:
        ray.get(seen.end.remote())
        for run in runs:
            run.stop()
        rollouts.close()


def spec(config: Config, role: str) -> LearnerSpec:
    model = config.policy(role).model
    return LearnerSpec(
        settings=config.policy(role).learner, learning_rate=0, model_path=model, reference_path=model, state_path=None,
        device="cuda", seed=0,
    )  # fmt: skip


def on_nodes(found: list[tuple[str, str, tuple[int, ...]]], part: str) -> Counter[str]:
    return Counter(node for name, node, _ in found if name == part)


def run_on(config: Config, tmp_path: Path, monkeypatch) -> list[tuple[str, str, tuple[int, ...]]]:
    return started(fitted(config, tuple(nodes_of_cluster())), tmp_path, monkeypatch)


@pytest.mark.parametrize("nodes_and_gpus", [(1, 1)], indirect=True)
def test_what_finds_no_place_is_refused_at_once(cluster, monkeypatch) -> None:
    """Ray would wait without a word: by what the nodes have, and by what other jobs have left of it."""
    nodes = tuple(nodes_of_cluster())
    wide = both({"engine": {"tensor_parallel": 2}})
    with pytest.raises(SparringError, match=r"needs 4 GPU \(there are 1\)|no room for this run"):
        find_places(fitted(wide, nodes))
    assert [taken.gpus for taken in find_places(fitted(both({}, rollout={"actors": 3}), nodes))] == [
        1666, 1666, 1666, 2501, 2501,
    ]  # fmt: skip
    assert ray.util.placement_group([{"GPU": 0.6}]).wait(30)
    while nodes_of_cluster(free=True)[0].gpus > 0.5:
        time.sleep(0.05)
    monkeypatch.setattr(sparring.runtime.cluster, "_PATIENCE_S", 0)
    with pytest.raises(ClusterTooSmall, match="other jobs have had the GPUs"):
        find_places(fitted(both({}), nodes))


@pytest.mark.slow
@pytest.mark.parametrize("nodes_and_gpus", [(1, 1)], indirect=True)
def test_one_gpu_is_shared_by_three_actors_and_both_learners(cluster, tmp_path, monkeypatch) -> None:
    found = run_on(both({}, rollout={"actors": 3}), tmp_path, monkeypatch)
    assert len(found) == 5 and {gpus for _, _, gpus in found} == {(0,)}


@pytest.mark.nightly
@pytest.mark.parametrize("nodes_and_gpus", [(1, 2)], indirect=True)
def test_of_two_gpus_the_learners_share_one(cluster, tmp_path, monkeypatch) -> None:
    found = run_on(both({}), tmp_path, monkeypatch)
    at = {part: gpus for part, _, gpus in found}
    assert len(found) == 3 and at["generator"] == at["discriminator"] != at["rollout"]


@pytest.mark.slow
@pytest.mark.parametrize("nodes_and_gpus", [(1, 4)], indirect=True)
def test_no_two_ranks_of_a_run_are_on_one_gpu(cluster, tmp_path, monkeypatch) -> None:
    """NCCL refuses them: "Duplicate GPU detected"."""
    share = {"learner": {"workers": 3, "gpus": 0.5}}
    found = run_on(both(share, rollout={"actors": 1, "gpus": 1}), tmp_path, monkeypatch)
    assert sorted(gpus for part, _, gpus in found if part != "rollout") == [(1,), (2,), (3,)]
    assert {part for part, _, _ in found} == {"rollout", "generator_discriminator"}


@pytest.mark.nightly
@pytest.mark.parametrize("nodes_and_gpus", [(1, 8)], indirect=True)
def test_of_eight_gpus_each_has_one_part(cluster, tmp_path, monkeypatch) -> None:
    found = run_on(both({}), tmp_path, monkeypatch)
    assert Counter(part for part, _, _ in found) == {"rollout": 6, "generator": 1, "discriminator": 1}
    assert sorted(gpus for _, _, gpus in found) == [(i,) for i in range(8)]


@pytest.mark.slow
@pytest.mark.parametrize("nodes_and_gpus", [(2, 4)], indirect=True)
def test_of_two_nodes_learners_have_one_and_wide_engines_the_other(cluster, tmp_path, monkeypatch) -> None:
    wide = both({"engine": {"tensor_parallel": 2}, "learner": {"workers": 2}})
    found = run_on(wide, tmp_path, monkeypatch)
    learning = on_nodes(found, "generator") + on_nodes(found, "discriminator")
    (whole,) = learning
    assert learning[whole] == 4 and whole not in on_nodes(found, "rollout")
    assert sorted(len(gpus) for part, _, gpus in found if part == "rollout") == [2, 2]


@pytest.mark.slow
@pytest.mark.parametrize("nodes_and_gpus", [(2, 4)], indirect=True)
def test_engines_of_their_own_number_for_each_policy(cluster, tmp_path, monkeypatch) -> None:
    config = Config.model_validate({
        "device": "cuda", "generator": {"engine": {"count": 2, "tensor_parallel": 2}},
        "discriminator": {"engine": {"count": 2}}, "rollout": {"actors": 2},
    })  # fmt: skip
    found = run_on(config, tmp_path, monkeypatch)
    assert Counter(part for part, _, _ in found) == {
        "engine generator": 2, "engine discriminator": 2, "rollout": 2, "generator": 1, "discriminator": 1,
    }  # fmt: skip
    assert {len(gpus) for part, _, gpus in found if part == "engine generator"} == {2}
    assert {gpus for part, _, gpus in found if part == "rollout"} == {()}
    taken = [(node, gpu) for _, node, gpus in found for gpu in gpus]
    assert len(taken) == len(set(taken)) == 8


@pytest.mark.nightly
@pytest.mark.parametrize("nodes_and_gpus", [(8, 8)], indirect=True)
def test_eight_nodes_of_eight(cluster, tmp_path, monkeypatch) -> None:
    found = run_on(both({"engine": {"tensor_parallel": 8}, "learner": {"workers": 8}}), tmp_path, monkeypatch)
    for role in ("generator", "discriminator"):
        assert list(on_nodes(found, role).values()) == [8], "a node of its own"
    assert sorted(on_nodes(found, "rollout").values()) == [1] * 6


@pytest.mark.slow
@pytest.mark.parametrize("nodes_and_gpus", [(2, 3)], indirect=True)
def test_an_engine_wider_than_a_node_is_refused(cluster) -> None:
    with pytest.raises(NoPlace, match=r"rollout actor of 4 GPUs .* there are 2 nodes \(3 GPUs"):
        find_places(
            both(
                {"engine": {"tensor_parallel": 4}, "learner": {"gpus": 0.1}}, rollout={"actors": 1, "gpus": 1}
            )
        )
