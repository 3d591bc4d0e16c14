"""What a learner's faults have cost it so far, and what is to be done about the next one. Pure: the learner does it."""

from dataclasses import dataclass
from enum import StrEnum

MAX_SKIPPED = 3
"""Updates in a row that are skipped as not finite, each at half the learning rate of the one before."""
MAX_RELOADS = 2
"""Returns to a checkpoint in a row: what comes back each time is not cured by going back."""


class Remedy(StrEnum):
    """Of an update whose loss or gradient is not finite. None of them makes it."""

    SKIP = "skip"
    """It was only too large for fp16."""
    HALVE = "halve"
    """Skip it, and halve the learning rate for good."""
    RELOAD = "reload"
    """Go back to a checkpoint."""
    GIVE_UP = "give up"


@dataclass(slots=True)
class Health:
    """Plain numbers: asdict(health) is its state."""

    learning_rate_factor: float = 1.0
    """Halved by each update that was not finite."""
    halvings: int = 0
    """How often micro-batches were halved, where memory ran out."""
    proven_version: int = 0
    """The newest weights that a whole step without skipped updates began with."""
    skipped_in_a_row: int = 0
    reloads_in_a_row: int = 0
    """Without a whole step between them."""

    def halve(self) -> None:
        self.learning_rate_factor /= 2
        self.skipped_in_a_row += 1

    def proved(self, version: int) -> None:
        """A step that began with these weights made all of its updates."""
        self.proven_version, self.reloads_in_a_row = version, 0

    def went_back(self, saved: "Health") -> None:
        """saved: the health of the weights that it went back to. What was given up for good stays so."""
        self.proven_version, self.skipped_in_a_row = saved.proven_version, 0
        self.reloads_in_a_row += 1


def remedy(health: Health, *, overflow: bool = False, checkpoint: bool = False) -> Remedy:
    """What to do about an update that is not finite.

    Args:
        overflow: fp16's scale was too large, and is lower now.
        checkpoint: there is one to go back to.
    """
    if overflow:
        return Remedy.SKIP
    if health.skipped_in_a_row < MAX_SKIPPED:
        return Remedy.HALVE
    if checkpoint and health.reloads_in_a_row < MAX_RELOADS:
        return Remedy.RELOAD
    return Remedy.GIVE_UP
