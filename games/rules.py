"""What every game says of itself: the face of its room. The rest of the house asks this, and never which game it is."""

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import Literal

from core.evaluation import EvaluationSettings, Evaluator
from core.interfaces import Game, Sandbox
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
        """Completions of the generator's in one sequence."""
        return 1

    @property
    def limits(self) -> Limits | None:
        """Of a program that is run; None where none is."""
        return getattr(self, "sandbox_limits", None)

    @abstractmethod
    def game(self) -> Game: ...

    @abstractmethod
    def evaluator(
        self, held_out: Sequence[Problem], sandbox: Sandbox, settings: EvaluationSettings
    ) -> Evaluator: ...

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
