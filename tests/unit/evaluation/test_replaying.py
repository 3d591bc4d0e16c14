"""Two rewards of the same attempts, compared."""

from sparring.evaluation.replaying import Judgement, compared, told_apart


def judged(group: str, *attempts: tuple[float | None, float | None, bool]) -> list[Judgement]:
    return [Judgement(group=(group,), then=then, now=now, right=right) for then, now, right in attempts]


MIXED = judged("mixed", (0.5, 0.0, False), (0.5, 1.0, True), (0.25, 0.0, False), (None, 1.0, False))
WRONG = judged("wrong", (0.0, 0.0, False), (0.5, 0.0, False))


def test_rewards_are_compared_where_there_are_both() -> None:
    found = compared(MIXED + WRONG)
    assert found["attempts"] == 5
    assert (found["mean_then"], found["mean_now"], found["changed"]) == (1.75 / 5, 1 / 5, 4 / 5)
    assert found["rank_agreement"] == 1.0, "of five pairs in groups one has an order in both: right over .25"
    opposed = judged("x", (0.0, 1.0, True), (1.0, 0.0, True))
    assert compared(opposed)["rank_agreement"] == 0.0


def test_what_a_reward_reinforces() -> None:
    then, now = (told_apart(MIXED + WRONG, now=now) for now in (False, True))
    assert then == {"right_over_wrong": 0.75, "with_signal": 1.0, "signal_without_right": 1.0}
    assert now["right_over_wrong"] == (1 + 1 + 0.5) / 3
    assert (now["with_signal"], now["signal_without_right"]) == (0.5, 0.0)


def test_nothing_to_compare() -> None:
    assert set(told_apart([], now=True).values()) == {None}
    assert compared(judged("x", (None, 1.0, True)))["mean_then"] is None
