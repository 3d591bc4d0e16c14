"""Code golf on grids: a program maps input grids to output grids, and of two correct programs the shorter earns more."""

from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import Literal

from sparring.core.episode import Trajectory
from sparring.core.interfaces import Message, Sandbox
from sparring.core.problem import Problem
from sparring.core.verdict import Limits
from sparring.games.judging import judged, outcomes_of
from sparring.games.program_scores import JudgedProgram
from sparring.games.programs.game import SolverRules
from sparring.games.programs.golf_rewards import GolfRules, fault_of, golf_reward, kaggle_score, utf8_bytes
from sparring.games.rules import Need

_TASK = """Find the rule that turns each input grid into its output grid, and write it as a Python function p(grid) that
takes and returns a list of lists of integers. Of correct programs the one with the fewest bytes is the best.

{description}
{best}
Answer with one ```python block that defines p."""
_DIGITS = 4
"""Maximum number of tokens, besides the first, that the length of a known program takes in the prompt."""
_BEST = """
A program of {bytes} bytes is known; find a shorter one:
```python
{program}
```
"""


class CodeGolfRules(SolverRules):
    """Config of a game in which a program maps grids to grids, and is rewarded for being correct and short."""

    kind: Literal["code_golf"] = "code_golf"
    rewards: GolfRules = GolfRules()
    show_best: bool = False
    """Show in the prompt the best program for the task in the run's database of solutions (self-play)."""
    sandbox_limits: Limits = Limits()

    @property
    def uses(self) -> frozenset[Need]:
        return frozenset(("sandbox", "problems", "samples", "rewarded tests", "solutions"))

    def message(self, problem: Problem, memory: Sequence[str] = ()) -> Message:
        shown = memory[:1] if self.show_best else ()
        best = "".join(_BEST.format(bytes=utf8_bytes(program), program=program) for program in shown)
        return Message(
            brief="\n".join([problem.description, *shown]),
            full=_TASK.format(description=problem.description, best=best),
        )

    def shown_tokens(self, max_tokens: int) -> int:
        """Returns the maximum number of tokens that a known program adds: it is at most as long as one completion."""
        return max_tokens + _DIGITS if self.show_best else 0

    def refuse(self, problem: Problem) -> str | None:
        if "def p(" not in problem.function_signature:
            return "game code_golf is for grid tasks, whose programs are a function p(grid)"
        return self.refuse_but_python(problem) or super().refuse(problem)

    def read(self, attempt: Trajectory, problem: Problem) -> None:
        super().read(attempt, problem)
        attempt.artifact = attempt.artifact.strip()

    def further_scores(self, greedy: Sequence[JudgedProgram]) -> dict[str, float]:
        """Returns bytes: the mean length of the programs that solve their task, missing if there are none; and
        kaggle_score: the sum over all tasks."""
        sizes = [utf8_bytes(judged.program) for judged in greedy if judged.solved]
        score = sum(kaggle_score(True, size) for size in sizes)
        return {"kaggle_score": score} | ({"bytes": fmean(sizes)} if sizes else {})

    async def earn(self, problem: Problem, attempt: Trajectory, sandbox: Sandbox) -> bool:
        limits = problem.limits_over(self.sandbox_limits)
        program = problem.in_harness(attempt.artifact)
        verdicts = await judged(sandbox.judge(program, problem.baseline_tests, limits=limits))
        if verdicts is None:
            return False
        attempt.outcomes = outcomes_of(problem.baseline_tests, verdicts)
        attempt.reward, attempt.components = golf_reward(
            sum(v.passed for v in verdicts),
            len(verdicts),
            utf8_bytes(attempt.artifact),
            self.rewards,
            fault_of(verdicts),
        )
        return True

    def why(self, player: str, components: Mapping[str, float]) -> str:
        passed = f"{self.rewards.pass_weight * components['pass_rate']:.2f} for the share of tests passed"
        if components["solved"]:
            short = self.rewards.length_weight * components["brevity"]
            return f"{passed} + {short:.2f} for having {components['bytes']:g} bytes"
        return f"{passed} - {components['penalty']:g} for its fault"
