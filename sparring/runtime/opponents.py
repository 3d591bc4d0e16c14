"""Past versions of a frozen policy as opponents: stores their weights, and chooses the version that plays
(sparring/curriculum/opponents.py).

When a policy stops learning, its weights are stored as a past version. While the policy is frozen, one version plays
for the whole phase, the current or a past one, so its engines seldom load weights. Evaluation uses the current versions.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from configs.schema import Config
from sparring.core.episode import Episode
from sparring.core.seeding import derive_seed
from sparring.core.weights import Weights
from sparring.curriculum.curriculum import Assignment
from sparring.curriculum.opponents import Opponents
from sparring.runtime.parts import Parts, Start


class PastOpponents:
    """Manages past opponents. It is off if the current versions always play (curriculum.opponents)."""

    def __init__(self, config: Config, start: Start, parts: Parts) -> None:
        mix = config.curriculum.opponents
        self._config, self._start, self._parts = config, start, parts
        self.on = mix.current < 1
        seed = derive_seed(config.seed, "opponents")
        self._past = {role: Opponents(mix, None, derive_seed(seed, role)) for role in config.policies}
        self._today: dict[str, int] = {}
        """Version that each policy stopped learning with, by policy."""
        self._drawn: dict[str, tuple[int, int | None]] = {}
        """(first step of the phase, past version that plays in it), by policy; None: the current version plays."""
        self._read: dict[str, Weights] = {}
        """The past weights that play, by policy."""

    def weights(self, assignment: Assignment) -> dict[str, Weights]:
        """Returns the weights of the past versions that play in a step, by policy."""
        read, self._read = self._read, {}
        for role, version in self._versions(assignment).items():
            again = role in read and read[role].version == version
            self._read[role] = (
                read[role] if again else self._parts.kept_weights(version, self._file(role, version))
            )
        return dict(self._read)

    def _versions(self, assignment: Assignment) -> dict[str, int]:
        frozen = [role for role in self._config.policies if self.on and role not in assignment.learning]
        drawn = {role: self._draw(role, assignment.phase_began) for role in frozen}
        return {role: version for role, version in drawn.items() if version is not None}

    def _draw(self, role: str, phase_began: int) -> int | None:
        if self._drawn.get(role, (0, None))[0] != phase_began:
            version = self._past[role].draw(phase_began)
            self._drawn[role] = phase_began, version if version != self._today.get(role) else None
        return self._drawn[role][1]

    def played(self, assignment: Assignment, episodes: Sequence[Episode]) -> dict[str, Any]:
        """Stores new past versions after a step, and records how often the learners won, which decides how often they
        play each version later. Returns the entries for the step's row."""
        seated = self._versions(assignment)
        for role in assignment.stops_learning if self.on else ():
            learner = self._parts.learners[role]
            # stored even if this step, the last of the phase, changed nothing
            if learner.version > self._today.get(role, 0):
                self._parts.keep_weights(learner.current_weights(), self._file(role, learner.version))
                self._past[role].add(learner.version)
                self._today[role] = learner.version
        for role, version in seated.items():
            learners = [player for player, policy in self._config.seats.items() if policy != role]
            won = [
                self._config.game.won(t)
                for episode in episodes
                for player in learners
                for t in episode.judged(player)
            ]
            if won:
                self._past[role].record(version, sum(won) / len(won))
        return {"opponents": seated} if self.on else {}

    def _file(self, role: str, version: int) -> Path:
        return self._start.run_directory / "opponents" / f"{role}-{version:06d}.npz"

    def state_dict(self) -> dict[str, Any]:
        """Returns the state as plain JSON."""
        past = {role: of.state_dict() for role, of in self._past.items()}
        return {"past": past, "today": self._today, "drawn": {k: list(v) for k, v in self._drawn.items()}}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restores the state. Another run's state (--resume-from) is ignored, since that run's weight files are not
        here."""
        if self._start.continues:
            for role, of in self._past.items():
                of.load_state_dict(state["past"][role])
            self._today = dict(state["today"])
            self._drawn = {role: (began, version) for role, (began, version) in state["drawn"].items()}
