"""What do role-conditioned baselines and an entropy bonus achieve in self-play, in a game whose distance from
equilibrium is known exactly? Kuhn poker, a table of logits for each role, REINFORCE by plain gradient steps.

    python -m benchmarks.experiments.kuhn rae               # a constant bonus per role, with and without RAE
    python -m benchmarks.experiments.kuhn exploitability    # NashConv by entropy bonus and opponents

rae: role 0 earns its payoff + b, role 1 its payoff - b. That cannot change the game, only how an estimator sees it.
Estimators: one baseline for both roles, which in a zero-sum game is 0 and so the same as none; REINFORCE++, one
normalisation for both roles; one baseline for each role (RAE). At b = 0 the first and the last should not differ.
exploitability: the policies learn in three ways: by play against themselves; with half of the play against a uniform
choice of their own past (fictitious self-play); or with half of it by prioritized fictitious self-play (PFSP: Vinyals
et al. 2019, "Grandmaster level in StarCraft II using multi-agent reinforcement learning", methods). All have equal
numbers of episodes.

The figures are those of the last policies, and of the mean of the policies of the second half: gradient play circles
around an equilibrium, which shows in its last policy and not in its mean.
"""

import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Literal

import numpy as np

from benchmarks.report import arguments, write
from learners.advantages.rae import RoleBaselines
from sparring.evaluation.intervals import Interval, intervals, print_table
from sparring.games.boards import kuhn

Estimator = Literal["shared", "reinforce_pp", "rae"]
Opponents = Literal["self", "history", "pfsp"]

DEALS = np.array([[kuhn.CARDS.index(card) for card in deal] for deal in kuhn.DEALS])
ROLES = (0, 1)
DECAY = 0.95
"""Decay of the baselines, as in the paper."""
SNAPSHOT_EVERY = 20
"""Number of updates between snapshots, which join the opponents of `history` and `pfsp`."""


@dataclass(frozen=True, kw_only=True, slots=True)
class KuhnSettings:
    estimator: Estimator = "rae"
    bonus: float = 0.0
    entropy: float = 0.02
    opponents: Opponents = "self"
    learning_rate: float = 0.3
    episodes: int = 200_000
    batch: int = 128


@dataclass(frozen=True, kw_only=True, slots=True)
class Decisions:
    """The decisions of one role in a batch of N episodes. turns: (episodes, cards, situations, actions) of its first
    move and of its second, which not every episode has."""

    turns: Sequence[tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]]
    payoffs_N: np.ndarray


def _payoffs() -> np.ndarray:
    """Returns the payoffs of role 0, indexed by deal, role 0's action, role 1's, and role 0's second action. Actions
    after the end of a game do not matter."""
    table = np.zeros((len(kuhn.DEALS), 2, 2, 2))
    for index in np.ndindex(table.shape):
        deal, *actions = index
        history = ""
        for action in actions:
            history += kuhn.ACTIONS[action] if kuhn.legal_actions(history) else ""
        table[index] = kuhn.payoff(kuhn.DEALS[deal], history)
    return table


PAYOFFS = _payoffs()


def probabilities(logits: np.ndarray) -> np.ndarray:
    """Returns the softmax over the last axis."""
    powers = np.exp(logits - logits.max(-1, keepdims=True))
    return powers / powers.sum(-1, keepdims=True)


def nash_conv(tables: Sequence[np.ndarray]) -> float:
    """Returns the NashConv of each role's action probabilities."""
    policies = {
        name: float(bet)
        for role in ROLES
        for name, bet in zip(kuhn.information_sets(role), tables[role][..., 1].ravel(), strict=True)
    }
    return kuhn.nash_conv(policies)


def play(rng: np.random.Generator, logits: Sequence[np.ndarray], n: int) -> tuple[Decisions, Decisions]:
    """Plays n episodes, each role by its table (cards x situations x actions)."""
    bet = [probabilities(table)[..., 1] for table in logits]
    deals = rng.integers(len(DEALS), size=n)
    first, second = DEALS[deals].T
    draws = rng.random((3, n))
    everyone, opening = np.arange(n), np.zeros(n, int)
    opened = (draws[0] < bet[0][first, 0]).astype(int)
    answered = (draws[1] < bet[1][second, opened]).astype(int)
    called = (draws[2] < bet[0][first, 1]).astype(int)
    payoffs = PAYOFFS[deals, opened, answered, called]
    again = np.flatnonzero((opened == 0) & (answered == 1))
    turns = [(everyone, first, opening, opened), (again, first[again], opening[again] + 1, called[again])]
    return (
        Decisions(turns=turns, payoffs_N=payoffs),
        Decisions(turns=[(everyone, second, opened, answered)], payoffs_N=-payoffs),
    )


