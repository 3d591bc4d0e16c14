"""A league of policies, such as the checkpoints of a run: results of each pair, and a rating of each member.

`meet` runs the programs of all members on the suites of all members, on one problem; `kill_rate` and `survival_rate` are
computed from its results. `ratings` takes the games of any league: programs against suites (two populations, and games
only between them: `games_of_meeting`), or matches (one population: `games_of_matches`).
Not covered: the generation of programs, suites and moves (sparring/runtime/league.py).
"""

import asyncio
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

import numpy as np

from sparring.core.episode import Episode, Trajectory
from sparring.core.interfaces import PromptFormat, Sandbox
from sparring.core.problem import Problem
from sparring.evaluation.writing import SuiteGame
from sparring.games.program_scores import judge_program
from sparring.games.suite_scores import SuiteRecord

_ELO = 400 / math.log(10)
_TOLERANCE, _ROUNDS = 1e-7, 20_000
"""Convergence tolerance of the log-strengths, and maximum number of iterations."""


# ---------------------------------------------------------------------- programs against suites
@dataclass(frozen=True, kw_only=True, slots=True)
class CrossPlay:
    """The results of all members' programs on all members' suites, for one problem."""

    programs: Sequence[Sequence[str]]
    """Programs by member."""
    wrong: frozenset[str]
    """Programs that fail a hidden test."""
    killed: Sequence[Sequence[frozenset[str]]]
    """Programs that fail the suite, by member and suite."""


async def meet(
    problem: Problem,
    programs: Sequence[Sequence[str]],
    suites: Sequence[Sequence[str]],
    sandbox: Sandbox,
    game: SuiteGame,
    style: PromptFormat | None = None,
) -> CrossPlay:
    """Runs all programs on all suites. A program or pair that the sandbox could not judge counts as correct or as passed.

    Args:
        programs: by member.
        suites: by member.
        style: see SuiteGame.judge_suites.
    """
    distinct = list(dict.fromkeys(text for of_one in programs for text in of_one))
    judged = await asyncio.gather(*(judge_program(sandbox, text, problem, game.limits) for text in distinct))
    wrong = frozenset(j.program for j in judged if j.test_rate is not None and not j.solved)
    flat = [suite for of_one in suites for suite in of_one]
    records = await game.judge_suites(problem, flat, sandbox, distinct, style=style)
    fails = iter([_failed(record, distinct) for record in records])
    killed = [[next(fails) for _ in of_one] for of_one in suites]
    return CrossPlay(programs=programs, wrong=wrong, killed=killed)


def _failed(record: SuiteRecord | None, programs: Sequence[str]) -> frozenset[str]:
    killed = record.wrong if record else ()
    return frozenset(text for text, dead in zip(programs, killed, strict=False) if dead)


def kill_rate(meetings: Sequence[CrossPlay], discriminator: int, generator: int) -> float:
    """Returns the share of pairs (wrong program of the generator, suite of the discriminator) in which the suite fails the
    program; nan if no program is wrong. generator, discriminator: indices of members."""
    pairs = Counter(
        program in suite
        for meeting in meetings
        for program in meeting.programs[generator]
        if program in meeting.wrong
        for suite in meeting.killed[discriminator]
    )
    return pairs[True] / pairs.total() if pairs else float("nan")


def survival_rate(meetings: Sequence[CrossPlay], generator: int, discriminator: int) -> float:
    """Returns the share of the generator's programs that pass every suite of the discriminator. generator, discriminator:
    indices of members."""
    return fmean(
        not any(program in suite for suite in meeting.killed[discriminator])
        for meeting in meetings
        for program in meeting.programs[generator]
    )


def games_of_meeting(meeting: CrossPlay) -> np.ndarray:
    """Counts one game per program and suite: the suite's author wins if the suite fails the program, else the program's.

    Returns won_PP (see `ratings`); the P players are all generators, then all discriminators.
    """
    members = len(meeting.programs)
    won_PP = np.zeros((2 * members, 2 * members))
    for d, suites in enumerate(meeting.killed):
        for g, programs in enumerate(meeting.programs):
            killed = sum(program in suite for suite in suites for program in programs)
            won_PP[members + d, g] = killed
            won_PP[g, members + d] = len(suites) * len(programs) - killed
    return won_PP


