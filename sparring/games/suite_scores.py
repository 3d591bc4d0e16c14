"""Scores of test suites: how many of their tests are valid, which wrong and which correct programs they kill.

A suite kills a program if the program fails one of its valid tests. This module only counts: the game that judges the
suites decides what a valid test is, and when a program fails one.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from sparring.core.evaluation import mean
from sparring.games.pass_at_k import pass_at_k

Killed = tuple[bool | None, ...]
"""For each program, whether the suite kills it; None if the sandbox could not judge."""


@dataclass(frozen=True, kw_only=True, slots=True)
class SuiteRecord:
    """Counts of one judged suite. From `emitted` to `distinct`, each count is a part of the count before."""

    emitted: int
    """Number of tests that were read, at most the game config's max_tests."""
    parsed: int
    well_formed: int
    """Number of tests whose arguments are literals that fit the signature and the size limits."""
    agreed: int
    """Number of tests that hold on the reference, twice, as they were written: tests whose expected output the reference
    had to correct or to supply are not among them."""
    distinct: int
    """Number of different tests among `agreed`."""
    repeated: int
    """Number of well-formed tests that repeat another test of the suite, or one that the prompt shows, whether they hold or
    not."""
    validity: float
    """Validity as in the reward: |V| / max(slots, |T|), in which a test with a corrected output counts less than 1."""
    surplus: int = 0
    """Number of tests in the answer beyond the game config's max_tests. They are not run, and lower the validity."""
    valid: tuple[str, ...] = ()
    """Sources of the valid tests."""
    wrong: Killed = ()
    mutants: Killed = ()
    correct: Killed = ()
    """Kills of the problem's other correct solutions."""


@dataclass(frozen=True, kw_only=True, slots=True)
class DiscriminatorScores:
    """Scores of a discriminator. Shares are means over suites, rates are over pairs (suite, program). A score is None if
    there is nothing to measure."""

    suites: int
    """Number of judged suites."""
    unjudged: int
    """Number of suites and pairs that the sandbox could not judge; no mean includes them."""
    parsed: float | None
    """Share of the emitted tests, as are the five scores that follow."""
    well_formed: float | None
    agreed: float | None
    distinct: float | None
    duplicates: float | None
    valid: float | None
    """Tests whose output the reference corrected or supplied are among them."""
    with_valid_test: float | None
    """Share of suites with at least one valid test."""
    validity: float | None
    """Validity as in the reward: suites shorter than validity_slots and corrected outputs lower it."""
    kill_rate: float | None
    """Share of wrong programs that are killed."""
    mutant_kill_rate: float | None
    verifier_accuracy: float | None
    """Share of suites that kill every wrong program and every mutant of their problem."""
    false_kill_rate: float | None
    """Share of correct programs that are killed, by tests that hold for the reference but not for every solution."""


def discriminator_scores(records: Iterable[SuiteRecord | None]) -> DiscriminatorScores:
    """Returns the scores over suites of any problems. records: None for a suite that the sandbox could not judge."""
    records = list(records)
    judged = [record for record in records if record is not None]
    pairs = [killed for r in judged for killed in (*r.wrong, *r.mutants, *r.correct)]
    return DiscriminatorScores(
        suites=len(judged),
        unjudged=records.count(None) + pairs.count(None),
        parsed=mean([_share(r.parsed, r) for r in judged]),
        well_formed=mean([_share(r.well_formed, r) for r in judged]),
        agreed=mean([_share(r.agreed, r) for r in judged]),
        distinct=mean([_share(r.distinct, r) for r in judged]),
        duplicates=mean([_share(r.repeated, r) for r in judged]),
        valid=mean([_share(len(r.valid), r) for r in judged]),
        with_valid_test=mean([bool(r.valid) for r in judged]),
        validity=mean([r.validity for r in judged]),
        kill_rate=mean([killed for r in judged for killed in r.wrong]),
        mutant_kill_rate=mean([killed for r in judged for killed in r.mutants]),
        verifier_accuracy=mean([all(known) for r in judged if (known := _known((*r.wrong, *r.mutants)))]),
        false_kill_rate=mean([killed for r in judged for killed in r.correct]),
    )


def kill_at_k(records: Sequence[SuiteRecord | None], k: int) -> float | None:
    """Returns the chance that at least one of k suites kills a mutant: the mean of `pass_at_k` over one problem's mutants.
    Mutants that were judged with fewer than k suites are left out; None if no mutant is left.

    Args:
        records: suites of one problem, judged on the same mutants.

    Raises ValueError if k < 1.
    """
    judged = [record.mutants for record in records if record is not None]
    by_mutant = [[o for o in outcomes if o is not None] for outcomes in zip(*judged, strict=True)]
    return mean([pass_at_k(len(o), sum(o), k) for o in by_mutant if len(o) >= k])


def mean_kill_at_k(by_problem: Iterable[Sequence[SuiteRecord | None]], k: int) -> float | None:
    """Returns the mean of `kill_at_k` over the problems for which it is not None; None if there is no such problem."""
    return mean([kill_at_k(records, k) for records in by_problem])


def _known(killed: Killed) -> list[bool]:
    """Returns the outcomes; nothing if the sandbox could not judge one of them."""
    return [] if None in killed else [bool(outcome) for outcome in killed]


def _share(count: int, record: SuiteRecord) -> float:
    return count / max(1, record.emitted)
