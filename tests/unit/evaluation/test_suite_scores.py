import asyncio

import pytest

from sandbox_workers.local import LocalSandbox
from sparring.core.problem import Problem
from sparring.core.verdict import Limits
from sparring.games.multistage.game import MultistageGame
from sparring.games.multistage.rules import MultistageRules
from sparring.games.suite_scores import SuiteRecord, discriminator_scores, kill_at_k
from tests.sandboxes import require

FAST_SORT = "def f(xs): return sorted(xs, reverse=True)[:2]"
TUPLES = "def f(xs): return tuple(sorted(xs, reverse=True)[:2])"
WRONG = "def f(xs): return xs[:2]"
HANGS_ON_TIES = "def f(xs):\n    while len(set(xs)) < len(xs): pass\n    return sorted(xs, reverse=True)[:2]"
FIRST = "def f(xs): return sorted(xs)[:2]"
PROBLEM = Problem(
    id="two_largest",
    description="Return the two largest numbers of xs, the largest first.",
    function_signature="def f(xs: list[int]) -> list:",
    baseline_tests=("assert f([1, 2, 3]) == [3, 2]",),
    reference_solution="def f(xs):\n    return sorted(xs)[::-1][:2]\n",
    other_solutions=(FAST_SORT, TUPLES),
)
SUITE = """\
# two of them are one
assert f([3, 1, 2]) == [3, 2]
assert f([2, 1]) == [2, 1]
assert f([3,1,2]) == [3, 2]
assert f([1, 2]) == [1, 2]
assert f(["a"]) == ["a"]
assert f([len("ab")]) == [2]
f([1, 2
"""


def rules(test_format: str = "strict", **more) -> MultistageRules:
    limits = Limits(cpu_s=0.2, wall_s=3.0)
    return MultistageRules.model_validate({"test_format": test_format, "sandbox_limits": limits, **more})


def judge(sandbox, *suites: str, rules: MultistageRules = rules(), wrong=(WRONG,), mutants=(FIRST,)):  # noqa: B008
    return asyncio.run(MultistageGame(rules).judge_suites(PROBLEM, suites, sandbox, wrong, mutants))


def test_a_suite_goes_through_every_stage(sandbox):
    (record,) = judge(sandbox, SUITE)
    assert record == SuiteRecord(
        emitted=7,
        parsed=6,
        well_formed=4,
        agreed=3,
        distinct=2,
        repeated=1,
        validity=2 / 7,
        valid=("assert f([3, 1, 2]) == [3, 2]", "assert f([2, 1]) == [2, 1]"),
        wrong=(True,),  # by [3, 1, 2]
        mutants=(True,),
        correct=(False, True),  # a tuple is no list
    )


def test_suites_without_a_valid_test_kill_nothing(sandbox):
    invalid, empty = judge(sandbox, "assert f([1, 2]) == [1, 2]", "")
    assert (invalid.emitted, invalid.well_formed, invalid.distinct, invalid.mutants) == (1, 1, 0, (False,))
    assert (empty.emitted, empty.wrong, empty.correct) == (0, (False,), (False, False))


def test_weak_suites_let_bugs_pass(sandbox):
    (record,) = judge(sandbox, "assert f([2, 1]) == [2, 1]")
    assert record.wrong == (False,) and record.mutants == (True,)


def test_a_repeat_with_another_output_does_not_agree(sandbox):
    (record,) = judge(sandbox, "assert f([2, 1]) == [2, 1]\nassert f([2, 1]) == [1, 2]")
    assert (record.well_formed, record.agreed, record.distinct, record.repeated) == (2, 1, 1, 1)


def test_inputs_only(sandbox):
    (record,) = judge(sandbox, "f([3, 1, 2])\nf([3, 1,2])\nf(1)", rules=rules("input_only"))
    assert (record.parsed, record.well_formed, record.agreed, record.distinct) == (3, 2, 2, 1)
    assert record.wrong == (True,) and record.correct == (False, True)


