"""The jobs of the soak test, by kind; each job judges itself and reports what was wrong.

generated   an endless series of small honest jobs, with known values and outputs of their tests
corpus      the jobs of tests/honest: the right program must pass, each wrong one must fail; and those of tests/attacks in
            which a program that does the same as the reference in another way must pass, too
hostile     the programs of hostile_jobs, which must not pass
attack      the named attacks of tests/attacks, each of which must be held off as its test there requires
"""

import asyncio
import importlib
import itertools
import random
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple, Protocol

from benchmarks.hostile_jobs import HOSTILE, LIMITS, TEST, Hostile
from sparring.core.interfaces import Sandbox
from sparring.core.verdict import (
    KnownTest,
    Limits,
    OutputTest,
    ReferenceTest,
    Status,
    Test,
    Verdict,
    known_by,
)
from tests.attacks import conftest, test_forgery
from tests.attacks.not_held import NOT_HELD
from tests.honest.jobs import LIMITS as HONEST_LIMITS
from tests.honest.jobs import Job, read_corpus
from tests.honest.not_served import NOT_SERVED, NOT_SERVED_ALONE
from tests.honest.products import products

KINDS = ("generated", "corpus", "hostile", "attack")
ATTACK_LIMITS = conftest.LIMITS
PASSED, WRONG, ERROR = Status.PASSED, Status.WRONG_ANSWER, Status.RUNTIME_ERROR


class JudgedJob(NamedTuple):
    """The findings on a job's verdicts."""

    wrong: list[str]
    """One line per wrong verdict, or per attack that was not held off."""
    counted: list[str]
    """Events that are counted and are no errors."""


class SoakJob(Protocol):
    @property
    def kind(self) -> str: ...

    @property
    def name(self) -> str: ...

    async def judge(self, sandbox: Sandbox, run: int) -> JudgedJob:
        """Judges the job. `run` distinguishes equal jobs in flight, so that each is judged. Raises SandboxFailure."""
        ...


# ---------------------------------------------------------------- generated


class Expected(NamedTuple):
    """The expected verdict of one test."""

    status: Status
    value: str | None = None
    stdout: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class Honest:
    """A job with known verdicts."""

    name: str
    program: str
    tests: tuple[Test, ...]
    expected: tuple[Expected, ...]
    kind: str = "generated"

    async def judge(self, sandbox: Sandbox, run: int) -> JudgedJob:
        verdicts = await sandbox.judge(self.program, self.tests, run=run)
        return JudgedJob(self.wrong(verdicts), ["misplaced output"] * self.misplaced_output(verdicts))

    def wrong(self, verdicts: Sequence[Verdict]) -> list[str]:
        """Returns one line per wrong verdict. A verdict is also wrong if its stdout has lines that are not from this
        job."""
        own = {line for expected in self.expected for line in expected.stdout.splitlines()}
        return [
            f"{self.name}: {test!r}: {verdict.status} {verdict.value} {verdict.stdout[:50]!r} {verdict.error}"
            for test, wanted, verdict in zip(self.tests, self.expected, verdicts, strict=True)
            if (verdict.status, verdict.value) != (wanted.status, wanted.value)
            or not own.issuperset(verdict.stdout.splitlines())
        ]

    def misplaced_output(self, verdicts: Sequence[Verdict]) -> int:
        """Returns the number of tests whose recorded output differs from what was printed during them."""
        return sum(v.stdout != e.stdout for v, e in zip(verdicts, self.expected, strict=True))


numbers = itertools.count(1)


def right(n: int) -> Honest:
    return Honest(
        name="right",
        program=f"def f(x): return [x, x + {n}]",
        tests=(f"assert f(1) == [1, {1 + n}]", f"assert f(5) == [5, {5 + n}]", "f(2)"),
        expected=(Expected(PASSED), Expected(PASSED), Expected(PASSED, f"[2, {2 + n}]")),
    )


