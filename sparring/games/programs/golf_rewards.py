"""Rewards of code golf: a program must be correct first, then short. Pure functions.

For a program of n bytes (UTF-8) that passes k of a task's N tests:
    some pass, k < N    reward = pass_weight * k / N
    all pass            reward = pass_weight + length_weight * length_scale / (length_scale + n)
    none passes         reward = -penalty of its fault, 0 if it only returned wrong grids
The length counts for solutions only: if short wrong programs were rewarded, a policy would hardly stop writing the empty
program. So the reward never falls as the pass rate rises, a solution earns more than any other program, and the shortest
solution earns most. If a program passes some tests, a fault (an error or a limit) costs no more than the tests that it
failed: a penalty could put the program below one that passes fewer tests.
"""

from collections.abc import Iterable

from pydantic import Field

from sparring.core.settings import Settings
from sparring.core.verdict import Status, Verdict

KAGGLE_START = 2500
"""Points of an empty program in Kaggle's competition; each byte costs one point."""


class GolfRules(Settings):
    """Rewards of a program."""

    pass_weight: float = Field(default=1.0, gt=0)
    """Reward for passing every test, whatever the length."""
    length_weight: float = Field(default=0.5, ge=0)
    """Maximum bonus of a solution, which it approaches as its length goes to 0. 0: only correctness is rewarded."""
    length_scale: int = Field(default=100, ge=1)
    """Length in bytes at which half of the bonus is left; about the length of a usual solution."""
    syntax_error_penalty: float = Field(default=1.0, ge=0)
    """Penalty of a program that is not valid Python. As all penalties, it applies only if the program passes no test."""
    runtime_error_penalty: float = Field(default=0.5, ge=0)
    """Penalty of a program that raises an exception."""
    limit_penalty: float = Field(default=0.5, ge=0)
    """Penalty of a program that exceeds a limit of time, memory or output."""

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
    """Returns (reward, components) by the formula in the module's docstring.

    Args:
        passed, total: numbers of tests, 0 <= passed <= total, total at least 1.
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
        "kaggle_score": kaggle_score(solved, program_bytes),
    }


def kaggle_score(all_passed: bool, utf8_bytes: int) -> float:
    """Returns the competition's score of a task: max(1, 2500 - bytes), 0 unless every pair passes."""
    return max(1.0, float(KAGGLE_START - utf8_bytes)) if all_passed else 0.0


def utf8_bytes(program: str) -> int:
    """Returns the length of a program as the competition counts it. A lone surrogate, which no file could contain, counts
    three bytes."""
    return len(program.encode("utf-8", "surrogatepass"))


def fault_of(verdicts: Iterable[Verdict]) -> Status | None:
    """Returns the first status that is neither PASSED nor WRONG_ANSWER; None if there is none."""
    harmless = (Status.PASSED, Status.WRONG_ANSWER)
    return next((verdict.status for verdict in verdicts if verdict.status not in harmless), None)
