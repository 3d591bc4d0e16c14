"""One suite for every game, and for the one that docs/your_own_game.md builds: players who say anything, the real sandbox."""

import asyncio
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache
from random import Random
from typing import get_args

import pytest

from configs.load import load_run
from lab.examples import MADE
from lab.model import build_tokenizer
from sandbox_workers.languages import UnknownLanguage
from sandbox_workers.local import LocalSandbox
from sparring.core.episode import Episode
from sparring.core.interfaces import Player, PromptFormat, Sampling, Sandbox, SandboxFailure
from sparring.core.play import PlayResult, usage_of
from sparring.core.problem import Problem
from sparring.core.seeding import derive_seed
from sparring.core.verdict import Limits
from sparring.games import GameRules
from sparring.games.prompts import END, MARKER_TOKENS, PAD, ChatFormat, TaggedFormat
from sparring.games.rules import Rules
from sparring.runtime.problem_sets import load_splits
from sparring.tracking.step import episode_metrics, require_some_judged
from tests import your_own_game
from tests.contracts.test_sandbox_contract import require
from tests.playing import Breaking, ScriptedPolicy, sample_of

SHIPPED: tuple[GameRules, ...] = tuple(kind() for kind in get_args(get_args(GameRules)[0]))
RULES: tuple[Rules, ...] = (*SHIPPED, your_own_game.module().RegexRules())
BOARDS = ("tictactoe", "kuhn", "rps")
MAX_TOKENS = 90
SAYS = [
    "print(1)", "print('a')\n", "x = 1", "1 / 0", "def f(x): return x", "p=lambda g:g", "", "\n\n", "```python\nprint(2)\n```",
    "assert f(1) == 1\nassert f([]) == []", "f(1)\nf([1, 2])", "1", "7", "pass", "bet", "rock", "paper", "Let me think.", "é🙂 <end> <w>",
]  # fmt: skip


@pytest.fixture(scope="module")
def sandbox() -> Iterator[LocalSandbox]:
    require("auto")
    with LocalSandbox("auto", limits=Limits(cpu_s=1.0, wall_s=8.0, memory_mb=128)) as local:
        yield local


@pytest.fixture(scope="module")
def styles() -> dict[str, PromptFormat]:
    """The two ways in which models are spoken to, and a tokenizer that knows hardly any word."""
    tokenizer = build_tokenizer(["def f(x): return x", "print(1)", "pass bet 0 1 2"], MARKER_TOKENS, PAD, END)
    return {"tagged": TaggedFormat(tokenizer), "chat": ChatFormat(tokenizer)}


@pytest.fixture(params=RULES, ids=lambda rules: rules.kind)
def rules(request) -> Rules:
    return request.param


@cache
def problems(kind: str) -> tuple[Problem, Problem]:
    """A training problem and a held-out one."""
    if kind == "regex":
        return your_own_game.problems()
    recipes = (load_run(["--config", made.recipe, "--evaluation.problems", "1"])[0] for made in MADE.values())
    train, held_out = load_splits(next(run.to_config() for run in recipes if run.game.kind == kind))
    return train[0], held_out[0]


def seat(name: str, style: PromptFormat, says: Sequence[str], *, attempts: int = 3, seed: int = 1) -> Player:
    def script(prompt: Sequence[int], sampling: Sampling) -> list[int]:
        text = Random(derive_seed(sampling.seed or 0, *prompt)).choice(says)
        return style.completion(text)

    return Player(
        name=name,
        policy=ScriptedPolicy(script),
        format=style,
        attempts=attempts,
        temperature=1.0,
        seed=derive_seed(seed, name),
        max_tokens=MAX_TOKENS,
    )


def play(
    rules: Rules,
    problem: Problem,
    sandbox: Sandbox,
    style: PromptFormat,
    says: Sequence[str] | None = None,
    memory: Sequence[str] = (),
) -> Episode:
    texts = says or [*SAYS, problem.reference_solution]
    return play_by(rules, problem, sandbox, {name: seat(name, style, texts) for name in rules.seats}, memory)


def play_by(
    rules: Rules,
    problem: Problem,
    sandbox: Sandbox,
    players: Mapping[str, Player],
    memory: Sequence[str] = (),
) -> Episode:
    async def bounded() -> Episode:
        return await asyncio.wait_for(rules.game().play(problem, players, sandbox, memory), 120)

    try:
        return asyncio.run(bounded())
    except UnknownLanguage as missing:  # the namespace sandbox has what the host has; the image has all
        if getattr(sandbox, "description", "").startswith("sandbox: Docker"):
            raise
        pytest.skip(str(missing))


def test_every_game_of_the_choice_is_here():
    assert len({rules.kind for rules in SHIPPED}) == len(SHIPPED) == 8


