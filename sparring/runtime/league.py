"""Plays a run's checkpoints against each other, outside of the run: lists them, has them write or play, and rates them.

Covered: games with test suites (every program is run on every suite) and self-play at a board (matches on both sides).
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np

from actors.settings import GPU_MEMORY_UTILIZATION, TransformersEngineSettings
from configs.load import load_run
from configs.schema import Config
from sandbox_workers.local import LocalSandbox
from sandbox_workers.nothing import NoSandbox
from sparring.core.errors import SparringError
from sparring.core.interfaces import PromptFormat, Sandbox, SandboxKind
from sparring.core.play import DISCRIMINATOR, GENERATOR
from sparring.core.problem import Problem
from sparring.evaluation.league import (
    CrossPlay,
    Rating,
    games_of_matches,
    games_of_meeting,
    kill_rate,
    meet,
    ratings,
    survival_rate,
)
from sparring.evaluation.writing import PolicyWriter, SuiteGame, write_programs, write_suites
from sparring.games.rules import SEATS
from sparring.runtime.hardware import detect
from sparring.runtime.model import loaded, open_model
from sparring.runtime.problem_sets import load_splits
from sparring.runtime.start import STARTED_FROM, starting_models

FILE = "league.json"
Say = Callable[[str], None]


@dataclass(frozen=True, kw_only=True, slots=True)
class Member:
    name: str
    models: Mapping[str, str | Path]
    """Model of each policy."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Effort:
    """Amount of play in a league."""

    problems: int
    """Number of held-out problems; at a board: number of matches that differ in their seeds."""
    programs: int = 4
    suites: int = 2
    """Number of programs and of suites that each member writes per problem, sampled at temperature 1."""
    matches: int = 4
    """Number of matches of each pair per problem, on each side."""


def read_config(run: Path) -> Config:
    """Returns the config of a run. Raises SparringError if the directory holds no run."""
    if not (run / "config.yaml").is_file():
        raise SparringError(f"{run}: no run (a directory with config.yaml)")
    return load_run(["--config", str(run / "config.yaml")])[0].to_config()


def members_of(run: Path, config: Config) -> list[Member]:
    """Returns the models as they were before the run, and the run's checkpoints that still exist, the oldest first.

    Raises SparringError if there is no checkpoint.
    """
    steps = sorted((run / "checkpoints").glob("step_*"))
    if not steps:
        raise SparringError(f"{run}: this run has no checkpoint yet")
    if (run / STARTED_FROM).is_file():
        began = Path((run / STARTED_FROM).read_text("utf-8").splitlines()[0])
        models: Mapping[str, str | Path] = {role: began / role for role in config.policies}
    else:
        models = starting_models(config)
    found = [Member(name="before", models=models)]
    for step in steps:
        name = f"step {int(step.name.removeprefix('step_'))}"
        found.append(Member(name=name, models={role: step / role for role in config.policies}))
    return found


def play_league(
    members: Sequence[Member], config: Config, effort: Effort, sandbox: SandboxKind, say: Say
) -> dict[str, Any]:
    """Plays the league. Returns plain JSON: the members, the rates of each pair, and all ratings. Raises
    SparringError."""
    names = [member.name for member in members]
    told: dict[str, Any] = {"game": config.game.kind, "members": names, **asdict(effort)}
    if isinstance(game := config.game.game(), SuiteGame):
        problems = load_splits(config)[1][: effort.problems]
        with LocalSandbox(sandbox, limits=game.limits, trusted=config.trusts_programs) as judge:
            say(judge.description)
            meetings = asyncio.run(meetings_of(members, problems, config, effort, judge, say))
        rated = ratings([games_of_meeting(meeting) for meeting in meetings])
        populations = {GENERATOR: rated[: len(names)], DISCRIMINATOR: rated[len(names) :]}
        return (
            told
            | tables(meetings, len(names))
            | {"problems": len(problems), "ratings": _named(populations, names)}
        )
    if set(config.seats) != set(SEATS) or len(config.policies) != 1:
        raise SparringError(
            f"game {config.game.kind}: a league is of programs against suites, or of one policy at a board"
        )
    games = asyncio.run(matches_of(members, config, effort, say))
    won_PP = np.sum(games, axis=0)
    played_PP = won_PP + won_PP.T
    scores = [
        [_share(*pair) for pair in zip(*rows, strict=True)] for rows in zip(won_PP, played_PP, strict=True)
    ]
    return told | {
        "problems": len(games),
        "scores": scores,
        "ratings": _named({GENERATOR: ratings(games)}, names),
    }


def tables(meetings: Sequence[CrossPlay], members: int) -> dict[str, list[list[float | None]]]:
    """Returns two tables of rates. kills: rows are discriminators, columns generators; survival: rows are generators,
    columns discriminators."""
    numbers = range(members)
    kills = [[kill_rate(meetings, row, column) for column in numbers] for row in numbers]
    return {
        "kills": [[rate if rate == rate else None for rate in row] for row in kills],  # nan: none was wrong
        "survival": [[survival_rate(meetings, row, column) for column in numbers] for row in numbers],
    }