def gradient(logits: np.ndarray, played: Decisions, advantages_N: np.ndarray, entropy: float) -> np.ndarray:
    """Returns the gradient by the logits of the mean of advantage x log-probability + entropy coefficient x entropy,
    over all visited decisions."""
    pi = probabilities(logits)
    credit, visits = np.zeros_like(pi), np.zeros(pi.shape[:2])
    for episodes, cards, situations, actions in played.turns:
        np.add.at(credit, (cards, situations, actions), advantages_N[episodes])
        np.add.at(visits, (cards, situations), 1.0)
    of_rewards = credit - pi * credit.sum(-1, keepdims=True)
    log_pi = np.log(pi)
    surprise = -log_pi - (-pi * log_pi).sum(-1, keepdims=True)
    return (of_rewards + entropy * visits[..., None] * pi * surprise) / len(advantages_N)


@dataclass(kw_only=True, slots=True)
class Past:
    """Snapshots of one role, and the results of its opponent against each."""

    snapshots: list[np.ndarray] = field(default_factory=list)
    won: list[float] = field(default_factory=list)
    played: list[float] = field(default_factory=list)

    def add(self, logits: np.ndarray) -> None:
        self.snapshots.append(logits.copy())
        self.won.append(0.5)
        self.played.append(1.0)

    def draw(self, rng: np.random.Generator, opponents: Opponents) -> int:
        """Draws a snapshot. The weights of pfsp are (1 - share of episodes won)^2, so that it prefers those that are
        hard to beat."""
        if opponents == "history":
            return int(rng.integers(len(self.snapshots)))
        weights = (1 - np.array(self.won) / np.array(self.played)) ** 2 + 1e-6
        return int(rng.choice(len(weights), p=weights / weights.sum()))

    def record(self, index: int, payoffs_N: np.ndarray) -> None:
        self.won[index] += float((payoffs_N > 0).sum())
        self.played[index] += len(payoffs_N)


