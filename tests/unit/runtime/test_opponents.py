"""Which weights play while their policy is frozen and while it learns, and after a restart."""

import json
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from configs.schema import Config
from sparring.core.episode import Episode, Trajectory
from sparring.core.weights import Weights
from sparring.curriculum.curriculum import Curriculum
from sparring.runtime.opponents import PastOpponents
from tests.unit.runtime.makers import start_at

ROLES = ("generator", "discriminator")


def config(stages: int = 3, **mix: Any) -> Config:
    opponents = {"current": 0.0, "pfsp": 0.0} | mix
    steps = {
        "n_discriminator_steps": 2,
        "n_generator_steps": 2,
        "k_alternating_steps": 1,
        "stages": list(range(1, stages + 1)),
    }
    return Config.model_validate({"curriculum": {**steps, "opponents": opponents}})


@dataclass
class Learned:
    """A policy's learner."""

    versions: dict[str, int]
    role: str

    @property
    def version(self) -> int:
        return self.versions[self.role]

    def current_weights(self) -> Weights:
        return Weights(version=self.version, update=self.role)


@dataclass
class Run:
    """A run of which only the order of things is real: a weight update is the name of its policy."""

    config: Config
    directory: Path
    files: dict[str, Any] = field(default_factory=dict)
    learners: dict[str, int] = field(default_factory=lambda: dict.fromkeys(ROLES, 0))
    reads: int = 0
    """Number of weights that were read from files."""
    seen: list[tuple[int, str, dict[str, int]]] = field(default_factory=list)

    def __post_init__(self) -> None:
        parts: Any = SimpleNamespace(
            learners={role: Learned(self.learners, role) for role in ROLES},
            keep_weights=lambda weights, file: self.files.__setitem__(str(file), weights),
            kept_weights=self.kept_weights,
        )
        checkpoint = self.directory / "checkpoints" / "step_000001"
        self.opponents = PastOpponents(self.config, start_at(self.directory, checkpoint=checkpoint), parts)
        self.curriculum = Curriculum(**self.config.curriculum_arguments(["p"]))

    def kept_weights(self, version: int, file: Path) -> Weights:
        assert self.files[str(file)].version == version
        self.reads += 1
        return self.files[str(file)]

    def step(self, reward: float = 0.5, last_is_flat: bool = False) -> None:
        """last_is_flat: the last step of a phase gives who learns no sample."""
        assignment = self.curriculum.next()
        assert assignment is not None
        past = self.opponents.weights(assignment)
        assert all(weights.update == role for role, weights in past.items())
        assert past.keys().isdisjoint(assignment.learning), (
            "a policy that learns plays with its newest weights"
        )
        playing = self.learners | {role: weights.version for role, weights in past.items()}
        self.seen.append((assignment.step, assignment.phase, playing))
        for role in assignment.learning:
            if last_is_flat and role in assignment.stops_learning:
                continue
            self.learners[role] += 1
        self.curriculum.observe(assignment.step, {}, {})
        told = {"pass_rate": reward, "kill_rate": reward}
        attempts = [
            Trajectory(player=role, attempt=0, turns=[], reward=reward, components=told) for role in ROLES
        ]
        self.opponents.played(assignment, [Episode(problem_id="p", trajectories=attempts)])

    def finish(self, **given: Any) -> "Run":
        while self.curriculum.next() is not None:
            self.step(**given)
        return self


def test_a_frozen_policy_plays_one_version_for_the_whole_phase_and_it_is_of_its_past(tmp_path):
    run = Run(config(), tmp_path).finish()
    for role, phase in (("generator", "discriminator"), ("discriminator", "generator")):
        versions = [engines[role] for _, at, engines in run.seen if at == phase]
        assert versions[0::2] == versions[1::2]
    # the generator stops learning after steps 5 and 10, with 3 and 6 updates
    of_generator = [engines["generator"] for _, at, engines in run.seen if at == "discriminator"]
    assert of_generator[:4] == [0, 0, 3, 3] and of_generator[4] in (3, 6)
    assert 0 < run.reads <= 6, "at most once in a phase"


def test_there_are_past_versions_that_play(tmp_path):
    found = set()
    for seed in range(8):
        run = Run(config().model_copy(update={"seed": seed}), tmp_path).finish()
        found |= {(step, engines["generator"]) for step, _, engines in run.seen if step in (11, 12)}
    assert {version for _, version in found} == {3, 6}


@pytest.mark.parametrize("flat", [False, True])
def test_a_resumed_run_meets_the_same_opponents(tmp_path, flat):
    """Stopped after each step, be it between a phase's last update and its last step, which taught nothing."""
    mix = {"current": 0.2, "pfsp": 0.6}
    whole = Run(config(**mix), tmp_path).finish(reward=0.8, last_is_flat=flat)
    for stop in range(1, 15):
        first = Run(config(**mix), tmp_path)
        for _ in range(stop):
            first.step(reward=0.8, last_is_flat=flat)
        states = json.loads(json.dumps([first.curriculum.state_dict(), first.opponents.state_dict()]))
        learners = dict(first.learners)
        second = Run(config(**mix), tmp_path, first.files, learners)
        second.curriculum.load_state_dict(states[0])
        second.opponents.load_state_dict(states[1])
        assert first.seen + second.finish(reward=0.8, last_is_flat=flat).seen == whole.seen
        assert second.opponents.state_dict() == whole.opponents.state_dict()


def test_how_the_learner_fared_decides_whom_it_meets(tmp_path):
    """The chance to win against the versions that played, and no other, moves away from even."""
    run = Run(config(), tmp_path).finish(reward=1.0)
    chances = dict(run.opponents.state_dict()["past"]["generator"]["chances"])
    met = {e["generator"] for step, at, e in run.seen if at == "discriminator" and step > 5}
    today = {6} if run.seen[10][2]["generator"] == 6 else set()  # today's version is not counted as past
    assert all(chances[version] > 0.5 for version in met - today)
    assert all(chance == 0.5 for version, chance in chances.items() if version not in met)


def test_todays_opponents_only_keep_no_files(tmp_path):
    run = Run(config(current=1.0), tmp_path).finish()
    assert not run.files and run.reads == 0 and not run.opponents.on


@pytest.mark.parametrize(
    "changes",
    [
        {"frozen_players": ["generator"]},
        {"n_discriminator_steps": 0, "n_generator_steps": 0, "k_alternating_steps": 3},
    ],
)
def test_opponents_without_a_past_are_refused(changes):
    mix = {"current": 0.5, "pfsp": 0.35}
    with pytest.raises(ValueError, match=r"curriculum\.opponents: nobody with a past is ever frozen"):
        Config.model_validate({"curriculum": {"opponents": mix, **changes}})
