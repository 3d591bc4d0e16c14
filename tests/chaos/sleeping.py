"""What plays in rollout actors that only sleep (an actor imports it: no test is near)."""

import asyncio
from random import Random
from typing import Any

from benchmarks.scale import TOKENS, Sleeping
from sparring.core.play import PlayRequest
from sparring.core.seeding import derive_seed


class Playing(Sleeping):
    """Each problem of a step has an episode of its own, whoever plays it."""

    async def play(self, request: PlayRequest, on_progress: Any) -> Any:
        await asyncio.sleep(self._rng.uniform(0.2, 1.0))
        made, self._tokens = [], request.weights[TOKENS].version
        for problem in request.problems:
            self._rng = Random(derive_seed(*request.address, problem.id))
            made.append(self._episode())
        self._game.episodes = iter(made)
        return await self._runner.play(request, on_progress)
