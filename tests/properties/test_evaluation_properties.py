"""Properties of what evaluations count: scores of suites, pass@k, mutants."""

import ast
from itertools import combinations, pairwise
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lab.grammar import code
from lab.sampling import random_spec
from sparring.evaluation.mutants import OPERATORS, mutants
from sparring.games.pass_at_k import mean_pass_at_k, pass_at_k
from sparring.games.suite_scores import SuiteRecord, discriminator_scores, kill_at_k

examples = settings(max_examples=100, deadline=None)
SHARES = ("parsed", "well_formed", "agreed", "distinct", "duplicates", "validity")
RATES = ("kill_rate", "mutant_kill_rate", "false_kill_rate")


@st.composite
def suites(draw, mutants=2, slots=1):
    emitted = draw(st.integers(0, 8))
    counts = sorted(draw(st.lists(st.integers(0, emitted), min_size=4, max_size=4)), reverse=True)
    stages = dict(zip(("parsed", "well_formed", "agreed", "distinct"), counts, strict=True))
    repeated = draw(st.integers(0, counts[1] - counts[3]))
    killed = st.sampled_from([True, False, None])
    some = st.lists(killed, max_size=3).map(tuple)
    fixed = st.lists(killed, min_size=mutants, max_size=mutants).map(tuple)
    return SuiteRecord(
        emitted=emitted,
        **stages,
        repeated=repeated,
        validity=counts[3] / max(1, slots, emitted),
        wrong=draw(some),
        mutants=draw(fixed),
        correct=draw(some),
    )


many = st.integers(1, 8).flatmap(lambda slots: st.lists(st.none() | suites(slots=slots), max_size=6))


@examples
@given(many)
def test_scores_are_shares_and_stages_only_lose(records):
    scores = discriminator_scores(records)
    values = [getattr(scores, name) for name in (*SHARES, *RATES)]
    assert all(value is None or 0 <= value <= 1 for value in values)
    assert scores.suites + records.count(None) == len(records)
    if scores.suites:
        stages = [getattr(scores, name) for name in SHARES[:4]]
        assert all(a >= b - 1e-12 for a, b in pairwise(stages))
        assert scores.validity <= scores.distinct + 1e-12


@examples
@given(many, st.randoms())
def test_the_order_of_suites_is_nothing(records, random):
    shuffled = list(records)
    random.shuffle(shuffled)
    one, other = discriminator_scores(records), discriminator_scores(shuffled)
    for name in (*SHARES, *RATES, "unjudged"):
        a, b = getattr(one, name), getattr(other, name)
        assert a == b or abs(a - b) < 1e-9


@examples
@given(st.lists(suites(), min_size=1, max_size=6))
def test_unjudged_suites_change_no_mean(records):
    with_failures = discriminator_scores([None, *records, None])
    without = discriminator_scores(records)
    assert with_failures.unjudged == without.unjudged + 2
    assert all(getattr(with_failures, n) == getattr(without, n) for n in (*SHARES, *RATES))


@examples
@given(st.lists(suites(), min_size=2, max_size=6))
def test_more_suites_kill_more(records):
    """Where every mutant was judged by every suite."""
    known = [r for r in records if None not in r.mutants]
    rates = [kill_at_k(known, k) for k in range(1, len(known) + 1)]
    assert all(a <= b + 1e-12 for a, b in pairwise(rates))
    if known:
        by_mutant = list(zip(*(r.mutants for r in known), strict=True))
        assert abs(rates[-1] - sum(map(any, by_mutant)) / len(by_mutant)) < 1e-9


# ---------------------------------------------------------------------- pass@k
@st.composite
def counts(draw, most=200):
    """(n, c, k)"""
    n = draw(st.integers(1, most))
    return n, draw(st.integers(0, n)), draw(st.integers(1, n))


@examples
@given(counts())
def test_it_is_a_probability_and_grows_with_c_and_with_k(ncs):
    n, c, k = ncs
    p = pass_at_k(n, c, k)
    assert 0 <= p <= 1
    if c < n:
        assert pass_at_k(n, c + 1, k) >= p
    if k < n:
        assert pass_at_k(n, c, k + 1) >= p - 1e-12
    assert (p == 0) == (c == 0)
    assert p == 1 or n - c >= k


@examples
@given(counts(most=9))
def test_it_is_the_share_of_subsets_with_a_success(ncs):
    n, c, k = ncs
    subsets = list(combinations([True] * c + [False] * (n - c), k))
    assert pass_at_k(n, c, k) == pytest.approx(sum(map(any, subsets)) / len(subsets))


@examples
@given(counts())
def test_pass_at_1_is_the_share_of_successes(ncs):
    n, c, _ = ncs
    assert pass_at_k(n, c, 1) == pytest.approx(c / n)


@examples
@given(st.lists(counts(most=30), min_size=1, max_size=5))
def test_the_mean_lies_between_the_problems(problems):
    k = min(n for n, _, _ in problems)
    each = [pass_at_k(n, c, k) for n, c, _ in problems]
    mean = mean_pass_at_k([(n, c) for n, c, _ in problems], k)
    assert min(each) - 1e-12 <= mean <= max(each) + 1e-12


# ---------------------------------------------------------------------- mutants
sources = st.integers(0, 10**6).map(lambda seed: code(random_spec(Random(seed))))


@examples
@given(sources, st.integers(0, 40), st.integers(0, 100))
def test_mutants_are_distinct_programs_that_differ_from_the_source(source, limit, seed):
    found, every = mutants(source, limit, seed), mutants(source, 10_000, 0)
    trees = [ast.dump(ast.parse(m.source)) for m in found]
    assert len(found) == min(limit, len(every))
    assert len(set(trees)) == len(trees) and ast.dump(ast.parse(source)) not in trees
    assert all(m.operator in OPERATORS and 1 <= m.line <= source.count("\n") for m in found)
    assert found == mutants(source, limit, seed)
    assert {m.source for m in found} <= {m.source for m in every}
