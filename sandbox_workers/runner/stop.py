"""The reasons for which a round is ended before its last verdict."""

from dataclasses import dataclass

from .child import Child

MOST_RETRIES = 2
"""Largest number of retries per job, so that a program that sleeps in each test does not get each test twice."""


@dataclass(frozen=True, slots=True)
class Stop:
    """A status and the error text that goes with it."""

    status: str
    error: str
    may_be_ours: bool = False
    """True if the state of the machine may have been the cause. Then one retry is worthwhile."""


def set_up_failed(error: str) -> Stop:
    return Stop("SANDBOX_ERROR", f"a process of the sandbox cannot be set up: {error}")


def killed_for_memory(child: Child, within_limits: bool) -> Stop:
    """Returns the stop that follows if the kernel killed this child for lack of memory. If the child had no other
    processes and is within its limits, others had taken the memory."""
    error = "killed by the kernel for want of memory"
    if child.alone and within_limits:
        return Stop("SANDBOX_ERROR", f"{error} that others had", may_be_ours=True)
    return Stop("MEMORY_LIMIT", error)