def wrong_once(n: int) -> Honest:
    return Honest(
        name="wrong once",
        program=f"def f(x): return {n} if x == 2 else 0",
        tests=("assert f(1) == 0", "assert f(2) == 0", "assert f(3) == 0"),
        expected=(Expected(PASSED), Expected(WRONG), Expected(PASSED)),
    )


def raises(n: int) -> Honest:
    return Honest(
        name="raises",
        program=f"def f(x):\n    if x == {n}: raise KeyError(x)\n    return x",
        tests=(f"assert f({n}) == {n}", f"assert f(-{n}) == -{n}"),
        expected=(Expected(ERROR), Expected(PASSED)),
    )


def does_not_parse(n: int) -> Honest:
    return Honest(
        name="does not parse",
        program=f"def f(x) return {n}",
        tests=("assert f(1) == 1",),
        expected=(Expected(Status.SYNTAX_ERROR),),
    )


def prints(n: int) -> Honest:
    return Honest(
        name="prints",
        program=f"def f(x):\n    print('job {n}', x)\n    return x",
        tests=("f(1)", "assert f(2) == 3"),
        expected=(Expected(PASSED, "1", f"job {n} 1\n"), Expected(WRONG, stdout=f"job {n} 2\n")),
    )


def tested_by_code(n: int) -> Honest:
    return Honest(
        name="tested by code",
        program=f"def f(items):\n    items.append({n})\n    return sorted(items)",
        tests=(f"items = [{n + 1}]\nassert f(items) == [{n}, {n + 1}]", f"assert sorted(f([])) != [{n}]"),
        expected=(Expected(PASSED), Expected(WRONG)),
    )


def whole_program(n: int) -> Honest:
    return Honest(
        name="whole program",
        program=f"print(int(input()) + {n})",
        tests=(OutputTest(stdin="1\n", stdout=f"{n + 1}\n"), OutputTest(stdin="2\n", stdout="no")),
        expected=(Expected(PASSED, stdout=f"{n + 1}\n"), Expected(WRONG, stdout=f"{n + 2}\n")),
    )


DATA_KINDS = (right, wrong_once, raises, prints)
HONEST_KINDS = (*DATA_KINDS * 5, *(does_not_parse, tested_by_code) * 2, whole_program)


def take_honest(count: int, data_only: bool = False) -> list[Honest]:
    """Returns `count` jobs, all kinds in turn."""
    kinds = itertools.cycle(DATA_KINDS if data_only else HONEST_KINDS)
    return [make(next(numbers)) for make in itertools.islice(kinds, count)]


# ---------------------------------------------------------------- corpus


@dataclass(frozen=True, kw_only=True, slots=True)
class FromCorpus:
    """One of the programs of a job of tests/honest."""

    job: Job
    program: str
    kind: str = "corpus"

    @property
    def name(self) -> str:
        which = self.job.programs().index(self.program)
        return f"{self.job}" + (f", wrong program {which}" if which else "")

    async def judge(self, sandbox: Sandbox, run: int) -> JudgedJob:
        verdicts = await sandbox.judge(
            self.program, self.job.tests, limits=HONEST_LIMITS, run=run, language=self.job.language
        )
        passed = all(verdict.passed for verdict in verdicts)
        if passed == (self.program == self.job.program):
            return JudgedJob([], [])
        said = [f"{v.status} {v.error[:200]}" for v in verdicts if passed or not v.passed]
        return JudgedJob([f"{self.name}: {said[0]}"], [])


def corpus(languages: Sequence[str]) -> list[FromCorpus]:
    """Returns every program of every job that can be served, in these languages."""
    return [
        FromCorpus(job=job, program=program)
        for job in (*read_corpus(), *products())
        if str(job) not in NOT_SERVED | NOT_SERVED_ALONE and job.language in languages
        for program in job.programs()
    ]