class KuhnTrainer:
    def __init__(self, settings: KuhnSettings, seed: int) -> None:
        self.settings = settings
        self.rng = np.random.default_rng(seed)
        self.logits = [np.zeros((len(kuhn.CARDS), 2, 2)) for _ in ROLES]
        self.baselines = RoleBaselines(DECAY)
        self.past = [Past() for _ in ROLES]

    def train(self) -> dict[str, float]:
        """Trains and returns the NashConv of the last policies and of the mean policies of the second half."""
        updates = self.settings.episodes // self.settings.batch
        second_half = [np.zeros_like(table) for table in self.logits]
        for update in range(updates):
            if self.settings.opponents != "self" and update % SNAPSHOT_EVERY == 0:
                for role in ROLES:
                    self.past[role].add(self.logits[role])
            self._step()
            if update >= updates // 2:
                for role in ROLES:
                    second_half[role] += probabilities(self.logits[role])
        means = [table / (updates - updates // 2) for table in second_half]
        return {
            "last": nash_conv([probabilities(table) for table in self.logits]),
            "mean": nash_conv(means),
        }

    def _step(self) -> None:
        """Updates the policies with one batch: the whole batch in self-play, or half in self-play and a quarter for
        each role against the past."""
        settings, n = self.settings, self.settings.batch
        if settings.opponents == "self":
            mine = [[decisions] for decisions in play(self.rng, self.logits, n)]
        else:
            mine = [[decisions] for decisions in play(self.rng, self.logits, n // 2)]
            for role in ROLES:
                mine[role].append(self._against_past(role, n // 4))
        advantages = self._advantages([np.concatenate([d.payoffs_N for d in of_role]) for of_role in mine])
        for role in ROLES:
            step, start = np.zeros_like(self.logits[role]), 0
            total = len(advantages[role])
            for played in mine[role]:
                of_part = advantages[role][start : start + len(played.payoffs_N)]
                part = gradient(self.logits[role], played, of_part, settings.entropy)
                step += part * len(of_part) / total
                start += len(of_part)
            self.logits[role] = self.logits[role] + settings.learning_rate * step

    def _against_past(self, role: int, n: int) -> Decisions:
        past = self.past[1 - role]
        index = past.draw(self.rng, self.settings.opponents)
        tables = [self.logits[r] if r == role else past.snapshots[index] for r in ROLES]
        played = play(self.rng, tables, n)[role]
        past.record(index, played.payoffs_N)
        return played

    def _advantages(self, payoffs: Sequence[np.ndarray]) -> list[np.ndarray]:
        bonus = self.settings.bonus
        rewards = [payoffs[0] + bonus, payoffs[1] - bonus]
        if self.settings.estimator == "rae":
            return [np.array(self.baselines.advantages("kuhn", str(r), rewards[r].tolist())) for r in ROLES]
        if self.settings.estimator == "reinforce_pp":
            of_both = np.concatenate(rewards)
            return [(reward - of_both.mean()) / (of_both.std() + 1e-8) for reward in rewards]
        of_all = self.baselines.advantages("kuhn", "both", np.concatenate(rewards).tolist())
        return np.split(np.array(of_all), [len(rewards[0])])


def over_seeds(settings: KuhnSettings, seeds: Sequence[int]) -> dict[str, Interval]:
    return intervals([KuhnTrainer(settings, seed).train() for seed in seeds])


def rae(settings: KuhnSettings, seeds: Sequence[int], learning_rates: Sequence[float]) -> dict[str, Any]:
    """Returns the NashConv by bonus, learning rate and estimator."""
    arms: tuple[Estimator, ...] = ("shared", "reinforce_pp", "rae")
    figures: dict[str, Any] = {}
    rows: dict[str, list[list[object]]] = {"last": [], "mean": []}
    for bonus in (5.0, 0.0):
        for rate in learning_rates:
            for of in rows.values():
                of.append([f"{bonus:g}", f"{rate:g}"])
            for arm in arms:
                changed = replace(settings, estimator=arm, bonus=bonus, learning_rate=rate)
                for of, result in over_seeds(changed, seeds).items():
                    figures[f"{of}, bonus {bonus:g}, learning rate {rate:g}, {arm}"] = result.plain()
                    rows[of][-1].append(result)
    estimators = ["one baseline for both", "REINFORCE++ over both", "one for each role (RAE)"]
    header = ["bonus", "learning rate", *estimators]
    print_table("NashConv of the last policies", header, rows["last"])
    print_table("NashConv of the second half's mean policies", header, rows["mean"])
    return figures


def exploitability(
    settings: KuhnSettings, seeds: Sequence[int], entropies: Sequence[float]
) -> dict[str, Any]:
    """Returns the NashConv by opponents and entropy bonus."""
    start = kuhn.nash_conv({name: 0.5 for role in (0, 1) for name in kuhn.information_sets(role)})
    figures: dict[str, Any] = {"uniform": start}
    rows: list[list[object]] = [["uniform policies", "", f"{start:.3f}", ""]]
    for opponents in ("self", "history", "pfsp"):
        for entropy in entropies:
            results = over_seeds(replace(settings, opponents=opponents, entropy=entropy), seeds)
            for of, result in results.items():
                figures[f"{of}, {opponents}, entropy {entropy:g}"] = result.plain()
            rows.append([opponents, f"{entropy:g}", *results.values()])
    print_table("NashConv", ["opponents", "entropy", "last policies", "second half's mean"], rows)
    return figures


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("experiment", choices=["rae", "exploitability"])
    parser.add_argument("--seeds", type=int, nargs="+", default=list(range(1, 11)))
    parser.add_argument("--episodes", type=int, default=KuhnSettings().episodes)
    parser.add_argument("--entropy", type=float, nargs="+", help="one for rae, any for exploitability")
    parser.add_argument("--learning-rate", type=float, nargs="+", help="any for rae, one for exploitability")
    options = parser.parse_args()
    settings = KuhnSettings(episodes=options.episodes)
    if options.quick:
        settings, options.seeds = replace(settings, episodes=20_000), options.seeds[:3]
    start = time.perf_counter()
    if options.experiment == "rae":
        settings = replace(settings, entropy=(options.entropy or [settings.entropy])[0])
        print(f"entropy {settings.entropy:g}")
        figures = rae(settings, options.seeds, options.learning_rate or [0.1, 0.3, 1.0])
    else:
        settings = replace(settings, learning_rate=(options.learning_rate or [settings.learning_rate])[0])
        print(f"learning rate {settings.learning_rate:g}")
        figures = exploitability(settings, options.seeds, options.entropy or [0.0, 0.02, 0.05, 0.1])
    seconds = time.perf_counter() - start
    print(f"\n{settings.episodes} episodes, seeds {options.seeds}, 95% intervals, {seconds:.0f} s")
    write(options.json, {**figures, "settings": asdict(settings), "seconds": seconds}, {})


if __name__ == "__main__":
    main()
