"""The settings of a learner. Imports no torch, because the config schema contains them."""

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from learners.schedule import Constant, RateSchedule
from sparring.core.settings import Settings, default_kind

MICROBATCH_TOKENS, LOGITS_MB = 16384, 128
"""Defaults of microbatch_tokens and logits_mb outside a run."""
GPU_ALLOCATOR = {"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"}
"""Environment variables of a learner's worker on a GPU. With them torch reserves little more memory than it uses
(docs/hardware.md)."""


class LoraSettings(Settings):
    """Train a low-rank adapter instead of the model's own weights."""

    rank: int = Field(default=16, ge=1)
    alpha: int = Field(default=32, ge=1)
    """The adapter's product is scaled by alpha / rank."""
    target_modules: tuple[str, ...] | None = None
    """Names of the layers that are adapted. Default: all linear layers except the output head."""
    quantize: Literal["4bit", "8bit"] | None = None
    """Hold the backbone in 4 (nf4) or 8 bits by bitsandbytes, which must be installed."""


class GroupEstimator(Settings):
    """Estimators that compare the trajectories of one problem with each other."""

    kind: Literal["grpo", "dr_grpo", "rloo", "hierarchical_grpo"]


class _AcrossProblems(Settings):
    normalise_rewards: Literal["none", "task"] = "none"
    """task: standardise rewards by the mean and standard deviation of all episodes of their problem so far, before the
    estimator sees them. Use it if the rewards of problems differ in scale. Available with the estimators gae,
    reinforce_pp and rae."""


class ReinforcePp(_AcrossProblems):
    kind: Literal["reinforce_pp"] = "reinforce_pp"


class Rae(_AcrossProblems):
    kind: Literal["rae"] = "rae"
    decay: float = Field(default=0.95, gt=0, lt=1)
    """Weight of the past in the moving average, per trajectory."""


class Gae(_AcrossProblems):
    kind: Literal["gae"] = "gae"
    """gae: PPO with a critic. Critic-free: grpo (rewards standardised within each group), dr_grpo (without the
    division by the std), rloo (relative to the others of the group), reinforce_pp (standardised over the batch's tokens), rae
    (relative to a moving average per game and player: for games without groups), hierarchical_grpo (grpo within
    branches plus grpo among the branches of a problem; with credit tree)."""
    gamma: float = Field(default=1.0, ge=0, le=1)
    lam: float = Field(default=1.0, ge=0, le=1)
    """GAE's lambda."""
    center_rewards: bool = True
    """Subtract the mean of the group from the rewards before the value head sees them. A small value head learns too slowly
    across problems to be a baseline by itself."""
    critic: Literal["head", "model"] = "head"
    """head: values come from a head on the policy's detached hidden states; model: from a second model, which starts as a copy of
    the policy and has its learning rate."""
    value_learning_rate: float = Field(default=1e-3, gt=0)
    """Learning rate of the value head."""
    value_clip: float | None = Field(default=None, gt=0)
    """Clip range of the value loss around the old value (PPO's value clipping). Default: no clipping."""


Estimator = Annotated[
    GroupEstimator | ReinforcePp | Rae | Gae, Field(discriminator="kind"), default_kind("gae")
]


class KlInReward(Settings):
    kind: Literal["reward"] = "reward"
    coefficient: float = Field(gt=0)
    """Weight of KL(policy || initial model)."""
    estimator: Literal["k1", "k2", "k3"] = "k1"
    """k1: log ratio, available in the reward only, since its gradient in the loss is useless; k2: half the square of
    the log ratio; k3: never negative, unbiased, low variance, at most 10 per token. In the reward only k1 has the
    gradient of KL(policy || initial model); near the initial model k2 and k3 have hardly any effect there."""


class KlInLoss(Settings):
    kind: Literal["loss"] = "loss"
    coefficient: float = Field(gt=0)
    estimator: Literal["k2", "k3"] = "k3"


class WatchedKl(Settings):
    kind: Literal["watched"] = "watched"
    """How KL(policy || initial model) is used. loss: as a term of the loss; reward: as a penalty on each token's reward
    (requires estimator gae; as in InstructGPT); watched: it is only logged (as k3; loss and reward log it, too); none:
    it is not computed, and no reference model is held in memory."""


class NoKl(Settings):
    kind: Literal["none"] = "none"


Kl = Annotated[KlInReward | KlInLoss | WatchedKl | NoKl, Field(discriminator="kind"), default_kind("watched")]