# ---------------------------------------------------------------------- matches
def games_of_matches(episode: Episode, seats: Mapping[str, int], members: int) -> np.ndarray:
    """Counts the matches of two members by the reward components `draw` and `loss` of the trajectories.

    Args:
        seats: the member's index by player.
    Returns won_PP (see `ratings`).
    """
    told: dict[int, Trajectory] = {t.attempt: t for t in episode.trajectories}
    won_PP = np.zeros((members, members))
    for trajectory in told.values():
        mine = seats[trajectory.player]
        (other,) = (member for member in seats.values() if member != mine)
        share = 0.5 if trajectory.components["draw"] else 1.0 - trajectory.components["loss"]
        won_PP[mine, other] += share
        won_PP[other, mine] += 1.0 - share
    return won_PP


# ---------------------------------------------------------------------- ratings
@dataclass(frozen=True, kw_only=True, slots=True)
class Rating:
    """A rating on the Elo scale: with 400 points more, a player is expected to win ten games of eleven. The mean of all
    ratings is 0."""

    points: float
    low: float
    high: float
    """Upper end of the 95% interval; `low` is its lower end."""


def ratings(games_UPP: Sequence[np.ndarray], *, resamples: int = 1000, seed: int = 0) -> list[Rating]:
    """Returns Bradley-Terry ratings of P players, with percentile intervals of the bootstrap (Efron 1979) over the units.

    Args:
        games_UPP: for each unit, such as a problem, the number of games that the player of the row won against the player
            of the column; a draw is half a win for each. The bootstrap draws whole units, since games on one problem are
            correlated.

    Raises ValueError if the games do not connect all players, since their ratings would have no common scale.
    """
    games = np.stack(list(games_UPP))
    _check_linked(games.sum(0))
    units = len(games)
    drawn_BU = np.random.default_rng(seed).multinomial(units, [1 / units] * units, size=resamples)
    points = _ELO * bradley_terry(np.concatenate([games.sum(0)[None], np.tensordot(drawn_BU, games, 1)]))
    low, high = np.percentile(points[1:], [2.5, 97.5], axis=0)
    return [
        Rating(points=float(p), low=float(a), high=float(b))
        for p, a, b in zip(points[0], low, high, strict=True)
    ]


def bradley_terry(won_BPP: np.ndarray) -> np.ndarray:
    """Returns log-strengths (batch x players, mean 0) under P(i beats j) = s_i / (s_i + s_j) (Bradley and Terry 1952).

    The estimate is maximum likelihood by the MM algorithm of Hunter 2004 ("MM algorithms for generalized Bradley-Terry
    models", section 2): s_i <- W_i / sum_j N_ij / (s_i + s_j). W_i is the number of games that i won, N_ij the number of
    games between i and j. Each pair that has played gets one more drawn game; without it, the strength of a player that won
    (or lost) all its games would be infinite (or zero).
    """
    played = won_BPP + won_BPP.swapaxes(1, 2)
    met = played > 0
    games = played + met
    won = (won_BPP + 0.5 * met).sum(2)
    log_s = np.zeros(won.shape)
    for _ in range(_ROUNDS):
        strengths = np.exp(log_s)
        rate = (games / (strengths[:, :, None] + strengths[:, None, :])).sum(2)
        # A resample may contain no game of a player: its log-strength is then 0 before centring.
        new = np.where(won > 0, np.log(np.maximum(won, 1e-300)) - np.log(np.maximum(rate, 1e-300)), 0.0)
        new -= new.mean(1, keepdims=True)
        if np.abs(new - log_s).max() < _TOLERANCE:
            return new
        log_s = new
    return log_s


def _check_linked(won_PP: np.ndarray) -> None:
    near = ((won_PP + won_PP.T) > 0) | np.eye(len(won_PP), dtype=bool)
    linked = np.linalg.matrix_power(near.astype(float), len(near)) > 0
    if not linked.all():
        raise ValueError("no rating: some players met none of the others, by any chain of games")
