"""When an engine loads the weights that requests name."""

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from actors.loading import LocalPolicy
from sparring.core.weights import PublishError, PublishReceipt, Weights, WeightUpdate, digest_of
from tests.playing import ScriptedPolicy


class Engine(ScriptedPolicy):
    """Remembers which versions it loaded, one at a time."""

    def __init__(self) -> None:
        super().__init__(lambda prompt, sampling: ())
        self.loads: list[int] = []
        self.loading = False
        self.off = 0.0

    async def load_weights(self, update: WeightUpdate) -> PublishReceipt:
        assert not self.loading
        self.loading = True
        await asyncio.sleep(0)
        self.loading = False
        self.loads.append(update.version)
        return replace(await super().load_weights(update), probe_difference=self.off)


def update_of(version: int, **more: Any) -> WeightUpdate:
    return WeightUpdate(
        version=version, tensors={}, digest=digest_of({}), probe=(), probe_logprobs=(), **more
    )


def weights(version: int) -> Weights:
    return Weights(version=version, update=update_of(version))


async def asked(engine: Engine, *requests: tuple[Weights | None, int]) -> list[PublishReceipt | None]:
    policy = LocalPolicy(engine, 1e-3)
    return list(await asyncio.gather(*(policy.load(*request) for request in requests)))


@pytest.mark.parametrize(
    ("requests", "loads"),
    [
        ([(None, 0), (None, 1)], []),
        ([(weights(0), 0), (weights(0), 1)], [0]),
        ([(weights(1), 0), (weights(1), 1), (weights(2), 2)], [1, 2]),
        # a past opponent, and today's version again
        ([(weights(5), 0), (weights(2), 1), (weights(5), 2)], [5, 2, 5]),
        # a share of an earlier request that is played again
        ([(weights(1), 0), (weights(2), 1), (weights(1), 0)], [1, 2]),
    ],
)
def test_an_engine_loads_what_it_lacks_and_keeps_the_last_requests_weights(
    requests: list[tuple[Weights | None, int]], loads: list[int]
) -> None:
    engine = Engine()
    receipts = asyncio.run(asked(engine, *requests))
    assert engine.loads == loads
    assert [receipt and receipt.version for receipt in receipts][-1:] == (loads[-1:] or [None])


def test_an_engine_knows_up_to_which_request_it_has_the_weights() -> None:
    async def load() -> list[int]:
        orders = [policy.order]
        for request in ((None, 0), (weights(1), 3), (weights(1), 2)):
            await policy.load(*request)
            orders.append(policy.order)
        engine.off = 1.0
        with pytest.raises(PublishError):
            await policy.load(weights(2), 5)
        return [*orders, policy.order]

    engine = Engine()
    policy = LocalPolicy(engine, 1e-3)
    assert asyncio.run(load()) == [-1, 0, 3, 3, 3]


def test_weights_that_were_not_proven_are_loaded_again() -> None:
    async def twice() -> PublishReceipt | None:
        policy = LocalPolicy(engine, 1e-3)
        engine.off = 1.0
        with pytest.raises(PublishError):
            await policy.load(weights(3), 0)
        engine.off = 0.0
        return await policy.load(weights(3), 0)

    engine = Engine()
    receipt = asyncio.run(twice())
    assert receipt is not None and receipt.version == 3 and engine.loads == [3, 3]


def test_weights_that_are_kept_elsewhere_are_fetched_with_their_parts() -> None:
    async def elsewhere(value: Any) -> Any:
        return value

    async def load() -> PublishReceipt | None:
        update = update_of(1, parts=[elsewhere({})])
        return await LocalPolicy(Engine(), 1e-3).load(Weights(version=1, update=elsewhere(update)), 0)

    receipt = asyncio.run(load())
    assert receipt is not None and receipt.version == 1
