"""The formulas, computed by hand."""

import pytest

from sparring.core.verdict import Limits, Status, Verdict
from sparring.games.multistage.rewards import (
    RewardRules,
    SuiteFacts,
    behaviour_duplicates,
    discriminator_reward,
    needed_cpu_ms,
    outcome,
    validity,
)

RULES = RewardRules()
KILL, PASS = False, True


def facts(outcomes, **changes) -> SuiteFacts:
    valid = len(outcomes[0]) if outcomes else 0
    known = {"emitted": valid, "parsed": valid, "valid": valid, "wrong_outputs": 0, "duplicates": 0}
    solvable = any(o for row in outcomes for o in row)
    return SuiteFacts(**({"outcomes": outcomes, "solvable": solvable} | known | changes))


def reward(outcomes, rules=RULES, **changes) -> float:
    return discriminator_reward(facts(outcomes, **changes), rules)[0]


# ---------------------------------------------------------------------- R0's formulas
@pytest.mark.parametrize(
    ("valid", "emitted", "slots", "expected"),
    [(3, 4, 1, 0.75), (4, 4, 1, 1.0), (2, 2, 8, 0.25), (9, 10, 8, 0.9), (0, 0, 1, 0.0), (0, 5, 1, 0.0)],
)
def test_validity(valid, emitted, slots, expected):
    assert validity(valid, emitted, slots) == expected


def test_the_discriminator_earns_the_failures_times_the_validity():
    # 4 of 5 tests valid, program fails 1 of the 4: (1 - .75) * .8
    assert reward([[PASS, PASS, PASS, KILL]], emitted=5) == pytest.approx(0.2)


def test_validity_alone_may_earn_a_share():
    rules = RewardRules(validity_weight=0.3)
    assert reward([[PASS, PASS]], rules) == pytest.approx(0.3)  # a perfect generator: R0 would pay nothing
    assert reward([[KILL, KILL]], rules, solvable=True) == pytest.approx(1.0)
    assert reward([[PASS, KILL]], rules, emitted=4) == pytest.approx((0.3 + 0.7 * 0.5) * 0.5)
    assert reward([[]], rules, emitted=3, parsed=3) == 0.0


def test_it_is_averaged_over_the_programs():
    # failures 1/2, 0, 1 -> mean .5; validity 1
    assert reward([[PASS, KILL], [PASS, PASS], [KILL, KILL]]) == pytest.approx(0.5)


# ---------------------------------------------------------------------- guard 1
def test_unparseable_output_is_punished_and_the_punishment_is_a_key():
    assert reward([[]], emitted=3, parsed=0) == -1.0
    assert reward([[]], emitted=0, parsed=0) == -1.0
    assert reward([[]], RewardRules(unparseable_reward=-0.25), emitted=3, parsed=0) == -0.25


def test_no_valid_test_earns_nothing():
    assert reward([[]], emitted=3, parsed=3) == 0.0


# ---------------------------------------------------------------------- guard 2
LIMITS = Limits(cpu_s=2.0)
LIMIT_STATUSES = (Status.TIME_LIMIT, Status.MEMORY_LIMIT, Status.OUTPUT_LIMIT)


@pytest.mark.parametrize("status", [Status.RUNTIME_ERROR, Status.SYNTAX_ERROR, *LIMIT_STATUSES])
def test_what_a_valid_test_runs_into_is_the_programs_doing(status):
    """It passed on the reference. len(None), say: the program returned None; or r * r of a number without end."""
    assert outcome(Verdict(status=status, error="test: x"), 0.0, LIMITS, RULES) is False


def test_a_test_that_needs_much_of_its_own_time_with_the_reference_tells_nothing_by_a_limit():
    runs = [Verdict(status=Status.PASSED, cpu_ms=1.0, test_cpu_ms=ms) for ms in (1500.0, 1900.0)]
    assert needed_cpu_ms(runs) == 1900.0
    hung = Verdict(status=Status.TIME_LIMIT)
    assert outcome(hung, needed_cpu_ms(runs), LIMITS, RULES) is None
    assert needed_cpu_ms([Verdict(status=Status.PASSED, cpu_ms=9.0, test_cpu_ms=2.0)]) == 9.0


