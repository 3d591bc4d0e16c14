"""Judges the test suites of one problem, from a completion's text to kills. Only this module decides which tests are
valid and which programs a test kills. A test is valid if it is well formed, repeats neither an earlier test of its
suite nor one that the prompt shows, is data (`Verdict.isolation`; a test that is code could remember its earlier runs,
or judge a program by its source), and passes on the reference solution twice, with equal results.
In the second run, the tests are in reversed order, and the reference's other names are hidden, since a test may only use the
entry point. If tests are assertions of any form (test_format "strict"), at least one of two programs that return
nonsense must fail the test. A valid test kills a program that fails it (`rewards.outcome`).
"""

import ast
import asyncio
import math
from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass, field

from sparring.core.interfaces import PromptFormat, Sandbox
from sparring.core.problem import Problem
from sparring.core.verdict import ReferenceTest, Verdict, known_by
from sparring.games.judging import judged
from sparring.games.multistage import messages
from sparring.games.multistage.emitted import EmittedTest, distinct, parse_suite, shown_calls
from sparring.games.multistage.rewards import RewardRules, needed_cpu_ms, outcome, validity
from sparring.games.multistage.rules import MultistageRules
from sparring.games.suite_scores import SuiteRecord

_ALONE = """\
import random as _names
_names.seed(1)
_names = {{"__name__": "program"}}
exec(compile({source!r}, "program.py", "exec"), _names)
{name} = _names[{name!r}]
del _names
"""
"""Source of a program that hides all names of a reference but its entry point, and draws other random numbers."""
_NONSENSE = """\
def {name}(*args, **options):
    return {result}
"""
"""Source of a program that is wrong for every problem."""
_NONSENSICAL = ('"\\0" * 997', "None")
"""The two results of such programs. An assertion that both programs pass hardly depends on the function."""
_TOLERANCE = 1e-6
"""Absolute and relative difference of two floats that count as equal: programs may add in another order."""


@dataclass(slots=True)
class SuiteResult:
    """One suite, and the results of its tests on the reference."""

    emitted: list[EmittedTest]
    distinct: list[EmittedTest]
    """The tests that can be run, without duplicates."""
    duplicates: int
    valid: dict[str, float] = field(default_factory=dict)
    """Source of each valid test -> the reference's CPU milliseconds."""
    sources: dict[str, str] = field(default_factory=dict)
    """Identity of each valid test -> its source."""
    rejected: dict[str, tuple[str, str]] = field(default_factory=dict)
    """Identity of each runnable test that the reference does not confirm -> (status, error)."""
    wrong_outputs: set[str] = field(default_factory=set)
    """Sources of valid tests whose expected output the reference had to correct or to supply (test_format "relabel")."""
    surplus: int = 0
    """Number of tests in the answer beyond the game config's max_tests. They are not run, and lower the validity."""

    @property
    def written(self) -> int:
        """Number of tests in the answer."""
        return len(self.emitted) + self.surplus

    @property
    def copied(self) -> int:
        """Number of tests that repeat one that the prompt shows. They are not run."""
        return sum(test.fault == "shown" for test in self.emitted)

    def validity(self, rules: RewardRules) -> float:
        """Returns the validity of the suite before any program runs on it. The reward's validity (rewards.SuiteFacts) also
        leaves out the valid tests that do not count according to the programs' outcomes."""
        worth = len(self.valid) - rules.wrong_output_penalty * len(self.wrong_outputs)
        return validity(worth, self.written, rules.validity_slots)


@dataclass(frozen=True, slots=True)
class ProgramResults:
    """The results of one program on valid tests, by the sources of the tests."""

    verdicts: dict[str, Verdict]
    outcomes: dict[str, bool | None]


def read_suite(
    text: str, problem: Problem, rules: MultistageRules, shown: Container[str] = ()
) -> list[EmittedTest]:
    """Returns all tests of the answer, of which only the first `rules.max_tests` can be valid. shown: see `parse_suite`."""
    return parse_suite(text, problem, test_format=rules.test_format, limits=rules.input_limits, shown=shown)


