"""All keys of a run. Sections that belong to a package are defined in that package and nested here.

Imports no torch, ray or vllm: reading a config must be quick.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal, Self

from pydantic import Field, model_validator

from configs.sections import (
    AttemptCredit,
    CheckpointSettings,
    CreditSettings,
    PolicySettings,
    ProblemSettings,
    RolloutSettings,
    SandboxSettings,
    TreeCredit,
)
from sparring.core.evaluation import EvaluationSettings
from sparring.core.play import POLICIES
from sparring.core.project_files import is_example
from sparring.core.settings import Settings
from sparring.core.verdict import Limits
from sparring.curriculum.curriculum import Curriculum, Schedule
from sparring.games import USUAL, GameRules
from sparring.games.rules import Need
from sparring.tracking.divergence import StopSettings
from sparring.tracking.settings import TrackingSettings

KEYS_OF_NEEDS: dict[Need, tuple[str, ...]] = {
    "sandbox": ("sandbox",),
    "problems": ("problems", "curriculum.order"),
    "stages": ("curriculum.stages", "curriculum.remembered_programs"),
    "suites": (
        "curriculum.remembered_tests",
        "curriculum.remembered_wrong_programs",
        "evaluation.suites",
    ),
    "bank": ("evaluation.bank_programs",),
    "samples": ("evaluation.samples",),
    "rewarded tests": ("evaluation.gap_alarm",),
}
"""Keys that have no effect in a game that does not use the feature, by feature."""


class Config(Settings):
    """Sparring: two language models train against each other on code."""

    seed: int = 1
    output_dir: Path = Path("output")
    run_name: str | None = Field(default=None, pattern=r"^[\w.-]+$")
    """Name of the run's directory under output_dir. Default: the recipe's name and the time."""
    device: Literal["auto", "cpu", "cuda"] = "auto"
    """auto: cuda if torch finds a GPU (on a cluster: if a node has one) and vLLM is not its CPU build, else cpu.
    The values of this and of all other keys
    that are not set are chosen at the start, printed, and saved in the run's config (sparring/runtime/hardware.py)."""
    local: bool = False
    """Run everything in this process, without Ray, for debugging."""
    model_cache: Path | None = None
    """Directory for models from the hub, on every node (HF_HUB_CACHE). Default: the one that the environment names."""
    learning_rate: float = Field(default=1e-5, gt=0)
    """Learning rate of both policies; each is multiplied by the policy's learner.learning_rate_scale."""
    temperature: float = Field(default=1.0, gt=0)
    """Sampling temperature of training episodes."""
    credit: CreditSettings = AttemptCredit()
    generator: PolicySettings = PolicySettings()
    discriminator: PolicySettings = PolicySettings()
    problems: ProblemSettings = ProblemSettings()
    game: GameRules = USUAL
    curriculum: Schedule = Schedule()
    sandbox: SandboxSettings = SandboxSettings()
    rollout: RolloutSettings = RolloutSettings()
    evaluation: EvaluationSettings = EvaluationSettings()
    checkpoint: CheckpointSettings = CheckpointSettings()
    stop: StopSettings = StopSettings()
    tracking: TrackingSettings = TrackingSettings()

    @property
    def seats(self) -> dict[str, str]:
        """Policy of each player."""
        return self.game.seats

    @property
    def policies(self) -> tuple[str, ...]:
        """The policies that this game trains."""
        return tuple(name for name in POLICIES if name in self.seats.values())

    def players_of(self, policy: str) -> tuple[str, ...]:
        return tuple(player for player, name in self.seats.items() if name == policy)

    @property
    def sandbox_limits(self) -> Limits | None:
        """Returns None if the game runs no programs."""
        return self.game.limits

    @property
    def trusts_programs(self) -> bool:
        """Whether all programs and tests that are judged come from toy models and toy problems of the project."""
        models = all(is_example(self.policy(name).model) for name in self.policies)
        return models and ("problems" not in self.game.uses or self.problems.are_examples)

    @property
    def staged(self) -> bool:
        return "stages" in self.game.uses

    @property
    def stages(self) -> tuple[int, ...]:
        """Numbers of the reasoning stages that are trained and that the game plays; (0,) if the game has no stages."""
        played = self.game.stage_numbers
        return tuple(stage for stage in self.curriculum.stages if stage in played) if self.staged else (0,)

    def curriculum_arguments(self, problem_ids: Sequence[str]) -> dict[str, Any]:
        """Returns the arguments of Curriculum and of its Ray actor."""
        return {
            "schedule": self.curriculum,
            "problem_ids": tuple(problem_ids),
            "seed": self.seed,
            "policies": self.policies,
            "stages": self.stages,
        }

    def policy(self, name: str) -> PolicySettings:
        return {"generator": self.generator, "discriminator": self.discriminator}[name]

    def engines(self) -> list[tuple[str, ...]]:
        """Returns the policies, grouped by engine: policies that are adapters of one model, which has the same name for
        each, share an engine."""
        found: list[tuple[str, ...]] = []
        for name in self.policies:
            own = self.policy(name)
            alike = (
                i
                for i, (other, *_) in enumerate(found)
                if own.publishes_adapter
                and own.model == self.policy(other).model
                and own.engine == self.policy(other).engine
            )
            if (i := next(alike, None)) is None:
                found.append((name,))
            else:
                found[i] += (name,)
        return found

    def policy_learning_rate(self, name: str) -> float:
        return self.learning_rate * self.policy(name).learner.learning_rate_scale

    @model_validator(mode="after")
    def _combinations_make_sense(self) -> Self:
        self._check_policies()
        self._check_device()
        self._check_window()
        self._check_dynamic_sampling()
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
                (
                    "n_discriminator_steps",
                    "k_alternating_steps",
                    "frozen_programs",
                    "frozen_suites",
                    "opponents",
                ),
                f"has no effect with game {self.game.kind}: it has one policy",
                "curriculum",
            )
            if "discriminator" in self.curriculum.frozen_players:
                raise ValueError(
                    f"curriculum.frozen_players: game {self.game.kind} has no discriminator: leave it out"
                )
        for name in self.policies:
            settings = self.policy(name)
            if settings.max_tokens >= settings.engine.max_model_len:
                raise ValueError(f"{name}: max_tokens must be below engine.max_model_len")

    def _check_device(self) -> None:
        self._check_sleep()
        engines = {role: self.policy(role).engine for role in self.policies}
        apart = all(engine.count for engine in engines.values())
        shares = {f"{role}.learner.gpus": self.policy(role).learner.gpus for role in self.policies}
        shares["rollout.gpus"] = self.rollout.gpus
        if self.device == "cpu" and (given := [key for key, share in shares.items() if share]):
            raise ValueError(f"{given[0]} has no effect with device cpu")
        if self.device == "cuda" and not self.local:
            shares = {f"{r}.learner.gpus": self.policy(r).learner.gpus for r in self.policies}
            actors = {} if apart else {"rollout.gpus": self.rollout.gpus}
            without = [key for key, share in (shares | actors).items() if share == 0]
            if without:
                raise ValueError(f"device cuda: give {', '.join(without)} a share of a GPU (such as 0.25)")
        if apart and self.rollout.gpus:
            raise ValueError("rollout.gpus has no effect where every policy has engine.count")
        for role, engine in engines.items():
            if self.device == "cuda" and self.policy(role).publishes_adapter and engine.dtype == "float32":
                raise ValueError(
                    f"{role}.engine.adapter: on a GPU vLLM's adapters are in 16 bits: leave out engine.dtype float32 "
                    "or engine.adapter"
                )
            if self.local and engine.count:
                raise ValueError(f"{role}.engine.count has no effect with local")
            if engine.gpus_each > 1 and not engine.count and self.rollout.gpus not in (None, 0, 1):
                raise ValueError(
                    f"{role}.engine.tensor_parallel {engine.gpus_each}: takes whole GPUs: leave out rollout.gpus"
                )

    def _check_sleep(self) -> None:
        policies = {role: self.policy(role) for role in self.policies}
        asleep = {role for role, policy in policies.items() if policy.engine.sleep}
        for role in asleep:
            if policies[role].engine.count is not None:
                raise ValueError(
                    f"{role}.engine.sleep goes without engine.count: such an engine shares no GPU with a learner"
                )
        if asleep and self.device == "cpu":
            raise ValueError(f"{min(asleep)}.engine.sleep has no effect with device cpu")
        if any(
            policy.learner.lora and getattr(policy.engine, "adapter", True) is None
            for policy in policies.values()
        ):
            return  # whether they share an engine is decided later
        engines = self.engines()
        held = [roles for roles in engines if policies[roles[0]].engine.count is None]
        of_vllm = [roles for roles in held if policies[roles[0]].engine.kind == "vllm"]
        if len(of_vllm) > 1 and asleep & {role for roles in of_vllm for role in roles}:
            raise ValueError(
                f"{min(asleep)}.engine.sleep: vLLM puts one engine of a process to sleep, and {' and '.join(policies)} have "
                "one each: share one (learner.lora for both), take engine.kind transformers, or let none sleep"
            )

    def _check_window(self) -> None:
        if not self.rollout.max_policy_lag:
            return
        if self.curriculum.opponents.current < 1:
            raise ValueError(
                "rollout.max_policy_lag needs curriculum.opponents.current 1: an engine that plays a past version cannot "
                "play the next step meanwhile"
            )
        for role in self.policies:
            policy = self.policy(role)
            if policy.engine.sleep:
                raise ValueError(
                    f"rollout.max_policy_lag: leave out {role}.engine.sleep: the engine plays while learners update"
                )
            learns = role not in self.curriculum.frozen_players
            if learns and policy.learner.importance_cap == 0 and policy.learner.objective != "cispo":
                raise ValueError(
                    f"rollout.max_policy_lag needs {role}.learner.importance_cap (2 is usual) or objective cispo: the weights "
                    "that sampled are not those that learn"
                )

    def _check_dynamic_sampling(self) -> None:
        for role in self.policies if self.curriculum.dynamic_sampling else ():
            estimator = self.policy(role).learner.estimator
            if estimator.kind in ("rae", "reinforce_pp") or not getattr(estimator, "center_rewards", True):
                raise ValueError(
                    f"curriculum.dynamic_sampling has no effect with {role}.learner.estimator.kind {estimator.kind}"
                    f"{'' if estimator.kind != 'gae' else ' and center_rewards false'}: it also learns from groups "
                    "whose attempts all earn the same"
                )

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
                "curriculum.frozen_suites 0 leaves no test by which programs are rewarded: it needs "
                "game.baseline_in_reward, and discriminator among curriculum.frozen_players"
            )
        self._check_past()
        if (
            self.staged
            and self.curriculum.stages != Schedule().stages
            and self.stages != self.curriculum.stages
        ):
            others = sorted(set(self.curriculum.stages) - set(self.stages))
            raise ValueError(
                f"curriculum.stages: stage {others[0]} is not played: by game.stages the generator plays "
                f"{', '.join(map(str, game.stage_numbers))}"
            )
        for need, keys in KEYS_OF_NEEDS.items():
            for key in keys if need not in game.uses else ():
                section, _, name = key.partition(".")
                settings, defaults = getattr(self, section), type(self).model_fields[section].default
                if settings != defaults if not name else getattr(settings, name) != getattr(defaults, name):
                    hint = "; use sparring evaluate --samples" if need == "samples" and self.staged else ""
                    raise ValueError(f"{key} has no effect with game {game.kind}: it uses no {need}{hint}")
        if self.credit.kind in ("all", "tree") and not self.staged:
            raise ValueError(
                f"credit {self.credit.kind} has no effect with game {game.kind}: it has no stages"
            )

    def _check_past(self) -> None:
        schedule = self.curriculum
        frozen = schedule.n_discriminator_steps or schedule.n_generator_steps
        if schedule.opponents.current < 1 and (schedule.frozen_players or not frozen):
            raise ValueError(
                "curriculum.opponents: nobody with a past is ever frozen: it needs phases in which one policy learns "
                "(n_discriminator_steps, n_generator_steps) and no curriculum.frozen_players"
            )
        meets = {"remembered_tests": "generator", "remembered_wrong_programs": "discriminator"}
        for key, learner in meets.items():
            if getattr(schedule, key) and learner in schedule.frozen_players:
                raise ValueError(
                    f"curriculum.{key} has no effect while the {learner}, which would learn from it, is among "
                    "curriculum.frozen_players"
                )
        if (
            schedule.remembered_tests
            and not schedule.frozen_suites
            and "discriminator" in schedule.frozen_players
        ):
            raise ValueError(
                "curriculum.remembered_tests has no effect with frozen_suites 0: nobody writes tests"
            )

    def _check_credit(self) -> None:
        credit, estimator = self.credit, self.generator.learner.estimator.kind
        if credit.kind == "stage_gae" and estimator != "gae":
            raise ValueError(f"credit stage_gae needs generator.learner.estimator.kind gae, not {estimator}")
        if isinstance(credit, TreeCredit):
            if getattr(self.game, "attempts_per_episode", 1) > 1:
                raise ValueError(
                    "credit tree needs game.attempts_per_episode 1: attempts that branch are not repeated "
                    "after a failed test"
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
                raise ValueError(
                    f"stop.max_kl needs {role}.learner.kl.kind watched, loss or reward: with none, KL is "
                    "not computed"
                )
            engine = self.policy(role).engine
            if self.device == "cpu" and getattr(engine, "gpu_memory_utilization", None) is not None:
                raise ValueError(f"{role}.engine.gpu_memory_utilization has no effect with device cpu")
            if self.device == "cpu" and settings.offload != "none":
                raise ValueError(f"{role}.learner.offload has no effect with device cpu")
            others = [self.policy(other).learner for other in self.policies if other != role]
            if settings.worker_gpus > (settings.gpus or 0) and not (
                others and all(map(settings.takes_turns_with, others))
            ):
                raise ValueError(
                    f"{role}.learner.gpus {settings.gpus:g}: with several learner.workers each needs a whole GPU "
                    "(gpus 1); or give both policies the same learner.workers, min_workers, cpus, gpus and "
                    "threads: they then learn in turn on the same workers"
                )
            if self.local and settings.fewest_workers > 1:
                raise ValueError(f"{role}.learner.workers has no effect with local")
