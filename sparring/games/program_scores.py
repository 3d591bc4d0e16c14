"""Judges programs on the tests of their problems, and computes scores from the results."""

import asyncio
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

from sparring.core.interfaces import Sandbox, SandboxFailure
from sparring.core.problem import Problem
from sparring.core.verdict import Limits, Status, Test
from sparring.games.pass_at_k import mean_pass_at_k


@dataclass(frozen=True, kw_only=True, slots=True)
class JudgedProgram:
    """A program and its result on tests of its problem.

    Example: JudgedProgram(program="def f(x): ...", test_rate=0.5, status=Status.WRONG_ANSWER)
    """

    program: str
    test_rate: float | None
    """Share of the tests that the program passes; None if the sandbox could not judge it."""
    status: Status
    """Status of the first test that the program fails; PASSED if it fails none, SANDBOX_ERROR if it was not judged."""
    error: str = ""
    """Error of that test, or of the sandbox."""

    @property
    def solved(self) -> bool:
        return self.status is Status.PASSED


async def judge_program(
    sandbox: Sandbox, program: str, problem: Problem, limits: Limits, tests: Sequence[Test] | None = None
) -> JudgedProgram:
    """Judges a program in the problem's language.

    Args:
        limits: limits that apply if the problem does not state its own.
        tests: tests of the problem. Default: its evaluation tests.
    """
    tests = problem.evaluation_tests if tests is None else tests
    try:
        verdicts = await sandbox.judge(
            problem.in_harness(program),
            tests,
            limits=problem.limits_over(limits),
            language=problem.language,
        )
    except SandboxFailure as failure:
        return JudgedProgram(program=program, test_rate=None, status=Status.SANDBOX_ERROR, error=str(failure))
    rate = sum(v.passed for v in verdicts) / len(verdicts)
    failed = next((v for v in verdicts if not v.passed), None)
    if failed is None:
        return JudgedProgram(program=program, test_rate=rate, status=Status.PASSED)
    return JudgedProgram(program=program, test_rate=rate, status=failed.status, error=failed.error)


async def share_passed(
    sandbox: Sandbox, program: str, problem: Problem, limits: Limits, tests: Sequence[Test] | None = None
) -> float | None:
    """Returns the share of the tests that the program passes; None if the sandbox could not judge. Arguments: see
    `judge_program`."""
    return (await judge_program(sandbox, program, problem, limits, tests)).test_rate


async def judge_programs(
    sandbox: Sandbox, programs: Mapping[str, Sequence[str]], problems: Sequence[Problem], limits: Limits
) -> dict[str, list[JudgedProgram]]:
    """Judges programs on the evaluation tests of their problems. `programs` and the result are by problem id."""

    async def of(problem: Problem) -> list[JudgedProgram]:
        judged = (judge_program(sandbox, p, problem, limits) for p in programs[problem.id])
        return await asyncio.gather(*judged)

    found = await asyncio.gather(*(of(problem) for problem in problems))
    return {problem.id: judged for problem, judged in zip(problems, found, strict=True)}


def program_scores(
    greedy: Mapping[str, Sequence[JudgedProgram]],
    sampled: Mapping[str, Sequence[JudgedProgram]],
    pass_at: Sequence[int],
) -> dict[str, float | None]:
    """Returns scores by name, over problems; None for a mean over nothing.

    generator_pass_rate: share of the greedy programs that pass every test;
    generator_test_rate: mean share of the tests that a greedy program passes;
    pass_at_<k>: unbiased estimate from the sampled programs, over the problems with at least k judged ones; missing if
    no programs were sampled;
    unjudged: number of programs that the sandbox could not judge; no other score includes them.
    """
    programs = [p for of_problem in (*greedy.values(), *sampled.values()) for p in of_problem]
    rates = [p.test_rate for of_problem in greedy.values() for p in of_problem if p.test_rate is not None]
    scores: dict[str, float | None] = {
        "generator_pass_rate": fmean(rate == 1.0 for rate in rates) if rates else None,
        "generator_test_rate": fmean(rates) if rates else None,
        "unjudged": float(sum(p.test_rate is None for p in programs)),
    }
    if sampled:
        judged = [[p for p in of_problem if p.test_rate is not None] for of_problem in sampled.values()]
        for k in pass_at:
            counts = [(len(j), sum(p.solved for p in j)) for j in judged if len(j) >= k]
            scores[f"pass_at_{k}"] = mean_pass_at_k(counts, k) if counts else None
    return scores


def pass_rates(judged: Mapping[str, Sequence[JudgedProgram]]) -> dict[str, float]:
    """Returns the share of each problem's programs that solve it, by problem id. Problems without a judged program are
    left out."""
    known = {i: [p.solved for p in of if p.test_rate is not None] for i, of in judged.items()}
    return {i: fmean(solved) for i, solved in known.items() if solved}


def status_counts(judged: Mapping[str, Sequence[JudgedProgram]]) -> dict[str, int]:
    """Returns the number of programs of each status, the most frequent status first."""
    return {str(s): n for s, n in Counter(p.status for of in judged.values() for p in of).most_common()}