class Suites:
    """Judges the suites of one problem."""

    def __init__(
        self, problem: Problem, rules: MultistageRules, sandbox: Sandbox, style: PromptFormat | None = None
    ) -> None:
        """style: the prompt format of the discriminator, from which its prompt is made again; tests that this prompt
        shows are not valid. None: the suites were written without a prompt."""
        self._problem, self._rules, self._sandbox = problem, rules, sandbox
        self._limits = problem.limits_over(rules.sandbox_limits)
        self._strict = rules.test_format == "strict"
        prompt = style.shown(messages.attack(problem, rules)) if style is not None else ""
        self._shown = shown_calls(prompt, problem, rules.input_limits)

    async def records(
        self, texts: Sequence[str], wrong: Sequence[str] = (), mutants: Sequence[str] = ()
    ) -> list[SuiteRecord | None]:
        """Returns counts of each suite's tests, and which programs it kills; None for a suite whose tests the sandbox could
        not check on the reference.

        Args:
            texts: the completions with the suites.
            wrong: programs that are known to be wrong.
            mutants: mutants of the reference that are not equivalent to it.

        The suites also run on the problem's other correct solutions.
        """
        programs = {"wrong": wrong, "mutants": mutants, "correct": self._problem.other_solutions}

        async def record(suite: SuiteResult | None) -> SuiteRecord | None:
            if suite is None:
                return None
            agreed = {
                test.source
                for test in suite.distinct
                if suite.sources.get(test.identity) not in (None, *suite.wrong_outputs)
            }
            killed = {
                kind: tuple(await asyncio.gather(*(self.kills(suite.valid, program) for program in of_kind)))
                for kind, of_kind in programs.items()
            }
            return SuiteRecord(
                emitted=len(suite.emitted),
                parsed=sum(test.fault != "parse" for test in suite.emitted),
                well_formed=len(suite.distinct) + suite.duplicates + suite.copied,
                agreed=sum(test.source in agreed for test in suite.emitted if not test.fault),
                distinct=len(agreed),
                repeated=suite.duplicates + suite.copied,
                validity=suite.validity(self._rules.rewards),
                surplus=suite.surplus,
                valid=tuple(suite.valid),
                **killed,
            )

        return await asyncio.gather(*(record(suite) for suite in await self.validate(texts)))

    async def validate(self, texts: Sequence[str]) -> list[SuiteResult | None]:
        """Reads the suites and runs their tests on the reference. A suite is None if the sandbox failed."""
        suites = [self._parse(text) for text in texts]
        if self._strict:  # code could tamper with other tests in its process: these must have the same author
            confirmed = await asyncio.gather(*(self._confirm([suite]) for suite in suites))
        else:  # calls with literal arguments cannot tamper with anything
            confirmed = [await self._confirm(suites)] * len(suites)
        return [suite if ok else None for suite, ok in zip(suites, confirmed, strict=True)]

    def _parse(self, text: str) -> SuiteResult:
        every = read_suite(text, self._problem, self._rules, self._shown)
        emitted = every[: self._rules.max_tests]
        runnable = [test for test in emitted if not test.fault]
        kept = distinct(runnable)
        return SuiteResult(
            emitted=emitted,
            distinct=kept,
            duplicates=len(runnable) - len(kept),
            surplus=len(every) - len(emitted),
        )

    async def _confirm(self, suites: Sequence[SuiteResult]) -> bool:
        """Runs the suites' tests on the reference, twice, and assertions on nonsense. Returns False if the sandbox failed."""
        asks = list(
            dict.fromkeys(t.source if self._strict else t.call for suite in suites for t in suite.distinct)
        )
        name = self._problem.entry_point
        reference = self._problem.in_harness(self._problem.reference_solution)
        tests = [ReferenceTest(ask, name) for ask in asks]
        alone = _ALONE.format(source=reference, name=name)
        nonsense = [_NONSENSE.format(name=name, result=r) for r in _NONSENSICAL] if self._strict else []
        first, second, *of_nonsense = await asyncio.gather(
            judged(self._sandbox.judge(reference, tests, limits=self._limits)),
            judged(self._sandbox.judge(alone, tests[::-1], limits=self._limits, run=1)),
            *(judged(self._sandbox.judge(program, asks, limits=self._limits)) for program in nonsense),
        )
        if first is None or second is None or None in of_nonsense:
            return False
        runs = dict(zip(asks, zip(first, second[::-1], strict=True), strict=True))
        weak = set(asks) if of_nonsense else set()
        for verdicts in of_nonsense:
            weak &= {ask for ask, verdict in zip(asks, verdicts or (), strict=True) if verdict.passed}
        for suite in suites:
            for test in suite.distinct:
                ask = test.source if self._strict else test.call
                self._enter(suite, test, runs[ask], is_weak=ask in weak)
        return True

    def _enter(
        self, suite: SuiteResult, test: EmittedTest, runs: tuple[Verdict, Verdict], *, is_weak: bool
    ) -> None:
        first, second = runs
        confirmed = first.passed and second.passed and first.value == second.value
        separate = first.isolation == second.isolation == "separate"
        if not (confirmed and separate and (self._strict or _is_literal(first.value))):
            suite.rejected[test.identity] = _refusal(first, second)
            return
        if is_weak:
            suite.rejected[test.identity] = ("weak", "programs that return nonsense pass")
            return
        source = test.source if self._strict else _equation(test.call, first.value or "")
        source = known_by(ReferenceTest(source, self._problem.entry_point), runs)
        suite.sources[test.identity] = source
        is_stated = test.expected is not None
        if self._rules.test_format == "relabel" and not (
            is_stated and _same_literal(test.expected, first.value, _TOLERANCE)
        ):
            suite.wrong_outputs.add(source)
        suite.valid[source] = needed_cpu_ms(runs)

    def groups(self, suites: Sequence[SuiteResult | None]) -> list[dict[str, float]]:
        """Returns groups of tests on which programs are run: test -> the reference's CPU milliseconds. Each group is judged
        in one process."""
        found = [suite.valid for suite in suites if suite]
        if not self._strict:  # calls with literal arguments cannot tamper with anything
            found = [{test: ms for suite in found for test, ms in suite.items()}]
        in_reward = self._rules.baseline_in_reward
        baseline = dict.fromkeys(self._problem.baseline_asserts, 0.0) if in_reward else {}
        return [group for group in (baseline, *found) if group]

    async def meet(self, program: str, groups: Sequence[Mapping[str, float]]) -> ProgramResults | None:
        """Runs the program on the groups of tests (see `groups`). Returns None if the sandbox failed."""
        program = self._problem.in_harness(program)
        runs = await asyncio.gather(
            *(judged(self._sandbox.judge(program, list(group), limits=self._limits)) for group in groups)
        )
        met = ProgramResults({}, {})
        for group, verdicts in zip(groups, runs, strict=True):
            if verdicts is None:
                return None
            for (test, reference_ms), verdict in zip(group.items(), verdicts, strict=True):
                met.verdicts[test] = verdict
                met.outcomes[test] = outcome(verdict, reference_ms, self._limits, self._rules.rewards)
        return met

    async def kills(self, valid: Mapping[str, float], program: str) -> bool | None:
        """Returns whether a suite kills the program; None if the sandbox failed. valid: see `SuiteResult.valid`."""
        met = await self.meet(program, [valid] if valid else [])
        return None if met is None else False in met.outcomes.values()


