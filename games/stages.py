"""The generator's five reasoning stages: their names, and what a chat model is asked for in each."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ReasoningStage:
    number: int
    name: str
    instruction: str
    """What a chat model is asked for in this stage."""


REASONING_STAGES: tuple[ReasoningStage, ...] = (
    ReasoningStage(
        1,
        "informal reasoning",
        "Explain in a few plain sentences how you would solve this problem. No code yet.",
    ),
    ReasoningStage(
        2,
        "structured reasoning",
        "Now break the solution down into numbered steps and list the edge cases.",
    ),
    ReasoningStage(3, "pseudocode", "Now write the algorithm in pseudocode."),
    ReasoningStage(
        4,
        "constraints and invariants",
        "Now state the constraints on the input, the invariants of your algorithm and its complexity.",
    ),
    ReasoningStage(
        5,
        "executable code",
        "Now write the final Python implementation with exactly the given signature, in one ```python block.",
    ),
)


def first_stages(count: int) -> tuple[ReasoningStage, ...]:
    """The first `count` stages (0 to 4), then the program: for ablations. first_stages(4) is all five."""
    return (*REASONING_STAGES[:-1][:count], REASONING_STAGES[-1])
