"""Code golf on grids (R3): a program maps input grids to output grids, and the shorter of two right ones earns more."""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Literal

from core.episode import Episode, Trajectory
from core.interfaces import Message, Player, PromptFormat, Sandbox, SandboxFailure
from core.problem import Problem
from core.settings import Settings
from core.verdict import Limits
from games.golf_rewards import GolfRules, fault_of, golf_reward, utf8_bytes
from games.judging import outcomes_of
from games.parsing import extract_program
from games.turns import answer_all

GENERATOR = "generator"

_TASK = """Find the rule that turns each input grid into its output grid, and write it as a Python function p(grid) that
takes and returns a list of lists of integers. Of correct programs the one with the fewest bytes is the best.

{description}
{best}
Answer with one ```python block that defines p."""
_DIGITS = 4
"""More tokens than one that the length of a known program may take."""
_BEST = """
A program of {bytes} bytes is known; find a shorter one:
```python
{program}
```
"""


class CodeGolfRules(Settings):
    """R3: short programs that map grids to grids."""

    kind: Literal["code_golf"] = "code_golf"
    rewards: GolfRules = GolfRules()
    show_best: bool = False
    """The prompt shows the best program that the run's database of solutions has for the task (self-play)."""
    sandbox_limits: Limits = Limits()

    @property
    def seats(self) -> dict[str, str]:
        """Who plays what: player -> policy."""
        return {GENERATOR: GENERATOR}

    def why(self, player: str, components: Mapping[str, float]) -> str:
        """How a reward came about, from its components."""
        passed = f"{self.rewards.pass_weight * components['pass_rate']:.2f} for the share of tests passed"
        if components["solved"]:
            short = self.rewards.length_weight * components["brevity"]
            return f"{passed} + {short:.2f} for having {components['bytes']:g} bytes"
        return f"{passed} - {components['penalty']:g} for its fault"


class CodeGolfGame:
    def __init__(self, rules: CodeGolfRules) -> None:
        self.rules = rules

    async def play(
        self, problem: Problem, players: Mapping[str, Player], sandbox: Sandbox, memory: Sequence[str] = ()
    ) -> Episode:
        """memory: programs known to solve the problem, the best first."""
        attempts = await answer_all(players[GENERATOR], self.message(problem, memory))
        await asyncio.gather(*(self._judge(problem, attempt, sandbox) for attempt in attempts))
        return Episode(problem_id=problem.id, trajectories=attempts)

    def message(self, problem: Problem, memory: Sequence[str]) -> Message:
        shown = memory[:1] if self.rules.show_best else ()
        best = "".join(_BEST.format(bytes=utf8_bytes(program), program=program) for program in shown)
        return Message(
            brief="\n".join([problem.description, *shown]),
            full=_TASK.format(description=problem.description, best=best),
        )

    def longest(self, problem: Problem, player: str, style: PromptFormat, max_tokens: int) -> int:
        """A known program that is shown takes as much as one completion."""
        shown = max_tokens + _DIGITS if self.rules.show_best else 0
        return len(style.say((), self.message(problem, ("x",)))) + shown + max_tokens

    async def _judge(self, problem: Problem, attempt: Trajectory, sandbox: Sandbox) -> None:
        attempt.artifact = program = extract_program(attempt.artifact).strip()
        limits = problem.limits or self.rules.sandbox_limits
        try:
            verdicts = await sandbox.judge(program, problem.baseline_tests, limits=limits)
        except SandboxFailure:
            attempt.components["sandbox_failure"] = 1.0
            return
        attempt.outcomes = outcomes_of(problem.baseline_tests, verdicts)
        attempt.reward, attempt.components = golf_reward(
            sum(v.passed for v in verdicts),
            len(verdicts),
            utf8_bytes(program),
            self.rules.rewards,
            fault_of(verdicts),
        )
