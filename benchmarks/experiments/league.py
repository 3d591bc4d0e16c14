"""What is a league for? Rock-paper-scissors in which a win by rock pays double, a table of three logits, REINFORCE by
plain gradient steps, and the opponents of sparring/curriculum/opponents.py.

    python -m benchmarks.experiments.league

Each update plays eight groups of matches, each group against an opponent drawn for it: always the policy itself (self);
half of the groups the policy itself, the others any past version (history); or half of them the policy itself, the
others by prioritized fictitious self-play or any past version (league). A copy of the policy joins the past at every
20th update.
The measure is what the best response earns against the policy (exploitability, 0 in equilibrium): as a mean over the
policies of the last tenth of the updates, since one policy of a cycle may pass near the equilibrium by chance; and
against the mean policy of the second half. All have equal numbers of matches.
Negative control: the same with moves that form no cycle (scissors beat paper and rock, paper beats rock): training
against the current opponent is then enough, and a league has nothing to add.
"""

import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

import numpy as np

from benchmarks.experiments.kuhn import probabilities
from benchmarks.report import arguments, write
from sparring.curriculum.opponents import OpponentMix, Opponents
from sparring.evaluation.intervals import Interval, intervals, print_table
from sparring.games.rps.payoffs import MOVES, payoff

CYCLIC = np.array([[payoff(mine, other) for other in MOVES] for mine in MOVES])
TRANSITIVE = np.sign(np.subtract.outer(np.arange(3), np.arange(3))).astype(float)
GAMES = {"cyclic": CYCLIC, "transitive": TRANSITIVE}
ARMS = {
    "self": OpponentMix(current=1, pfsp=0),
    "history": OpponentMix(current=0.5, pfsp=0),
    "league": OpponentMix(current=0.5, pfsp=0.35),
}
SNAPSHOT_EVERY = 20
"""Number of updates between snapshots."""


@dataclass(frozen=True, kw_only=True, slots=True)
class LeagueSettings:
    game: Literal["cyclic", "transitive"] = "cyclic"
    arm: str = "self"
    learning_rate: float = 1.0
    entropy: float = 0.1
    updates: int = 2000
    groups: int = 8
    matches: int = 8
    """Matches of each group."""


def exploitability(mixture: np.ndarray, payoffs: np.ndarray) -> float:
    """Returns the exploitability of a mixture in a zero-sum symmetric game."""
    return float((payoffs @ mixture).max())


def gradient(logits: np.ndarray, actions_N: np.ndarray, payoffs_N: np.ndarray, entropy: float) -> np.ndarray:
    """Returns the gradient by the logits of the mean of advantage x log-probability + entropy; the baseline is the
    batch's mean."""
    pi = probabilities(logits)
    advantages_N = payoffs_N - payoffs_N.mean()
    credit = np.bincount(actions_N, advantages_N, len(pi)) / len(actions_N)
    surprise = -np.log(pi) - (-pi * np.log(pi)).sum()
    return credit - pi * credit.sum() + entropy * pi * surprise


def train(settings: LeagueSettings, seed: int) -> dict[str, float]:
    """Trains a policy and returns its exploitability: "last", the mean over the last tenth of the policies, and "mean",
    that of the mean policy of the second half."""
    payoffs, rng = GAMES[settings.game], np.random.default_rng(seed)
    logits = np.zeros(len(MOVES))
    past: dict[int, np.ndarray] = {}
    opponents = Opponents(ARMS[settings.arm], keep=50, seed=seed)
    mixtures = []
    for update in range(settings.updates):
        if update % SNAPSHOT_EVERY == 0:
            past[update] = probabilities(logits)
            opponents.add(update)
        pi = probabilities(logits)
        versions = [opponents.draw(update, group) for group in range(settings.groups)]
        n = settings.matches
        others = [rng.choice(len(MOVES), n, p=pi if v is None else past[v]) for v in versions]
        mine_N = rng.choice(len(MOVES), settings.groups * n, p=pi)
        won_N = payoffs[mine_N, np.concatenate(others)]
        for version, won in zip(versions, won_N.reshape(settings.groups, n), strict=True):
            if version is not None:
                opponents.record(version, float((np.sign(won) + 1).mean() / 2))
        logits = logits + settings.learning_rate * gradient(logits, mine_N, won_N, settings.entropy)
        mixtures.append(probabilities(logits))
    late = mixtures[-max(1, settings.updates // 10) :]
    return {
        "last": float(np.mean([exploitability(mixture, payoffs) for mixture in late])),
        "mean": exploitability(np.mean(mixtures[settings.updates // 2 :], axis=0), payoffs),
    }


def over_seeds(settings: LeagueSettings, seeds: Sequence[int]) -> dict[str, Interval]:
    return intervals([train(settings, seed) for seed in seeds])


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--seeds", type=int, nargs="+", default=list(range(1, 6)))
    parser.add_argument("--updates", type=int, default=LeagueSettings().updates)
    parser.add_argument("--learning-rate", type=float, nargs="+", default=[0.3, 1.0, 3.0])
    parser.add_argument("--entropy", type=float, nargs="+", default=[0.05, 0.1, 0.2])
    options = parser.parse_args()
    if options.quick:
        options.updates, options.seeds, options.learning_rate = 200, options.seeds[:2], [1.0]
    start = time.perf_counter()
    figures: dict[str, Any] = {}
    for game in ("cyclic", "transitive"):
        rows: dict[str, list[list[object]]] = {"last": [], "mean": []}
        for rate in options.learning_rate:
            for entropy in options.entropy:
                settings = LeagueSettings(
                    game=game, learning_rate=rate, entropy=entropy, updates=options.updates
                )
                found = {arm: over_seeds(replace(settings, arm=arm), options.seeds) for arm in ARMS}
                for of, table in rows.items():
                    table.append([f"{rate:g}", f"{entropy:g}", *(found[arm][of] for arm in ARMS)])
                    for arm in ARMS:
                        key = f"{of}, {game}, learning rate {rate:g}, entropy {entropy:g}, {arm}"
                        figures[key] = found[arm][of].plain()
        for of, title in (("last", "the last policies"), ("mean", "the second half's mean policy")):
            print_table(f"{game}: exploitability of {title}", ["learning rate", "entropy", *ARMS], rows[of])
    seconds = time.perf_counter() - start
    print(f"\n{options.updates} updates, seeds {options.seeds}, 95% intervals, {seconds:.0f} s")
    settings = asdict(LeagueSettings(updates=options.updates))
    write(options.json, {**figures, "settings": settings, "seconds": seconds}, {})


if __name__ == "__main__":
    main()
