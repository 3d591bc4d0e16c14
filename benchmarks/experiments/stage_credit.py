"""Is credit assigned to the stage that decided? A chain of five stages, each a choice from a table of logits. One of
them alone, which is known here and not to the learner, sets the probability of success.

    python -m benchmarks.experiments.stage_credit

Tree: K branches at each stage of a trunk, M continuations of each, so 5 K M rollouts (credit tree, in learners/batching.py).
Nested: K branches at every stage of every branch, so K^5 rollouts, each of which counts at all five stages.
Broadcast: whole rollouts, each one's advantage on all its stages (`learners.advantages.grpo`), so that each stage's
share is a fifth by construction.

Share: the deciding stage's part of the sum of |advantage| over all stages. An estimate from finitely many rollouts is
not zero even if the true value is, and |advantage| counts that too. So there is also the share of |mean advantage of
each choice| over many trees or groups, which is what a policy gradient follows. As a control, there are chains in which
no stage decides.
Speed: rollouts until the right choice at the deciding stage has probability 0.9, with the best learning rate of each
arm, found on separate seeds. Rollouts are not the whole cost, since a tree's rollouts start in the middle; so the
sampled stages are counted too.
Drift: how far the policies of the other stages, which do not matter, have moved meanwhile (total variation).
"""

import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

import numpy as np

from benchmarks.report import arguments, write
from learners.advantages.dr_grpo import dr_grpo
from learners.advantages.grpo import grpo
from sparring.evaluation.intervals import Interval, interval, intervals, print_table

STAGES = 5
RIGHT = 0
"""The right choice at the deciding stage."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Chain:
    decisive: int | None = 2
    """Index of the deciding stage; None if no stage decides."""
    right: float = 0.9
    wrong: float = 0.1
    """Probabilities of success after the right choice (`right`) and after any other (`wrong`)."""
    actions: int = 4

    def rewards(self, rng: np.random.Generator, choices: np.ndarray) -> np.ndarray:
        """Draws the rewards. choices: ... x stages."""
        if self.decisive is None:
            success = np.full(choices.shape[:-1], 0.5)
        else:
            success = np.where(choices[..., self.decisive] == RIGHT, self.right, self.wrong)
        return (rng.random(success.shape) < success).astype(float)


@dataclass(frozen=True, kw_only=True, slots=True)
class StageCredit:
    """Choices and their advantages by stage; advantages are 0 in a zero-variance group."""

    choices: Sequence[np.ndarray]
    advantages: Sequence[np.ndarray]
    rollouts: int
    stages_sampled: int


Sampler = Callable[[np.random.Generator, Chain, np.ndarray], StageCredit]
"""Returns the credit of one step's rollouts under policies (stages x actions)."""


