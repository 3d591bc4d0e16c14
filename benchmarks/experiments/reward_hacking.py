"""How does a discriminator exploit a reward if it can? Each guard of `sparring.games.multistage.rewards` is removed in turn.

    python -m benchmarks.experiments.reward_hacking

A suite is written test by test, at most 8, by a table of logits (position in the suite x action), with REINFORCE and
the mean of the batch as baseline. Actions: an honest hard test, which wrong programs fail (the best idea comes first,
the next ones find less); an honest easy test, which they hardly ever fail; an invalid one, which the reference
contradicts; a duplicate of a test of the suite; a slow one, on which the reference needs most of the time limit and
programs exceed it; and to stop, so that one or two trivial tests are a suite too.
In the first phase half of the programs are wrong; in the second, which starts from the learnt policy, none is: no
honest test earns anything then.

Guarded: the default rules with as many slots as a suite may have tests, as in the shipped recipes; the other arms
differ from it by one thing, or by what their names give. `slots 1` is the default of the class RewardRules, and exactly
R0. w: validity_weight. slow: the probability that a program exceeds the time limit on a slow test, otherwise 0.7.
Against perfect programs p over all tests pays v (1 - v), which is largest at v = 0.5 (sparring/games/multistage/rewards.py); if
slow tests are possible, which are valid but count for a share 1 - s of the programs only, it pays
v (1 - v) / (1 - s v): at s = 0.7, this is largest at v = 0.65.
All arms are measured alike, whatever they reward: validity and duplicates are shares of the tests written.
"""

import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from benchmarks.report import arguments, write
from sparring.core.verdict import Limits, Status, Verdict
from sparring.evaluation.intervals import Interval, intervals, print_table
from sparring.games.multistage.rewards import RewardRules, SuiteFacts, discriminator_reward, outcome

ACTIONS = ("hard", "easy", "invalid", "duplicate", "slow", "stop")
HARD, EASY, INVALID, DUPLICATE, SLOW, STOP = range(len(ACTIONS))
LIMITS = Limits()


@dataclass(frozen=True, kw_only=True, slots=True)
class HackingWorld:
    max_tests: int = 8
    programs: int = 4
    hard_valid: float = 0.98
    """Probability that an honest hard test is valid; easy and slow ones always are."""
    hard_kill: float = 0.8
    """Probability that the suite's first hard test fails a wrong program ..."""
    hard_decay: float = 0.9
    """... times this factor for each further one."""
    easy_kill: float = 0.05
    slow_limit: float = 0.7
    """Probability that a program, right or wrong, exceeds the time limit on a slow test."""
    slow_reference: float = 0.6
    """Share of the time limit that the reference needs on a slow test."""


@dataclass(frozen=True, kw_only=True, slots=True)
class HackingArm:
    rules: RewardRules
    duplicates_count: bool = False
    """Whether duplicates count as valid: then there is no duplicate guard."""
    world: HackingWorld = HackingWorld()


def _rules(**changed: Any) -> RewardRules:
    return RewardRules(**{"validity_slots": HackingWorld().max_tests, **changed})


ARMS = {
    "guarded": HackingArm(rules=_rules()),
    "slots 1": HackingArm(rules=_rules(validity_slots=1)),
    "duplicates count": HackingArm(rules=_rules(), duplicates_count=True),
    "any time-out kills": HackingArm(rules=_rules(kill_needs_fast_reference=1.0)),
    "p over all tests": HackingArm(rules=_rules(pass_rate_over="all")),
    "p over all, slow 0": HackingArm(rules=_rules(pass_rate_over="all"), world=HackingWorld(slow_limit=0.0)),
    "guarded, slow 1": HackingArm(rules=_rules(), world=HackingWorld(slow_limit=1.0)),
    "guarded, w .3": HackingArm(rules=_rules(validity_weight=0.3)),
    "slots 1, w .3": HackingArm(rules=_rules(validity_weight=0.3, validity_slots=1)),
}


