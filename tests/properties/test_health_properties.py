"""Whatever updates fail, and in whatever order: what a learner does about it comes to an end, and is never taken back."""

from copy import copy

from hypothesis import given, settings
from hypothesis import strategies as st

from learners.health import MAX_RELOADS, MAX_SKIPPED, Health, Remedy, remedy

examples = settings(max_examples=300)
UPDATES = st.lists(st.sampled_from(["good", "overflow", "bad"]), min_size=1, max_size=4)
STEPS = st.lists(UPDATES, max_size=60)


def live(steps: list[list[str]], saved: list[bool]) -> tuple[Health, list[Remedy]]:
    """A learner's life, without the learner: (its health, what was done). saved: whether there is a checkpoint."""
    health, done = Health(), []
    for version, updates in enumerate(steps):
        failed = False
        for update in updates:
            if update == "good":
                health.skipped_in_a_row = 0
                continue
            failed = True
            before = copy(health)
            done.append(remedy(health, overflow=update == "overflow", checkpoint=saved[version]))
            assert health == before, "deciding changes nothing"
            if done[-1] is Remedy.HALVE:
                health.halve_learning_rate()
            if done[-1] is Remedy.RELOAD:
                health.went_back(Health())
                break
            if done[-1] is Remedy.GIVE_UP:
                return health, done
        if not failed:
            health.proved(version)
    return health, done


@st.composite
def lives(draw: st.DrawFn) -> tuple[list[list[str]], list[bool]]:
    steps = draw(STEPS)
    return steps, draw(st.lists(st.booleans(), min_size=len(steps), max_size=len(steps)))


@examples
@given(lives())
def test_the_learning_rate_is_halved_for_each_skipped_update_and_never_raised(life):
    health, done = live(*life)
    assert health.learning_rate_factor == 0.5 ** done.count(Remedy.HALVE)


@examples
@given(lives())
def test_the_rows_stay_within_their_bounds(life):
    health, done = live(*life)
    assert health.skipped_in_a_row <= MAX_SKIPPED and health.reloads_in_a_row <= MAX_RELOADS
    assert Remedy.GIVE_UP not in done[:-1]
    steps, saved = life
    if not any(saved):
        assert Remedy.RELOAD not in done
    if not any("bad" in updates for updates in steps):
        assert set(done) <= {Remedy.SKIP}, "fp16's scale finds itself"


@examples
@given(st.integers(0, MAX_SKIPPED), st.integers(0, MAX_RELOADS), st.booleans())
def test_what_only_fails_is_given_up_after_all_else_was_tried(skipped, reloads, checkpoint):
    health = Health(skipped_in_a_row=skipped, reloads_in_a_row=reloads)
    left = (MAX_SKIPPED - skipped) + (MAX_RELOADS - reloads) * (MAX_SKIPPED + 1) * checkpoint
    done = []
    while (what := remedy(health, checkpoint=checkpoint)) is not Remedy.GIVE_UP:
        done.append(what)
        health.halve_learning_rate() if what is Remedy.HALVE else health.went_back(Health())
    assert len(done) == left
    assert done.count(Remedy.RELOAD) == (MAX_RELOADS - reloads) * checkpoint
    assert done[: MAX_SKIPPED - skipped] == [Remedy.HALVE] * (MAX_SKIPPED - skipped), "the least first"


@examples
@given(lives())
def test_weights_are_proven_by_a_step_that_made_all_of_its_updates(life):
    steps, saved = life
    health, done = live(steps, [False] * len(saved))
    if Remedy.GIVE_UP not in done:
        whole = [version for version, updates in enumerate(steps) if set(updates) == {"good"}]
        assert health.proven_version == (whole[-1] if whole else 0)