def sample(rng: np.random.Generator, policies_SA: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    """Returns choices, shape x stages."""
    above_SA = policies_SA.cumsum(-1)[:, :-1]
    return (rng.random((*shape, STAGES))[..., None] > above_SA).sum(-1)


def trees(k: int, m: int) -> Sampler:
    """Returns a sampler in which each stage's branches start from one trunk."""

    def credit(rng: np.random.Generator, chain: Chain, policies_SA: np.ndarray) -> StageCredit:
        trunk = sample(rng, policies_SA, ())
        choices, advantages = [], []
        for stage in range(STAGES):
            rollouts_KM = sample(rng, policies_SA, (k, m))
            rollouts_KM[..., :stage] = trunk[:stage]
            rollouts_KM[..., stage] = rollouts_KM[:, :1, stage]
            choices.append(rollouts_KM[:, 0, stage])
            advantages.append(_of_branches(chain.rewards(rng, rollouts_KM).tolist(), k))
        after = sum(k + k * m * (STAGES - 1 - stage) for stage in range(STAGES))
        return StageCredit(
            choices=choices, advantages=advantages, rollouts=STAGES * k * m, stages_sampled=STAGES + after
        )

    return credit


def nested(k: int) -> Sampler:
    """Returns a sampler in which a node's branches are judged by all the leaves below them."""

    def credit(rng: np.random.Generator, chain: Chain, policies_SA: np.ndarray) -> StageCredit:
        leaves = np.empty((*[k] * STAGES, STAGES), int)
        for stage in range(STAGES):
            branches = (*[k] * (stage + 1), *[1] * (STAGES - 1 - stage))
            leaves[..., stage] = sample(rng, policies_SA, branches)[..., stage]
        rewards = chain.rewards(rng, leaves)
        choices, advantages = [], []
        for stage in range(STAGES):
            nodes = rewards.reshape(k**stage, k, -1).tolist()
            advantages.append(np.concatenate([_of_branches(rewards_KM, k) for rewards_KM in nodes]))
            choices.append(leaves[..., stage].reshape(k ** (stage + 1), -1)[:, 0])
        sampled = sum(k ** (stage + 1) for stage in range(STAGES))
        return StageCredit(choices=choices, advantages=advantages, rollouts=k**STAGES, stages_sampled=sampled)

    return credit


def broadcast(group: int) -> Sampler:
    def credit(rng: np.random.Generator, chain: Chain, policies_SA: np.ndarray) -> StageCredit:
        choices_GS = sample(rng, policies_SA, (group,))
        advantages_G = _or_zeros(grpo(chain.rewards(rng, choices_GS).tolist()), group)
        return StageCredit(
            choices=list(choices_GS.T),
            advantages=[advantages_G] * STAGES,
            rollouts=group,
            stages_sampled=group * STAGES,
        )

    return credit


def _of_branches(rewards_KM: Sequence[Sequence[float]], k: int) -> np.ndarray:
    """Returns V(after the stage) minus the mean over the branches: the value of their common part cancels."""
    return _or_zeros(dr_grpo([fmean(rewards) for rewards in rewards_KM]), k)


def _or_zeros(advantages: list[float] | None, n: int) -> np.ndarray:
    return np.zeros(n) if advantages is None else np.array(advantages)


def uniform(chain: Chain) -> np.ndarray:
    return np.full((STAGES, chain.actions), 1 / chain.actions)


def shares(sampler: Sampler, chain: Chain, repeats: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Returns each stage's share of |advantage|, and of |mean advantage of each choice|, over `repeats` trees or
    groups, under uniform policies."""
    rng = np.random.default_rng(seed)
    credits = [sampler(rng, chain, uniform(chain)) for _ in range(repeats)]
    sizes_S, means_S = np.zeros(STAGES), np.zeros(STAGES)
    for stage in range(STAGES):
        advantages = np.concatenate([credit.advantages[stage] for credit in credits])
        choices = np.concatenate([credit.choices[stage] for credit in credits])
        sizes_S[stage] = np.abs(advantages).mean()
        of_choice_A = np.bincount(choices, weights=advantages, minlength=chain.actions)
        means_S[stage] = np.abs(of_choice_A).sum()
    return sizes_S / sizes_S.sum(), means_S / means_S.sum()


def learn(
    sampler: Sampler, chain: Chain, learning_rate: float, seed: int, budget: int = 40_000
) -> dict[str, float]:
    """Trains by policy gradient, one step for each tree or group, until the deciding stage is right with p >= 0.9.
    `rollouts` is the budget if it was not enough; `reached` is 1 or 0."""
    assert chain.decisive is not None
    rng = np.random.default_rng(seed)
    logits_SA = np.zeros((STAGES, chain.actions))
    rollouts = stages_sampled = 0
    policies_SA = uniform(chain)
    while rollouts < budget and policies_SA[chain.decisive, RIGHT] < 0.9:
        credit = sampler(rng, chain, policies_SA)
        for stage in range(STAGES):
            advantages, choices = credit.advantages[stage], credit.choices[stage]
            taken_A = np.bincount(choices, weights=advantages, minlength=chain.actions)
            step_A = taken_A - policies_SA[stage] * advantages.sum()
            logits_SA[stage] += learning_rate * step_A / len(advantages)
        rollouts += credit.rollouts
        stages_sampled += credit.stages_sampled
        powers_SA = np.exp(logits_SA - logits_SA.max(-1, keepdims=True))
        policies_SA = powers_SA / powers_SA.sum(-1, keepdims=True)
    others = np.delete(policies_SA, chain.decisive, axis=0)
    return {
        "rollouts": min(rollouts, budget),
        "stages sampled": stages_sampled,
        "drift": float(np.abs(others - 1 / chain.actions).sum(-1).mean() / 2),
        "reached": int(policies_SA[chain.decisive, RIGHT] >= 0.9),
    }


LEARNING_RATES = tuple(0.5 * 2**i for i in range(9))
MEAN_ROLLOUTS = 8000


def best_learning_rate(sampler: Sampler, chain: Chain, seeds: Sequence[int]) -> float:
    """Returns the learning rate with the fewest rollouts on average; a run that does not reach the goal counts with its
    whole budget."""

    def rollouts(rate: float) -> float:
        return float(np.mean([learn(sampler, chain, rate, seed)["rollouts"] for seed in seeds]))

    return min(LEARNING_RATES, key=rollouts)


def share_figures(seeds: Sequence[int], ks: Sequence[int], ms: Sequence[int], repeats: int) -> dict[str, Any]:
    """Returns the shares of the third stage, which decides."""
    figures: dict[str, Any] = {}
    for right, wrong in ((0.9, 0.1), (1.0, 0.0)):
        chain = Chain(right=right, wrong=wrong)

        def share(name: str, sampler: Sampler, chain: Chain = chain) -> Interval:
            result = interval([float(shares(sampler, chain, repeats, seed)[0][2]) for seed in seeds])
            figures[f"share, success {chain.right:g}/{chain.wrong:g}, {name}"] = result.plain()
            return result

        rows = [[k, *(share(f"K {k}, M {m}", trees(k, m)) for m in ms)] for k in ks]
        title = f"tree: share of the deciding stage (3 of 5), success {right:g} or {wrong:g}; 5 K M rollouts"
        print_table(title, ["K", *(f"M {m}" for m in ms)], rows)
        others = {"nested K 2": nested(2), "nested K 3": nested(3), "broadcast": broadcast(40)}
        for name, sampler in others.items():
            print(f"{name}: {share(name, sampler)}")
    return figures


def position_figures(seeds: Sequence[int], k: int, m: int, repeats: int) -> dict[str, Any]:
    """Returns every stage's share for each position of the deciding stage, and if there is none."""
    figures: dict[str, Any] = {}
    rows: list[list[object]] = []
    for decisive in (*range(STAGES), None):
        by_seed = [shares(trees(k, m), Chain(decisive=decisive), repeats, seed)[0] for seed in seeds]
        name = "none" if decisive is None else str(decisive + 1)
        results = [interval([float(of[stage]) for of in by_seed]) for stage in range(STAGES)]
        rows.append([name, *results])
        for stage, result in enumerate(results, 1):
            figures[f"share of stage {stage}, decided by {name}, K {k}, M {m}"] = result.plain()
    header = ["decided by", *(f"stage {stage}" for stage in range(1, STAGES + 1))]
    print_table(f"tree: share of each stage, K {k}, M {m}, success 0.9 or 0.1", header, rows)
    return figures


def step_pairs(k: int, ms: Sequence[int]) -> list[tuple[str, Sampler]]:
    """Returns each tree, and broadcast with the same number of rollouts per step."""
    sizes = [(f"tree K {k} M {m}", trees(k, m), STAGES * k * m) for m in ms]
    sizes += [(f"nested K {k}", nested(k), k**STAGES) for k in (2, 3)]
    return [
        pair
        for name, sampler, rollouts in sizes
        for pair in ((name, sampler), (f"broadcast {rollouts}", broadcast(rollouts)))
    ]


def mean_share_figures(seeds: Sequence[int], pairs: Sequence[tuple[str, Sampler]]) -> dict[str, Any]:
    """Returns the shares of the mean, from about the same number of rollouts for every arm."""
    figures: dict[str, Any] = {}
    rows: list[list[object]] = []
    for name, sampler in pairs:
        repeats = round(MEAN_ROLLOUTS / sampler(np.random.default_rng(0), Chain(), uniform(Chain())).rollouts)
        result = interval([float(shares(sampler, Chain(), repeats, seed)[1][2]) for seed in seeds])
        rows.append([name, result])
        figures[f"share of the mean, {name}"] = result.plain()
    title = f"share of |mean advantage of each choice| over {MEAN_ROLLOUTS} rollouts, success 0.9 or 0.1"
    print_table(title, ["", "deciding stage (3 of 5)"], rows)
    return figures


def speed_figures(seeds: Sequence[int], chain: Chain, pairs: Sequence[tuple[str, Sampler]]) -> dict[str, Any]:
    figures: dict[str, Any] = {}
    rows: list[list[object]] = []
    tuning = [seed + 10_000 for seed in seeds]
    task = f"success {chain.right:g} or {chain.wrong:g}"
    for name, sampler in pairs:
        rate = best_learning_rate(sampler, chain, tuning)
        results = intervals([learn(sampler, chain, rate, seed) for seed in seeds])
        reached = f"{sum(results.pop('reached').by_seed)}/{len(seeds)}"
        median = statistics.median(results["rollouts"].by_seed)
        rows.append([name, rate, median, *results.values(), reached])
        figures[f"speed, {task}, {name}"] = {
            "learning_rate": rate,
            "reached": reached,
            **{of: result.plain() for of, result in results.items()},
        }
    header = ["arm", "learning rate", "rollouts: median", "mean", "stages sampled", "drift", "reached"]
    print_table(f"until the deciding stage is right with p >= 0.9, {task}", header, rows)
    return figures


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--seeds", type=int, nargs="+", default=list(range(1, 21)))
    parser.add_argument("--repeats", type=int, default=100, help="trees for each seed and share")
    options = parser.parse_args()
    if options.quick:
        options.seeds, options.repeats = options.seeds[:2], 20
    start = time.perf_counter()
    ms = [1, 2, 4, 8, 16]
    pairs = step_pairs(4, ms)
    figures = share_figures(options.seeds, [2, 4, 8], [*ms, 64, 256], options.repeats)
    figures |= position_figures(options.seeds, 4, 16, options.repeats)
    figures |= mean_share_figures(options.seeds, pairs)
    figures |= speed_figures(options.seeds, Chain(), pairs)
    figures |= speed_figures(options.seeds, Chain(right=0.6, wrong=0.4), pairs)
    seconds = time.perf_counter() - start
    print(f"\nseeds {options.seeds}, {options.repeats} trees each, 95% intervals, {seconds:.0f} s")
    write(options.json, {**figures, "seconds": seconds}, {})


if __name__ == "__main__":
    main()