def _refusal(first: Verdict, second: Verdict) -> tuple[str, str]:
    """Returns why the reference does not confirm a test: (status, error)."""
    if first.passed and second.passed and "shared" in (first.isolation, second.isolation):
        return "contract", "more than calls and comparisons of their results"
    if first.passed and second.passed and first.value == second.value:
        return "no_literal", f"the reference gives {first.value}"
    if first.status != second.status or first.value != second.value:
        return (
            "unstable",
            f"the reference gives {first.value or first.status}, then {second.value or second.status}",
        )
    return "rejected", f"the reference: {first.status}{': ' if first.error else ''}{first.error}"


def _equation(call: str, value: str) -> str:
    """Returns the test that a call returns a value. Floats need not be equal to the last digit."""
    number = ast.literal_eval(value)
    if not isinstance(number, float):
        return f"assert {call} == {value}"
    return f"assert abs({call} - {value}) <= {_TOLERANCE * max(1.0, abs(number))!r}"


def _same_literal(one: str | None, other: str | None, tolerance: float = 0.0) -> bool:
    """Returns whether both are literals of equal value; tolerance: of two floats."""
    try:
        first, second = ast.literal_eval(one or ""), ast.literal_eval(other or "")
        if tolerance and isinstance(second, float) and isinstance(first, int | float):
            return math.isclose(first, second, rel_tol=tolerance, abs_tol=tolerance)
    except (ValueError, SyntaxError, MemoryError, RecursionError, OverflowError):
        return False
    return bool(first == second)


def _is_literal(value: str | None) -> bool:
    """Returns whether a value can be written as the expected value of a test, and equals itself (nan does not)."""
    return _same_literal(value, value)
