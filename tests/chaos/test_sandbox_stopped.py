"""A sandbox worker that is stopped without dying: Ray says nothing of it, to some clients that it is unavailable."""

import asyncio
import os
import signal
from collections.abc import Iterator
from functools import partial

import pytest
import ray

from actors.watching import end
from sandbox_workers import pool
from sparring.core.verdict import Status
from tests.ray_clusters import own_ray

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]


@pytest.fixture
def workers(monkeypatch: pytest.MonkeyPatch) -> Iterator[pool.SandboxPool]:
    with own_ray(resources={"sandbox": 1}):
        started = pool.start_pool(
            1, kind="namespace", run_id="stopped", patience_s=120, end=partial(end, again=True)
        )
        for name, seconds in {"SILENCE_S": 6.0, "ANSWER_S": 3.0}.items():
            monkeypatch.setattr(pool, name, seconds)
        yield started
        started.shutdown()


def test_it_is_started_again_for_who_waits_and_for_who_comes_new(workers: pool.SandboxPool) -> None:
    async def judged(client: pool.SandboxClient, program: str) -> Status:
        (verdict,) = await client.judge(program, ["assert f(1) == 1"])
        return verdict.status

    async def stop_and_ask() -> list[Status]:
        known = workers.client()
        assert await judged(known, "def f(x): return x") == Status.PASSED
        os.kill(ray.get(workers.actors[0].pid.remote()), signal.SIGSTOP)
        both = (judged(known, "def f(x): return x + 0"), judged(workers.client(), "def f(x): return 2"))
        return list(await asyncio.gather(*both))

    assert asyncio.run(stop_and_ask()) == [Status.PASSED, Status.WRONG_ANSWER]
