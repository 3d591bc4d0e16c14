"""Every key of a run. Sections that belong to a room are defined in that room and nested here.

Imports no torch, ray or vllm: reading a config must be quick.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import Field, field_validator, model_validator

from actors.settings import EngineSettings
from core.settings import Settings
from core.verdict import Limits
from curriculum.curriculum import Curriculum, Schedule
from games.board_games import KuhnRules, TicTacToeRules
from games.choice import GameRules
from games.multistage import MultistageRules
from games.stages import REASONING_STAGES
from learners.settings import LearnerSettings
from tracking.divergence import StopSettings

EMBEDDED = "embedded"
POLICIES = ("generator", "discriminator")
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
    pass_rates: Path | None = None
    """What scripts/evaluate.py --json wrote of a policy on `file`: problems that it always or never solved are left
    out of training, and the difficulty of the others follows from it."""

    @model_validator(mode="after")
    def _keys_have_a_use(self) -> Self:
        if self.file == EMBEDDED:
            self.refuse_changed(
                tuple(k for k in type(self).model_fields if k not in ("file", "random_tests")),
                "has no effect: the embedded problems bring their own",
                "problems",
            )
        else:
            self.refuse_changed(("random_tests",), "belongs to the embedded problems", "problems")
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
    much weaker, never picked by itself; auto: docker where an engine answers, else namespace, and the choice
    is printed."""
    runtime: str | None = None
    """Runtime of the containers, e.g. runsc where gVisor is installed; None is the engine's default."""
    workers: int = Field(default=1, ge=1)
    """Sandbox actors, each with a container of its own."""
    max_workers: int | None = Field(default=None, ge=1)
    """Further ones, up to as many in all, start their containers when these have too much to do, and close them
    when idle; None: no further ones."""
    slots: int = Field(default=2, ge=1, le=31)
    """Programs judged at once in one container."""


class RolloutSettings(Settings):
    actors: int = Field(default=1, ge=1)
    """Rollout actors; each holds an engine per policy."""
    cpus: float = Field(default=0.5, ge=0)
    """Ray CPUs per actor (bookkeeping, not a limit)."""
    gpus: float | None = Field(default=None, ge=0)
    """GPUs per actor; None: none on CPU, else one where there are enough, else half of one."""


class EvaluationSettings(Settings):
    every: int | None = Field(default=None, ge=1)
    """Steps between evaluations, besides those at the start and at the end of each stage."""
    problems: int | None = Field(default=None, ge=1)
    """Held-out problems per evaluation (the first ones of the file); at a board, matches per opponent and side. None:
    100, on a GPU below 24 GiB 40."""
    samples: int = Field(default=0, ge=0)
    """Sampled programs per held-out problem, for pass@k; 0: greedy ones only."""
    temperature: float = Field(default=1.0, gt=0)
    """Of the sampled programs."""
    pass_at: tuple[Annotated[int, Field(ge=1)], ...] = (1,)
    """The k of pass@k, none above `samples`."""
    bank_programs: int = Field(default=4, ge=1)
    """Programs of the initial generator per held-out problem, the fixed yardstick: multistage keeps the wrong ones,
    on which every discriminator's kill rate is measured; output_prediction has every opponent predict them."""
    suites: int = Field(default=2, ge=1)
    """multistage: suites per held-out problem."""
    gap_alarm: float = Field(default=0.3, ge=0, le=1)
    """An evaluation warns where held-out programs pass so much larger a share of the tests that the game rewards than of
    the hidden tests (proxy_gold_gap), where there are any: a gap that opens says that the reward is being gamed. 1 never
    warns."""

    @model_validator(mode="after")
    def _samples_suffice(self) -> Self:
        if not self.samples:
            self.refuse_changed(("temperature", "pass_at"), "has no effect while samples is 0")
        elif max(self.pass_at, default=0) > self.samples:
            raise ValueError(f"pass_at {max(self.pass_at)} needs as many samples (samples is {self.samples})")
        return self


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


