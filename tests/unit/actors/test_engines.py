"""An engine in an actor of its own, without Ray: who speaks to it, and what it proves of new weights."""

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from actors.engines import EngineShell, RemotePolicy
from sparring.core.episode import Completion, FinishReason
from sparring.core.interfaces import Sampling
from sparring.core.weights import PublishError, PublishReceipt, WeightUpdate

ASKED = Sampling(max_tokens=1, stop_token_ids=())


class Engine:
    """Of one policy; says its probe is off by as much as it is told."""

    def __init__(self, off: float) -> None:
        self.version, self.off, self.closed = 0, off, False

    async def generate(self, prompt_tokens: Any, sampling: Sampling) -> Completion:
        reason = FinishReason.STOP
        return Completion(
            tokens=(prompt_tokens[0],), logprobs=(0.0,), version=self.version, finish_reason=reason
        )

    async def load_weights(self, update: WeightUpdate) -> PublishReceipt:
        self.version = update.version
        return PublishReceipt(version=update.version, digest=update.digest, probe_difference=self.off)

    async def close(self) -> None:
        self.closed = True


def update(version: int) -> WeightUpdate:
    return WeightUpdate(version=version, tensors={}, digest=1, probe=(1, 2), probe_logprobs=(-1.0,))


def remote(shell: EngineShell) -> Any:
    """As Ray gives it out."""
    return SimpleNamespace(
        generate=SimpleNamespace(remote=shell.generate), publish=SimpleNamespace(remote=shell.publish)
    )


def test_two_policies_of_one_engine_are_spoken_to_by_name() -> None:
    engines = {"generator": Engine(0.0), "discriminator": Engine(0.0)}
    shell = EngineShell(lambda: engines, dict.fromkeys(engines, 1e-3), "engine of both")
    policies = {name: RemotePolicy(name, remote(shell)) for name in engines}
    assert asyncio.run(policies["discriminator"].load_weights(update(3))).version == 3
    played = {name: asyncio.run(policy.generate((7,), ASKED)) for name, policy in policies.items()}
    assert {name: one.version for name, one in played.items()} == {"generator": 0, "discriminator": 3}
    assert policies["discriminator"].version == 3 and list(played["generator"].tokens) == [7]
    asyncio.run(policies["generator"].close())
    assert not engines["generator"].closed, "others may speak to it"
    asyncio.run(shell.close())
    assert all(engine.closed for engine in engines.values())


def test_weights_that_do_not_act_are_refused_by_the_engines_actor() -> None:
    shell = EngineShell(lambda: {"generator": Engine(0.5)}, {"generator": 1e-3}, "engine of the generator")
    with pytest.raises(PublishError, match="does not run on the published weights"):
        asyncio.run(shell.publish("generator", update(1)))
