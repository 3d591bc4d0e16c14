"""The generator's reasoning stages: their names, and the instruction to a chat model in each stage.

To add a stage, edit this list only (docs/reasoning_stages.md). The last stage writes the program.
"""

from dataclasses import dataclass

_STAGES = (
    (
        "informal reasoning",
        "Explain in a few plain sentences how you would solve this problem. No code yet.",
    ),
    (
        "structured reasoning",
        "Now break the solution down into numbered steps and list the edge cases.",
    ),
    ("pseudocode", "Now write the algorithm in pseudocode."),
    (
        "constraints and invariants",
        "Now state the constraints on the input, the invariants of your algorithm and its complexity.",
    ),
    (
        "executable code",
        "Now write the final Python program, in one ```python block.",
    ),
)


@dataclass(frozen=True, slots=True)
class ReasoningStage:
    number: int
    """Number of the stage, counted from 1 in the order of the list."""
    name: str
    instruction: str
    """Instruction to a chat model in this stage."""


REASONING_STAGES = tuple(
    ReasoningStage(number, name, instruction) for number, (name, instruction) in enumerate(_STAGES, start=1)
)


def first_stages(count: int) -> tuple[ReasoningStage, ...]:
    """Returns the first `count` reasoning stages and the stage that writes the program. Used for ablations."""
    return (*REASONING_STAGES[:-1][:count], REASONING_STAGES[-1])
