"""How good test suites are: how many of their tests hold, which bugs they find, which correct programs they accuse.

`judge_suites` asks the sandbox about the suites of one problem; `discriminator_scores` and `kill_at_k` only count.
Validity here is what a model can write, so duplicates, and in the format "relabel" wrong outputs, do not count as
valid. Kills are those that would earn (`games.rewards.outcome`): a time limit counts only where the reference is fast.
"""

import ast
import asyncio
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from core.interfaces import Sandbox, SandboxFailure
from core.problem import Problem
from evaluation.mutants import Mutant
from evaluation.pass_at_k import pass_at_k
from games.multistage import MultistageRules
from games.parsing import EmittedTest, parse_suite
from games.rewards import needed_cpu_ms, outcome, validity

Killed = tuple[bool | None, ...]
"""By program: does some valid test of the suite fail it? None where the sandbox could not judge."""


@dataclass(frozen=True, kw_only=True, slots=True)
class SuiteRecord:
    """One suite, judged. The counts are stages: each test that is counted is counted in all counts before."""

    emitted: int
    """Tests that were read, at most the rules' max_tests."""
    parsed: int
    well_formed: int
    """Literal arguments that fit the signature and the size limits."""
    agreed: int
    """Hold on the reference, twice."""
    distinct: int
    """And are not repeated: V."""
    repeated: int
    """Well-formed tests that repeat another one of the suite, whether they hold or not."""
    wrong: Killed = ()
    mutants: Killed = ()
    correct: Killed = ()
    """The problem's other solutions."""


async def judge_suites(
    problem: Problem,
    suites: Sequence[str],
    sandbox: Sandbox,
    rules: MultistageRules,
    *,
    wrong: Sequence[str] = (),
    mutants: Sequence[Mutant] = (),
) -> list[SuiteRecord | None]:
    """One record per suite; None where the sandbox could not say which of its tests hold.

    Args:
        suites: texts as the discriminator writes them, one test a line.
        rules: those that the suites were written under (format, size limits, what a kill is).
        wrong: programs that are known to be wrong.
        mutants: the non-equivalent ones of the reference.
    """
    programs = {
        "wrong": list(wrong),
        "mutants": [mutant.source for mutant in mutants],
        "correct": list(problem.other_solutions),
    }
    return await asyncio.gather(*(_judge(problem, suite, sandbox, rules, programs) for suite in suites))


async def _judge(
    problem: Problem,
    suite: str,
    sandbox: Sandbox,
    rules: MultistageRules,
    programs: Mapping[str, Sequence[str]],
) -> SuiteRecord | None:
    emitted = parse_suite(
        suite,
        problem,
        test_format=rules.test_format,
        max_tests=rules.max_tests,
        limits=rules.input_limits,
    )
    well_formed = [test for test in emitted if not test.fault]
    distinct = list({test.identity: test for test in reversed(well_formed)}.values())[::-1]
    try:
        held = await _held(problem, distinct, sandbox, rules)
    except SandboxFailure:
        return None
    tests = {source: ms for source, _, ms in held.values()}
    killed = {
        kind: tuple(await asyncio.gather(*(_kills(problem, p, tests, sandbox, rules) for p in of_kind)))
        for kind, of_kind in programs.items()
    }
    agreeing = {t.source for t in distinct if t.identity in held and held[t.identity][1]}
    return SuiteRecord(
        emitted=len(emitted),
        parsed=sum(test.fault != "parse" for test in emitted),
        well_formed=len(well_formed),
        agreed=sum(test.source in agreeing for test in well_formed),
        distinct=len(agreeing),
        repeated=len(well_formed) - len(distinct),
        **killed,
    )


