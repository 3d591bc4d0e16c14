"""Held-out evaluation: the generator's greedy pass rate, the discriminator's validity and kill rate.

The discriminator is measured on a fixed bank: wrong programs that the *initial* generator wrote for held-out
problems. Its raw reward falls as the generator improves; its kill rate on the bank does not.
"""

import asyncio
from collections.abc import Mapping, Sequence

from core.episode import Episode
from core.evaluation import Scores, mean
from core.interfaces import Sandbox
from core.play import PlayRequest
from core.problem import Problem
from games.multistage.rules import DISCRIMINATOR, GENERATOR, MultistageRules
from games.multistage.suites import Suites
from games.program_scores import share_passed

Bank = Mapping[str, Sequence[str]]
"""Distinct wrong programs by problem id."""


class MultistageEvaluator:
    """Scores:
    generator_pass_rate: share of problems whose greedy program passes every evaluation test;
    generator_test_rate: mean share of evaluation tests passed;
    test_validity: mean validity of the suites;
    kill_rate: share of (suite, wrong program of the bank) in which some valid test fails the program;
    unjudged: programs, suites and pairs that the sandbox could not judge.

    combined is R0's 0.7 generator reward + 0.3 test validity, both held out.
    """

    shown = ("generator_pass_rate", "test_validity", "kill_rate")

    def __init__(
        self,
        problems: Sequence[Problem],
        sandbox: Sandbox,
        rules: MultistageRules,
        suites: int,
        bank_programs: int,
    ) -> None:
        self._problems, self._sandbox, self._rules = list(problems), sandbox, rules
        self._suites, self._bank_programs = suites, bank_programs

    def bank_request(self) -> PlayRequest:
        return self._request("bank", {GENERATOR: self._bank_programs, DISCRIMINATOR: 0}, temperature=1.0)

    def requests(self, bank: Bank) -> list[PlayRequest]:
        """One greedy program and a few sampled suites per problem."""
        return [self._request("evaluation", {GENERATOR: 1, DISCRIMINATOR: self._suites}, temperature=0.0)]

    async def bank_of(self, episodes: Sequence[Episode]) -> dict[str, list[str]]:
        """The episodes' programs that fail some evaluation test."""
        problems = {p.id: p for p in self._problems}

        async def wrong(episode: Episode) -> list[str]:
            programs = list(dict.fromkeys(t.artifact for t in episode.trajectories if t.player == GENERATOR))
            rates = await asyncio.gather(
                *(
                    share_passed(self._sandbox, p, problems[episode.problem_id], self._rules.sandbox_limits)
                    for p in programs
                )
            )
            return [p for p, rate in zip(programs, rates, strict=True) if rate is not None and rate < 1.0]

        banks = await asyncio.gather(*(wrong(e) for e in episodes))
        return {e.problem_id: bank for e, bank in zip(episodes, banks, strict=True)}

    async def scores(self, played: Sequence[Sequence[Episode]], bank: Bank) -> Scores:
        """See Evaluator."""
        (episodes,) = played
        problems = {p.id: p for p in self._problems}
        programs = [
            (e.problem_id, t.artifact) for e in episodes for t in e.trajectories if t.player == GENERATOR
        ]
        limits = self._rules.sandbox_limits
        found = await asyncio.gather(
            *(share_passed(self._sandbox, program, problems[i], limits) for i, program in programs)
        )
        rates = [rate for rate in found if rate is not None]
        measured = await asyncio.gather(
            *(self._measure(problems[e.problem_id], e, bank.get(e.problem_id, ())) for e in episodes)
        )
        validities = [validity for of_one in measured for validity, _ in of_one]
        kills = [killed for of_one in measured for _, of_suite in of_one for killed in of_suite]
        values = {
            "generator_pass_rate": mean([float(rate == 1.0) for rate in rates]),
            "generator_test_rate": mean(rates),
            "test_validity": mean([v for v in validities if v is not None]),
            "kill_rate": mean([float(k) for k in kills if k is not None]),
            "unjudged": float(found.count(None) + kills.count(None) + validities.count(None)),
        }
        combined = 0.7 * values["generator_pass_rate"] + 0.3 * values["test_validity"]
        tasks = {i: rate for (i, _), rate in zip(programs, found, strict=True) if rate is not None}
        return Scores(values, combined, tasks)

    async def _measure(
        self, problem: Problem, episode: Episode, wrong: Sequence[str]
    ) -> list[tuple[float | None, list[bool | None]]]:
        """Of each suite (its validity, which of the wrong programs it kills)."""
        judge = Suites(problem, self._rules, self._sandbox)
        texts = [t.artifact for t in episode.trajectories if t.player == DISCRIMINATOR]
        return [
            (None, [])
            if suite is None
            else (
                suite.validity(self._rules.rewards),
                await asyncio.gather(*(judge.kills(suite, program) for program in wrong)),
            )
            for suite in await judge.validate(texts)
        ]

    def _request(self, name: str, attempts: Mapping[str, int], temperature: float) -> PlayRequest:
        return PlayRequest(
            address=(name,),
            problems=tuple(self._problems),
            attempts=attempts,
            temperatures={GENERATOR: temperature, DISCRIMINATOR: 1.0},
        )
