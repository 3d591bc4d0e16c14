"""The base class of game configs. Other packages use this interface only, and never check which game is played."""

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import Literal

from sparring.core.episode import Episode, Trajectory
from sparring.core.evaluation import EvaluationSettings, Evaluator, Scores, mean, scores_of
from sparring.core.interfaces import Game, Sandbox
from sparring.core.play import PlayRequest
from sparring.core.problem import Problem
from sparring.core.settings import Settings
from sparring.core.verdict import Limits

Need = Literal["sandbox", "problems", "stages", "suites", "bank", "samples", "rewarded tests", "solutions"]
"""A feature that a game uses. If a config key belongs to a feature that the game does not use, the key is refused.

sandbox: programs are executed. problems: the game is played on coding problems. stages: the generator's attempts have
the reasoning stages. suites: the discriminator writes test suites. bank: the evaluation uses programs of the untrained
policies as a baseline. samples: the evaluation can sample programs for pass@k. rewarded tests: the reward uses tests of
the problem. solutions: programs that solve a problem are stored, and later prompts may show them.
"""


class Rules(Settings):
    """The config section of a game; each game has its own subclass."""

    kind: str

    @property
    @abstractmethod
    def uses(self) -> frozenset[Need]: ...

    @property
    @abstractmethod
    def seats(self) -> dict[str, str]:
        """The policy of each player: player -> policy."""

    @property
    def turns(self) -> int:
        """Minimum number of the generator's completions in one token sequence."""
        return 1

    @property
    def stage_numbers(self) -> tuple[int, ...]:
        """Numbers of the reasoning stages that are played; empty in most games."""
        return ()

    @property
    def limits(self) -> Limits | None:
        """Limits of an executed program: the field `sandbox_limits` if the class has it, else the defaults. None if the
        game executes no programs."""
        return getattr(self, "sandbox_limits", Limits()) if "sandbox" in self.uses else None

    @abstractmethod
    def game(self) -> Game: ...

    def evaluator(
        self, held_out: Sequence[Problem], sandbox: Sandbox, settings: EvaluationSettings
    ) -> Evaluator:
        """Returns the evaluator of the game. Default: the players' mean rewards on the held-out problems."""
        return RewardEvaluator(held_out, tuple(self.seats))

    def won(self, attempt: Trajectory) -> float:
        """Returns to what degree, from 0 to 1, a judged attempt won against the opponent. Default: 1 if its reward is
        positive, 0.5 if it is 0, else 0."""
        reward = attempt.reward or 0.0
        return 0.5 if reward == 0 else float(reward > 0)

    def why(self, player: str, components: Mapping[str, float]) -> str:
        """Explains a reward in words, from its components. Default: no explanation."""
        return ""

    def refuse(self, problem: Problem) -> str | None:
        """Returns the reason why the game cannot be played on this problem; None if it can."""
        return None

    def own_problems(self, evaluated: int) -> tuple[list[Problem], list[Problem]]:
        """Returns (training, held-out) problems of a game that is not played on coding problems.

        Args:
            evaluated: the config key `evaluation.problems`.
        """
        raise NotImplementedError(f"{type(self).__name__} is played on problems of a file")


SEATS = ("first", "second")
"""The players of a match."""
_TRAINING_MATCHES = 64


class MatchRules(Rules):
    """Config of a game in which one policy plays against itself. A match has no coding problem; matches differ only in
    their names, and therefore in their seeds."""

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
            return "made an illegal move"
        result = [name for name in ("win", "draw", "loss") if components[name]]
        return result[0] if result else "the other side made an illegal move"


def matches(kind: str, count: int, named: str = "", tags: tuple[str, ...] = ()) -> list[Problem]:
    """Returns `count` matches as placeholder problems, for a game without coding problems."""
    return [match(kind, f"{kind}-{named}{number:03d}", tags) for number in range(count)]


def match(kind: str, name: str, tags: tuple[str, ...] = ()) -> Problem:
    return Problem(
        id=name, description=kind, function_signature="", baseline_tests=(), reference_solution="", tags=tags
    )


class RewardEvaluator(Evaluator):
    """Evaluator in which each player makes one attempt at each problem, by default with greedy decoding.

    Scores: <player>_reward: mean reward of the player; unjudged: number of attempts without a reward. combined is the
    mean reward of the first player.
    """

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
        values: dict[str, float | None] = {f"{player}_reward": mean(r) for player, r in rewards.items()}
        values["unjudged"] = float(sum(t.reward is None for t in attempts))
        return scores_of(values, {self.shown[0]: 1.0})
