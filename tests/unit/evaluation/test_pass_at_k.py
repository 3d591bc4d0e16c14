import pytest

from sparring.games.pass_at_k import mean_pass_at_k, pass_at_k


def test_by_hand():
    assert pass_at_k(5, 2, 2) == pytest.approx(1 - 3 / 10)  # C(3, 2) of C(5, 2) pairs miss both
    assert mean_pass_at_k([(4, 4), (5, 2), (3, 0)], 2) == pytest.approx((1 + 0.7 + 0) / 3)


def test_large_counts_neither_overflow_nor_cancel():
    assert pass_at_k(10_000, 1, 1000) == pytest.approx(0.1)
    assert pass_at_k(10_000, 10_000, 10_000) == 1


@pytest.mark.parametrize("n, c, k", [(4, 2, 5), (4, 2, 0), (4, 5, 1), (4, -1, 1), (0, 0, 1)])
def test_what_cannot_be_is_refused(n, c, k):
    with pytest.raises(ValueError, match="pass@k"):
        pass_at_k(n, c, k)


def test_problems_with_too_few_attempts_and_no_problems_are_refused():
    with pytest.raises(ValueError, match="k is 3"):
        mean_pass_at_k([(5, 1), (2, 1)], 3)
    with pytest.raises(ValueError):
        mean_pass_at_k([], 1)
