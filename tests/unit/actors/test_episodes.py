"""Which engine plays which problem, where a policy has several."""

import asyncio
import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from actors.episodes import EpisodeRunner, PolicyClient
from actors.loading import LocalPolicy
from sandbox_workers.nothing import NoSandbox
from sparring.core.batch import transcript_of
from sparring.core.episode import Episode, Outcome
from sparring.core.interfaces import Branching, Message, Player
from sparring.core.play import PlayProgress, PlayRequest, Usage
from sparring.core.problem import Problem
from sparring.games.rules import match
from sparring.games.turns import answer_all
from tests.playing import STOP, Letters, ScriptedPolicy, letters


def request(problems: Sequence[Any], attempts: Mapping[str, int], **more: Any) -> PlayRequest:
    temperatures = dict.fromkeys(attempts, 1.0)
    return PlayRequest(
        address=("step", 1), problems=tuple(problems), attempts=attempts, temperatures=temperatures, **more
    )


@pytest.mark.parametrize("problems", [1, 3, 12])
def test_problems_are_dealt_out_among_a_policys_engines(problems: int) -> None:
    async def load(*_: Any) -> None: ...

    engines: list[Any] = [SimpleNamespace(name=i, load=load) for i in range(3)]
    style: Any = None
    speaker = PolicyClient(engines=engines, format=style, decode=letters, max_tokens=1)

    async def play(problem: Any, players: Any, sandbox: Any, memory: Any) -> Any:
        return players["generator"].policy._policy.name

    def runner(index: int) -> EpisodeRunner:
        game: Any = SimpleNamespace(play=play)
        return EpisodeRunner(game, NoSandbox(), {"generator": speaker}, {"generator": "generator"}, 0, index)

    asked = request([SimpleNamespace(id=str(i)) for i in range(problems)], {"generator": 1})
    played: list[Any] = [asyncio.run(runner(index).play(asked))[0].episodes for index in range(3)]
    assert [one[0] for one in played] == [0, 1, 2], "each runner begins with another"
    assert Counter(engine for one in played for engine in one) == dict.fromkeys(range(3), problems)


def runner_of_two_letters(policies: Sequence[str], seats: Mapping[str, str], **more: Any) -> EpisodeRunner:
    """Each attempt says ab."""
    game: Any = SimpleNamespace(play=lambda problem, players, *_: spoken(problem, players["generator"]))
    policy = ScriptedPolicy(lambda prompt, sampling: [*map(ord, "ab"), STOP])
    speaker = PolicyClient(engines=[LocalPolicy(policy, 1.0)], format=Letters(), decode=letters, max_tokens=9)
    return EpisodeRunner(game, NoSandbox(), dict.fromkeys(policies, speaker), seats, 0, **more)


def test_play_for_training_answers_what_was_earned_and_leaves_the_rest_apart() -> None:
    """What the driver keeps is small; rows and transcripts have the rest."""
    runner = runner_of_two_letters(["of mine"], {"generator": "of mine"})
    asked = request([match("letters", name) for name in "pq"], {"generator": 2})
    whole, none = asyncio.run(runner.play(asked))
    assert none == [] and whole.usage == Usage() and not whole.episodes[0].rows
    kept, transcripts = asyncio.run(runner.play(replace(asked, recorded={"step": 1, "stage": 2})))

    played = [t for e in whole.episodes for t in e.trajectories]
    light = [t for e in kept.episodes for t in e.trajectories]
    assert [t.kept and t.kept.index for t in light] == [0, 1, 2, 3]
    assert [(t.player, t.attempt, t.reward, t.artifact, t.token_count) for t in light] == [
        (t.player, t.attempt, t.reward, t.artifact, t.token_count) for t in played
    ]
    assert not any(t.turns or t.outcomes for t in light)
    assert transcripts == [transcript_of(t) for t in played]
    rows = [json.loads(line) for e in kept.episodes for line in e.rows.splitlines()]
    assert [(row["step"], row["stage"], row["problem"], row["policy"], row["attempt"]) for row in rows] == [
        (1, 2, problem, "of mine", attempt) for problem in "pq" for attempt in (0, 1)
    ]
    assert rows[0]["prompts"] == ["letters>"] and rows[0]["outcomes"] == [{"test": "a", "status": "PASSED"}]
    assert kept.usage == Usage(prompts=4 * len("letters>"), sampled=Counter({("generator", 0): 12}))


@pytest.mark.parametrize(
    ("attempts", "stages", "branching", "expected"),
    [
        ((2, 0), (), None, 2),
        ((2, 3), (1, 2, 3, 4, 5), None, 13),
        # 2 prefixes of 2 branches of 2 continuations: 2 turns of each stage before, 4 of this one, 8 of each after it
        ((8, 3), (1, 2, 3, 4, 5), Branching(stage=3, branches=2, continuations=2), 27),
        ((8, 3), (1, 5), Branching(stage=5, branches=8, continuations=1), 12),
    ],
)
def test_a_play_tells_how_many_completions_of_how_many_are_there(
    attempts: tuple[int, int], stages: tuple[int, ...], branching: Branching | None, expected: int
) -> None:
    """attempts: of the generator and of the discriminator."""
    seats = {"generator": "generator", "discriminator": "discriminator"}
    asked = request(
        [match("letters", name) for name in "pqr"],
        dict(zip(seats, attempts, strict=True)),
        branching={"generator": branching} if branching else {},
    )
    heard: list[PlayProgress] = []
    asyncio.run(runner_of_two_letters([*seats], seats, stages=stages).play(asked, heard.append))
    played = 3 * attempts[0]
    assert [p.done for p in heard] == list(range(played + 1))
    assert [p.tokens for p in heard] == [3 * n for n in range(played + 1)]
    assert {p.expected for p in heard} == {3 * expected}
    assert heard == sorted(heard, key=lambda p: p.seconds)


def test_the_progress_of_parts_is_that_of_the_whole() -> None:
    whole = PlayProgress(done=3, expected=9, tokens=30, seconds=2.0) + PlayProgress(
        done=1, expected=3, tokens=10, seconds=4.0
    )
    assert whole == PlayProgress(done=4, expected=12, tokens=40, seconds=4.0)
    assert (whole.left_s, whole.known_total) == (8.0, 12)
    assert PlayProgress(expected=9).left_s is None
    more = PlayProgress(done=10, expected=9, seconds=1.0)
    assert (more.left_s, more.known_total) == (None, None)


async def spoken(problem: Problem, player: Player) -> Episode:
    attempts = await answer_all(player, Message(brief=problem.description, full=problem.description))
    for attempt in attempts:
        attempt.reward, attempt.outcomes = float(attempt.attempt), (Outcome(test="a", status="PASSED"),)
    return Episode(problem_id=problem.id, trajectories=attempts)
