"""Rewards of code golf: correct first, then short. Pure functions.

For a program of n bytes (UTF-8) that passes k of a task's N tests:
    some pass, k < N    reward = pass_weight * k / N
    all pass            reward = pass_weight + length_weight * length_scale / (length_scale + n)
    none passes         reward = -penalty of its fault, 0 where it only gave wrong grids
Length counts for solutions only: were a wrong program paid for being short, the empty one would be hard to leave.
So the reward never falls with the pass rate, any solution earns more than any program that is none, and the shortest
solution earns most. A fault (error, limit) beside passed tests costs just the tests that it failed: a penalty there
could put a program below one that passes less.
"""

from collections.abc import Iterable

from pydantic import Field

from core.settings import Settings
from core.verdict import Status, Verdict

KAGGLE_START = 2500
"""Points of an empty program in the competition; each byte costs one."""


class GolfRules(Settings):
    """What a program earns."""

    pass_weight: float = Field(default=1.0, gt=0)
    """Reward of passing every test, whatever the length."""
    length_weight: float = Field(default=0.5, ge=0)
    """A solution's bonus as its length goes to 0. 0 pays for correctness alone."""
    length_scale: int = Field(default=100, ge=1)
    """Bytes at which half of the bonus is left: about the length of a usual solution."""
    kaggle_floor: float = Field(default=1.0, ge=0)
    """Least score of a solution by the competition's count, however long. Only reported."""
    syntax_error_penalty: float = Field(default=1.0, ge=0)
    """Of a program that is not valid Python (and, as with all penalties, passes nothing)."""
    runtime_error_penalty: float = Field(default=0.5, ge=0)
    """Of a program that raises."""
    limit_penalty: float = Field(default=0.5, ge=0)
    """Of a program that runs out of time, memory or output."""

    def penalty(self, fault: Status) -> float:
        assert not fault.is_infrastructure(), "a sandbox failure is never a reward"
        if fault is Status.SYNTAX_ERROR:
            return self.syntax_error_penalty
        if fault is Status.RUNTIME_ERROR:
            return self.runtime_error_penalty
        return self.limit_penalty if fault.is_resource_limit() else 0.0


def golf_reward(
    passed: int, total: int, program_bytes: int, rules: GolfRules, fault: Status | None = None
) -> tuple[float, dict[str, float]]:
    """(reward, components) by the formula above.

    Args:
        passed, total: tests, 0 <= passed <= total, total at least 1.
        program_bytes: `utf8_bytes` of the program.
        fault: `fault_of` its verdicts.
    """
    assert 0 <= passed <= total and total > 0
    solved = passed == total
    brevity = rules.length_scale / (rules.length_scale + program_bytes)
    penalty = rules.penalty(fault) if fault is not None and not passed else 0.0
    reward = rules.pass_weight * (passed / total) - penalty
    if solved:
        reward += rules.length_weight * brevity
    return reward, {
        "pass_rate": passed / total,
        "solved": float(solved),
        "bytes": float(program_bytes),
        "brevity": brevity,
        "penalty": penalty,
        "kaggle_score": kaggle_score(solved, program_bytes, rules.kaggle_floor),
    }


def kaggle_score(all_passed: bool, utf8_bytes: int, floor: float) -> float:
    """The competition's score of a task: max(floor, 2500 - bytes), 0 unless every pair passes."""
    return max(floor, float(KAGGLE_START - utf8_bytes)) if all_passed else 0.0


def utf8_bytes(program: str) -> int:
    """Length as the competition counts it. Lone surrogates, which no file could hold, count three bytes."""
    return len(program.encode("utf-8", "surrogatepass"))


def fault_of(verdicts: Iterable[Verdict]) -> Status | None:
    """The first status that is more than a wrong answer; None where there is none."""
    harmless = (Status.PASSED, Status.WRONG_ANSWER)
    return next((verdict.status for verdict in verdicts if verdict.status not in harmless), None)
