"""Held-out evaluation: the generator's greedy pass rate, the discriminator's validity and kill rate.

The kill rate is measured on fixed baseline programs (the bank): wrong programs that the *initial* generator wrote for
held-out problems. The discriminator's reward falls when the generator improves, even if the discriminator stays the
same; its kill rate on the fixed bank does not.
"""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace

from sparring.core.episode import Episode
from sparring.core.evaluation import Scores, mean, scores_of
from sparring.core.interfaces import Sandbox
from sparring.core.play import DISCRIMINATOR, GENERATOR, PlayRequest
from sparring.core.problem import Problem
from sparring.games.multistage.rules import MultistageRules
from sparring.games.multistage.suites import Suites
from sparring.games.program_scores import judge_program, share_passed

Bank = Mapping[str, Sequence[str]]
"""The baseline programs: distinct wrong programs by problem id."""


class MultistageEvaluator:
    """Evaluator of both policies on held-out problems. Scores:
    generator_pass_rate: share of problems whose greedy program passes every evaluation test;
    generator_test_rate: mean share of the evaluation tests that the greedy program passes;
    test_validity: mean validity of the suites, as in the reward;
    kill_rate: share of the pairs (suite, wrong program of the bank) in which the suite kills the program, as in the reward;
    with game.attack program, a suite is paired only with the program that it was written against;
    unjudged: number of programs, suites and pairs that the sandbox could not judge. A mean over nothing is missing (no kill
    rate if the bank has no wrong program). The combined score, by which the
    best checkpoint is chosen, is 0.7 * generator_pass_rate + 0.3 * test_validity.
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

    @property
    def shows_bank(self) -> bool:
        return self._rules.attack == "program"

    def requests(self, bank: Bank) -> list[PlayRequest]:
        """Returns the request for one greedy program and several sampled suites per problem. If the discriminator is shown
        programs, it writes one suite against the greedy program, and one against each program of the bank."""
        past = {}
        suites = self._suites
        if self._rules.attack == "program":
            past = {problem: {GENERATOR: tuple(wrong)} for problem, wrong in bank.items()}
            suites = 1 + self._bank_programs
        request = self._request("evaluation", {GENERATOR: 1, DISCRIMINATOR: suites}, temperature=0.0)
        return [replace(request, past=past)]

    async def bank_of(self, episodes: Sequence[Episode]) -> dict[str, list[str]]:
        """Returns the distinct programs of the episodes that fail an evaluation test, by problem id."""
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
            *(judge_program(self._sandbox, program, problems[i], limits) for i, program in programs)
        )
        judged = {i: program for (i, _), program in zip(programs, found, strict=True)}
        tasks = {i: p.test_rate for i, p in judged.items() if p.test_rate is not None}
        rates = list(tasks.values())
        suites = [t for e in episodes for t in e.trajectories if t.player == DISCRIMINATOR]
        validities = [t.components["validity"] for t in suites if "validity" in t.components]
        kills = await asyncio.gather(
            *(self._kills(problems[e.problem_id], e, bank.get(e.problem_id, ())) for e in episodes)
        )
        killed = [outcome for of_one in kills for outcome in of_one]
        values = {
            "generator_pass_rate": mean([float(rate == 1.0) for rate in rates]),
            "generator_test_rate": mean(rates),
            "test_validity": mean(validities),
            "kill_rate": mean([float(k) for k in killed if k is not None]),
            "unjudged": float(len(judged) - len(rates) + killed.count(None) + len(suites) - len(validities)),
        }
        weights = {"generator_pass_rate": 0.7, "test_validity": 0.3}
        return scores_of(values, weights, tasks, {i: asdict(program) for i, program in judged.items()})

    async def _kills(self, problem: Problem, episode: Episode, wrong: Sequence[str]) -> list[bool | None]:
        """Returns for each pair (suite, wrong program) whether the suite kills the program; None if the sandbox could not
        judge. Suites that were not judged when they were played are left out."""
        judge = Suites(problem, self._rules, self._sandbox)
        suites = [t for t in episode.trajectories if t.player == DISCRIMINATOR and "validity" in t.components]
        pairs = [(suite, program) for suite in suites for program in wrong]
        if self._rules.attack == "program":
            # as in play: suite 0 is shown the greedy program, the next ones these programs in turn, and so on again
            pairs = [(s, wrong[i - 1]) for s in suites if (i := s.attempt % (1 + len(wrong)))]
        return await asyncio.gather(*(judge.kills(s.valid_tests, program) for s, program in pairs))

    def _request(self, name: str, attempts: Mapping[str, int], temperature: float) -> PlayRequest:
        return PlayRequest(
            address=(name,),
            problems=tuple(self._problems),
            attempts=attempts,
            temperatures={GENERATOR: temperature, DISCRIMINATOR: 1.0},
            once=True,
        )
