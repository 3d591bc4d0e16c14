"""Past versions of a frozen policy as opponents: stores their weights, and chooses the version that plays
(sparring/curriculum/opponents.py).

When a policy stops learning, its weights are stored as a past version. While the policy is frozen, one version plays
for the whole phase, the current or a past one, so its engines load weights at most twice a phase. Evaluation uses the
current versions.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from configs.schema import Config
from sparring.core.episode import Episode
from sparring.core.seeding import derive_seed
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
        self._seated: dict[str, int] = {}
        """Past version that the engines hold, by policy."""

    def seat(self, assignment: Assignment) -> bool:
        """Loads the versions that play in a step; to be called before the step is played. Returns whether engines
        loaded weights. Raises PublishError."""
        wanted: dict[str, int] = {}
        for role in self._config.policies if self.on else ():
            if (
                role not in assignment.learning
                and (version := self._draw(role, assignment.phase_began)) is not None
            ):
                wanted[role] = version
        return self._put(wanted)

    def _draw(self, role: str, phase_began: int) -> int | None:
        if self._drawn.get(role, (0, None))[0] != phase_began:
            version = self._past[role].draw(phase_began)
            self._drawn[role] = phase_began, version if version != self._today.get(role) else None
        return self._drawn[role][1]

    def seat_today(self) -> bool:
        """Loads the current versions; to be called before an evaluation. Returns whether engines loaded weights. Raises
        PublishError."""
        return self._put({})

    def _put(self, wanted: Mapping[str, int]) -> bool:
        changed = [r for r in sorted({*wanted, *self._seated}) if wanted.get(r) != self._seated.get(r)]
        for role in changed:
            file = self._file(role, wanted.get(role, self._today[role]))
            self._parts.rollouts.publish(role, self._parts.kept_weights(file))
        self._seated = dict(wanted)
        return bool(changed)

    def played(self, assignment: Assignment, episodes: Sequence[Episode]) -> dict[str, Any]:
        """Stores new past versions after a step, and records how often the learners won, which decides how often they
        play each version later. Returns the entries for the step's row."""
        for role in assignment.stops_learning if self.on else ():
            learner = self._parts.learners[role]
            # stored even if this step, the last of the phase, changed nothing
            if learner.version > self._today.get(role, 0):
                self._parts.keep_weights(learner.current_weights(), self._file(role, learner.version))
                self._past[role].add(learner.version)
                self._today[role] = learner.version
        for role, version in self._seated.items():
            learners = [player for player, policy in self._config.seats.items() if policy != role]
            won = [
                self._config.game.won(t)
                for episode in episodes
                for player in learners
                for t in episode.judged(player)
            ]
            if won:
                self._past[role].record(version, sum(won) / len(won))
        return {"opponents": dict(self._seated)} if self.on else {}

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