@dataclass(frozen=True, kw_only=True, slots=True)
class Suite:
    valid: int
    """Number of valid tests that are no duplicates, regardless of the arm's guards."""
    facts: SuiteFacts
    """The facts as the arm's guards see them."""


class Judge:
    """Decides the outcomes of the tests that the actions stand for."""

    def __init__(self, arm: HackingArm, rng: np.random.Generator) -> None:
        self._arm, self._world, self._rng = arm, arm.world, rng
        reference_ms = arm.world.slow_reference * LIMITS.cpu_s * 1000
        self._timed_out = outcome(Verdict(status=Status.TIME_LIMIT), reference_ms, LIMITS, arm.rules)

    def suite(self, actions: Sequence[int], wrong: int) -> Suite:
        """Returns the suite that the actions stand for. wrong: number of wrong programs."""
        draws = self._rng.random((len(actions), self._world.programs + 1)).tolist()
        written: list[list[bool | None] | None] = []
        copies: list[list[bool | None] | None] = []
        for action, (chance, *luck) in zip(actions, draws, strict=True):
            if action == DUPLICATE and written:
                copies.append(written[0])  # the first test is the best idea
            else:
                hard = sum(earlier == HARD for earlier in actions[: len(written) + len(copies)])
                written.append(self._outcomes(action, hard, chance, luck, wrong))
        held = [outcomes for outcomes in written if outcomes is not None]
        valid = len(held)
        if self._arm.duplicates_count:
            held += [outcomes for outcomes in copies if outcomes is not None]
        table = [list(row) for row in zip(*held, strict=True)] or [[] for _ in range(self._world.programs)]
        facts = SuiteFacts(
            emitted=len(actions),
            parsed=len(actions),
            valid=len(held),
            wrong_outputs=0,
            duplicates=len(copies),
            outcomes=table,
            solvable=any(True in row for row in table),
        )
        return Suite(valid=valid, facts=facts)

    def _outcomes(
        self, action: int, hard: int, chance: float, luck: Sequence[float], wrong: int
    ) -> list[bool | None] | None:
        """Returns the test's outcome for each program; None if the test is not valid. hard: number of hard tests before
        it."""
        world = self._world
        if action == INVALID or (action == HARD and chance >= world.hard_valid):
            return None
        if action == SLOW:
            return [self._timed_out if draw < world.slow_limit else True for draw in luck]
        kill = world.hard_kill * world.hard_decay**hard if action == HARD else world.easy_kill
        return [program >= wrong or draw >= kill for program, draw in enumerate(luck)]


@dataclass(frozen=True, kw_only=True, slots=True)
class HackingSettings:
    learning_rate: float = 4.0
    batch: int = 32
    updates: int = 400
    """Updates per phase."""
    measured: int = 400
    """Number of suites of the last policy from which the figures are computed."""


