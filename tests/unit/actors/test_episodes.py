"""Which engine plays which problem, where a policy has several."""

import asyncio
from collections import Counter
from types import SimpleNamespace
from typing import Any

import pytest

from actors.episodes import EpisodeRunner, Speaker
from core.play import PlayRequest


@pytest.mark.parametrize("problems", [1, 3, 12])
def test_problems_are_dealt_out_among_a_policys_engines(problems: int) -> None:
    engines: list[Any] = [SimpleNamespace(name=i) for i in range(3)]
    speaker = Speaker(
        policy=engines[0], more=tuple(engines[1:]), format=None, max_tokens=1, probe_tolerance=1.0
    )  # type: ignore[arg-type]

    async def play(problem: Any, players: Any, sandbox: Any, memory: Any) -> Any:
        return players["generator"].policy._policy.name

    def runner(index: int) -> EpisodeRunner:
        game: Any = SimpleNamespace(play=play)
        sandbox: Any = SimpleNamespace(stats=dict)
        return EpisodeRunner(game, sandbox, {"generator": speaker}, {"generator": "generator"}, 0, index)

    asked: Any = tuple(SimpleNamespace(id=str(i)) for i in range(problems))
    request = PlayRequest(
        address=("step", 1), problems=asked, attempts={"generator": 1}, temperatures={"generator": 1.0}
    )
    played = [asyncio.run(runner(index).play(request)).episodes for index in range(3)]
    assert [one[0] for one in played] == [0, 1, 2], "each runner begins with another"
    assert Counter(engine for one in played for engine in one) == dict.fromkeys(range(3), problems)  # type: ignore
