"""Why a round was ended before its last verdict."""

from dataclasses import dataclass

from .child import Child

MOST_RETRIES = 2
"""Per job: a program that sleeps in each test shall not have each of them twice."""


@dataclass(frozen=True, slots=True)
class Stop:
    """A status, and what it is told with."""

    status: str
    error: str
    by_test: bool = False
    may_be_ours: bool = False
    """The machine's state may have caused it: worth one retry."""


def set_up_failed(error: str) -> Stop:
    return Stop("SANDBOX_ERROR", f"a process of the sandbox cannot be set up: {error}")


def killed_for_memory(child: Child, within_limits: bool) -> Stop:
    """What it means that the kernel chose this child. One that had no company, and is itself within its limits, was
    chosen for what others took."""
    error = "killed by the kernel for want of memory"
    if child.alone and within_limits:
        return Stop("SANDBOX_ERROR", f"{error} that others had", may_be_ours=True)
    return Stop("MEMORY_LIMIT", error)