class HackingTrainer:
    def __init__(self, arm: HackingArm, settings: HackingSettings, seed: int) -> None:
        self._arm, self._settings = arm, settings
        self._rng = np.random.default_rng(seed)
        self._judge = Judge(arm, self._rng)
        self.logits_PA = np.zeros((arm.world.max_tests, len(ACTIONS)))

    def train(self, wrong: int) -> None:
        """Trains for one phase against programs of which `wrong` are wrong."""
        for _ in range(self._settings.updates):
            actions_BP, policy_PA = self._write(self._settings.batch)
            rewards_B = np.array([self._reward(actions, wrong) for actions in actions_BP])
            advantages_B = rewards_B - rewards_B.mean()
            taken_BPA = actions_BP[..., None] == np.arange(len(ACTIONS))
            written_BP = np.cumsum(actions_BP == STOP, axis=1) - (actions_BP == STOP) == 0
            score_BPA = (taken_BPA - policy_PA) * written_BP[..., None]
            step_PA = (advantages_B[:, None, None] * score_BPA).mean(0)
            self.logits_PA += self._settings.learning_rate * step_PA

    def measure(self, wrong: int) -> dict[str, float]:
        """Measures the current policy. Shares are of the tests written, over all suites; kills are counted per suite."""
        chosen = [_until_stop(actions) for actions in self._write(self._settings.measured)[0]]
        suites = [self._judge.suite(actions, wrong) for actions in chosen]
        emitted = sum(map(len, chosen))
        found = [any(False in row for row in s.facts.outcomes[:wrong]) for s in suites]
        return {
            "validity": sum(suite.valid for suite in suites) / max(emitted, 1),
            "duplicates": sum(suite.facts.duplicates for suite in suites) / max(emitted, 1),
            **{ACTIONS[a]: sum(c.count(a) for c in chosen) / max(emitted, 1) for a in (HARD, EASY, SLOW)},
            "tests": emitted / len(suites),
            "found": sum(found) / len(found),
        }

    def _write(self, count: int) -> tuple[np.ndarray, np.ndarray]:
        """Returns the actions, count x positions (what follows a stop is not written), and the policy."""
        powers_PA = np.exp(self.logits_PA - self.logits_PA.max(-1, keepdims=True))
        policy_PA = powers_PA / powers_PA.sum(-1, keepdims=True)
        above_PA = policy_PA.cumsum(-1)[:, :-1]
        draws_BP = self._rng.random((count, self._arm.world.max_tests))
        return (draws_BP[..., None] > above_PA).sum(-1), policy_PA

    def _reward(self, actions: np.ndarray, wrong: int) -> float:
        return discriminator_reward(self._judge.suite(_until_stop(actions), wrong).facts, self._arm.rules)[0]


def _until_stop(actions: np.ndarray) -> list[int]:
    written = actions.tolist()
    return written[: written.index(STOP)] if STOP in written else written


COLUMNS = ("validity", "duplicates", "hard", "easy", "slow", "tests", "found")
PHASES = ("half of the programs are wrong", "then all are right")


def over_seeds(arm: HackingArm, settings: HackingSettings, seeds: Sequence[int]) -> list[dict[str, Interval]]:
    """Returns the measures of each phase."""
    by_phase: list[list[dict[str, float]]] = [[], []]
    for seed in seeds:
        trainer = HackingTrainer(arm, settings, seed)
        for phase, wrong in enumerate((arm.world.programs // 2, 0)):
            trainer.train(wrong)
            by_phase[phase].append(trainer.measure(wrong))
    return [intervals(measures) for measures in by_phase]


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--seeds", type=int, nargs="+", default=list(range(1, 6)))
    parser.add_argument("--updates", type=int, default=HackingSettings().updates, help="of each phase")
    options = parser.parse_args()
    settings = HackingSettings(updates=options.updates)
    if options.quick:
        options.seeds = options.seeds[:2]
    start = time.perf_counter()
    figures: dict[str, Any] = {}
    rows: list[list[list[object]]] = [[], []]
    for name, arm in ARMS.items():
        for phase, results in enumerate(over_seeds(arm, settings, options.seeds)):
            rows[phase].append([name, *results.values()])
            figures |= {f"{name}, {PHASES[phase]}, {of}": r.plain() for of, r in results.items()}
    for phase, title in enumerate(PHASES):
        print_table(title, ["", *COLUMNS], rows[phase])
    seconds = time.perf_counter() - start
    print(
        "\nvalidity, duplicates, hard, easy, slow: shares of the tests written; tests: in a suite; found: suites "
        f"that fail a wrong program\n{settings.updates} updates of {settings.batch} suites a phase, seeds "
        f"{options.seeds}, 95% intervals, {seconds:.0f} s"
    )
    write(
        options.json,
        {**figures, "world": asdict(HackingWorld()), "settings": asdict(settings), "seconds": seconds},
        {},
    )


if __name__ == "__main__":
    main()
