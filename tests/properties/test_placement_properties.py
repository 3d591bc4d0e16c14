"""On any nodes a run's parts fit, or it is refused because more is wanted than there is; and no GPU idles for nothing."""

from hypothesis import given, settings
from hypothesis import strategies as st

from sparring.runtime.placement import UNIT, NoPlace, idle_gpus, parts_of, place
from tests.unit.runtime.test_placement import both, cluster, fitted

POWERS = st.sampled_from([1, 2, 4, 8])


@settings(max_examples=100, deadline=None)
@given(
    nodes=st.integers(1, 8),
    gpus=POWERS,
    actors=st.none() | st.integers(1, 12),
    workers=st.integers(1, 9),
    width=POWERS,
    count=st.none() | st.integers(1, 3),
    problems=st.integers(1, 70),
    lora=st.booleans(),
)
def test_actors_workers_gpus_and_nodes(nodes, gpus, actors, workers, width, count, problems, lora) -> None:
    there = cluster(nodes, gpus, cpus=1000)
    config = fitted(
        both(
            {
                "engine": {"kind": "vllm", "tensor_parallel": width, "count": count, "adapter": lora},
                "learner": {"workers": workers, "lora": {"rank": 8} if lora else None},
            },
            rollout={"actors": actors},
            curriculum={"problems_per_step": problems},
        ),
        there,
    )
    parts = parts_of(config)
    wanted = sum(part.count * part.gpus for part in parts)
    try:
        found = place(parts, there)
    except NoPlace:
        assert wanted > nodes * gpus * UNIT or width > gpus
        return
    assert [taken.part for taken in found] == [part.name for part in parts for _ in range(part.count)]
    for node in there:
        here = [taken.gpus for taken in found if taken.node == node]
        assert sum(here) <= gpus * UNIT
        assert all(size <= UNIT or size % UNIT == 0 for size in here)
    idle = idle_gpus(found, there)
    if idle and actors is None and count is None:
        filled = config.rollout.actors == problems
        assert filled or idle < nodes * width, "no node has room for another actor"
    if idle and wanted > nodes * gpus * UNIT - UNIT:
        raise AssertionError("a GPU idles although others are shared to the full")


@settings(max_examples=100, deadline=None)
@given(actors=st.integers(1, 60), gpus=st.integers(1, 16))
def test_shares_of_any_number_of_actors_never_exceed(actors, gpus) -> None:
    there = cluster(1, gpus, cpus=1000)
    config = fitted(both({"learner": {"workers": 1}}, rollout={"actors": actors}), there)
    assert len(place(parts_of(config), there)) == actors + 2
