"""Held-out evaluation of games in which one policy writes programs: greedy pass rate, pass@k, and the game's reward."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import asdict

from sparring.core.episode import Episode, Trajectory
from sparring.core.evaluation import EvaluationSettings, Evaluator, Scores, mean, scores_of
from sparring.core.interfaces import Sandbox
from sparring.core.play import GENERATOR, PlayRequest
from sparring.core.problem import Problem
from sparring.games.program_scores import JudgedProgram, judge_programs, program_scores, share_passed
from sparring.games.programs.game import SolverRules


class SolverEvaluator(Evaluator):
    """Evaluator of greedy and sampled programs on held-out problems. Scores:
    generator_pass_rate, generator_test_rate, pass_at_<k>, unjudged: see `program_scores`;
    reward: mean reward of the greedy programs in the game, on the baseline tests;
    sampled_reward: mean reward of the sampled programs, if there are any;
    every component of the reward: its mean over the greedy programs;
    proxy_gold_gap: share of the rewarded tests minus share of the hidden tests that the greedy programs pass, if the game
    rewards tests and problems have hidden tests.

    combined is the reward, since that is what the game trains.
    """

    def __init__(
        self, problems: Sequence[Problem], sandbox: Sandbox, rules: SolverRules, settings: EvaluationSettings
    ) -> None:
        self._problems, self._sandbox, self._limits = list(problems), sandbox, rules.sandbox_limits
        self._samples, self._temperature = settings.samples, settings.temperature
        self._pass_at = settings.pass_at
        self._rewarded = {p.id: p.baseline_tests[: rules.rewarded_tests] for p in problems if p.hidden_tests}

    @property
    def shown(self) -> tuple[str, ...]:
        return ("generator_pass_rate", *(f"pass_at_{k}" for k in self._pass_at if self._samples))

    def requests(self, bank: None) -> list[PlayRequest]:
        greedy = self._request("evaluation", 1, 0.0)
        return [
            greedy,
            *([self._request("samples", self._samples, self._temperature)] if self._samples else []),
        ]

    async def scores(self, played: Sequence[Sequence[Episode]], bank: None) -> Scores:
        """See Evaluator."""
        trajectories, *samples = ([t for e in episodes for t in e.trajectories] for episodes in played)
        greedy, *sampled = await asyncio.gather(*(self._judged(episodes) for episodes in played))
        values = program_scores(greedy, sampled[0] if sampled else {}, self._pass_at)
        values |= {"reward": _mean_reward(trajectories)} | _components(trajectories)
        if samples:
            values["sampled_reward"] = _mean_reward(samples[0])
        if (gap := await self._gap(greedy)) is not None:
            values["proxy_gold_gap"] = gap
        tasks = {i: p.test_rate for i, (p,) in greedy.items() if p.test_rate is not None}
        programs = {i: asdict(p) for i, (p,) in greedy.items()}
        return scores_of(values, {"reward": 1.0}, tasks, programs)

    async def _judged(self, episodes: Sequence[Episode]) -> dict[str, list[JudgedProgram]]:
        """Judges the programs of the episodes. The result is by problem id."""
        programs = {e.problem_id: [t.artifact for t in e.trajectories] for e in episodes}
        problems = [p for p in self._problems if p.id in programs]
        return await judge_programs(self._sandbox, programs, problems, self._limits)

    async def _gap(self, greedy: Mapping[str, Sequence[JudgedProgram]]) -> float | None:
        """Returns the proxy_gold_gap of the greedy programs; None if no test is hidden or no test is rewarded."""
        pairs = [
            (problem, tests, program)
            for problem in self._problems
            if (tests := self._rewarded.get(problem.id))
            for program in greedy.get(problem.id, ())
        ]
        rewarded = await asyncio.gather(
            *(share_passed(self._sandbox, p.program, of, self._limits, tests) for of, tests, p in pairs)
        )
        return proxy_gold_gap(rewarded, [program.test_rate for _, _, program in pairs])

    def _request(self, name: str, attempts: int, temperature: float) -> PlayRequest:
        return PlayRequest(
            address=(name,),
            problems=tuple(self._problems),
            attempts={GENERATOR: attempts},
            temperatures={GENERATOR: temperature},
            once=True,
        )


def proxy_gold_gap(training: Sequence[float | None], hidden: Sequence[float | None]) -> float | None:
    """Returns how much better programs do on rewarded tests than on tests that no reward uses: the mean over programs of
    (pass rate on training tests - pass rate on hidden tests), from -1 to 1. Some gap is normal, since hidden tests are
    harder.

    Args:
        training, hidden: pass rates of the same programs in the same order; None if the sandbox could not judge. Programs
            that lack one of the two are left out; if none is left, the result is None.

    Raises ValueError if the lengths differ.
    """
    gaps = [p - g for p, g in zip(training, hidden, strict=True) if p is not None and g is not None]
    return sum(gaps) / len(gaps) if gaps else None


def _mean_reward(trajectories: Sequence[Trajectory]) -> float | None:
    return mean([t.reward for t in trajectories if t.reward is not None])


def _components(trajectories: Sequence[Trajectory]) -> dict[str, float | None]:
    """Returns the mean of each component of the reward over the judged attempts; a missing component counts as 0."""
    judged = [t for t in trajectories if t.reward is not None]
    names = dict.fromkeys(name for t in judged for name in t.components)
    return {name: mean([t.components.get(name, 0.0) for t in judged]) for name in names}
