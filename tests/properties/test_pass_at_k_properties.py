from itertools import combinations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sparring.games.pass_at_k import mean_pass_at_k, pass_at_k

examples = settings(max_examples=100, deadline=None)


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