def test_relabelled_outputs_kill_but_do_not_agree(sandbox):
    (record,) = judge(sandbox, "assert f([2, 1, 3]) == [2, 1]", rules=rules("relabel"))
    assert (record.well_formed, record.agreed, record.distinct) == (1, 0, 0)
    assert record.wrong == (True,)
    assert record.validity == 0.5  # as the reward takes it: rewards.wrong_output_penalty


@pytest.mark.parametrize(("needed", "killed"), [({}, True), ({"kill_needs_fast_reference": 0.0}, False)])
def test_a_time_limit_kills_where_the_reference_is_fast(sandbox, needed, killed):
    suite = "assert f([2, 2]) == [2, 2]"
    (record,) = judge(sandbox, suite, wrong=[HANGS_ON_TIES], rules=rules(rewards=needed))
    assert record.wrong == (killed,)


def test_what_the_sandbox_cannot_judge_is_counted_apart(breaking):
    breaking.on = {WRONG}
    records = judge(breaking, SUITE, "assert f([2, 1]) == [2, 1]")
    assert [r.wrong for r in records] == [(None,), (None,)] and records[0].mutants == (True,)
    scores = discriminator_scores(records)
    assert scores.unjudged == 2 and scores.kill_rate is None and scores.mutant_kill_rate == 1
    breaking.on = {PROBLEM.reference_solution}
    assert judge(breaking, SUITE) == [None]


# ---------------------------------------------------------------------- counting
def record(emitted: int = 4, distinct: int = 2, **killed) -> SuiteRecord:
    counts = {"parsed": emitted, "well_formed": 3, "agreed": 3, "distinct": distinct, "repeated": 1}
    return SuiteRecord(emitted=emitted, validity=distinct / 8, **counts, **killed)


def test_scores_by_hand():
    scores = discriminator_scores(
        [
            record(wrong=(True, False), mutants=(True,), correct=(False,)),
            record(emitted=8, distinct=1, wrong=(None, True), mutants=(False,)),
            None,
        ]
    )
    assert (scores.suites, scores.unjudged) == (2, 2)
    assert scores.parsed == 1 and scores.well_formed == pytest.approx((3 / 4 + 3 / 8) / 2)
    assert scores.distinct == pytest.approx((2 / 4 + 1 / 8) / 2)
    assert scores.validity == pytest.approx((2 / 8 + 1 / 8) / 2)
    assert scores.duplicates == pytest.approx((1 / 4 + 1 / 8) / 2)
    assert scores.kill_rate == pytest.approx(2 / 3)
    assert (scores.mutant_kill_rate, scores.false_kill_rate) == (0.5, 0.0)


def test_a_suite_is_an_accurate_verifier_if_it_kills_every_wrong_program():
    records = [
        record(wrong=(True, True), mutants=(True,)),
        record(wrong=(True, True), mutants=(False,)),
        record(wrong=(None, True)),  # not known
        record(correct=(True,)),  # no wrong program
    ]
    assert discriminator_scores(records).verifier_accuracy == 0.5


def test_nothing_measured_is_no_zero():
    scores = discriminator_scores([None])
    assert (scores.suites, scores.unjudged) == (0, 1)
    assert scores.validity is None and scores.kill_rate is None
    assert discriminator_scores([record()]).false_kill_rate is None


def test_kill_at_k():
    records = [record(mutants=m) for m in ((True, False, None), (False, False, True), (False, False, None))]
    assert kill_at_k([*records, None], 1) == pytest.approx((1 / 3 + 0 + 1) / 3)
    assert kill_at_k(records, 3) == pytest.approx((1 + 0) / 2)  # the third was judged with one suite only
    assert kill_at_k(records, 4) is None and kill_at_k([None], 1) is None
    with pytest.raises(ValueError, match="k is 0"):
        kill_at_k(records, 0)


# ---------------------------------------------------------------------- contained
def test_the_sandbox_of_the_product_says_the_same(sandbox):
    require("auto")
    with LocalSandbox("auto") as contained:
        assert judge(contained, SUITE, "") == judge(sandbox, SUITE, "")
