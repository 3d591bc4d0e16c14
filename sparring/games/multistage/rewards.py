"""Rewards of the multi-stage game, with the guards that keep the discriminator honest. Pure functions.

For one problem with reference `ref`, a program g and a suite T with valid tests V:
    validity  v = |V| / max(slots, |T|)
    pass rate p(g) = share of the tests in V that g passes
    generator reward = p                      discriminator reward = (w + (1 - w) * (1 - p)) * v
With partial_credit "baseline_passed" the generator's reward is p if the program passes all baseline tests, else 0. With
"never" it is 1 if p = 1, else 0.
With w = 0, the discriminator's reward is (1 - p) * v. It is 0 once the generator passes everything: validity then earns
nothing. With w > 0, a part of the reward is paid for validity alone (Code-A1 pays 1/2); invalid tests do not earn it.
p is computed over V only. If it were computed over all of T, with invalid tests as failed ones, a discriminator against
a perfect generator would earn most with a partly invalid suite: with a share v of valid tests, its reward would be v *
(1 - v), which is largest at v = 1/2. `pass_rate_over="all"` keeps that variant for the ablation.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from pydantic import Field

from sparring.core.settings import Settings
from sparring.core.verdict import Limits, Status, Verdict


class RewardRules(Settings):
    """Guards of the rewards; each is a config key."""

    validity_slots: int = Field(default=1, ge=1)
    """Number of tests (tau) that a suite should have; a shorter suite is scored as if the missing tests were invalid."""
    unparseable_reward: float = -1.0
    """Reward of a suite without a test that parses (guard 1). A suite that parses but has no valid test earns 0."""
    kill_needs_fast_reference: float = Field(default=0.25, ge=0, le=1)
    """If a program exceeds a limit of time, memory or output, that counts as a kill only if the reference and the test
    on it need at most this share of the CPU limit (guard 2)."""
    unsolved_weight: float = Field(default=0.2, ge=0, le=1)
    """Factor on the discriminator's reward if no current or remembered program passes any valid test (guard 3)."""
    behaviour_duplicates_from: int = Field(default=16, ge=2)
    """If a suite runs on at least this many programs, valid tests with the same outcome on every program count as
    duplicates, too (guard 4). With fewer programs, equal outcomes are not evidence that the tests are alike. Tests with
    equal inputs are always duplicates."""
    validity_weight: float = Field(default=0.0, ge=0, lt=1)
    """Share of the discriminator's reward that is paid for validity alone (w)."""
    wrong_output_penalty: float = Field(default=0.5, ge=0, le=1)
    """Share of a valid test's worth that is lost if the reference had to correct its expected output (test_format relabel)."""
    partial_credit: Literal["always", "baseline_passed", "never"] = "always"
    """Which programs earn the share of the tests that they pass. always: all; a model then also learns from problems
    that it cannot solve, namely programs that are right on some inputs. baseline_passed: those that pass all baseline
    tests of the problem; the others earn 0. never: none; a program earns 1 if it passes all tests that count, else
    0."""
    pass_rate_over: Literal["valid", "all"] = "valid"
    """Tests over which the pass rate p is taken."""


def validity(valid: float, emitted: int, slots: int) -> float:
    return valid / max(slots, emitted, 1)


def needed_cpu_ms(runs: Iterable[Verdict]) -> float:
    """Returns the CPU milliseconds that a test needs on the reference: those of the program or those of the test itself,
    whichever are more, over all runs."""
    return max(max(verdict.cpu_ms, verdict.test_cpu_ms) for verdict in runs)


def outcome(verdict: Verdict, reference_cpu_ms: float, limits: Limits, rules: RewardRules) -> bool | None:
    """Returns True if the program passes the test, False if the test kills it, None if the result does not count (guard 2).

    A valid test has passed on the reference. A failure is therefore the fault of the program, even if the test itself
    raises or hangs: the value that the program returned is the cause.
    """
    if verdict.passed:
        return True
    if verdict.status.is_resource_limit():
        allowed_ms = rules.kill_needs_fast_reference * limits.cpu_s * 1000
        return False if reference_cpu_ms <= allowed_ms else None
    assert verdict.status is not Status.SANDBOX_ERROR, "a sandbox failure is never an outcome"
    return False


def generator_reward(pass_rate: float, rules: RewardRules, *, passes_baseline: bool) -> float:
    match rules.partial_credit:
        case "always":
            return pass_rate
        case "baseline_passed":
            return pass_rate if passes_baseline else 0.0
        case "never":
            return float(pass_rate == 1.0)


