"""Rewards for programs that run: the reward depends on how a program ends, not on what it computes.

+1: the program runs and prints; +0.5: it runs and prints nothing; -0.5: it does not compile; -1: it fails while it runs,
or is stopped by a limit. `print(1)` earns +1, so the game is only a warm-up, unless `gate_on_tests` requires that the
problem's tests are passed as well.
"""

from collections.abc import Mapping, Sequence
from typing import Literal

from sparring.core.episode import Trajectory
from sparring.core.interfaces import Message, Sandbox, SandboxFailure
from sparring.core.problem import Problem
from sparring.core.source import is_valid_python
from sparring.core.verdict import Limits, OutputTest, Status, Verdict
from sparring.games.judging import judged, outcomes_of
from sparring.games.programs.game import SolverRules
from sparring.games.rules import Need

_TASK = """Write a complete Python program that solves this problem and prints the result for an example of your choice.

Problem: {description}
Signature: {signature}

Answer with one ```python block."""


class CodeExecutionRules(SolverRules):
    """Config of a game in which a program is rewarded for running without an error."""

    kind: Literal["code_execution"] = "code_execution"
    gate_on_tests: bool = False
    """Reward a program that runs only if it also passes the problem's baseline tests; else it earns 0."""
    sandbox_limits: Limits = Limits(cpu_s=3.0)

    @property
    def uses(self) -> frozenset[Need]:
        gate: tuple[Need, ...] = ("rewarded tests",) if self.gate_on_tests else ()
        return frozenset(("sandbox", "problems", "samples", *gate))

    @property
    def rewarded_tests(self) -> int | None:
        return None if self.gate_on_tests else 0

    def message(self, problem: Problem, memory: Sequence[str] = ()) -> Message:
        full = _TASK.format(description=problem.description, signature=problem.function_signature)
        return Message(brief=problem.description, full=full)

    def refuse(self, problem: Problem) -> str | None:
        return self.refuse_but_python(problem) or super().refuse(problem)

    async def earn(self, problem: Problem, attempt: Trajectory, sandbox: Sandbox) -> bool:
        program, limits = problem.in_harness(attempt.artifact), problem.limits_over(self.sandbox_limits)
        runs = [OutputTest(stdout=None)]
        if (verdicts := await judged(sandbox.judge(program, runs, limits=limits))) is None:
            return False
        verdict, outcomes = verdicts[0], outcomes_of(runs, verdicts)
        is_python = verdict.passed or is_valid_python(attempt.artifact)
        reward = execution_reward(verdict, is_python)
        if self.gate_on_tests and reward > 0:
            tests = await judged(sandbox.judge(program, problem.baseline_tests, limits=limits))
            if tests is None:
                return False
            outcomes += outcomes_of(problem.baseline_tests, tests)
            attempt.components["solved"] = solved = float(all(v.passed for v in tests))
            reward = reward if solved else 0.0
        attempt.reward, attempt.outcomes = reward, outcomes
        attempt.components |= {
            "python": float(is_python),
            "runs": float(verdict.passed),
            "prints": float(verdict.passed and bool(verdict.stdout.strip())),
        }
        return True

    def why(self, player: str, components: Mapping[str, float]) -> str:
        if not components["python"]:
            return "no valid Python"
        if not components["runs"]:
            return "fails while it runs, or is stopped by a limit"
        said = "runs and prints" if components["prints"] else "runs and prints nothing"
        if components.get("solved") == 0:
            return f"{said}, but fails a test of the problem"
        return said


def execution_reward(verdict: Verdict, is_python: bool) -> float:
    """Returns the reward by the list in the module's docstring.

    is_python: whether the program compiles. The sandbox reports a program that does not compile as a runtime error.
    """
    match verdict.status:
        case Status.PASSED:
            return 1.0 if verdict.stdout.strip() else 0.5
        case Status.RUNTIME_ERROR | Status.SYNTAX_ERROR:
            return -1.0 if is_python else -0.5
        case Status.SANDBOX_ERROR:
            raise SandboxFailure("a sandbox failure is never a reward")
        case _:
            return -1.0
