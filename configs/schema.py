"""Every key of a run. Sections that belong to a room are defined in that room and nested here.

Imports no torch, ray or vllm: reading a config must be quick.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal, Self

from pydantic import Field, model_validator

from configs.sections import (
    EMBEDDED,
    AttemptCredit,
    CheckpointSettings,
    CreditSettings,
    EmbeddedProblems,
    PolicySettings,
    Problems,
    RolloutSettings,
    SandboxSettings,
    TreeCredit,
)
from core.evaluation import EvaluationSettings
from core.play import POLICIES
from core.settings import Settings
from core.verdict import Limits
from curriculum.curriculum import Curriculum, Schedule
from embedded.settings import WarmStartSettings
from games import GameRules
from games.multistage.rules import MultistageRules
from games.rules import Need
from tracking.divergence import StopSettings
from tracking.settings import TrackingSettings

KEYS_OF_NEEDS: dict[Need, tuple[str, ...]] = {
    "sandbox": ("sandbox",),
    "problems": ("problems", "curriculum.order"),
    "stages": ("curriculum.stages", "curriculum.remembered_programs"),
    "suites": ("evaluation.suites", "warm_start.weak_suites", "warm_start.invalid_suites"),
    "bank": ("evaluation.bank_programs",),
    "samples": ("evaluation.samples",),
    "rewarded tests": ("evaluation.gap_alarm",),
}
"""What means nothing to a game without the need."""


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
    model_cache: Path | None = None
    """Where hub models are kept, on every node (HF_HUB_CACHE); default: as the environment has it."""
    learning_rate: float = Field(default=1e-5, gt=0)
    """Step size of both policies (each times its learner.learning_rate_scale)."""
    temperature: float = Field(default=1.0, gt=0)
    """Sampling temperature of training episodes."""
    credit: CreditSettings = AttemptCredit()
    generator: PolicySettings = PolicySettings()
    discriminator: PolicySettings = PolicySettings()
    problems: Problems = EmbeddedProblems()
    game: GameRules = MultistageRules()
    curriculum: Schedule = Schedule()
    sandbox: SandboxSettings = SandboxSettings()
    rollout: RolloutSettings = RolloutSettings()
    evaluation: EvaluationSettings = EvaluationSettings()
    checkpoint: CheckpointSettings = CheckpointSettings()
    stop: StopSettings = StopSettings()
    tracking: TrackingSettings = TrackingSettings()
    warm_start: WarmStartSettings = WarmStartSettings()

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
        return self.game.limits

    @property
    def trusts_programs(self) -> bool:
        """Whether all that is judged comes from the embedded models, on the embedded problems."""
        return all(self.policy(name).model == EMBEDDED for name in self.policies)

    @property
    def staged(self) -> bool:
        return "stages" in self.game.uses

    def curriculum_arguments(self, problem_ids: Sequence[str]) -> dict[str, Any]:
        """What Curriculum is made with, and its shell."""
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
        if embedded and self.problems.kind == "file":
            raise ValueError(
                f"{embedded[0]}.model: the embedded model speaks only of the embedded problems; with problems.file "
                f"{self.problems.file} give a model"
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
        if self.sandbox.runtime is not None and self.sandbox.backend in ("namespace", "process"):
            raise ValueError(f"sandbox.runtime has no effect with sandbox.backend {self.sandbox.backend}")

    def _check_game(self) -> None:
        game, generator = self.game, self.generator
        if game.turns * generator.max_tokens >= generator.engine.max_model_len:
            raise ValueError(
                f"generator: {game.turns} stages of max_tokens {generator.max_tokens} leave no room for a prompt in "
                f"engine.max_model_len {generator.engine.max_model_len}: raise max_model_len"
            )
        baseline = getattr(game, "baseline_in_reward", False)
        alone = baseline and "discriminator" in self.curriculum.frozen_players
        if "suites" in game.uses and not self.curriculum.frozen_suites and not alone:
            raise ValueError(
                "curriculum.frozen_suites 0 leaves no test to be rewarded by: it needs game.baseline_in_reward, and "
                "discriminator among curriculum.frozen_players"
            )
        for need, keys in KEYS_OF_NEEDS.items():
            for key in keys if need not in game.uses else ():
                section, _, name = key.partition(".")
                settings, defaults = getattr(self, section), type(self).model_fields[section].default
                if settings != defaults if not name else getattr(settings, name) != getattr(defaults, name):
                    hint = "; use scripts/evaluate.py --samples" if need == "samples" and self.staged else ""
                    raise ValueError(f"{key} has no effect with game {game.kind}: it uses no {need}{hint}")
        if self.credit.kind in ("all", "tree") and not self.staged:
            raise ValueError(
                f"credit {self.credit.kind} has no effect with game {game.kind}: it has no stages"
            )

    def _check_credit(self) -> None:
        credit, estimator = self.credit, self.generator.learner.estimator.kind
        if credit.kind == "stage_gae" and estimator != "gae":
            raise ValueError(f"credit stage_gae needs generator.learner.estimator.kind gae, not {estimator}")
        if isinstance(credit, TreeCredit):
            if isinstance(self.game, MultistageRules) and self.game.attempts_per_episode > 1:
                raise ValueError(
                    "credit tree: game.attempts_per_episode: attempts that branch have no further ones"
                )
            if self.curriculum.attempts % credit.size:
                raise ValueError(
                    f"credit tree: curriculum.attempts ({self.curriculum.attempts}) must be a multiple of "
                    f"credit.branches times credit.continuations ({credit.size})"
                )
            if estimator == "hierarchical_grpo" and self.curriculum.attempts == credit.size:
                raise ValueError(
                    "generator.learner.estimator.kind hierarchical_grpo compares prefixes: curriculum.attempts must be "
                    f"more than credit.branches times credit.continuations ({credit.size})"
                )
        elif estimator == "hierarchical_grpo":
            raise ValueError("generator.learner.estimator.kind hierarchical_grpo needs credit tree")
        if self.discriminator.learner.estimator.kind == "hierarchical_grpo":
            raise ValueError(
                "discriminator.learner.estimator.kind hierarchical_grpo: its suites do not branch"
            )

    def _check_learners(self) -> None:
        for role in self.policies:
            settings = self.policy(role).learner
            if self.device == "cpu" and settings.precision == "fp16":
                raise ValueError(f"{role}.learner.precision: fp16 is for device cuda; bf16 works on both")
            if self.stop.max_kl is not None and settings.kl.kind == "none":
                raise ValueError(f"stop.max_kl needs {role}.learner.kl.kind watched: none leaves KL unknown")
            if self.device == "cpu" and settings.offload_optimizer:
                raise ValueError(f"{role}.learner.offload_optimizer has no effect with device cpu")
            if self.local and settings.workers > 1:
                raise ValueError(f"{role}.learner.workers has no effect with local")