def pass_rate(outcomes: Sequence[bool | None], invalid: int = 0) -> float | None:
    """Returns the share of the tests that count that are passed. None if no test counts.

    Args:
        outcomes: see `outcome`.
        invalid: number of further tests that count as failed.
    """
    counted = [o for o in outcomes if o is not None]
    total = len(counted) + invalid
    return sum(counted) / total if total else None


def behaviour_duplicates(outcomes_by_test: Sequence[Sequence[bool | None]], rules: RewardRules) -> set[int]:
    """Returns the indices of tests that have the same outcomes over the programs as an earlier test. It returns none if
    there are fewer programs than `behaviour_duplicates_from`."""
    if not outcomes_by_test or len(outcomes_by_test[0]) < rules.behaviour_duplicates_from:
        return set()
    seen: set[tuple[bool | None, ...]] = set()
    repeats = set()
    for index, outcomes in enumerate(outcomes_by_test):
        key = tuple(outcomes)
        if key in seen:
            repeats.add(index)
        seen.add(key)
    return repeats


@dataclass(frozen=True, kw_only=True, slots=True)
class SuiteFacts:
    """Facts about one judged suite, from which its reward is computed.

    outcomes: programs x valid tests.
    """

    emitted: int
    parsed: int
    valid: int
    wrong_outputs: int
    duplicates: int
    outcomes: Sequence[Sequence[bool | None]]
    solvable: bool
    """Whether any current or remembered program passes any valid test."""
    past: Sequence[Sequence[bool | None]] = ()
    """Outcomes of wrong programs of earlier steps: programs x valid tests."""


def discriminator_reward(facts: SuiteFacts, rules: RewardRules) -> tuple[float, dict[str, float]]:
    """Returns (reward, components). The reward is (w + (1 - w) * (1 - p) * gate) * v: p is averaged over the programs,
    including those of the past; the gate is guard 3."""
    worth = facts.valid - rules.wrong_output_penalty * facts.wrong_outputs
    v = validity(worth, facts.emitted, rules.validity_slots)
    components = {
        "validity": v,
        "emitted": float(facts.emitted),
        "parsed": float(facts.parsed),
        "valid": float(facts.valid),
        "duplicates": float(facts.duplicates),
        "wrong_outputs": float(facts.wrong_outputs),
        "gate": 1.0,
        "kill_rate": 0.0,
    }
    if facts.parsed == 0:
        return rules.unparseable_reward, components
    if facts.valid == 0:
        return 0.0, components
    invalid = facts.emitted - facts.valid if rules.pass_rate_over == "all" else 0
    rates = [rate for row in (*facts.outcomes, *facts.past) if (rate := pass_rate(row, invalid)) is not None]
    if not rates:
        return 0.0, components
    gate = 1.0 if facts.solvable else rules.unsolved_weight
    killed = [any(o is False for o in row) for row in facts.outcomes]
    p = sum(rates) / len(rates)
    if facts.past:
        components["past_kill_rate"] = sum(any(o is False for o in row) for row in facts.past) / len(
            facts.past
        )
    components |= {"gate": gate, "kill_rate": sum(killed) / max(1, len(killed)), "pass_rate": p}
    w = rules.validity_weight
    return (w + (1.0 - w) * (1.0 - p) * gate) * v, components


def reward_in_words(components: Mapping[str, float], rules: RewardRules) -> str:
    """Explains a reward of `discriminator_reward` in words, from its components."""
    if not components["parsed"]:
        return "nothing in the suite parses (game.rewards.unparseable_reward)"
    if not components["valid"]:
        return "no test of the suite is valid"
    if "pass_rate" not in components:
        return "no outcome of a valid test counts for any program"
    missed = f"(1 - {components['pass_rate']:.2f} pass rate)"
    if components["gate"] < 1:
        missed += f" * {components['gate']:g} because no program passes any of its tests"
    w = rules.validity_weight
    paid = f"({w:g} + {1 - w:g} * {missed})" if w else missed
    counted = f"{components['valid']:g} valid of {max(rules.validity_slots, components['emitted']):g} tests"
    if components["wrong_outputs"]:
        counted += f", {components['wrong_outputs']:g} of them with a wrong output"
    return f"{paid} * {components['validity']:.2f} validity ({counted})"