class LearnerSettings(Settings):
    estimator: Estimator = Gae()
    objective: Literal["ppo", "gspo", "cispo"] = "ppo"
    """ppo: clipped ratio per token; gspo: one clipped ratio per sequence; cispo: log-likelihood weighted by the
    clipped ratio, so that no token loses its gradient."""
    loss_normaliser: Literal["token", "sequence", "constant"] = "token"
    """token: the loss is a mean over the minibatch's trained tokens; sequence: a mean over its sequences of each
    sequence's token mean; constant: a sum divided by samples times max_loss_tokens (Dr.GRPO)."""
    max_loss_tokens: int | None = Field(default=None, ge=1)
    """Length that the loss is divided by, in tokens, with loss_normaliser constant."""
    dual_clip: float | None = Field(default=None, gt=1)
    """Lower bound of the objective at a negative advantage, as a multiple of the advantage. It limits the effect of one
    improbable token."""
    importance_cap: float | None = Field(default=None, ge=0)
    """Engine and learner compute slightly different probabilities. If set, PPO's ratio compares the learner with itself at the
    start of the batch, and each token's loss is multiplied by the learner's probability over the engine's, at most this value,
    which is 1 or more (decoupled PPO). 0: PPO's ratio compares with the engine. Default: 2 with rollout.max_policy_lag, and with
    precision bf16 or an engine in 16 bits, since engine and learner then round differently; else 0."""
    mask_truncated: bool = False
    """Leave a completion out of the losses of policy and critic if it was cut off by its length limit."""
    learning_rate_scale: float = Field(default=1.0, gt=0)
    """Factor on the run's learning_rate for this policy."""
    schedule: RateSchedule = Constant()
    epochs: int = Field(default=1, ge=1)
    """Number of passes over each batch."""
    minibatch_samples: int = Field(default=64, ge=1)
    """Maximum number of trajectories per optimizer step. A batch is divided into as few equal minibatches as that allows."""
    microbatch_tokens: int | None = Field(default=None, ge=64)
    """Tokens that a forward pass computes, without padding; bounds memory. A beginning that several samples have in common is
    computed once. Default: 16384, on a GPU 32768; less if memory is short (sparring/runtime/memory_plan.py, sparring/runtime/host_plan.py)."""
    logits_mb: int | None = Field(default=None, ge=1)
    """Size of the logits that are computed at once, in MiB of fp32 (about five times as much is in memory). More logits are
    computed in parts, and each part again for the gradient. Default: 128; on a GPU as its memory allows
    (sparring/runtime/memory_plan.py)."""
    clip_low: float = Field(default=0.2, gt=0, lt=1)
    clip_high: float = Field(default=0.2, gt=0)
    """The probability ratio is clipped to [1 - clip_low, 1 + clip_high]."""
    entropy_coefficient: float = Field(default=0.0, ge=0)
    kl: Kl = WatchedKl()
    gradient_clip: float = Field(default=1.0, gt=0)
    """Maximum gradient norm, of the policy and of the critic separately."""
    gradient_checkpointing: bool | None = None
    """Recompute activations in the backward pass, which takes less memory and a third more time. Default: true if the
    learner does not fit into memory otherwise (sparring/runtime/memory_plan.py, on a CPU
    sparring/runtime/host_plan.py)."""
    lora: LoraSettings | None = None
    """Train a LoRA adapter. If both policies do so on the same model, they share the model and one Ray Train run."""
    lora_if_needed: bool = False
    """Train an adapter of rank 16 if the available memory is too small to train the model's own weights; the choice is
    printed (sparring/runtime/hardware.py)."""
    trainable_layers: int | None = Field(default=None, ge=1)
    """Number of last layers that are trained. Default: all weights."""
    precision: Literal["fp32", "bf16", "fp16"] | None = None
    """Precision of activations (autocast); weights, optimizer and losses are fp32. Default: on a CPU bf16 for LoRA if
    the processor computes in it, else fp32; on a GPU bf16 if it supports that, else fp16 (fp32 with fsdp)."""
    offload: Literal["none", "optimizer", "all"] = "none"
    """Which state is moved to host memory between steps (device cuda), to make room for other processes on the GPU: the
    optimizer's state, or the networks as well."""
    workers: int | None = Field(default=1, ge=1)
    """Number of Ray Train workers that share each update. The result does not depend on it. None: one for each GPU that the
    engines leave; on a CPU one, or two with sharding fsdp."""
    min_workers: int | None = Field(default=None, ge=1)
    """Minimum number of workers with which training continues after a node was lost; workers are added again when there
    are free resources. Default: wait for all workers."""
    sharding: Literal["none", "fsdp"] = "none"
    """none: each worker holds everything; fsdp: parameters, gradients and optimizer state are sharded (FSDP2)."""
    cpus: float = Field(default=0.5, ge=0)
    """Ray CPUs per worker, which Ray uses for placement; they are no limit."""
    gpus: float | None = Field(default=None, ge=0, le=1)
    """GPUs per worker: 1 or a share of one. With several workers and a share, both policies must have the same workers, on
    which they learn in turn, each worker with a whole GPU. Default: 0 on a CPU, else 1 if there are enough, else a share."""
    threads: int = Field(default=2, ge=1)
    """Torch threads per worker on a CPU; with --local, of the whole process unless OMP_NUM_THREADS is lower."""

    @property
    def gae(self) -> Gae:
        """Returns the estimator, which must be gae."""
        assert isinstance(self.estimator, Gae)
        return self.estimator

    @property
    def fewest_workers(self) -> int:
        """Returns the number of workers; if it is not set, the smallest number that the sharding allows."""
        return self.workers or (2 if self.sharding == "fsdp" else 1)

    @property
    def worker_gpus(self) -> float:
        """Returns the share of a GPU that Ray gives each worker. If several workers have shares, each gets a whole GPU,
        since NCCL refuses two workers of one run on the same GPU."""
        return 1.0 if self._shares_whole_gpus else self.gpus or 0.0

    def takes_turns_with(self, other: "LearnerSettings") -> bool:
        """Returns whether both have several workers on shares of GPUs, so that they learn on the same workers in turn."""
        return self._shares_whole_gpus and self._has_workers_like(other)

    def shares_backbone_with(self, other: "LearnerSettings") -> bool:
        """Returns whether both train adapters that can share one backbone, in one run."""
        alike = ("sharding", "precision", "gradient_checkpointing", "logits_mb", "offload")
        return (
            self.lora is not None
            and other.lora is not None
            and self.lora.quantize == other.lora.quantize
            and self._has_workers_like(other)
            and all(getattr(self, key) == getattr(other, key) for key in alike)
        )

    @property
    def _shares_whole_gpus(self) -> bool:
        return self.fewest_workers > 1 and 0 < (self.gpus or 0) < 1

    def _has_workers_like(self, other: "LearnerSettings") -> bool:
        alike = ("workers", "min_workers", "cpus", "gpus", "threads")
        return all(getattr(self, key) == getattr(other, key) for key in alike)

    @model_validator(mode="after")
    def _combinations_make_sense(self) -> Self:
        kind = self.estimator.kind
        if self.kl.kind == "reward" and kind != "gae":
            raise ValueError(f"kl.kind reward needs rewards per token: estimator.kind gae, not {kind}")
        if self.objective != "ppo":
            self.refuse_changed(("dual_clip",), f"has no effect with objective {self.objective}")
        if self.objective == "gspo" and (kind == "gae" or self.loss_normaliser != "sequence"):
            raise ValueError(
                "objective gspo is defined on sequences: with a critic-free estimator and loss_normaliser sequence"
            )
        if (self.max_loss_tokens is None) == (self.loss_normaliser == "constant"):
            raise ValueError("max_loss_tokens belongs to loss_normaliser constant: give both or neither")
        if self.importance_cap and self.importance_cap < 1:
            raise ValueError(
                f"importance_cap is 1 or more, or 0 for no correction, not {self.importance_cap:g}"
            )
        self._check_tuning()
        return self

    def _check_tuning(self) -> None:
        if self.min_workers is not None and self.workers is not None and self.min_workers > self.workers:
            raise ValueError(f"min_workers ({self.min_workers}) is above workers ({self.workers})")
        if self.lora is not None:
            self.refuse_changed(("trainable_layers",), "has no effect with lora: the model itself is frozen")
            if self.sharding == "fsdp" and self.lora.quantize is not None:
                raise ValueError("lora.quantize does not go with sharding fsdp: leave out one of them")
            if self.offload == "all" and self.lora.quantize:
                raise ValueError(
                    f"offload all does not go with lora.quantize {self.lora.quantize}: offload optimizer, or none"
                )
        if self.offload == "all" and self.sharding == "fsdp":
            raise ValueError("offload all goes with sharding none: under fsdp a GPU holds a part already")
        if self.sharding == "fsdp" and self.workers == 1:
            raise ValueError("sharding fsdp has no effect with workers 1")
        if self.sharding == "fsdp" and self.precision == "fp16":
            raise ValueError("sharding fsdp goes with precision fp32 or bf16")
        if self.sharding == "fsdp" and self.estimator.kind == "gae" and self.estimator.critic == "model":
            raise ValueError("sharding fsdp goes with estimator.critic head")