def test_an_episode_is_of_its_problem_and_its_seats(rules, sandbox, styles):
    for problem in problems(rules.kind):
        episode = play(rules, problem, sandbox, styles["tagged"])
        assert episode.problem_id == problem.id
        assert {t.player for t in episode.trajectories} <= rules.seats.keys()
        assert episode.trajectories
        result = PlayResult(
            episodes=[episode], sandbox={}, usage=usage_of([episode]), spans=[("generate", 0.0, 1.0)]
        )
        json.dumps(episode_metrics(rules.seats, result))
        for trajectory in episode.trajectories:
            assert json.loads(json.dumps(trajectory.components)) == trajectory.components
            assert isinstance(trajectory.artifact, str)
            if trajectory.reward is None:
                assert "no_valid_test" in trajectory.components
            else:
                assert math.isfinite(trajectory.reward) and "sandbox_failure" not in trajectory.components
                sample_of(trajectory)


def test_the_same_players_play_the_same_episode(rules, sandbox, styles):
    """With the real sandbox: nothing that it measures is in an episode."""
    problem, _ = problems(rules.kind)
    assert play(rules, problem, sandbox, styles["tagged"]) == play(rules, problem, sandbox, styles["tagged"])


@pytest.mark.parametrize("style", ["tagged", "chat"])
def test_no_sequence_is_longer_than_the_longest(rules, sandbox, styles, style):
    """Players who talk until they are cut off, who write long programs, and who play on."""
    format, game = styles[style], rules.game()
    long = [f"print(1)#{'x' * n}" for n in (20, 60, 80)] + ["x" * 300, "()" * 300, "é" * 100, "é" * 300]
    moves = [f"{m}{' ' * n}" for m in ("pass", "bet", "rock", "paper", *"123456789") for n in (0, 200)]
    for problem in problems(rules.kind):
        for says in (long, moves if rules.kind in BOARDS else SAYS):
            episode = play(rules, problem, sandbox, format, says, memory=["print(2)#" + "é" * 70])
            for trajectory in episode.trajectories:
                last = trajectory.turns[-1]
                used = len(last.prompt_tokens) + len(last.completion.tokens)
                assert used <= game.longest(problem, trajectory.player, format, MAX_TOKENS)
                assert all(len(turn.completion.tokens) <= MAX_TOKENS for turn in trajectory.turns)


@pytest.mark.parametrize("kind", [r.kind for r in RULES if r.kind not in BOARDS])
def test_a_broken_sandbox_gives_no_reward(kind, styles):
    (rules,) = (r for r in RULES if r.kind == kind)
    problem, _ = problems(kind)
    says = ["print(1)", "x = 1", "f(1)\nf(2)"] if kind != "output_prediction" else ["print(1)", "print(2)"]
    if kind == "multistage":
        says = ["assert f(1) == 1\nassert f(2) == 3"]
    episode = play(rules, problem, Breaking(), styles["tagged"], says)
    assert episode.trajectories
    assert [t.reward for t in episode.trajectories] == [None] * len(episode.trajectories)
    failed = [t.components.get("sandbox_failure") == 1.0 for t in episode.trajectories]
    assert all(failed) or (kind == "multistage" and any(failed))  # whose programs then have no test
    with pytest.raises(SandboxFailure, match="judged none"):
        require_some_judged(1, [episode])


@pytest.mark.parametrize("kind", BOARDS)
def test_a_board_needs_no_sandbox(kind, styles):
    (rules,) = (r for r in RULES if r.kind == kind)
    asked = Breaking()
    episode = play(rules, problems(kind)[0], asked, styles["tagged"])
    assert all(t.reward is not None for t in episode.trajectories) and not asked.jobs


def test_what_a_policy_raises_ends_the_play(rules, styles):
    def script(prompt: Sequence[int], sampling: Sampling) -> list[int]:
        raise MemoryError("the engine died")

    style = styles["tagged"]
    players = {
        name: Player(
            name=name,
            policy=ScriptedPolicy(script),
            format=style,
            attempts=2,
            temperature=1.0,
            seed=1,
            max_tokens=8,
        )
        for name in rules.seats
    }
    with pytest.raises(MemoryError, match="the engine died"):
        asyncio.run(rules.game().play(problems(rules.kind)[0], players, Breaking()))


@pytest.mark.parametrize("kind", ["code_execution", "unit_tests", "code_golf"])
def test_the_reference_earns_more_than_a_program_that_fails(kind, sandbox, styles):
    (rules,) = (r for r in RULES if r.kind == kind)
    problem, _ = problems(kind)
    earned = {}
    for program in (problem.reference_solution, "1 / 0", ""):
        solver = replace(seat("generator", styles["chat"], [program], attempts=1), max_tokens=4000)
        episode = play_by(rules, problem, sandbox, {"generator": solver})
        earned[program] = episode.trajectories[0].reward
    assert earned[problem.reference_solution] == max(earned.values()) > earned["1 / 0"]


@pytest.mark.parametrize("kind", ["multistage", "code_execution", "unit_tests", "code_golf"])
def test_a_problems_own_limits_hold(kind, sandbox, styles):
    (rules,) = (r for r in RULES if r.kind == kind)
    own, asked = Limits(cpu_s=0.25, wall_s=5.0), Breaking(sandbox, on=set())
    says = ["p = f = print", "assert f(1) == 1"]
    for limits, expected in ((own, own), (None, rules.sandbox_limits)):
        asked.jobs.clear()
        play(rules, replace(problems(kind)[0], limits=limits), asked, styles["tagged"], says)
        assert {of_job for _, _, of_job, *_ in asked.jobs} == {expected}
