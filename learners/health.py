"""Records what a learner's faults have cost so far, and decides what to do about the next one. Pure: the learner acts
on the decision."""

from dataclasses import dataclass
from enum import StrEnum

MAX_SKIPPED = 3
"""Maximum number of updates in a row that are skipped as not finite. Each one halves the learning rate."""
MAX_RELOADS = 2
"""Maximum number of returns to a checkpoint in a row. A fault that reappears each time is not cured by another return."""


class Remedy(StrEnum):
    """The action after an update whose loss or gradient is not finite. No action applies the update."""

    SKIP = "skip"
    """Skip the update, which was only too large for fp16."""
    HALVE = "halve"
    """Skip the update, and halve the learning rate permanently."""
    RELOAD = "reload"
    """Go back to a checkpoint."""
    GIVE_UP = "give up"


@dataclass(slots=True)
class Health:
    """The learner's fault counters. They are plain numbers: asdict(health) is its state."""

    learning_rate_factor: float = 1.0
    """Factor on the learning rate. Each update with Remedy.HALVE halves it."""
    halvings: int = 0
    """Number of times that the budget of micro-batches was halved because workers were killed for memory."""
    most_tokens: int | None = None
    """Maximum number of tokens of a micro-batch since memory ran out; None: that of the settings. It is absolute, so that a
    smaller setting of a resumed run is not halved again."""
    proven_version: int = 0
    """Newest version of the weights with which a step began that skipped no update."""
    skipped_in_a_row: int = 0
    reloads_in_a_row: int = 0
    """Number of returns to a checkpoint since the last step in which no update was skipped."""

    def halve_learning_rate(self) -> None:
        self.learning_rate_factor /= 2
        self.skipped_in_a_row += 1

    def proved(self, version: int) -> None:
        """Records that a step which began with these weights made all of its updates."""
        self.proven_version, self.reloads_in_a_row = version, 0

    def went_back(self, saved: "Health") -> None:
        """Records a return to a checkpoint. The reduced learning rate and the halvings are kept.

        Args:
            saved: Health of the checkpoint.
        """
        self.proven_version, self.skipped_in_a_row = saved.proven_version, 0
        self.reloads_in_a_row += 1


def remedy(health: Health, *, overflow: bool = False, checkpoint: bool = False) -> Remedy:
    """Returns what to do about an update that is not finite.

    Args:
        overflow: Whether fp16's scale was too large; it has been lowered.
        checkpoint: Whether there is a checkpoint to go back to.
    """
    if overflow:
        return Remedy.SKIP
    if health.skipped_in_a_row < MAX_SKIPPED:
        return Remedy.HALVE
    if checkpoint and health.reloads_in_a_row < MAX_RELOADS:
        return Remedy.RELOAD
    return Remedy.GIVE_UP