async def _held(
    problem: Problem, tests: Sequence[EmittedTest], sandbox: Sandbox, rules: MultistageRules
) -> dict[str, tuple[str, bool, float]]:
    """By identity, the tests that hold on the reference twice: (the test that programs meet, whether it is as it was
    written, the reference's CPU milliseconds). Except in the format "strict" the reference fills in the output."""
    strict, limits, reference = (
        rules.test_format == "strict",
        problem.limits or rules.sandbox_limits,
        problem.reference_solution,
    )
    first = await sandbox.judge(reference, [t.source if strict else t.call for t in tests], limits=limits)
    passing = [(test, verdict) for test, verdict in zip(tests, first, strict=True) if verdict.passed]
    sources = [t.source if strict else f"assert {t.call} == {v.value}" for t, v in passing]
    second = await sandbox.judge(reference, sources, limits=limits, run=1)
    held = {}
    for (test, before), source, after in zip(passing, sources, second, strict=True):
        if after.passed:
            as_written = strict or test.expected is None or _equal(test.expected, before.value)
            held[test.identity] = source, as_written, needed_cpu_ms((before, after))
    return held


def _equal(expected: str, value: str | None) -> bool:
    """Whether two reprs are of equal plain values; the second came from a test that holds."""
    return bool(ast.literal_eval(expected) == ast.literal_eval(value or ""))


async def _kills(
    problem: Problem, program: str, tests: Mapping[str, float], sandbox: Sandbox, rules: MultistageRules
) -> bool | None:
    """tests: by source, the reference's CPU milliseconds."""
    if not tests:
        return False
    limits = problem.limits or rules.sandbox_limits
    try:
        verdicts = await sandbox.judge(program, list(tests), limits=limits)
    except SandboxFailure:
        return None
    return any(
        outcome(verdict, ms, limits, rules.rewards) is False
        for verdict, ms in zip(verdicts, tests.values(), strict=True)
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class DiscriminatorScores:
    """Shares are means over suites, rates are over pairs (suite, program). None where there is nothing to measure."""

    suites: int
    """Judged."""
    unjudged: int
    """Suites and pairs that the sandbox could not judge: in no mean."""
    parsed: float | None
    """Share of the emitted tests, as the four that follow."""
    well_formed: float | None
    agreed: float | None
    distinct: float | None
    duplicates: float | None
    validity: float | None
    """|V| / max(slots, |T|): as `distinct`, and short suites lose by the rules' validity_slots."""
    kill_rate: float | None
    """Wrong programs killed."""
    mutant_kill_rate: float | None
    false_kill_rate: float | None
    """Correct programs killed: tests that hold for the reference, but not for every solution."""


def discriminator_scores(records: Iterable[SuiteRecord | None], slots: int) -> DiscriminatorScores:
    """Over suites of any problems. slots: the rules' validity_slots."""
    records = list(records)
    judged = [record for record in records if record is not None]
    pairs = [killed for r in judged for killed in (*r.wrong, *r.mutants, *r.correct)]
    return DiscriminatorScores(
        suites=len(judged),
        unjudged=records.count(None) + pairs.count(None),
        parsed=_mean([validity(r.parsed, r.emitted, 1) for r in judged]),
        well_formed=_mean([validity(r.well_formed, r.emitted, 1) for r in judged]),
        agreed=_mean([validity(r.agreed, r.emitted, 1) for r in judged]),
        distinct=_mean([validity(r.distinct, r.emitted, 1) for r in judged]),
        duplicates=_mean([validity(r.repeated, r.emitted, 1) for r in judged]),
        validity=_mean([validity(r.distinct, r.emitted, slots) for r in judged]),
        kill_rate=_mean([killed for r in judged for killed in r.wrong]),
        mutant_kill_rate=_mean([killed for r in judged for killed in r.mutants]),
        false_kill_rate=_mean([killed for r in judged for killed in r.correct]),
    )


def kill_at_k(records: Sequence[SuiteRecord | None], k: int) -> float | None:
    """Chance that one of k suites kills a mutant: the mean over one problem's mutants of `pass_at_k`.

    records: suites of one problem, judged on the same mutants. Mutants judged with fewer than k suites are left out;
    None where no mutant is left. Raises ValueError for k < 1.
    """
    judged = [record.mutants for record in records if record is not None]
    by_mutant = [[o for o in outcomes if o is not None] for outcomes in zip(*judged, strict=True)]
    return _mean([pass_at_k(len(o), sum(o), k) for o in by_mutant if len(o) >= k])


def mean_kill_at_k(by_problem: Iterable[Sequence[SuiteRecord | None]], k: int) -> float | None:
    """Mean of `kill_at_k` over the problems that have one; None where none has."""
    return _mean([kill_at_k(records, k) for records in by_problem])


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None
