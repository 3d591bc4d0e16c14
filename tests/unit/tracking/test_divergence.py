import json

import pytest

from sparring.tracking.divergence import Divergence, StopSettings

ROLES = ("generator", "discriminator")


def row(kl=None, reward=None):
    return {"generator": {"kl_to_initial": kl} if kl is not None else {}, "generator_reward": reward}


def test_nothing_is_found_unless_asked_for():
    watch = Divergence(StopSettings(), ROLES, ROLES)
    rows = [row(0.1, 1.0), row(1e9, 1.0), row(0.1, -1e9)] * 20
    assert all(watch.found(each) is None for each in rows)


def test_a_policy_far_from_its_initial_model():
    watch = Divergence(StopSettings(max_kl=2.0), ROLES, ROLES)
    assert watch.found(row(2.0)) is None and watch.found({}) is None
    found = str(watch.found(row(2.1)))
    assert "the generator" in found and "KL 2.1 is above stop.max_kl 2 " in found


def test_a_reward_that_falls_from_its_best_window():
    watch = Divergence(StopSettings(reward_drop=0.5, window=2), ROLES, ROLES)
    found = [watch.found(row(reward=r)) for r in (0.0, 0.2, 1.0, 1.0, 0.5, None, 0.6, 0.3)]
    assert found[:-1] == [None] * 7
    assert found[-1] is not None and "0.45 over the last 2 steps after 1 at best" in found[-1]
    again = [watch.found(row(reward=r)) for r in (0.4, 0.4, 0.4)]
    assert again == [None] * 3, "whoever goes on is watched anew"


def test_a_resumed_watch_remembers(tmp_path):
    settings = StopSettings(reward_drop=0.5, window=2)
    first, second = Divergence(settings, ROLES, ROLES), Divergence(settings, ROLES, ROLES)
    for reward in (1.0, 1.0, 0.4):
        assert first.found(row(reward=reward)) is None
    second.load_state_dict(json.loads(json.dumps(first.state_dict())))
    assert second.found(row(reward=0.4)) == first.found(row(reward=0.4)) is not None


@pytest.mark.parametrize("keys", [{"max_kl": 0.0}, {"reward_drop": -1.0}, {"window": 0}, {"window": 5}])
def test_limits_are_positive(keys):
    with pytest.raises(ValueError):
        StopSettings(**keys)