class WarmStartSettings(Settings):
    """How the embedded models are made. (Other models: scripts/warm_start.py, with arguments of its own.)"""

    seed: int = 0
    generator_steps: int = Field(default=1200, ge=1)
    discriminator_steps: int = Field(default=400, ge=1)
    batch_size: int = Field(default=16, ge=1)
    learning_rate: float = Field(default=3e-3, gt=0)
    misconceptions: float = Field(default=0.65, ge=0, le=1)
    """Probability that a demonstration shows a mistake where it could (a condition misread, a program that does not
    run, a wrong prediction, an illegal move, a needlessly long program): a deliberately flawed demonstrator, so that
    there is something to learn by play."""
    weak_suites: float = Field(default=0.9, ge=0, le=1)
    """Share of the discriminator's demonstrations that test next to nothing."""
    invalid_suites: float = Field(default=0.05, ge=0, le=1)
    """Share of them with an invalid or repeated test."""


class Config(Settings):
    """Sparring: two language models train against each other on code."""

    seed: int = 1
    output_dir: Path = Path("output")
    run_name: str | None = Field(default=None, pattern=r"^[\w.-]+$")
    """Directory of the run under output_dir; default: the recipe's name and the time."""
    device: Literal["auto", "cpu", "cuda"] = "auto"
    """auto: cuda where torch finds a GPU (on a cluster, where a node has one), else cpu. This and what else is left
    open is settled at the start, printed, and saved in the run's config: runtime/hardware.py."""
    local: bool = False
    """Everything in this one process, without Ray: for debugging."""
    learning_rate: float = Field(default=1e-5, gt=0)
    """Step size of both policies (each times its learner.learning_rate_scale)."""
    temperature: float = Field(default=1.0, gt=0)
    """Sampling temperature of training episodes."""
    credit: Literal["stage", "all", "stage_gae", "tree"] = "stage"
    """Which of the generator's tokens learn, and from what. stage: those of the stage under training, from the whole
    attempt's reward; all: those of every stage; stage_gae: every stage, each as one step of GAE (estimator gae); tree:
    the stage under training, by attempts that branch there."""
    tree: TreeSettings = TreeSettings()
    generator: PolicySettings = PolicySettings()
    discriminator: PolicySettings = PolicySettings()
    problems: ProblemSettings = ProblemSettings()
    game: GameRules = MultistageRules()
    curriculum: Schedule = Schedule()
    sandbox: SandboxSettings = SandboxSettings()
    rollout: RolloutSettings = RolloutSettings()
    evaluation: EvaluationSettings = EvaluationSettings()
    checkpoint: CheckpointSettings = CheckpointSettings()
    stop: StopSettings = StopSettings()
    warm_start: WarmStartSettings = WarmStartSettings()

    @field_validator("game", mode="before")
    @classmethod
    def _multistage_unless_said(cls, game: Any) -> Any:
        return {"kind": "multistage", **game} if isinstance(game, dict) else game

    @property
    def seats(self) -> dict[str, str]:
        """Player -> policy."""
        return self.game.seats

    @property
    def policies(self) -> tuple[str, ...]:
        """The policies that this game trains."""
        return tuple(name for name in POLICIES if name in self.seats.values())

    def players_of(self, policy: str) -> tuple[str, ...]:
        return tuple(player for player, name in self.seats.items() if name == policy)

    @property
    def sandbox_limits(self) -> Limits | None:
        """None where the game runs no programs."""
        return None if isinstance(self.game, TicTacToeRules | KuhnRules) else self.game.sandbox_limits

    @property
    def staged(self) -> bool:
        return isinstance(self.game, MultistageRules)

    @property
    def multistage(self) -> MultistageRules:
        """The rules, where it is known that they are these."""
        assert isinstance(self.game, MultistageRules)
        return self.game

    def curriculum_arguments(self, problem_ids: Sequence[str]) -> dict[str, Any]:
        """Of Curriculum, and of its shell."""
        return {
            "schedule": self.curriculum,
            "problem_ids": tuple(problem_ids),
            "seed": self.seed,
            "policies": self.policies,
            "staged": self.staged,
        }

    def policy(self, name: str) -> PolicySettings:
        return {"generator": self.generator, "discriminator": self.discriminator}[name]

    def policy_learning_rate(self, name: str) -> float:
        return self.learning_rate * self.policy(name).learner.learning_rate_scale

    @model_validator(mode="after")
    def _combinations_make_sense(self) -> Self:
        self._check_policies()
        self._check_device()
        self._check_sandbox()
        self._check_game()
        self._check_credit()
        self._check_learners()
        if Curriculum(**self.curriculum_arguments(())).total_steps == 0:
            raise ValueError(
                "curriculum: there is nothing to train: raise a step count, name a stage, or unfreeze a player"
            )
        return self

    def _check_policies(self) -> None:
        if "discriminator" not in self.policies:
            if self.discriminator != PolicySettings():
                raise ValueError(f"discriminator has no effect with game {self.game.kind}: it has one policy")
            self.curriculum.refuse_changed(
                ("n_discriminator_steps", "k_alternating_steps", "frozen_programs", "frozen_suites"),
                f"has no effect with game {self.game.kind}: it has one policy",
                "curriculum",
            )
            if "discriminator" in self.curriculum.frozen_players:
                raise ValueError(
                    f"curriculum.frozen_players: game {self.game.kind} has no discriminator: it has one policy"
                )
        embedded = [name for name in self.policies if self.policy(name).model == EMBEDDED]
        if embedded and self.problems.file != EMBEDDED:
            raise ValueError(
                f"{embedded[0]}.model: the embedded model speaks only of the embedded problems; with problems.file "
                f"{self.problems.file} give a model, or warm-start one (scripts/warm_start.py)"
            )
        for name in self.policies:
            settings = self.policy(name)
            if settings.max_tokens >= settings.engine.max_model_len:
                raise ValueError(f"{name}: max_tokens must be below engine.max_model_len")

    def _check_device(self) -> None:
        if self.device == "cuda" and not self.local:
            shares = {f"{r}.learner.gpus": self.policy(r).learner.gpus for r in self.policies}
            without = [
                key for key, share in (shares | {"rollout.gpus": self.rollout.gpus}).items() if share == 0
            ]
            if without:
                raise ValueError(f"device cuda: give {', '.join(without)} a share of a GPU (such as 0.25)")

    def _check_sandbox(self) -> None:
        if self.sandbox.max_workers is not None and self.local:
            raise ValueError(
                "sandbox.max_workers has no effect with local: there is one sandbox, without Ray"
            )
        if self.sandbox.max_workers is not None and self.sandbox.max_workers < self.sandbox.workers:
            raise ValueError(
                f"sandbox.max_workers ({self.sandbox.max_workers}) is below sandbox.workers ({self.sandbox.workers})"
            )
        if self.sandbox.runtime is not None and self.sandbox.backend in ("namespace", "process"):
            raise ValueError(f"sandbox.runtime has no effect with sandbox.backend {self.sandbox.backend}")

    def _check_game(self) -> None:
        game, kind = self.game, self.game.kind
        if isinstance(game, MultistageRules):
            turns = len(REASONING_STAGES) * self.generator.max_tokens
            if turns >= self.generator.engine.max_model_len:
                raise ValueError(
                    f"generator: {len(REASONING_STAGES)} stages of max_tokens {self.generator.max_tokens} leave no room "
                    f"for a prompt in engine.max_model_len {self.generator.engine.max_model_len}: raise max_model_len"
                )
            if game.test_format == "input_only":
                game.rewards.refuse_changed(
                    ("wrong_output_penalty",), "has no effect with test_format input_only", "game.rewards"
                )
            if not self.curriculum.frozen_suites and (
                "discriminator" not in self.curriculum.frozen_players or not game.baseline_in_reward
            ):
                raise ValueError(
                    "curriculum.frozen_suites 0 leaves no test to be rewarded by: it needs game.baseline_in_reward, and "
                    "discriminator among curriculum.frozen_players"
                )
            self.evaluation.refuse_changed(
                ("samples",), "has no effect with game multistage: use scripts/evaluate.py", "evaluation"
            )
            self.evaluation.refuse_changed(("gap_alarm",), "has no effect with game multistage", "evaluation")
            return
        no_effect = f"has no effect with game {kind}"
        self.problems.refuse_changed(("random_tests",), no_effect, "problems")
        self.curriculum.refuse_changed(("stages", "remembered_programs"), no_effect, "curriculum")
        self.evaluation.refuse_changed(("suites",), no_effect, "evaluation")
        self.warm_start.refuse_changed(("weak_suites", "invalid_suites"), no_effect, "warm_start")
        if self.credit in ("all", "tree"):
            raise ValueError(f"credit {self.credit} {no_effect}: it has no stages")
        if kind != "output_prediction":
            self.evaluation.refuse_changed(("bank_programs",), no_effect, "evaluation")
        else:
            self.evaluation.refuse_changed(("samples",), no_effect, "evaluation")
        rewards_tests = kind in ("unit_tests", "code_golf") or getattr(game, "gate_on_tests", False)
        if not rewards_tests:
            self.evaluation.refuse_changed(("gap_alarm",), f"{no_effect}: it rewards no tests", "evaluation")
        if kind in ("tictactoe", "kuhn"):
            self._check_board(no_effect)

    def _check_board(self, no_effect: str) -> None:
        if self.problems != ProblemSettings():
            raise ValueError(f"problems {no_effect}: its matches need none")
        if self.sandbox != SandboxSettings():
            raise ValueError(f"sandbox {no_effect}: it runs no programs")
        self.evaluation.refuse_changed(("samples",), no_effect, "evaluation")
        self.curriculum.refuse_changed(("order",), no_effect, "curriculum")

    def _check_credit(self) -> None:
        estimator, size = self.generator.learner.estimator, self.tree.branches * self.tree.continuations
        if self.credit == "stage_gae" and estimator != "gae":
            raise ValueError(f"credit stage_gae needs generator.learner.estimator gae, not {estimator}")
        if self.credit == "tree" and self.curriculum.attempts % size:
            raise ValueError(
                f"credit tree: curriculum.attempts ({self.curriculum.attempts}) must be a multiple of tree.branches "
                f"times tree.continuations ({size})"
            )
        if self.credit == "tree" and estimator == "hierarchical_grpo" and self.curriculum.attempts == size:
            raise ValueError(
                "generator.learner.estimator hierarchical_grpo compares prefixes: curriculum.attempts must be more than "
                f"tree.branches times tree.continuations ({size})"
            )
        if self.credit != "tree":
            if self.tree != TreeSettings():
                raise ValueError(f"tree has no effect with credit {self.credit}")
            if estimator == "hierarchical_grpo":
                raise ValueError("generator.learner.estimator hierarchical_grpo needs credit tree")
        if "discriminator" in self.policies and self.discriminator.learner.estimator == "hierarchical_grpo":
            raise ValueError("discriminator.learner.estimator hierarchical_grpo: its suites do not branch")

    def _check_learners(self) -> None:
        for role in self.policies:
            settings = self.policy(role).learner
            if self.device == "cpu" and settings.precision == "fp16":
                raise ValueError(f"{role}.learner.precision: fp16 is for device cuda; bf16 works on both")
            if self.device == "cpu" and settings.offload_optimizer:
                raise ValueError(f"{role}.learner.offload_optimizer has no effect with device cpu")
            if self.local and settings.workers > 1:
                raise ValueError(f"{role}.learner.workers has no effect with local")
