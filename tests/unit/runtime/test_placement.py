"""Where a run's parts are, on nodes of our own making: the arithmetic alone."""

from typing import Any

import pytest
from pydantic import ValidationError

from configs.load import load_run
from configs.schema import Config
from sparring.core.play import POLICIES
from sparring.runtime.hardware import choices, settled
from sparring.runtime.placement import (
    UNIT,
    Node,
    NoPlace,
    Part,
    Place,
    described,
    idle_gpus,
    learner_groups,
    learning_in_turn,
    parts_of,
    place,
    shares,
)
from tests.unit.runtime import makers


def cluster(nodes: int, gpus: int, cpus: float = 64) -> tuple[Node, ...]:
    return tuple(Node(name=f"n{i}", address=f"node {i}", gpus=gpus, cpus=cpus) for i in range(nodes))


def both(policy: dict[str, Any], **sections: Any) -> Config:
    return makers.both(policy, **{"device": "cuda"} | sections)


def fitted(config: Config, nodes: tuple[Node, ...]) -> Config:
    given = {key: value for key, value in shares(config, nodes).items() if _left_open(config, key)}
    return settled(config, given)


def _left_open(config: Config, key: str) -> bool:
    value: Any = config
    for name in key.split("."):
        value = getattr(value, name)
    return value is None


def placed(config: Config, nodes: tuple[Node, ...]) -> list[Place]:
    return place(parts_of(fitted(config, nodes)), nodes)


def by_node(places: list[Place]) -> dict[str, list[str]]:
    """Shares in ten-thousandths: "part gpus", of each node."""
    words: dict[str, list[str]] = {}
    for taken in places:
        words.setdefault(taken.node.name, []).append(f"{taken.part.split()[0]} {taken.gpus}")
    return words


LORA = {"learner": {"lora": {"rank": 16}}}


@pytest.mark.parametrize(
    ("nodes", "gpus", "config", "expected"),
    [
        (1, 1, both({}), {"n0": ["rollout 5000", "learner 2500", "learner 2500"]}),
        (1, 1, both({}, rollout={"actors": 3}), {"n0": ["rollout 1666"] * 3 + ["learner 2501"] * 2}),
        (1, 1, both(LORA), {"n0": ["rollout 5000", "learner 5000"]}),
        (1, 2, both({}), {"n0": ["rollout 10000", "learner 5000", "learner 5000"]}),
        (1, 2, both(LORA), {"n0": ["rollout 10000", "learner 10000"]}),
        (1, 2, both({}, rollout={"actors": 3}), {"n0": ["rollout 3333"] * 3 + ["learner 5000"] * 2}),
        (1, 8, both({}), {"n0": ["rollout 10000"] * 6 + ["learner 10000"] * 2}),
        (2, 1, both({}), {"n0": ["learner 5000"] * 2, "n1": ["rollout 10000"]}),
        (2, 8, both({}), {"n0": ["rollout 10000"] * 6 + ["learner 10000"] * 2, "n1": ["rollout 10000"] * 8}),
        (
            2, 8, both({"engine": {"tensor_parallel": 4}, "learner": {"workers": 4}}),
            {"n0": ["learner 10000"] * 8, "n1": ["rollout 40000"] * 2},
        ),
        (
            2, 8, both({"engine": {"tensor_parallel": 2}, "learner": {"workers": 7}}),
            {"n0": ["rollout 20000"] + ["learner 10000"] * 6, "n1": ["learner 10000"] * 8},
        ),
        (
            1, 8, Config.model_validate({
                "device": "cuda", "generator": {"engine": {"count": 4}},
                "discriminator": {"engine": {"count": 1, "tensor_parallel": 2}},
            }),
            {"n0": ["engine 10000"] * 4 + ["engine 20000", "rollout 0"] + ["learner 10000"] * 2},
        ),
    ],
)  # fmt: skip
def test_every_part_has_its_node_and_no_gpu_idles(nodes, gpus, config, expected) -> None:
    found = placed(config, cluster(nodes, gpus))
    assert by_node(found) == expected
    assert idle_gpus(found, cluster(nodes, gpus)) == 0


