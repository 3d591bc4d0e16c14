"""How good test suites are: how many of their tests hold, which bugs they find, which correct programs they accuse.

Here is what is counted; what a valid test and a kill are, the game says that judges the suites.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from games.pass_at_k import pass_at_k

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
    """And are not repeated."""
    repeated: int
    """Well-formed tests that repeat another one of the suite, whether they hold or not."""
    validity: float
    """As rewards take it: |V| / max(slots, |T|), where a corrected output costs its part."""
    surplus: int = 0
    """Tests of the answer beyond the rules' max_tests, which do not count."""
    wrong: Killed = ()
    mutants: Killed = ()
    correct: Killed = ()
    """The problem's other solutions."""


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
    """As rewards take it: short suites lose by the rules' validity_slots, corrected outputs by their part."""
    kill_rate: float | None
    """Wrong programs killed."""
    mutant_kill_rate: float | None
    false_kill_rate: float | None
    """Correct programs killed: tests that hold for the reference, but not for every solution."""


def discriminator_scores(records: Iterable[SuiteRecord | None]) -> DiscriminatorScores:
    """Over suites of any problems."""
    records = list(records)
    judged = [record for record in records if record is not None]
    pairs = [killed for r in judged for killed in (*r.wrong, *r.mutants, *r.correct)]
    return DiscriminatorScores(
        suites=len(judged),
        unjudged=records.count(None) + pairs.count(None),
        parsed=_mean([_share(r.parsed, r) for r in judged]),
        well_formed=_mean([_share(r.well_formed, r) for r in judged]),
        agreed=_mean([_share(r.agreed, r) for r in judged]),
        distinct=_mean([_share(r.distinct, r) for r in judged]),
        duplicates=_mean([_share(r.repeated, r) for r in judged]),
        validity=_mean([r.validity for r in judged]),
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


def _share(count: int, record: SuiteRecord) -> float:
    return count / max(1, record.emitted)


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None
