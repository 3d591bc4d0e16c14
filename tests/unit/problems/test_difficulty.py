"""Difficulty by pass rate, and which problems there is something to learn from."""

import pytest

from sparring.problems.difficulty import difficulty_from_pass_rate, keep_learnable
from tests.playing import a_problem


@pytest.mark.parametrize(
    ("rate", "difficulty"),
    [(0.0, 5), (0.19, 5), (0.2, 4), (0.4, 3), (0.5, 3), (0.6, 2), (0.79, 2), (0.8, 1), (1.0, 1)],
)
def test_difficulty(rate, difficulty) -> None:
    assert difficulty_from_pass_rate(rate) == difficulty


@pytest.mark.parametrize("rate", [-0.1, 1.1, float("nan")])
def test_no_pass_rate(rate) -> None:
    with pytest.raises(ValueError, match="between 0 and 1"):
        difficulty_from_pass_rate(rate)


def test_what_is_always_or_never_solved_is_dropped() -> None:
    problems = [a_problem(id=id) for id in ("never", "rarely", "often", "always", "unknown")]
    rates = {"never": 0.0, "rarely": 0.1, "often": 0.9, "always": 1.0}
    assert [p.id for p in keep_learnable(problems, rates)] == ["rarely", "often", "unknown"]