def test_eight_nodes_of_eight() -> None:
    config = both(
        {"engine": {"tensor_parallel": 4}, "learner": {"workers": 8}}, curriculum={"problems_per_step": 16}
    )
    nodes = cluster(8, 8)
    found = placed(config, nodes)
    whole = {taken.node.name for taken in found if taken.part == "learner of the generator"}
    assert len(whole) == 1, "a learner of eight has a node to itself"
    assert sum(taken.part == "rollout actor" for taken in found) == 12
    assert idle_gpus(found, nodes) == 0


def test_a_learner_that_no_node_holds_is_spread_evenly() -> None:
    learner = {"workers": 14, "sharding": "fsdp", "kl": {"kind": "none"}, "estimator": {"kind": "grpo"}}
    config = Config.model_validate(
        {"device": "cuda", "game": {"kind": "unit_tests"}, "generator": {"learner": learner}}
    )
    found = placed(config, cluster(2, 8))
    assert by_node(found) == {name: ["rollout 10000"] + ["learner 10000"] * 7 for name in ("n0", "n1")}


def test_gpus_without_work_are_said() -> None:
    nodes = cluster(2, 8)
    found = placed(both({}, curriculum={"problems_per_step": 4}), nodes)
    assert idle_gpus(found, nodes) == 10
    *_, last = described(found, nodes)
    assert last.startswith("10 GPUs have nothing to do: raise rollout.actors")
    (line,) = described(placed(both({}), cluster(1, 1)), cluster(1, 1))
    assert line.startswith(
        "node 0, 1 GPUs: 1 x rollout actor with 0.5 GPU, 1 x learner of the generator with"
    )


@pytest.mark.parametrize(
    ("config", "nodes"),
    [
        (both({"engine": {"tensor_parallel": 4}}), cluster(4, 2)),  # eight GPUs, but two on a node
        (both({"engine": {"count": 8}}), cluster(1, 8)),
        (both({}), cluster(1, 8, cpus=0.5)),
        (both({"learner": {"workers": 2}}), cluster(1, 4)),
        (both({}, rollout={"gpus": 1}), cluster(1, 1)),
    ],
)
def test_what_finds_no_place_is_refused_with_what_is_wanted_and_what_there_is(config, nodes) -> None:
    with pytest.raises(NoPlace, match=rf"wanted are .* x rollout actor of .*; there are {len(nodes)} nodes"):
        placed(config, nodes)


def test_shares_that_ray_would_not_give_out_in_its_order_are_refused() -> None:
    """Two small shares take one GPU, as Ray packs them: of two large ones only the first finds room then."""
    actors = Part(name="rollout actor", count=2, gpus=3000, cpus=0)
    learners = [Part(name=f"learner {i}", count=1, gpus=7000, cpus=0, least=1) for i in range(2)]
    with pytest.raises(NoPlace):
        place([actors, *learners], cluster(1, 2))


def test_a_learner_that_goes_on_with_fewer_begins_with_fewer() -> None:
    config = both({"learner": {"workers": 8, "min_workers": 2}})
    assert learning(placed(config, cluster(1, 8))) == 4


def learning(places: list[Place]) -> int:
    return sum(taken.part.startswith("learner") for taken in places)


@pytest.mark.parametrize(
    ("recipe", "nodes", "gpus", "learn"),
    [
        ("q", 1, 8, 7),
        ("q", 1, 7, 6),
        ("q", 1, 3, 2),
        ("q", 2, 4, 7),
        ("q:32b_lora", 1, 8, 4),
        ("q:32b_lora", 1, 7, 3),
    ],
)
def test_workers_that_are_left_open_fill_the_gpus_that_the_engines_leave(recipe, nodes, gpus, learn) -> None:
    config = load_run(["--config", recipe])[0].to_config()
    found = placed(config, cluster(nodes, gpus))
    assert learning(found) == learn
    assert fitted(config, cluster(nodes, gpus)).generator.learner.workers == learn
    assert not idle_gpus(found, cluster(nodes, gpus))


