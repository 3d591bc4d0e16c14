"""A league of players, such as the checkpoints of a run: who beats whom, and how strong each one is.

`meet` has the programs of all members meet the suites of all members, on one problem; `kill_rate` and `survival_rate`
count. `ratings` takes the games of any league: programs against suites (two populations that never meet their own:
`games_of_meeting`), or matches (one population: `games_of_matches`).
Not covered: who writes the programs and the suites, and who makes the moves (runtime/league.py).
"""

import asyncio
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

import numpy as np

from core.episode import Episode, Trajectory
from core.interfaces import Sandbox
from core.problem import Problem
from evaluation.writing import SuiteGame
from games.program_scores import judge_program
from games.suite_scores import SuiteRecord

_ELO = 400 / math.log(10)
_TOLERANCE, _ROUNDS = 1e-7, 20_000
"""Of the logarithms of strengths."""


# ---------------------------------------------------------------------- programs against suites
@dataclass(frozen=True, kw_only=True, slots=True)
class Meeting:
    """One problem's programs and suites of all members."""

    programs: Sequence[Sequence[str]]
    """By member."""
    wrong: frozenset[str]
    """Programs that fail a hidden test."""
    killed: Sequence[Sequence[frozenset[str]]]
    """By member and suite: the programs that the suite fails."""


async def meet(
    problem: Problem,
    programs: Sequence[Sequence[str]],
    suites: Sequence[Sequence[str]],
    sandbox: Sandbox,
    game: SuiteGame,
) -> Meeting:
    """programs, suites: by member. What the sandbox could not judge counts as not killed, and not wrong."""
    distinct = list(dict.fromkeys(text for of_one in programs for text in of_one))
    judged = await asyncio.gather(*(judge_program(sandbox, text, problem, game.limits) for text in distinct))
    wrong = frozenset(j.program for j in judged if j.test_rate is not None and not j.solved)
    flat = [suite for of_one in suites for suite in of_one]
    fails = iter([_failed(r, distinct) for r in await game.judge_suites(problem, flat, sandbox, distinct)])
    killed = [[next(fails) for _ in of_one] for of_one in suites]
    return Meeting(programs=programs, wrong=wrong, killed=killed)


def _failed(record: SuiteRecord | None, programs: Sequence[str]) -> frozenset[str]:
    killed = record.wrong if record else ()
    return frozenset(text for text, dead in zip(programs, killed, strict=False) if dead)


def kill_rate(meetings: Sequence[Meeting], discriminator: int, generator: int) -> float:
    """Of the member's wrong programs, the share that a suite of the other finds; nan where none is wrong."""
    pairs = Counter(
        program in suite
        for meeting in meetings
        for program in meeting.programs[generator]
        if program in meeting.wrong
        for suite in meeting.killed[discriminator]
    )
    return pairs[True] / pairs.total() if pairs else float("nan")


def survival_rate(meetings: Sequence[Meeting], generator: int, discriminator: int) -> float:
    """Of all the member's programs, the share that every suite of the other lets pass."""
    return fmean(
        not any(program in suite for suite in meeting.killed[discriminator])
        for meeting in meetings
        for program in meeting.programs[generator]
    )


def games_of_meeting(meeting: Meeting) -> np.ndarray:
    """A game is a program on a suite: the suite's author wins it where the suite kills the program.

    Returns won_PP (see `ratings`), the P players being all generators, then all discriminators.
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
    """Matches of two members, by the components win, draw and loss of who moved.

    Args:
        seats: player -> member.
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
    """In points of the Elo scale: 400 more, and one is expected to win ten games of eleven. The mean of all is 0."""

    points: float
    low: float
    high: float
    """The 95% interval."""


def ratings(games_UPP: Sequence[np.ndarray], *, resamples: int = 1000, seed: int = 0) -> list[Rating]:
    """Bradley-Terry ratings of P players, with percentile intervals of the bootstrap (Efron 1979) over the units.

    Args:
        games_UPP: by unit, such as a problem, how many games the player of the row won against that of the column; a
            draw is half a game won by each. Units are drawn as wholes, for games on one problem are alike.

    Raises ValueError where the games do not link all players: no scale is common to them then.
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
    """Log-strengths (batch x players, mean 0) under P(i beats j) = s_i / (s_i + s_j) (Bradley and Terry 1952).

    Maximum likelihood by the MM algorithm of Hunter 2004 ("MM algorithms for generalized Bradley-Terry models", section
    2): s_i <- W_i / sum_j N_ij / (s_i + s_j), W_i the games that i won, N_ij those of i and j. Beside those played, each
    pair that met has one drawn game: else who won, or lost, all games would be infinitely strong, or weak.
    """
    played = won_BPP + won_BPP.swapaxes(1, 2)
    met = played > 0
    games = played + met
    won = (won_BPP + 0.5 * met).sum(2)
    log_s = np.zeros(won.shape)
    for _ in range(_ROUNDS):
        strengths = np.exp(log_s)
        rate = (games / (strengths[:, :, None] + strengths[:, None, :])).sum(2)
        # a resample may lack all games of a player: nothing moves it then
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