def _share(won: float, played: float) -> float | None:
    return float(won / played) if played else None


def _named(populations: Mapping[str, Sequence[Rating]], names: Sequence[str]) -> list[dict[str, Any]]:
    return [
        {"policy": policy, "member": name, **asdict(rating)}
        for policy, rated in populations.items()
        for name, rating in zip(names, rated, strict=True)
    ]


# ---------------------------------------------------------------------- play
async def meetings_of(
    members: Sequence[Member],
    problems: Sequence[Problem],
    config: Config,
    effort: Effort,
    sandbox: Sandbox,
    say: Say,
) -> list[CrossPlay]:
    """Runs every program on every suite of all members, for games with suites. Returns one result per problem."""
    game = config.game.game()
    assert isinstance(game, SuiteGame)
    programs, suites, style = [], [], None
    for member in members:
        say(f"{member.name} writes for {len(problems)} problems")
        of_generator, of_discriminator, style = await written(member, problems, game, config, effort)
        programs.append(of_generator)
        suites.append(of_discriminator)
    return await asyncio.gather(
        *(
            meet(problem, [p[i] for p in programs], [s[i] for s in suites], sandbox, game, style)
            for i, problem in enumerate(problems)
        )
    )


async def written(
    member: Member, problems: Sequence[Problem], game: SuiteGame, config: Config, effort: Effort
) -> tuple[list[list[str]], list[list[str]], PromptFormat]:
    """Returns the programs and the suites that one member writes, each by problem, and the prompt format of its
    discriminator."""
    async with writer(member, GENERATOR, config) as generator:
        programs = await write_programs(problems, generator, game, effort.programs, 1.0)
    async with writer(member, DISCRIMINATOR, config) as discriminator:
        suites = await write_suites(problems, discriminator, game, effort.suites, "league")
    written = [programs[problem.id] for problem in problems], suites
    programs_of, suites_of = ([[t.artifact for t in of_problem] for of_problem in of] for of in written)
    return programs_of, suites_of, discriminator.format


async def matches_of(members: Sequence[Member], config: Config, effort: Effort, say: Say) -> list[np.ndarray]:
    """Returns won_PP (sparring.evaluation.league.ratings) of each problem. At most two models are loaded at once."""
    problems = config.game.own_problems(1)[0][: effort.problems]
    won_UPP = np.zeros((len(problems), len(members), len(members)))
    for i, one in enumerate(members):
        say(f"{one.name} plays {len(members) - i - 1} others")
        async with writer(one, GENERATOR, config, at_once=2) as first:
            for j in range(i + 1, len(members)):
                async with writer(members[j], GENERATOR, config, at_once=2) as second:
                    won_UPP += await _matches({i: first, j: second}, problems, config, effort, len(members))
    return list(won_UPP)


async def _matches(
    writers: Mapping[int, PolicyWriter],
    problems: Sequence[Problem],
    config: Config,
    effort: Effort,
    members: int,
) -> np.ndarray:
    """Plays two members against each other, on both sides. Returns won_PP of each problem."""
    game = config.game.game()

    async def of(problem: Problem, order: Sequence[int]) -> np.ndarray:
        seats: dict[str, int] = dict(zip(SEATS, order, strict=True))
        players = {
            name: writers[member].player(name, problem, effort.matches, 1.0, f"league {name}")
            for name, member in seats.items()
        }
        return games_of_matches(await game.play(problem, players, NoSandbox()), seats, members)

    both = list(writers), list(writers)[::-1]
    played = await asyncio.gather(*(of(problem, order) for problem in problems for order in both))
    return np.stack(played).reshape(len(problems), 2, members, members).sum(1)


def writer(
    member: Member, role: str, config: Config, at_once: int = 1
) -> AbstractAsyncContextManager[PolicyWriter]:
    """Returns a context that loads a member's policy. It is loaded on the run's own engine if that runs on a GPU and
    this machine has one, else on the transformers engine, which starts at once.

    Args:
        at_once: number of policies that are loaded at the same time, whose engines divide the memory of the run's engine
    """
    model, seat = open_model(str(member.models[role]), role), config.policy(role)
    device: Literal["cpu", "cuda"] = "cuda" if config.device == "cuda" and detect().gpus else "cpu"
    own = seat.engine if device == "cuda" else TransformersEngineSettings.like(seat.engine)
    if own.kind == "vllm":
        share = (own.gpu_memory_utilization or GPU_MEMORY_UTILIZATION) / at_once
        # vLLM lets only one engine of a process sleep
        own = own.model_copy(update={"gpu_memory_utilization": share, "sleep": False})
    return loaded(model, own, device, model.style(), seat.max_tokens, config.seed)