@dataclass(frozen=True, kw_only=True, slots=True)
class EquallyRight:
    """A program that is as right as the reference, judged by a test that the reference has passed before."""

    name: str
    reference: str
    program: str
    test: str
    kind: str = "corpus"

    async def judge(self, sandbox: Sandbox, run: int) -> JudgedJob:
        (reference,) = await sandbox.judge(self.reference, [ReferenceTest(self.test)], run=run)
        (verdict,) = await sandbox.judge(self.program, [known_by(self.test, [reference])], run=run)
        failed = [one for one in (reference, verdict) if not one.passed]
        return JudgedJob([f"{self.name}: {one.status} {one.error[:200]}" for one in failed], [])


def equally_right() -> list[EquallyRight]:
    return [
        EquallyRight(name=f"forgery: {name}", reference=reference, program=program, test=test)
        for name, (reference, program, test) in test_forgery.EQUALLY_RIGHT.items()
    ]


# ---------------------------------------------------------------- hostile


@dataclass(frozen=True, kw_only=True, slots=True)
class HostileJob:
    hostile: Hostile
    kind: str = "hostile"

    @property
    def name(self) -> str:
        return self.hostile.name

    async def judge(self, sandbox: Sandbox, run: int) -> JudgedJob:
        (verdict,) = await sandbox.judge(self.hostile.program, [TEST], limits=LIMITS, run=run)
        line = f"{self.name}: {verdict.status}"
        return JudgedJob([line] if verdict.passed else [], [line])


# ---------------------------------------------------------------- attacks


@dataclass(frozen=True, kw_only=True, slots=True)
class Ask:
    """One request of an attack, and whether a verdict on it is as it must be."""

    program: str
    tests: Sequence[Test]
    holds: Callable[[Verdict], bool]
    limits: Limits | None = ATTACK_LIMITS
    language: str = "python"


@dataclass(frozen=True, kw_only=True, slots=True)
class Attack:
    """A named attack: the requests of a step are judged at once, the steps one after another."""

    name: str
    steps: Sequence[Sequence[Ask]]
    kind: str = "attack"

    async def judge(self, sandbox: Sandbox, run: int) -> JudgedJob:
        wrong: list[str] = []
        for step in self.steps:
            asked = [
                sandbox.judge(ask.program, ask.tests, limits=ask.limits, run=run, language=ask.language)
                for ask in step
            ]
            for ask, verdicts in zip(step, await asyncio.gather(*asked), strict=True):
                wrong += [f"{self.name}: {verdict}" for verdict in verdicts if not ask.holds(verdict)]
        return JudgedJob(wrong, [])


def attacks(languages: Sequence[str]) -> list[Attack]:
    """Returns all attacks of tests/attacks that the sandbox is known to hold off, in these languages."""
    themes = sorted(path.stem for path in Path(conftest.__file__).parent.glob("test_*.py"))
    return [
        attack
        for theme in themes
        for attack in attacks_of(importlib.import_module(f"tests.attacks.{theme}"))
        if all(ask.language in languages for step in attack.steps for ask in step)
    ]


def attacks_of(theme: ModuleType) -> Iterator[Attack]:
    named = theme.__name__.rpartition("test_")[2]
    for name, row in held(theme, "ATTACKS"):
        yield Attack(name=f"{named}: {name}", steps=steps(theme, row))
    for name, program in getattr(theme, "MEETINGS", {}).items():
        both = [
            ask(program, f"f({me!r}, {you!r})", found("'alone'"), limits=None) for me, you in ("ab", "ba")
        ]
        yield Attack(name=f"{named}: {name}", steps=[both])
    for name, (reference, program, test) in held(theme, "KNOWN"):
        right = ask(
            reference, ReferenceTest(test), lambda verdict: verdict.passed and not verdict.asked_objects
        )
        wrong = ask(program, KnownTest(test, data=True), partial(got, {WRONG, ERROR}, False))
        yield Attack(name=f"{named}: {name}", steps=[[right], [wrong]])


