"""Held-out evaluation: the generator's greedy pass rate, the discriminator's validity and kill rate.

The discriminator is measured on a fixed bank: wrong programs that the *initial* generator wrote for held-out
problems. Its raw reward falls as the generator improves; its kill rate on the bank does not.
"""

import asyncio
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from actors.episodes import PlayRequest, PlayResult
from core.episode import Episode
from core.interfaces import Sandbox, SandboxFailure
from core.problem import Problem
from core.verdict import Limits

GENERATOR, DISCRIMINATOR = "generator", "discriminator"
Play = Callable[[PlayRequest], PlayResult]


@dataclass(frozen=True, slots=True)
class Scores:
    generator_pass_rate: float
    """Share of problems whose greedy program passes every evaluation test."""
    generator_test_rate: float
    """Mean share of evaluation tests passed."""
    test_validity: float
    """Mean validity of the suites."""
    kill_rate: float
    """Share of (suite, wrong program of the bank) in which some valid test fails the program."""

    unjudged: int = 0
    """Programs, suites and pairs that the sandbox could not judge."""

    @property
    def combined(self) -> float:
        """What "best" means: 0.7 generator reward + 0.3 test validity (R0), both held out."""
        return 0.7 * self.generator_pass_rate + 0.3 * self.test_validity

    def as_dict(self) -> dict[str, float]:
        return asdict(self)


Bank = Mapping[str, Sequence[str]]
"""Distinct wrong programs by problem id."""


class Evaluator:
    def __init__(
        self, problems: Sequence[Problem], sandbox: Sandbox, limits: Limits, suites: int, bank_programs: int
    ) -> None:
        self._problems, self._sandbox, self._limits = list(problems), sandbox, limits
        self._suites, self._bank_programs = suites, bank_programs

    def make_bank_request(self) -> PlayRequest:
        return self._request("bank", {GENERATOR: self._bank_programs, DISCRIMINATOR: 0}, temperature=1.0)

    def request(self) -> PlayRequest:
        """One greedy program and a few sampled suites per problem, with the same seeds every time."""
        return self._request("evaluation", {GENERATOR: 1, DISCRIMINATOR: self._suites}, temperature=0.0)

    async def bank_of(self, episodes: Sequence[Episode]) -> dict[str, list[str]]:
        """The episodes' programs that fail some evaluation test."""
        problems = {p.id: p for p in self._problems}

        async def wrong(episode: Episode) -> list[str]:
            programs = list(dict.fromkeys(t.artifact for t in episode.trajectories if t.player == GENERATOR))
            rates = await asyncio.gather(
                *(self._test_rate(p, problems[episode.problem_id]) for p in programs)
            )
            return [p for p, rate in zip(programs, rates, strict=True) if rate is not None and rate < 1.0]

        banks = await asyncio.gather(*(wrong(e) for e in episodes))
        return {e.problem_id: bank for e, bank in zip(episodes, banks, strict=True)}

    async def scores(self, episodes: Sequence[Episode], bank: Bank) -> Scores:
        """What the sandbox could not judge is left out of the means and counted in `unjudged`."""
        problems = {p.id: p for p in self._problems}
        programs = [
            (e.problem_id, t.artifact) for e in episodes for t in e.trajectories if t.player == GENERATOR
        ]
        found = await asyncio.gather(*(self._test_rate(program, problems[i]) for i, program in programs))
        rates = [rate for rate in found if rate is not None]
        suites = [t for e in episodes for t in e.trajectories if t.player == DISCRIMINATOR]
        kills = await asyncio.gather(
            *(
                self._kills(program, tests)
                for e in episodes
                for tests in e.info["valid_tests"]
                if tests is not None  # else the sandbox could not judge the suite
                for program in bank.get(e.problem_id, ())
            )
        )
        return Scores(
            generator_pass_rate=_mean([float(rate == 1.0) for rate in rates]),
            generator_test_rate=_mean(rates),
            test_validity=_mean([t.components["validity"] for t in suites if "validity" in t.components]),
            kill_rate=_mean([float(k) for k in kills if k is not None]),
            unjudged=found.count(None)
            + kills.count(None)
            + sum("validity" not in t.components for t in suites),
        )

    async def _test_rate(self, program: str, problem: Problem) -> float | None:
        """None where the sandbox could not judge."""
        try:
            verdicts = await self._sandbox.judge(program, problem.evaluation_tests, limits=self._limits)
        except SandboxFailure:
            return None
        return sum(v.passed for v in verdicts) / len(verdicts)

    async def _kills(self, program: str, tests: Sequence[str]) -> bool | None:
        if not tests:
            return False
        try:
            verdicts = await self._sandbox.judge(program, tests, limits=self._limits)
        except SandboxFailure:
            return None
        return any(not v.passed for v in verdicts)

    def _request(self, name: str, attempts: Mapping[str, int], temperature: float) -> PlayRequest:
        return PlayRequest(
            address=(name,),
            problems=tuple(self._problems),
            attempts=attempts,
            temperatures={GENERATOR: temperature, DISCRIMINATOR: 1.0},
        )


def save_bank(path: Path, bank: Bank) -> None:
    path.write_text(json.dumps(bank, indent=0))


def load_bank(path: Path) -> dict[str, list[str]]:
    return json.loads(path.read_text())


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values) if values else 0.0
