"""The sections of a run's configuration that belong to no room: policies, problems, sandbox, rollouts, evaluation,
checkpoints. `schema.py` puts them together.
"""

from pathlib import Path
from typing import Literal, Self

from pydantic import Field, model_validator

from actors.settings import EngineSettings
from core.settings import Settings
from learners.settings import LearnerSettings

EMBEDDED = "embedded"
EVALUATION_PROBLEMS = 100
"""Where evaluation.problems is None."""


class PolicySettings(Settings):
    model: str = "Qwen/Qwen2.5-Coder-1.5B-Instruct"
    """Hub id or local path of a causal language model; "embedded" is the tiny model that the project builds."""
    max_tokens: int = Field(default=512, ge=1)
    """Longest completion of one turn, tokens."""
    engine: EngineSettings = EngineSettings()
    learner: LearnerSettings = LearnerSettings()


ProblemFormat = Literal[
    "problems", "mbpp", "mbpp_plus", "humaneval", "humaneval_plus", "livecodebench", "code_contests", "apps", "taco", "q",
    "grids", "fields",
]  # fmt: skip


class ProblemSettings(Settings):
    file: str = EMBEDDED
    """Data set to train on: a file (a directory for formats q and grids, "owner/name" of a hub for fields), or
    "embedded"."""
    format: ProblemFormat = "problems"
    """How it is written; problems: {"problems": [{id, description, function_signature, baseline_tests,
    reference_solution, difficulty, tags}]}. All formats: problems/formats."""
    random_tests: int | None = Field(default=None, ge=1)
    """embedded, multistage: so many tests on random inputs instead of each training problem's own baseline tests (a
    control experiment)."""
    tests_at_boundaries: bool = True
    """With random_tests; false: no input holds a number at which the problem's condition changes: a blind spot of all
    tests, whatever their number."""
    split: str | None = None
    """Part of the data set, where the format has parts (mbpp, q, fields)."""
    fields: dict[str, str] = {}
    """With format fields: our names (id, description, ...) to the data set's columns."""
    held_out_file: Path | None = None
    """Problems for evaluation only; without it a share of `file` is set aside."""
    held_out_format: ProblemFormat | None = None
    """Format of held_out_file; None: that of `file`."""
    held_out_split: str | None = None
    held_out_fraction: float = Field(default=0.2, gt=0, lt=1)
    """Share of `file` set aside for evaluation where held_out_file is not given."""
    failing_references: Literal["refuse", "leave_out"] = "refuse"
    """What happens where a reference solution fails its own tests: the run is refused, or such problems, for training
    and held out, are left out and named: published data sets have some."""
    pass_rates: Path | None = None
    """What scripts/evaluate.py --json wrote of a policy on `file`: problems that it always or never solved are left
    out of training, and the difficulty of the others follows from it."""

    @model_validator(mode="after")
    def _keys_have_a_use(self) -> Self:
        if self.file == EMBEDDED:
            self.refuse_changed(
                tuple(
                    k
                    for k in type(self).model_fields
                    if k not in ("file", "random_tests", "tests_at_boundaries")
                ),
                "has no effect: the embedded problems bring their own",
                "problems",
            )
        else:
            self.refuse_changed(
                ("random_tests", "tests_at_boundaries"), "belongs to the embedded problems", "problems"
            )
        if self.random_tests is None:
            self.refuse_changed(("tests_at_boundaries",), "belongs to random_tests", "problems")
        if self.held_out_file is None:
            self.refuse_changed(
                ("held_out_format", "held_out_split"),
                "has no effect without problems.held_out_file",
                "problems",
            )
        else:
            self.refuse_changed(
                ("held_out_fraction",), "has no effect with problems.held_out_file", "problems"
            )
        if (self.format == "fields") != bool(self.fields):
            raise ValueError("problems.fields and format fields go together: give both or neither")
        return self


class SandboxSettings(Settings):
    backend: Literal["auto", "docker", "namespace", "process"] = "auto"
    """docker: warm containers; namespace: the same runner without an engine, weaker; process: plain processes,
    much weaker; auto: docker where an engine answers, else namespace, else process for programs of the embedded
    models and of no other, and the choice is printed."""
    runtime: str | None = None
    """Runtime of the containers, e.g. runsc where gVisor is installed; None is the engine's default."""
    workers: int = Field(default=1, ge=1)
    """Sandbox actors, each with a container of its own."""
    slots: int = Field(default=2, ge=1, le=31)
    """Programs judged at once in one container."""


class RolloutSettings(Settings):
    actors: int = Field(default=1, ge=1)
    """Rollout actors; each holds an engine per policy."""
    cpus: float = Field(default=0.5, ge=0)
    """Ray CPUs per actor (bookkeeping, not a limit)."""
    gpus: float | None = Field(default=None, ge=0)
    """GPUs per actor; None: none on CPU, else one where there are enough, else half of one."""


class TreeSettings(Settings):
    """With credit tree, of the generator's attempts at a problem."""

    branches: int = Field(default=4, ge=2)
    """Attempts at the stage under training that share what comes before it."""
    continuations: int = Field(default=2, ge=1)
    """Of each branch, to the end: their mean reward is the branch's value."""


class CheckpointSettings(Settings):
    every: int = Field(default=1, ge=1)
    """Steps between checkpoints; a killed run loses at most this many."""
    keep: int = Field(default=2, ge=1)
    """Latest checkpoints kept, besides the best and the last of each stage."""
