"""What workers are given to do, and in which order."""

from typing import Any

import pytest

from learners.mailbox import LearnerFailed, Mailbox

pytestmark = pytest.mark.asyncio
ROLES = ("generator", "discriminator")


@pytest.fixture
def mailbox() -> Mailbox:
    return Mailbox()


def batch(step: int) -> Any:
    """In place of a reference: the mailbox never looks at it."""
    return [f"batch {step}"]


async def test_a_save_comes_before_the_batches_beyond_it(mailbox: Mailbox) -> None:
    """Whoever takes over from a dead worker may find both; and what was begun is not waited for."""
    for step in (1, 2):
        await mailbox.put_batch("generator", step, batch(step))
    await mailbox.want_save({"generator": 2})
    await mailbox.put_batch("generator", 3, batch(3))
    for version in (0, 1):
        assert await mailbox.get_work({"generator": version}, None) == ("generator", batch(version + 1))
    assert await mailbox.get_work({"generator": 2}, None) == "save"
    begun = {"generator": 2}
    assert await mailbox.get_work({"generator": 2}, begun) == ("generator", batch(3))
    # it dies before the checkpoint is registered: the next one begins at the beginning
    assert await mailbox.get_work({"generator": 0}, None) == ("generator", batch(1))
    assert await mailbox.get_work({"generator": 2}, None) == "save"
    await mailbox.saved({"generator": 2}, "there")
    assert await mailbox.get_saved({"generator": 2}) == "there"
    assert await mailbox.get_work({"generator": 2}, {"generator": 2}) == ("generator", batch(3))


async def test_of_two_policies_neither_goes_beyond_a_save(mailbox: Mailbox) -> None:
    await mailbox.put_batch("discriminator", 1, batch(1))
    await mailbox.want_save({"generator": 0, "discriminator": 1})
    for role, step in (("generator", 1), ("discriminator", 2)):
        await mailbox.put_batch(role, step, batch(step))
    assert await mailbox.get_work(dict.fromkeys(ROLES, 0), None) == ("discriminator", batch(1))
    assert await mailbox.get_work({"generator": 0, "discriminator": 1}, None) == "save"


async def test_what_is_saved_already_is_not_saved_again(mailbox: Mailbox) -> None:
    await mailbox.saved({"generator": 2}, "there")
    await mailbox.want_save({"generator": 2})
    assert await mailbox.get_saved({"generator": 2}) == "there"
    await mailbox.put_batch("generator", 3, batch(3))
    assert await mailbox.get_work({"generator": 2}, None) == ("generator", batch(3))


async def test_a_checkpoint_that_is_registered_outlives_the_learner(mailbox: Mailbox) -> None:
    await mailbox.saved({"generator": 2}, "there")
    await mailbox.stop(LearnerFailed("it is over"))
    assert await mailbox.get_saved({"generator": 2}) == "there"
    with pytest.raises(LearnerFailed, match="it is over"):
        await mailbox.get_saved({"generator": 3})


async def test_who_replaces_a_worker_killed_for_memory_takes_half(mailbox: Mailbox) -> None:
    """Of what its state says, or of what the one before it began with: whichever is less."""
    assert await mailbox.halvings(1) == 1  # a resumed learner's
    await mailbox.lost("a signal", for_memory=False)
    assert await mailbox.halvings(1) == 1
    await mailbox.lost("Ray's memory monitor", for_memory=True)
    assert await mailbox.halvings(1) == 2
    await mailbox.lost("Ray's memory monitor", for_memory=True)
    assert await mailbox.halvings(2) == 3, "the one before has saved its own"
    assert await mailbox.halvings(5) == 5


async def test_each_loss_is_told_once(mailbox: Mailbox) -> None:
    assert await mailbox.take_losses() == []
    await mailbox.lost("a signal", for_memory=False)
    await mailbox.lost("the memory monitor", for_memory=True)
    first, second = await mailbox.take_losses()
    assert "a signal" in first and "the memory monitor" in second
    assert await mailbox.take_losses() == []