def test_sharded_workers_that_find_no_place_are_refused() -> None:
    config = load_run(["--config", "q"])[0].to_config()
    with pytest.raises(NoPlace, match="2 x learner of the generator of 1 GPUs"):
        placed(config, cluster(1, 2))


@pytest.mark.parametrize("filling", POLICIES)
@pytest.mark.parametrize(("gpus", "workers"), [(8, 6), (3, 1), (1, 1)])
def test_open_workers_of_one_of_two_adapters_fill_what_the_other_leaves(
    filling: str, gpus: int, workers: int
) -> None:
    policies = {role: {"learner": LORA["learner"] | {"workers": 1}} for role in POLICIES}
    policies[filling]["learner"]["workers"] = None
    found = fitted(Config.model_validate(policies | {"device": "cuda"}), cluster(1, gpus))
    for role in POLICIES:
        assert found.policy(role).learner.workers == (workers if role == filling else 1)
    assert place(parts_of(found), cluster(1, gpus))


def test_learners_with_open_workers_divide_what_is_left() -> None:
    several = fitted(both({"learner": {"workers": None}}), cluster(1, 7))
    assert (several.generator.learner.workers, several.discriminator.learner.workers) == (3, 3)
    one = fitted(both({"learner": {"workers": None}}), cluster(1, 1))
    assert (one.generator.learner.workers, one.generator.learner.gpus) == (1, 0.25)


def test_what_is_given_is_kept_and_the_rest_follows_from_it() -> None:
    one = both({}, rollout={"gpus": 0.2})
    assert fitted(one, cluster(1, 1)).generator.learner.gpus == 0.4
    mixed = Config.model_validate({"device": "cuda", "generator": {"learner": {"gpus": 0.1}}})
    assert fitted(mixed, cluster(1, 1)).discriminator.learner.gpus == 0.4
    assert placed(mixed, cluster(1, 1))


@pytest.mark.parametrize(
    ("sections", "said"),
    [
        ({"local": True, "generator": {"engine": {"count": 2}}}, "generator.engine.count has no effect with local"),
        ({"rollout": {"gpus": 2}}, "less than or equal to 1"),
        ({"generator": {"learner": {"gpus": 2}}}, "less than or equal to 1"),
        (
            {"rollout": {"gpus": 0.5}, "discriminator": {"engine": {"tensor_parallel": 2}}},
            "discriminator.engine.tensor_parallel 2: takes whole GPUs: leave out rollout.gpus",
        ),
        (
            {"rollout": {"gpus": 0.5}, "generator": {"engine": {"count": 1}}, "discriminator": {"engine": {"count": 1}}},
            "rollout.gpus has no effect where every policy has engine.count",
        ),
        ({"device": "cuda", "rollout": {"gpus": 0}}, "give rollout.gpus a share of a GPU"),
        (
            {"device": "cuda", "generator": {"engine": {"kind": "vllm", "count": 1, "sleep": True}}},
            "generator.engine.sleep goes without engine.count",
        ),
        ({"generator": {"engine": {"kind": "transformers", "tensor_parallel": 2}}}, "tensor_parallel"),
    ],
)  # fmt: skip
def test_keys_that_would_do_nothing_are_refused(sections: dict[str, Any], said: str) -> None:
    with pytest.raises(ValidationError, match=said):
        Config.model_validate(sections)


def test_an_engine_sleeps_beside_one_that_is_in_an_actor_of_its_own() -> None:
    policies = {"generator": {"engine": {"count": 1}}, "discriminator": {"engine": {"sleep": True}}}
    assert Config.model_validate({"device": "cuda"} | policies).discriminator.engine.sleep


