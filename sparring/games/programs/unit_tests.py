"""Rewards from unit tests, in any language of the sandbox: a share for each test passed, and a bonus if all are passed.

reward = base_weight * passed / total + perfect_weight * [all passed], over at most max_tests tests of the problem.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Literal

from pydantic import Field

from sparring.core.episode import Trajectory
from sparring.core.interfaces import Message, Sandbox
from sparring.core.problem import Problem
from sparring.core.verdict import Limits
from sparring.games.judging import judged, outcomes_of
from sparring.games.parsing import read_program
from sparring.games.programs.game import SolverRules
from sparring.games.rules import Need

_TASK = """Solve this problem in {language}.

Problem: {description}
{signature}
{form}"""
_DIRECT = "Answer with the program only, in one ```{language} block."
_REASONING = (
    "First reason step by step between <reasoning> and </reasoning>, then give the program only, between <answer> and "
    "</answer>."
)
_ANSWER_BEGINS = re.compile(r"</reasoning>\s*+<answer>")


class UnitTestsRules(SolverRules):
    """Config of a game in which a program is rewarded for the unit tests that it passes."""

    kind: Literal["unit_tests"] = "unit_tests"
    base_weight: float = Field(default=1.0, ge=0)
    """Weight of the share of tests passed."""
    perfect_weight: float = Field(default=1.0, ge=0)
    """Bonus if all tests are passed."""
    max_tests: int = Field(default=3, ge=1)
    """Maximum number of tests per problem that count; they are the first ones."""
    answer_format: Literal["direct", "reasoning"] = "direct"
    """Form of the answer. direct: the program; reasoning: <reasoning>...</reasoning><answer>program</answer>, and a
    completion without both parts earns nothing."""
    sandbox_limits: Limits = Limits(cpu_s=1.0)

    @property
    def uses(self) -> frozenset[Need]:
        return frozenset(("sandbox", "problems", "samples", "rewarded tests"))

    @property
    def rewarded_tests(self) -> int | None:
        return self.max_tests

    def message(self, problem: Problem, memory: Sequence[str] = ()) -> Message:
        form = _REASONING if self.answer_format == "reasoning" else _DIRECT
        signature = problem.function_signature
        if (
            signature in problem.description
        ):  # a model that reads it twice solves fewer problems: docs/experiments/pretrained.md
            signature = ""
        full = _TASK.format(
            language=problem.language,
            description=_shown(problem),
            signature=f"Signature: {signature}\n" if signature else "",
            form=form.format(language=problem.language),
        )
        begins = f"```{problem.language}\n" if self.answer_format == "direct" else ""
        return Message(brief=problem.description, full=full, begins=begins)

    def read(self, attempt: Trajectory, problem: Problem) -> None:
        """Reads the program. If the answer does not have the required format, the program is empty and the component
        `format` is 0."""
        program = read_answer(attempt.artifact, self.answer_format, problem)
        attempt.artifact, attempt.components["format"] = program or "", float(program is not None)

    async def earn(self, problem: Problem, attempt: Trajectory, sandbox: Sandbox) -> bool:
        tests, passed = problem.baseline_tests[: self.max_tests], 0
        if attempt.components["format"]:
            verdicts = await judged(
                sandbox.judge(
                    problem.in_harness(attempt.artifact),
                    tests,
                    limits=problem.limits_over(self.sandbox_limits),
                    language=problem.language,
                )
            )
            if verdicts is None:
                return False
            attempt.outcomes = outcomes_of(tests, verdicts)
            passed = sum(v.passed for v in verdicts)
            first_fault = next((v.status for v in verdicts if not v.passed), None)
            if first_fault is not None:
                attempt.components[f"ended_{first_fault.lower()}"] = 1.0
        attempt.reward, parts = unit_test_reward(passed, len(tests), self)
        attempt.components |= parts
        return True

    def why(self, player: str, components: Mapping[str, float]) -> str:
        if not components["format"]:
            return "the answer does not keep the format (game.answer_format), so there is no program"
        base, bonus = components["base"], components["bonus"]
        return f"{base:.2f} for the share of tests passed + {bonus:.2f} for passing all"


def _shown(problem: Problem) -> str:
    """Returns the description of the problem. A description that is Python, as in HumanEval, is put into a code block,
    since models are used to code in blocks."""
    if not problem.description.startswith(("def ", "from ", "import ")):
        return problem.description
    return f"\n```python\n{problem.description}\n```"


def read_answer(text: str, answer_format: str, problem: Problem) -> str | None:
    """Returns the program in a completion; None if the completion does not have the format."""
    if answer_format == "direct":
        return read_program(text, problem)
    begin = text.find("<reasoning>")
    answer = _ANSWER_BEGINS.search(text, begin) if begin >= 0 else None
    end = text.find("</answer>", answer.end()) if answer else -1
    return read_program(text[answer.end() : end], problem).strip() if answer and end >= 0 else None


def unit_test_reward(passed: int, total: int, rules: UnitTestsRules) -> tuple[float, dict[str, float]]:
    """Returns (reward, its components). total must be positive."""
    base, bonus = rules.base_weight * passed / total, rules.perfect_weight * (passed == total)
    parts = {"base": base, "bonus": bonus, "pass_rate": passed / total, "solved": float(passed == total)}
    return base + bonus, parts
