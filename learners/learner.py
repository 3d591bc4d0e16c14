"""The learner of one policy: a plain class that does not use Ray. `step(batch)` computes one PPO-style update, on one
worker or on several."""

import logging
import math
import random
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import torch

from learners.critic import Critic
from learners.files import open_empty
from learners.health import Health, Remedy, remedy
from learners.losses import kl
from learners.memory import DeviceMemory
from learners.models import load_model
from learners.objective import Objective, Size
from learners.packing import COPIED, MicroBatch, cost_of, pack, plan
from learners.parallel import WorkerGroup, whole
from learners.settings import MICROBATCH_TOKENS, LearnerSettings
from learners.targets import Targets, needs_first_pass, over_the_batch, targets_of, whiten
from learners.tuning import HALVES, Backbone, FullTuning, LoraTuning, Tuning
from learners.weights import export_weights
from sparring.core.batch import Batch
from sparring.core.errors import OutOfMemory, RunFailed, WorkerOutOfMemory
from sparring.core.weights import WeightUpdate

log = logging.getLogger(__name__)
Result = TypeVar("Result")
_EXPLODED = 100
"""Multiple of learner.gradient_clip above which a gradient norm is logged as a warning."""


class NotFinite(RunFailed):
    """Too many updates in a row had a loss or gradient that is not finite."""