@pytest.mark.parametrize(
    ("sections", "said"),
    [
        ({"generator": {"learner": {"importance_cap": 0}}}, "needs generator.learner.importance_cap"),
        ({"device": "cuda", "generator": {"engine": {"sleep": True, "kind": "transformers"}}}, "generator.engine.sleep"),
        (
            {"curriculum": {"opponents": {"current": 0.5, "pfsp": 0.5}}},
            "needs curriculum.opponents.current 1",
        ),
    ],
)  # fmt: skip
def test_what_does_not_go_with_playing_ahead_is_refused(sections: dict[str, Any], said: str) -> None:
    Config.model_validate(sections)
    with pytest.raises(ValidationError, match=said):
        Config.model_validate(sections | {"rollout": {"max_policy_lag": 1}})


def test_playing_ahead_is_corrected_for_unless_its_objective_does() -> None:
    for lag, cap in ((1, 2.0), (0, None)):
        open_config = both({}, device="cpu", rollout={"max_policy_lag": lag})
        found = settled(open_config, choices(open_config, makers.CPU))
        assert found.generator.learner.importance_cap == found.discriminator.learner.importance_cap == cap
    cispo = {"learner": {"objective": "cispo", "importance_cap": 0}}
    assert both(cispo, rollout={"max_policy_lag": 1}).generator.learner.importance_cap == 0


@pytest.mark.parametrize(
    ("sections", "at_once"),
    [
        ({"device": "cpu"}, True),
        ({"device": "cpu", "local": True}, False),
        ({"device": "cuda", **{key: {"learner": {"gpus": 1}} for key in POLICIES}}, True),
        ({"device": "cuda", **{key: {"learner": {"gpus": 0.25}} for key in POLICIES}}, False),
    ],
)
def test_learners_that_share_nothing_learn_at_the_same_time(sections: dict[str, Any], at_once: bool) -> None:
    roles = ("discriminator", "generator")
    turns = learning_in_turn(Config.model_validate(sections), roles)
    assert turns == ([roles] if at_once else [("discriminator",), ("generator",)])


def test_policies_share_workers_as_their_learners_are_grouped() -> None:
    assert learner_groups(both(LORA)) == [("generator", "discriminator")]
    for other in ({}, {"model": "another"} | LORA, {"learner": LORA["learner"] | {"cpus": 2}}):
        assert learner_groups(both(LORA, discriminator=other)) == [("generator",), ("discriminator",)]
    assert learner_groups(both({})) == [("generator",), ("discriminator",)]


def test_several_workers_on_shares_of_gpus_are_one_group_with_whole_gpus() -> None:
    """NCCL refuses two workers of one group on a GPU, and Ray would put a share on the GPU on which it leaves the least."""
    share = {"learner": {"workers": 6, "gpus": 0.5}}
    config = fitted(both(share, rollout={"actors": 2, "gpus": 1}), cluster(1, 8))
    assert learner_groups(config) == [("generator", "discriminator")]
    assert learning_in_turn(config, ("generator", "discriminator")) == [("generator",), ("discriminator",)]
    assert by_node(placed(config, cluster(1, 8))) == {"n0": ["rollout 10000"] * 2 + ["learner 10000"] * 6}
    for alone in (
        {"discriminator": {"learner": {"workers": 2, "gpus": 0.5}}},
        {"game": {"kind": "code_execution"}},
    ):
        with pytest.raises(ValidationError, match=r"learner\.gpus 0\.5: with several learner\.workers"):
            Config.model_validate({"device": "cuda", "generator": share} | alone)


def test_one_engine_for_two_adapters_is_counted_once() -> None:
    config = both(LORA | {"engine": {"kind": "vllm", "adapter": True, "count": 3}})
    parts = {part.name: part.count for part in parts_of(fitted(config, cluster(1, 4)))}
    assert parts["engine of the generator and the discriminator"] == 3
    assert idle_gpus(placed(config, cluster(1, 4)), cluster(1, 4)) == 0


def test_a_whole_gpu_is_ten_thousand_of_rays_units() -> None:
    for actors in range(1, 200):
        config = fitted(both({}, rollout={"actors": actors}), cluster(1, 1))
        taken = sum(part.count * part.gpus for part in parts_of(config))
        assert taken <= UNIT < taken + actors + 2