def held(theme: ModuleType, table: str) -> Iterator[tuple[str, Any]]:
    return ((name, row) for name, row in getattr(theme, table, {}).items() if name not in NOT_HELD)


def steps(theme: ModuleType, row: Any) -> list[list[Ask]]:
    """Returns the steps that the theme's own test takes for a row of its table."""
    match theme.__name__.rpartition("test_")[2], row:
        case "persistence", (program, look, left):
            touched = ask(f"{program}\n{theme.TOUCH}", "f() in ('left', 'refused')", found("True"))
            return [[touched], [ask(look, "f()", found(left))]]
        case "neighbours", (program, seen):
            honest = [f"assert g({n}) == {n}" for n in range(8)]
            beside = Ask(
                program=theme.HONEST, tests=honest, holds=lambda verdict: verdict.passed, limits=None
            )
            return [[ask(program, "f()", found(seen), limits=None), beside]]
        case "output_tests", (language, program, reason):
            test = OutputTest(
                code=theme.PRINTS_TRUE[language], stdout="True" if language == "python" else "true"
            )
            failed = partial(failed_by, reason)
            return [[Ask(program=program, tests=[test], holds=failed, language=language)]]
        case "system_calls", str(program):
            return [[ask(theme.SYSTEM_CALLS + program, "f()", found("[]", "False"))]]
        case _, (program, str(value)):
            return [[ask(program, "f()", found(value))]]
        case _, (program, test, str(value)):
            return [[ask(program, test, found(value))]]
        case "kernel_resources", (program, deserved, *changed):
            limits = ATTACK_LIMITS.model_copy(update=dict(*changed))
            held = partial(got, deserved, False)
            return [[ask(program, "assert f(1) == 2", held, limits=limits)]]
        case name, (program, test, deserved, *changed):
            limits = ATTACK_LIMITS.model_copy(update=dict(*changed))
            may_blame = name == "hostile_tests"
            return [[ask(program, test, partial(got, deserved, may_blame), limits=limits)]]
    raise ValueError(f"{theme.__name__}: soak_jobs.py does not know how its attack {row} is run")


def ask(
    program: str, test: Test, holds: Callable[[Verdict], bool], limits: Limits | None = ATTACK_LIMITS
) -> Ask:
    return Ask(program=program, tests=[test], holds=holds, limits=limits)


def found(*values: str) -> Callable[[Verdict], bool]:
    return lambda verdict: verdict.passed and str(verdict.value) in values


def failed_by(reason: str, verdict: Verdict) -> bool:
    return not verdict.passed and reason in verdict.error


def got(deserved: Set[Status], may_blame: bool, verdict: Verdict) -> bool:
    return verdict.status in deserved and (may_blame or not verdict.error.startswith("test: "))


# ---------------------------------------------------------------- the mix


def mixed(shares: Mapping[str, float], languages: Sequence[str], seed: int = 0) -> Iterator[SoakJob]:
    """Yields jobs without end, each kind with its share; the same seed gives the same jobs."""
    rng = random.Random(seed)
    weights = [attack.weight for attack in HOSTILE]
    hostile = [HostileJob(hostile=one) for one in HOSTILE]
    sources: dict[str, Iterator[SoakJob]] = {
        "generated": (rng.choice(HONEST_KINDS)(next(numbers)) for _ in itertools.count()),
        "corpus": rounds([*corpus(languages), *equally_right()], rng),
        "hostile": (rng.choices(hostile, weights)[0] for _ in itertools.count()),
        "attack": rounds(attacks(languages), rng),
    }
    while True:
        (kind,) = rng.choices(KINDS, [shares[kind] for kind in KINDS])
        yield next(sources[kind])


def rounds(jobs: Sequence[SoakJob], rng: random.Random) -> Iterator[SoakJob]:
    """Yields all jobs once, in random order, then again: the numbers of times that two jobs occur differ by one at
    most."""
    while True:
        yield from rng.sample(jobs, len(jobs))
