"""An engine in an actor of its own, without Ray: who speaks to it, and what it proves of new weights."""

import asyncio
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from actors.engines import EngineShell, RemotePolicy
from actors.loading import LocalPolicy
from sparring.core.interfaces import Sampling
from sparring.core.weights import PublishError, PublishReceipt, Weights, WeightUpdate
from tests.playing import ScriptedPolicy

ASKED = Sampling(max_tokens=1, stop_token_ids=())


class Engine(ScriptedPolicy):
    """Says its probe is off by as much as it is told."""

    def __init__(self, off: float = 0.0) -> None:
        super().__init__(lambda prompt, sampling: prompt)
        self.off, self.closed = off, False

    async def load_weights(self, update: WeightUpdate) -> PublishReceipt:
        return replace(await super().load_weights(update), probe_difference=self.off)

    async def close(self) -> None:
        self.closed = True


def update(version: int) -> Weights:
    tensors = WeightUpdate(version=version, tensors={}, digest=1, probe=(1, 2), probe_logprobs=(-1.0,))
    return Weights(version=version, update=tensors)


def shell_of(name: str, **engines: Engine) -> EngineShell:
    return EngineShell(lambda: {role: LocalPolicy(engine, 1e-3) for role, engine in engines.items()}, name)


def remote(shell: EngineShell) -> Any:
    """As Ray gives it out."""
    return SimpleNamespace(
        generate=SimpleNamespace(remote=shell.generate), load=SimpleNamespace(remote=shell.load)
    )


def test_two_policies_of_one_engine_are_spoken_to_by_name() -> None:
    engines = {"generator": Engine(), "discriminator": Engine()}
    shell = shell_of("engine of both", **engines)
    policies = {name: RemotePolicy(name, remote(shell)) for name in engines}
    receipt = asyncio.run(policies["discriminator"].load(update(3), 0))
    assert receipt is not None and receipt.version == 3
    played = {name: asyncio.run(policy.generate((7,), ASKED)) for name, policy in policies.items()}
    assert {name: one.version for name, one in played.items()} == {"generator": 0, "discriminator": 3}
    assert policies["discriminator"].version == 3 and list(played["generator"].tokens) == [7]
    asyncio.run(policies["generator"].close())
    assert not engines["generator"].closed, "others may speak to it"
    asyncio.run(shell.close())
    assert all(engine.closed for engine in engines.values())


def test_a_restarted_engine_generates_with_the_weights_of_the_newest_request_only(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Another rollout actor, which has no share of the newest request, has it load older ones."""
    monkeypatch.setattr("actors.engines.AGAIN_S", 0.0)

    async def play() -> tuple[int, int]:
        actor = remote(shell_of("engine", generator=Engine()))
        newest, older = RemotePolicy("generator", actor), RemotePolicy("generator", actor)
        await older.load(update(1), 5)
        await newest.load(update(2), 6)
        restarted = shell_of("engine", generator=Engine())
        actor.generate.remote, actor.load.remote = restarted.generate, restarted.load
        first = await older.generate((7,), ASKED)
        return first.version, (await newest.generate((7,), ASKED)).version

    assert asyncio.run(play()) == (1, 2)


def test_weights_that_do_not_act_are_refused_by_the_engines_actor() -> None:
    shell = shell_of("engine of the generator", generator=Engine(off=0.5))
    with pytest.raises(PublishError, match="does not run on the published weights"):
        asyncio.run(shell.load("generator", update(1), 0))