class Learner:
    """Owns a policy's weights, its reference model, its critic and the optimizers. Metrics are plain floats.

    `reference_path` is the model that KL is logged against during the whole run (the initial model). With settings.lora
    the backbone is the model that the adapter is trained on, and without adapters it is the reference.
    """

    def __init__(
        self,
        settings: LearnerSettings,
        learning_rate: float,
        model_path: str | Path,
        reference_path: str | Path,
        device: str = "cpu",
        seed: int = 0,
        backbone: Backbone | None = None,
        name: str = "policy",
    ) -> None:
        """Loads the models and creates the optimizers.

        Args:
            backbone: Backbone that is shared with another learner of a different name. None: with settings.lora the
                learner loads its own.
        """
        self.settings, self.learning_rate, self.device = settings, learning_rate, torch.device(device)
        self.name = name
        self.world = WorkerGroup()
        self.policy: Tuning
        if settings.lora is not None:
            backbone = backbone or Backbone(settings, reference_path, self.device)
            self.policy = LoraTuning(settings, backbone, name, seed)
        else:
            paths = [model_path] if settings.kl.kind == "none" else [model_path, reference_path]
            models = [
                open_empty(path) if settings.sharding == "fsdp" else load_model(path, self.device)
                for path in paths
            ]
            self.policy = FullTuning(models[0], models[1] if len(models) > 1 else None, settings)
        self.optimizer = torch.optim.AdamW(
            self.policy.trainable().values(),
            lr=learning_rate,
            betas=(0.9, 0.95),
            weight_decay=0.0,
            fused=self.device.type == "cuda" or None,  # unfused, it makes temporaries as large as the weights
        )
        self.critic: Critic | None = None
        self.critic_optimizer: torch.optim.Optimizer | None = None
        if settings.estimator.kind == "gae":
            hidden_size = self.policy.model.config.get_text_config().hidden_size
            # a checkpoint of an adapter contains no model
            start = reference_path if settings.lora else model_path
            self.critic = Critic(settings, hidden_size, start, self.device, seed)
            self.critic_optimizer = self.critic.optimizer(settings, learning_rate)
        self.scaler = torch.amp.GradScaler(self.device.type, enabled=settings.precision == "fp16")
        self.scaler.scale(
            torch.zeros((), device=self.device)
        )  # else a worker that gets no micro-batch could not unscale
        self.version = 0
        """Number of batches learned from, which is the version of the published weights."""
        self.updates = 0
        """Number of optimizer steps. A batch may take several."""
        self.health = Health()
        self._largest = 0
        """Cost, in tokens, of the largest planned micro-batch of several sequences; 0: none can become smaller."""
        sharded = settings.sharding == "fsdp"
        self.memory = DeviceMemory(self.world, self.device, sharded=sharded)
        self._give_back()

    @property
    def microbatch_tokens(self) -> int:
        """Token budget of a micro-batch, after the halvings that were needed to fit in memory."""
        budget = self.settings.microbatch_tokens or MICROBATCH_TOKENS
        return min(budget, self.health.most_tokens or budget)

    def limit_micro_batches(self, halvings: int, most_tokens: int | None) -> None:
        """Limits micro-batches as the mailbox says that workers which ended need it.

        Args:
            halvings: how often the budget must have been halved in all.
            most_tokens: maximum number of tokens, if it is known.
        """
        due = halvings - self.health.halvings
        found = min(self.microbatch_tokens >> max(0, due), most_tokens or self.microbatch_tokens)
        if found < self.microbatch_tokens:
            self.health.most_tokens = max(1, found)
        self.health.halvings = halvings

    # ------------------------------------------------------------------ one step
    def step(self, batch: Batch) -> dict[str, float]:
        """Learns from one batch. All workers must pass the same batch.

        An update whose loss or gradient is not finite is skipped, and the learning rate is halved permanently, unless
        the scale of fp16 was merely too large. If memory runs out, micro-batches are halved permanently and the update
        is computed again (under FSDP by new workers, which the caller starts).

        Raises:
            NotFinite: Too many updates in a row were skipped.
        """
        assert batch.step == self.version + 1, f"batch {batch.step} after version {self.version}"
        if self.device.type == "cuda":
            torch.cuda.reset_peak_memory_stats(self.device)
        self._move_networks(self.device)
        self._move_optimizers(self.device)
        self.policy.activate()
        usable = [i for i, sample in enumerate(batch.samples) if any(sample.trained)]
        metrics = {"samples": float(len(usable)), "learning_rate": self.current_learning_rate()}
        totals: dict[str, float] = defaultdict(float)
        if usable:
            targets = self._targets(batch, usable, metrics)
            rng = random.Random(batch.seed)
            for _ in range(self.settings.epochs):
                order = rng.sample(usable, len(usable))
                for chosen in equal_parts(order, self.settings.minibatch_samples):
                    self._update(batch, chosen, targets, totals, metrics)
        if self.health.most_tokens is not None:
            metrics["microbatch_tokens"] = float(self.microbatch_tokens)
        if self.device.type == "cuda":
            metrics["peak_memory_gib"] = torch.cuda.max_memory_reserved(self.device) / 2**30
        self._give_back()
        if totals["updates"] and not (totals["skipped_updates"] or totals["overflows"]):
            self.health.proved(self.version)
        self.version = batch.step
        return metrics | means(totals)

    def _targets(
        self, batch: Batch, usable: Sequence[int], metrics: dict[str, float]
    ) -> Mapping[int, Targets]:
        if not needs_first_pass(self.settings, len(usable)):
            targets = {i: targets_of(batch.samples[i], self.settings) for i in usable}
            if over_the_batch(self.settings):
                whiten(batch.samples, targets)
            return targets

        def own() -> tuple[dict[int, Targets], torch.Tensor]:
            targets, differences = {}, [torch.zeros(1)]
            for chunk, counts in self._own_micro_batches(batch, usable):
                micro = pack(batch.samples, chunk, self.device)
                of_micro, difference_P = self._first_pass(batch, micro)
                if counts:
                    targets |= of_micro
                    differences.append(difference_P.cpu())
            return targets, torch.cat(differences[1:] or differences)

        with torch.no_grad():
            mine, differences_P = self._within_memory(batch, own)
            parts = self.world.gather((mine, differences_P))
        targets = {i: target for part, _ in parts for i, target in part.items()}
        if over_the_batch(self.settings):
            whiten(batch.samples, targets)
        self._log_mismatch(torch.cat([differences for _, differences in parts]), metrics)
        return targets

    def _first_pass(self, batch: Batch, micro: MicroBatch) -> tuple[dict[int, Targets], torch.Tensor]:
        """Returns the targets, computed with the learner's networks before the first update, and the absolute
        difference of the learner's and the engine's log-probability for each sampled token."""
        with self._autocast():
            scores = self.policy.score(micro.row, micro.sampled_N, batch.temperature)
            values = self.critic(micro.row, micro.sampled_N, scores.hidden_SH).cpu() if self.critic else None
        logprobs = scores.logprobs_P.cpu()
        penalties = None
        if self.settings.kl.kind == "reward":
            with self._autocast():
                reference = self.policy.score_reference(micro.row, micro.sampled_N, batch.temperature)
            estimate = kl(logprobs, reference.logprobs_P.cpu(), self.settings.kl.estimator)
            penalties = self.settings.kl.coefficient * estimate
        counts = [sum(batch.samples[i].sampled) for i in micro.indices]
        parts = [
            t.split(counts) if t is not None else [None] * len(counts) for t in (logprobs, values, penalties)
        ]
        targets = {
            i: targets_of(
                batch.samples[i], self.settings, logprobs_S=logprob, values_S=value, penalties_S=penalty
            )
            for i, logprob, value, penalty in zip(micro.indices, *parts, strict=True)
        }
        return targets, (scores.logprobs_P - micro.logprobs_N[micro.sampled_N]).abs()

    def _log_mismatch(self, differences_P: torch.Tensor, metrics: dict[str, float]) -> None:
        metrics |= {
            "mismatch_max": differences_P.max().item(),
            "mismatch_mean": differences_P.mean().item(),
        }

    def _update(
        self,
        batch: Batch,
        chosen: Sequence[int],
        targets: Mapping[int, Targets],
        totals: dict[str, float],
        metrics: dict[str, float],
    ) -> None:
        """Makes one optimizer step on one minibatch, unless its gradient is not finite."""
        sums, differences = self._within_memory(batch, lambda: self._accumulate(batch, chosen, targets))
        if "mismatch_max" not in metrics:  # no update was made yet
            self._log_mismatch(torch.cat(self.world.gather(differences)), metrics)
        sums = self.world.sums(sums)
        self.world.sum_gradients(self._parameters(), 1 / self._loss_scale())
        optimizers = [o for o in (self.optimizer, self.critic_optimizer) if o is not None]
        for optimizer in optimizers:
            self.scaler.unscale_(optimizer)
        norm = self._clip(self.policy.trainable().values())
        critic_norm = self._clip(self.critic.parameters()) if self.critic else 0.0
        if not all(map(math.isfinite, (sums["loss"], norm, critic_norm))):
            what = self._skip(
                batch, {"loss": sums["loss"], "gradient norm": norm, "critic's gradient norm": critic_norm}
            )
            totals["overflows" if what is Remedy.SKIP else "skipped_updates"] += 1
            return
        if (largest := max(norm, critic_norm)) > _EXPLODED * self.settings.gradient_clip:
            log.warning(
                "batch %d: gradient norm %.3g, scaled down to %g",
                batch.step,
                largest,
                self.settings.gradient_clip,
            )
        self.health.skipped_in_a_row = 0
        self._set_learning_rates()
        self.memory.step(optimizers, self.scaler.step)
        self.scaler.update()
        self.updates += 1
        del sums["loss"]
        for name, value in sums.items():
            totals[name] += value
        totals["gradient_norm"] += norm
        totals["updates"] += 1

    def _accumulate(
        self, batch: Batch, chosen: Sequence[int], targets: Mapping[int, Targets]
    ) -> tuple[dict[str, float], torch.Tensor]:
        """Computes the gradients of this worker's part of a minibatch. Returns (sums for the log, mismatches of its
        tokens)."""
        size = Size(
            samples=len(chosen),
            trained=sum(sum(batch.samples[i].trained) for i in chosen),
            sampled=sum(sum(batch.samples[i].sampled) for i in chosen),
        )
        objective = Objective(self.settings, self.policy, self.critic, targets, batch.temperature, size)
        sums: dict[str, float] = defaultdict(float)
        if self.world.rank == 0:
            sums |= {"tokens": float(size.trained), "sampled_tokens": float(size.sampled)}
        for optimizer in filter(None, (self.optimizer, self.critic_optimizer)):
            optimizer.zero_grad(set_to_none=True)
        differences = [torch.zeros(1)]
        micros = self._own_micro_batches(batch, chosen)
        # If KL is not in the loss, it is only logged, of a part of one micro-batch, drawn for each minibatch.
        rng = random.Random(f"{batch.seed} {self.updates}")
        watched = rng.randrange(max(1, len(micros)))
        for position, (chunk, counts) in enumerate(micros):
            micro = pack(batch.samples, chunk, self.device)
            with self._autocast():
                part = objective.part(micro, watch=rng if position == watched else None)
            self.scaler.scale(part.loss * (self._loss_scale() if counts else 0)).backward()
            if counts:
                sums["loss"] += part.loss.item()
                for name, value in part.sums.items():
                    sums[name] += value
                differences.append(part.mismatches_P.cpu())
        return sums, torch.cat(differences[1:] or differences)

    def _own_micro_batches(self, batch: Batch, chosen: Sequence[int]) -> list[tuple[list[int], bool]]:
        """Returns (samples of a micro-batch, whether it counts) for this worker. Under FSDP all workers must have equally many
        micro-batches, because they wait for each other: a worker with fewer adds one that does not count."""
        # samples with the same beginning follow one another, so that it is computed once
        chosen = sorted(chosen, key=lambda i: tuple(batch.samples[i].tokens))
        capped = getattr(self.policy.model.config.get_text_config(), "attn_logit_softcapping", None)
        # capped attention keeps its scores, of shared tokens, too
        copied = COPIED if capped is None else 1.0
        chunks = plan(batch.samples, chosen, self.microbatch_tokens, self.world.size, copied)
        # the ranks' shares may be far below the budget
        costs = (cost_of(batch.samples, chunk, copied) for chunk in chunks if len(chunk) > 1)
        self._largest = int(max(costs, default=0))
        mine = [(chunk, True) for chunk in chunks[self.world.rank :: self.world.size]]
        if self.settings.sharding == "fsdp":
            most = -(-len(chunks) // self.world.size)
            mine += [(chunks[0], False)] * (most - len(mine))
        return mine

    def _clip(self, parameters: Iterable[torch.nn.Parameter]) -> float:
        """Scales the gradient of one network down to norm gradient_clip and returns the norm before scaling. Policy and
        critic are clipped separately, because a large value error must not shrink the policy's update."""
        return float(whole(torch.nn.utils.clip_grad_norm_(parameters, self.settings.gradient_clip)))

    def _loss_scale(self) -> int:
        """Returns the factor by which the loss is multiplied because FSDP averages gradients over the ranks instead of
        summing them (over gloo it cannot sum)."""
        return self.world.size if self.settings.sharding == "fsdp" else 1

    def _parameters(self) -> list[torch.nn.Parameter]:
        return [*self.policy.trainable().values(), *(self.critic.parameters() if self.critic else ())]

    def _autocast(self) -> torch.autocast:
        dtype = HALVES.get(self.settings.precision or "fp32")
        return torch.autocast(self.device.type, dtype=dtype, enabled=dtype is not None)

    # ------------------------------------------------------------------ faults
    def _skip(self, batch: Batch, figures: Mapping[str, float]) -> Remedy:
        """Handles an update that is not finite and returns the remedy. Raises NotFinite if too many were skipped in a
        row. figures: the update's loss and gradient norms, by name."""
        overflow = False
        if self.scaler.is_enabled():
            self.scaler.update()
            overflow = math.isfinite(figures["loss"]) and self.scaler.get_scale() > 1
        what = remedy(self.health, overflow=overflow)
        if what is Remedy.SKIP:
            return what
        if what is not Remedy.HALVE:
            name, value = next((name, value) for name, value in figures.items() if not math.isfinite(value))
            raise NotFinite(
                f"the {name} of batch {batch.step} is {value}, the {self.health.skipped_in_a_row + 1}th update in a row "
                f"that is not finite: lower the learning rate (now {self.current_learning_rate():.3g}) and resume from "
                "the last checkpoint"
            )
        self.health.halve_learning_rate()
        log.warning(
            "batch %d: %s, rewards %s: update skipped, learning rate now %.3g",
            batch.step,
            ", ".join(f"{name} {value:g}" for name, value in figures.items()),
            sorted({round(sample.reward, 3) for sample in batch.samples})[:20],
            self.current_learning_rate(),
        )
        return what

    def _within_memory(self, batch: Batch, work: Callable[[], Result]) -> Result:
        """Returns work()'s result, after halving micro-batches until they fit in the memory of every worker.

        Raises:
            OutOfMemory: One sequence at a time does not fit.
            WorkerOutOfMemory: This worker ran out of memory under FSDP. It says how many tokens new workers may take.
        """
        while True:
            try:
                result, reasons = self.memory.tried(work)
            except WorkerOutOfMemory as error:
                if self._largest:
                    raise WorkerOutOfMemory(error.reason, self.name, self._largest // 2) from error
                result, reasons = None, [str(error)]
            if not reasons:
                return result  # pyright: ignore[reportReturnType]
            if not self._largest:  # each micro-batch has one sequence already
                raise OutOfMemory(
                    f"out of memory with one sequence at a time ({reasons[0]}): take shorter sequences, "
                    "learner.gradient_checkpointing, learner.lora, more workers with learner.sharding fsdp, or a smaller model"
                )
            self.health.most_tokens = max(1, self._largest // 2)
            log.warning("out of memory, microbatch_tokens now %d: %s", self.microbatch_tokens, reasons[0])

    def _move_networks(self, device: torch.device) -> None:
        if self.settings.offload == "all":
            for network in filter(None, (*self.policy.networks(), self.critic)):
                network.to(device)  # pyright: ignore[reportArgumentType]

    def _move_optimizers(self, device: torch.device) -> None:
        if self.settings.offload == "none":
            return
        for optimizer in filter(None, (self.optimizer, self.critic_optimizer)):
            for state in optimizer.state.values():
                for name, value in state.items():  # an unfused optimizer keeps `step` on the host
                    if isinstance(value, torch.Tensor) and (value.dim() or optimizer.defaults["fused"]):
                        state[name] = value.to(device)

    def _give_back(self) -> None:
        """Frees GPU memory between steps, as settings.offload says. If the learner has only a share of the GPU, the
        allocator's cache is freed, too, which would otherwise keep all memory that it ever reserved from the other
        processes."""
        self._move_networks(torch.device("cpu"))
        self._move_optimizers(torch.device("cpu"))
        if self.device.type == "cuda" and (self.settings.gpus or 0) < 1:
            for optimizer in filter(None, (self.optimizer, self.critic_optimizer)):
                optimizer.zero_grad(set_to_none=True)
            torch.cuda.empty_cache()

    def _set_learning_rates(self) -> None:
        """Sets the rate of each parameter group. The schedule applies to the policy and to a critic's trunk. The value
        head has a separate, constant learning rate, but halvings after faults apply to it, too."""
        groups = [*self.optimizer.param_groups]
        if self.critic_optimizer is not None:
            head, *trunk = self.critic_optimizer.param_groups
            head["lr"] = self.settings.gae.value_learning_rate * self.health.learning_rate_factor
            groups += trunk
        for group in groups:
            group["lr"] = self.current_learning_rate()

    def current_learning_rate(self) -> float:
        scheduled = self.settings.schedule.factor(self.updates)
        return self.learning_rate * self.health.learning_rate_factor * scheduled

    def export(
        self,
        adapter: bool = False,
        dtype: str | None = None,
        put: Callable[[Mapping[str, np.ndarray]], Any] | None = None,
        probe: tuple[int, ...] = (),
    ) -> WeightUpdate:
        """Returns the weights for the engine. All workers must call it; only rank 0 gets the tensors.

        Args:
            adapter: Whether the adapter is exported without the backbone.
            dtype: Name of the engine's torch dtype; None: the weights keep their own.
            put, probe: See export_weights.
        """
        self._move_networks(self.device)
        self.policy.activate()
        of_engine = getattr(torch, dtype) if dtype else None
        in_half = self.settings.sharding == "fsdp"  # with bf16, gathered layers have bf16 weights only
        alone = self.settings.lora if adapter else None

        def exported() -> WeightUpdate:
            with self._autocast() if in_half else nullcontext():
                return export_weights(
                    self.policy, self.version, self.world.rank == 0, alone, of_engine, put, probe
                )

        update = self.memory.together(exported, f"while version {self.version} was exported")
        self._give_back()
        return update


def equal_parts(items: Sequence[int], most: int) -> list[Sequence[int]]:
    """Splits the items, in order, into the fewest parts of at most `most` items, whose lengths differ by at most one.
    Otherwise a few left-over items would weigh as much in their own update as all the others in theirs."""
    count = -(-len(items) // most)
    return [items[len(items) * n // count : len(items) * (n + 1) // count] for n in range(count)]


def means(totals: Mapping[str, float]) -> dict[str, float]:
    """Converts sums over updates and tokens to means."""
    totals = dict(totals)
    trained = totals.pop("tokens", 0.0)
    tokens = max(trained, 1.0)
    per = {
        "value_loss": max(totals.pop("sampled_tokens", 0.0), 1.0),
        "kl_to_initial": max(totals.pop("kl_tokens", 0.0), 1.0),
        "gradient_norm": max(totals.pop("updates", 0.0), 1.0),
    }
    metrics = {name: totals.pop(name, 0.0) for name in ("skipped_updates", "overflows")}
    metrics["trained_tokens"] = trained
    metrics["gradient_norm"] = totals.pop("gradient_norm", 0.0) / per["gradient_norm"]
    return metrics | {name: total / per.get(name, tokens) for name, total in totals.items()}
