"""What every game says of itself: the face of its room. The rest of the house asks this, and never which game it is."""

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import Literal

from core.episode import Episode, Trajectory
from core.evaluation import EvaluationSettings, Evaluator, Scores, mean
from core.interfaces import Game, Sandbox
from core.play import PlayRequest
from core.problem import Problem
from core.settings import Settings
from core.verdict import Limits

Need = Literal["sandbox", "problems", "stages", "suites", "bank", "samples", "rewarded tests", "solutions"]
"""What a game may use of the house; a key of the config that belongs to none of a game's needs is refused.

sandbox: programs run. problems: it is played on problems of a file. stages: the generator's attempts have the reasoning
stages. suites: the discriminator writes tests. bank: what the untrained players wrote is a yardstick. samples: evaluation
may sample for pass@k. rewarded tests: tests of the problem earn. solutions: programs that solve a problem are remembered
and shown.
"""


class Rules(Settings):
    """The rules of a game, a section of the config."""

    kind: str

    @property
    @abstractmethod
    def uses(self) -> frozenset[Need]: ...

    @property
    @abstractmethod
    def seats(self) -> dict[str, str]:
        """Who plays what: player -> policy."""

    @property
    def turns(self) -> int:
        """Completions of the generator's, at least, in one sequence."""
        return 1

    @property
    def stage_numbers(self) -> tuple[int, ...]:
        """The reasoning stages that are played; none in most games."""
        return ()

    @property
    def limits(self) -> Limits | None:
        """Of a program that is run: the field sandbox_limits, where there is one; None where none is run."""
        return getattr(self, "sandbox_limits", Limits()) if "sandbox" in self.uses else None

    @abstractmethod
    def game(self) -> Game: ...

    def evaluator(
        self, held_out: Sequence[Problem], sandbox: Sandbox, settings: EvaluationSettings
    ) -> Evaluator:
        """By default the players' mean rewards on the held-out problems."""
        return RewardEvaluator(held_out, tuple(self.seats))

    def won(self, attempt: Trajectory) -> float:
        """Share of its game, 0 to 1, that a judged attempt won against the opponent; by default whether it earned anything."""
        return float((attempt.reward or 0.0) > 0)

    def why(self, player: str, components: Mapping[str, float]) -> str:
        """How a reward came about, from its components."""
        return ""

    def refuse(self, problem: Problem) -> str | None:
        """Why it cannot be played on this problem."""
        return None

    def own_problems(self, evaluated: int) -> tuple[list[Problem], list[Problem]]:
        """(training, held-out) ones of a game that is played on none of a file's.

        Args:
            evaluated: evaluation.problems.
        """
        raise NotImplementedError(f"{type(self).__name__} is played on problems of a file")


SEATS = ("first", "second")
"""The players of a match."""
_TRAINING_MATCHES = 64


class MatchRules(Rules):
    """Self-play of one policy. Matches are on no problem, and differ in their seeds only."""

    @property
    def uses(self) -> frozenset[Need]:
        return frozenset()

    @property
    def seats(self) -> dict[str, str]:
        return dict.fromkeys(SEATS, "generator")

    def own_problems(self, evaluated: int) -> tuple[list[Problem], list[Problem]]:
        return matches(self.kind, _TRAINING_MATCHES), matches(self.kind, evaluated, "held-out-")

    def why(self, player: str, components: Mapping[str, float]) -> str:
        if components["illegal"]:
            return "made an illegal move (game.illegal_reward)"
        result = [name for name in ("win", "draw", "loss") if components[name]]
        return result[0] if result else "the other side made an illegal move"


def matches(kind: str, count: int, named: str = "", tags: tuple[str, ...] = ()) -> list[Problem]:
    """What stands in the place of problems."""
    return [match(kind, f"{kind}-{named}{number:03d}", tags) for number in range(count)]


def match(kind: str, name: str, tags: tuple[str, ...] = ()) -> Problem:
    return Problem(
        id=name, description=kind, function_signature="", baseline_tests=(), reference_solution="", tags=tags
    )


class RewardEvaluator(Evaluator):
    """Each player makes one attempt at each problem, by default a greedy one. Scores: <player>_reward, the mean; unjudged:
    attempts without a reward. combined is the first player's reward."""

    temperature = 0.0

    def __init__(self, problems: Sequence[Problem], players: Sequence[str]) -> None:
        self._problems, self._players = tuple(problems), tuple(players)

    @property
    def shown(self) -> tuple[str, ...]:
        return tuple(f"{player}_reward" for player in self._players)

    def requests(self, bank: None) -> list[PlayRequest]:
        return [
            PlayRequest(
                address=("evaluation",),
                problems=self._problems,
                attempts=dict.fromkeys(self._players, 1),
                temperatures=dict.fromkeys(self._players, self.temperature),
            )
        ]

    async def scores(self, played: Sequence[Sequence[Episode]], bank: None) -> Scores:
        """See Evaluator."""
        attempts = [t for episodes in played for episode in episodes for t in episode.trajectories]
        rewards = {
            player: [t.reward for t in attempts if t.player == player and t.reward is not None]
            for player in self._players
        }
        values = {f"{player}_reward": mean(earned) for player, earned in rewards.items()}
        values["unjudged"] = float(sum(t.reward is None for t in attempts))
        return Scores(values, values[self.shown[0]])