@pytest.mark.parametrize("status", LIMIT_STATUSES)
@pytest.mark.parametrize(
    ("reference_ms", "expected"), [(0.0, False), (500.0, False), (500.1, None), (1900.0, None)]
)
def test_a_limit_kills_only_where_the_reference_is_quick(status, reference_ms, expected):
    """A quarter of two seconds is 500 ms."""
    assert outcome(Verdict(status=status), reference_ms, LIMITS, RULES) is expected


def test_a_sandbox_failure_is_never_an_outcome():
    with pytest.raises(AssertionError):
        outcome(Verdict(status=Status.SANDBOX_ERROR), 0.0, LIMITS, RULES)


def test_outcomes_that_do_not_count_are_no_kills_and_no_passes():
    assert reward([[None, PASS]]) == 0.0
    assert reward([[None, KILL]], solvable=True) == 1.0
    assert reward([[None, None]], solvable=True) == 0.0


# ---------------------------------------------------------------------- guard 3
def test_tests_that_nobody_passes_earn_a_fifth():
    assert reward([[KILL, KILL], [KILL, KILL]]) == pytest.approx(0.2)
    assert reward([[KILL, KILL], [KILL, KILL]], solvable=True) == pytest.approx(1.0)
    assert reward([[KILL, KILL]], RewardRules(unsolved_weight=0.0)) == 0.0


# ---------------------------------------------------------------------- guard 4
def test_tests_that_kill_the_same_programs_are_duplicates_where_enough_programs_speak():
    rules = RewardRules(behaviour_duplicates_from=3)
    by_test = [[True, False, True], [True, True, True], [True, False, True], [True, False, True]]
    assert behaviour_duplicates(by_test, rules) == {2, 3}


def test_a_duplicate_is_emitted_but_not_valid():
    """Two tests of which one repeats the other: half the validity of one honest test."""
    assert reward([[KILL]], emitted=2, duplicates=1, solvable=True) == pytest.approx(0.5)


# ---------------------------------------------------------------------- slots and wrong outputs
def test_slots_stop_the_suite_of_two_trivial_tests():
    rules = RewardRules(validity_slots=8)
    assert reward([[KILL, KILL]], rules, solvable=True) == pytest.approx(0.25)
    assert reward([[KILL] * 8], rules, solvable=True) == pytest.approx(1.0)


def test_a_corrected_output_costs_a_share_of_the_tests_worth():
    # 4 valid of 4, 2 corrected: worth (4 - .5 * 2) / 4
    outcomes = [[KILL, PASS, PASS, PASS]]
    assert reward(outcomes, wrong_outputs=2) == pytest.approx(0.25 * 0.75)
    assert reward(outcomes, RewardRules(wrong_output_penalty=1.0), wrong_outputs=4) == 0.0
    assert reward(outcomes, RewardRules(wrong_output_penalty=0.0), wrong_outputs=4) == pytest.approx(0.25)


@pytest.mark.parametrize("kills", [0, 2])
def test_over_all_tests_padding_a_suite_with_invalid_ones_would_pay(kills):
    """With failure share f on valid tests, v (v f + 1 - v) peaks at v = 1 / (2 (1 - f)), not at 1."""
    rules = RewardRules(pass_rate_over="all")
    earned = []
    for valid in range(max(kills, 1), 13):
        v, f = valid / 12, kills / valid
        row = [KILL] * kills + [PASS] * (valid - kills)
        earned.append(reward([row], rules, emitted=12, parsed=12, solvable=True))
        assert earned[-1] == pytest.approx(v * (v * f + 1 - v))
    assert earned[-1] < max(earned)
