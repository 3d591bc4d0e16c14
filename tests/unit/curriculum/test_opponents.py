"""Whom a learner meets, and how often."""

import json
from collections import Counter

import pytest
from pydantic import ValidationError

from sparring.curriculum.opponents import OpponentMix, Opponents, pfsp_weights

PAST = OpponentMix(current=0, pfsp=1)


def drawn(opponents: Opponents, count: int = 4000) -> dict[int | None, float]:
    counts = Counter(opponents.draw(step) for step in range(count))
    return {version: n / count for version, n in counts.items()}


def test_weights_are_alphastars_and_nobody_is_forgotten():
    assert pfsp_weights([0.0, 0.5, 0.9, 1.0]) == pytest.approx([0.01, 0.25, 0.09, 0.01])


def test_shares_of_current_fair_and_any():
    opponents = Opponents(OpponentMix(current=0.5, pfsp=0.35), keep=4, seed=1)
    assert drawn(opponents) == {None: 1.0}  # there is no past yet
    for version in (1, 2):
        opponents.add(version)
    for _ in range(60):
        opponents.record(2, 1.0)  # always beaten: no fair match
    shares = drawn(opponents)
    assert shares[None] == pytest.approx(0.5, abs=0.03)
    fair = 0.25 / (0.25 + 0.01)
    assert shares[1] == pytest.approx(0.35 * fair + 0.075, abs=0.03)
    assert shares[2] == pytest.approx(0.35 * (1 - fair) + 0.075, abs=0.03)


def test_of_many_versions_a_uniform_sample_is_kept():
    kept = Counter[int]()
    for seed in range(300):
        opponents = Opponents(PAST, keep=5, seed=seed)
        for version in range(25):
            opponents.add(version)
        assert len(opponents.versions) == 5 and list(opponents.versions) == sorted(opponents.versions)
        kept.update(opponents.versions)
    assert min(kept[v] for v in range(25)) > 0.1 * 300 and max(kept.values()) < 0.32 * 300


def test_games_against_a_version_that_is_gone_are_not_counted():
    opponents = Opponents(PAST, keep=1, seed=1)
    opponents.record(9, 1.0)
    assert opponents.versions == ()


def test_resumed_it_draws_the_same():
    first, second = (Opponents(OpponentMix(current=0.5, pfsp=0.35), keep=4, seed=3) for _ in range(2))
    for version in (4, 2, 9):
        first.add(version)
        first.record(version, 0.1 * version)
    second.load_state_dict(json.loads(json.dumps(first.state_dict())))
    assert [second.draw(s) for s in range(50)] == [first.draw(s) for s in range(50)]
    assert second.state_dict() == first.state_dict()


def test_shares_that_are_none_are_refused():
    with pytest.raises(ValidationError, match="at most 1"):
        OpponentMix(current=0.6, pfsp=0.5)
