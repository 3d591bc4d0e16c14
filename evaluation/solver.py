"""Held-out evaluation of games with one policy that writes programs: greedy pass rate, pass@k, and what the game's own
reward says."""

import asyncio
from collections.abc import Sequence

from actors.episodes import PlayRequest
from core.episode import Episode, Trajectory
from core.interfaces import Sandbox
from core.problem import Problem
from core.verdict import Limits
from evaluation.evaluator import Scores, mean, share_passed
from evaluation.pass_at_k import mean_pass_at_k

GENERATOR = "generator"


class SolverEvaluator:
    """Scores:
    generator_pass_rate, generator_test_rate: of the greedy programs, on the evaluation tests;
    pass_at_<k>: unbiased, of the sampled programs;
    reward: mean reward of the greedy programs by the game's rules, on the baseline tests;
    every component of that reward; unjudged: programs that the sandbox could not judge.

    combined is the reward: what the game is about.
    """

    def __init__(
        self,
        problems: Sequence[Problem],
        sandbox: Sandbox,
        limits: Limits,
        *,
        samples: int,
        temperature: float,
        pass_at: Sequence[int],
    ) -> None:
        self._problems, self._sandbox, self._limits = list(problems), sandbox, limits
        self._samples, self._temperature, self._pass_at = samples, temperature, tuple(pass_at)

    @property
    def shown(self) -> tuple[str, ...]:
        return ("generator_pass_rate", *(f"pass_at_{k}" for k in self._pass_at if self._samples))

    def bank_request(self) -> None:
        """There is no yardstick but the tests."""

    async def bank_of(self, episodes: Sequence[Episode]) -> None:
        """Never asked for."""

    def requests(self, bank: None) -> list[PlayRequest]:
        greedy = self._request("evaluation", 1, 0.0)
        return [
            greedy,
            *([self._request("samples", self._samples, self._temperature)] if self._samples else []),
        ]

    async def scores(self, played: Sequence[Sequence[Episode]], bank: None) -> Scores:
        """See Evaluator."""
        greedy = [t for episode in played[0] for t in episode.trajectories]
        rates = await asyncio.gather(*(self._rates(episode) for episode in played[0]))
        known = [rate for of_problem in rates for rate in of_problem if rate is not None]
        values = {
            "generator_pass_rate": mean([float(rate == 1.0) for rate in known]),
            "generator_test_rate": mean(known),
            "reward": mean([t.reward for t in greedy if t.reward is not None]),
        }
        values |= _components(greedy)
        unjudged = sum(rate is None for of_problem in rates for rate in of_problem)
        if self._samples:
            sampled = await asyncio.gather(*(self._rates(episode) for episode in played[1]))
            counts = [
                (len(judged), sum(rate == 1.0 for rate in judged))
                for of_problem in sampled
                if (judged := [rate for rate in of_problem if rate is not None])
            ]
            unjudged += sum(rate is None for of_problem in sampled for rate in of_problem)
            for k in self._pass_at:
                enough = [(n, c) for n, c in counts if n >= k]
                values[f"pass_at_{k}"] = mean_pass_at_k(enough, k) if enough else 0.0
        tasks = {
            episode.problem_id: of_problem[0]
            for episode, of_problem in zip(played[0], rates, strict=True)
            if of_problem[0] is not None
        }
        return Scores(values | {"unjudged": float(unjudged)}, values["reward"], tasks)

    async def _rates(self, episode: Episode) -> list[float | None]:
        problem = next(p for p in self._problems if p.id == episode.problem_id)
        return await asyncio.gather(
            *(share_passed(self._sandbox, t.artifact, problem, self._limits) for t in episode.trajectories)
        )

    def _request(self, name: str, attempts: int, temperature: float) -> PlayRequest:
        return PlayRequest(
            address=(name,),
            problems=tuple(self._problems),
            attempts={GENERATOR: attempts},
            temperatures={GENERATOR: temperature},
        )


def _components(trajectories: Sequence[Trajectory]) -> dict[str, float]:
    """Mean of each part of the reward; a part that an attempt does not name is 0 there."""
    judged = [t for t in trajectories if t.reward is not None]
    names = dict.fromkeys(name for t in judged for name in t.components)
    return {name: mean([t.components.get(name, 0.0) for t in judged]) for name in names}
