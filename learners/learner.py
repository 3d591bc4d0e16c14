"""One policy's learner: a plain class, no Ray. `step(batch)` is one PPO-style update, by one worker or by several."""

import logging
import math
import random
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import TypeVar

import torch
from torch.distributed.tensor import DTensor

from core.batch import Batch
from core.errors import RunFailed
from core.weights import WeightUpdate
from learners.critic import Critic
from learners.health import Health, Remedy, remedy
from learners.losses import kl
from learners.models import load_model
from learners.objective import Objective, Size
from learners.packing import MicroBatch, pack, plan
from learners.parallel import World
from learners.settings import MICROBATCH_TOKENS, LearnerSettings
from learners.targets import Targets, needs_first_pass, targets_of, whiten
from learners.tuning import Backbone, FullTuning, LoraTuning, Tuning
from learners.weights import export_weights

DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16}
log = logging.getLogger(__name__)
Result = TypeVar("Result")


class NotFinite(RunFailed):
    """Too many updates in a row had a loss or gradient that is not finite."""


class Learner:
    """Owns a policy's weights, its reference, critic and optimizers. Metrics are plain floats.

    `reference_path` is the warm start: the KL that is logged is measured against it for the whole run. With settings.lora
    the model is the backbone's, which is the reference too.
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
        """backbone: shared with another learner, whose name differs; None: settings.lora brings its own."""
        self.settings, self.learning_rate, self.device = settings, learning_rate, torch.device(device)
        self.name = name
        self.world = World()
        self.policy: Tuning
        if settings.lora is not None:
            backbone = backbone or Backbone(settings, reference_path, self.device)
            self.policy = LoraTuning(settings, backbone, name, seed)
        else:
            # FSDP moves a model over layer by layer: no GPU need hold all of one of which it keeps a part
            place = torch.device("cpu") if settings.sharding == "fsdp" else self.device
            model = load_model(model_path, place)
            reference = load_model(reference_path, place) if settings.kl.kind != "none" else None
            self.policy = FullTuning(model, reference, settings)
        self.optimizer = torch.optim.AdamW(
            self.policy.trainable().values(),
            lr=learning_rate,
            betas=(0.9, 0.95),
            weight_decay=0.0,
            fused=self.device.type == "cuda" or None,  # else it makes temporaries as large as the weights
        )
        self.critic: Critic | None = None
        self.critic_optimizer: torch.optim.Optimizer | None = None
        if settings.estimator.kind == "gae":
            hidden_size = self.policy.model.config.hidden_size
            self.critic = Critic(settings, hidden_size, model_path, self.device, seed)
            self.critic_optimizer = self.critic.optimizer(settings, learning_rate)
        self.scaler = torch.amp.GradScaler(self.device.type, enabled=settings.precision == "fp16")
        self.version = 0
        """Batches learned from; the version of the published weights."""
        self.updates = 0
        """Optimizer updates, several to a batch."""
        self.health = Health()

    @property
    def microbatch_tokens(self) -> int:
        """The most that has fitted so far."""
        return max(1, (self.settings.microbatch_tokens or MICROBATCH_TOKENS) >> self.health.halvings)

    # ------------------------------------------------------------------ one step
    def step(self, batch: Batch) -> dict[str, float]:
        """Learn from one batch; every worker must be given the same.

        An update whose loss or gradient is not finite is skipped and halves the learning rate for good. Where memory
        runs out, micro-batches are halved for good and the update is computed again.

        Raises:
            NotFinite: too many updates in a row were skipped.
        """
        assert batch.step == self.version + 1, f"batch {batch.step} after version {self.version}"
        self.policy.activate()
        self._move_optimizer(self.device)
        usable = [i for i, sample in enumerate(batch.samples) if any(sample.trained)]
        metrics = {"samples": float(len(usable)), "learning_rate": self.current_learning_rate()}
        totals: dict[str, float] = defaultdict(float)
        if usable:
            targets = self._targets(batch, usable, metrics)
            rng = random.Random(batch.seed)
            for _ in range(self.settings.epochs):
                order = rng.sample(usable, len(usable))
                for start in range(0, len(order), self.settings.minibatch_samples):
                    chosen = order[start : start + self.settings.minibatch_samples]
                    self._update(batch, chosen, targets, totals, metrics)
        self._give_back()
        if totals["updates"] and not totals["skipped_updates"]:
            self.health.proved(self.version)
        self.version = batch.step
        return metrics | means(totals)

    def _targets(
        self, batch: Batch, usable: Sequence[int], metrics: dict[str, float]
    ) -> Mapping[int, Targets]:
        if not needs_first_pass(self.settings):
            return {i: targets_of(batch.samples[i], self.settings) for i in usable}

        def own() -> tuple[dict[int, Targets], torch.Tensor]:
            targets, differences = {}, [torch.zeros(1)]
            for micro, counts in self._own_micro_batches(batch, usable):
                of_micro, difference_P = self._first_pass(batch, micro)
                if counts:
                    targets |= of_micro
                    differences.append(difference_P.cpu())
            return targets, torch.cat(differences[1:] or differences)

        with torch.no_grad():
            mine, differences_P = self._within_memory(own)
            parts = self.world.gather((mine, differences_P))
        targets = {i: target for part, _ in parts for i, target in part.items()}
        if self.critic:
            whiten(batch.samples, targets)
        self._log_mismatch(torch.cat([differences for _, differences in parts]), metrics)
        return targets

    def _first_pass(self, batch: Batch, micro: MicroBatch) -> tuple[dict[int, Targets], torch.Tensor]:
        """Targets by the learner's networks before the first update, and how far engine and learner are apart."""
        with self._autocast():
            scores = self.policy.score(micro.row, micro.sampled_N, batch.temperature)
            values = self.critic(micro.row, micro.sampled_N, scores.hidden_PH).cpu() if self.critic else None
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
        """One optimizer update on one minibatch, unless its gradient is not finite."""
        sums, differences = self._within_memory(lambda: self._accumulate(batch, chosen, targets))
        if "mismatch_max" not in metrics:  # nothing was learned yet
            self._log_mismatch(torch.cat(self.world.gather(differences)), metrics)
        sums = self.world.sums(sums)
        self.world.sum_gradients(self._parameters(), 1 / self._loss_scale())
        optimizers = [o for o in (self.optimizer, self.critic_optimizer) if o is not None]
        for optimizer in optimizers:
            self.scaler.unscale_(optimizer)
        norm = self._clip(self.policy.trainable().values())
        critic_norm = self._clip(self.critic.parameters()) if self.critic else 0.0
        if not all(map(math.isfinite, (sums["loss"], norm, critic_norm))):
            self._skip(batch, sums["loss"], norm)
            totals["skipped_updates"] += 1
            return
        self.health.skipped_in_a_row = 0
        self._set_learning_rates()
        for optimizer in optimizers:
            self.scaler.step(optimizer)
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
        """Gradients of this worker's part of a minibatch; (sums for the log, its mismatches)."""
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
        for position, (micro, counts) in enumerate(self._own_micro_batches(batch, chosen)):
            # While KL is not in the loss it is only watched: in the first part of each minibatch.
            with self._autocast():
                part = objective.part(micro, measure_kl=position == 0)
            self.scaler.scale(part.loss * (self._loss_scale() if counts else 0)).backward()
            if counts:
                sums["loss"] += part.loss.item()
                for name, value in part.sums.items():
                    sums[name] += value
                differences.append(part.mismatches_P.cpu())
        return sums, torch.cat(differences[1:] or differences)

    def _own_micro_batches(self, batch: Batch, chosen: Sequence[int]):
        """(micro-batch, whether it counts) of this worker. Under FSDP all have equally many, or they would wait for
        each other: some repeat one that does not count."""
        chunks = plan(batch.samples, chosen, self.microbatch_tokens)
        while self.world.size > len(chunks) and len(chunks) < len(chosen):  # a share for everybody
            longest = max(range(len(chunks)), key=lambda n: len(chunks[n]))
            half = len(chunks[longest]) // 2
            chunks[longest : longest + 1] = [chunks[longest][:half], chunks[longest][half:]]
        mine = [(chunk, True) for chunk in chunks[self.world.rank :: self.world.size]]
        if self.settings.sharding == "fsdp":
            most = -(-len(chunks) // self.world.size)
            mine += [(chunks[0], False)] * (most - len(mine))
        for chunk, counts in mine:
            yield pack(batch.samples, chunk, self.device), counts

    def _clip(self, parameters: Iterable[torch.nn.Parameter]) -> float:
        """Scale the gradient of one network down to norm gradient_clip; the norm that it had. Policy and critic apart:
        a large error of the values must not shrink the policy's update."""
        return total(torch.nn.utils.clip_grad_norm_(parameters, self.settings.gradient_clip))

    def _loss_scale(self) -> int:
        """FSDP averages over the ranks what is to be summed (a sum of its own it cannot have over gloo)."""
        return self.world.size if self.settings.sharding == "fsdp" else 1

    def _parameters(self) -> list[torch.nn.Parameter]:
        return [*self.policy.trainable().values(), *(self.critic.parameters() if self.critic else ())]

    def _autocast(self) -> torch.autocast:
        dtype = DTYPES.get(self.settings.precision or "fp32")
        return torch.autocast(self.device.type, dtype=dtype, enabled=dtype is not None)

    # ------------------------------------------------------------------ faults
    def _skip(self, batch: Batch, loss: float, norm: float) -> None:
        overflow = False
        if self.scaler.is_enabled():
            self.scaler.update()
            overflow = math.isfinite(loss) and self.scaler.get_scale() > 1
        what = remedy(self.health, overflow=overflow)
        if what is Remedy.SKIP:
            return
        if what is not Remedy.HALVE:
            raise NotFinite(
                f"the loss of batch {batch.step} is {loss}, the {self.health.skipped_in_a_row + 1}th update in a row "
                f"that is not finite: lower the learning rate (now {self.current_learning_rate():.3g}) and resume from "
                "the last checkpoint"
            )
        self.health.halve()
        log.warning(
            "batch %d: loss %g, gradient norm %g, rewards %s: update skipped, learning rate now %.3g",
            batch.step,
            loss,
            norm,
            sorted({round(sample.reward, 3) for sample in batch.samples})[:20],
            self.current_learning_rate(),
        )

    def _within_memory(self, work: Callable[[], Result]) -> Result:
        """work()'s result, with micro-batches halved until they fit every worker."""
        while True:
            reason, result = "", None
            try:
                result = work()
            except RuntimeError as error:
                # FSDP's other workers wait within the pass: nothing can be agreed with them
                if (
                    not _is_out_of_memory(error)
                    or self.settings.sharding == "fsdp"
                    or self.microbatch_tokens < 2
                ):
                    raise
                reason = str(error).splitlines()[0]
            reasons = [r for r in self.world.gather(reason) if r]
            if not reasons:
                return result  # pyright: ignore[reportReturnType]
            if self.device.type == "cuda":
                torch.cuda.empty_cache()
            self.health.halvings += 1
            log.warning("out of memory, microbatch_tokens now %d: %s", self.microbatch_tokens, reasons[0])

    def _move_optimizer(self, device: torch.device) -> None:
        if not self.settings.offload_optimizer:
            return
        for optimizer in filter(None, (self.optimizer, self.critic_optimizer)):
            for state in optimizer.state.values():
                for name, value in state.items():
                    if isinstance(value, torch.Tensor) and value.dim():
                        state[name] = value.to(device)

    def _give_back(self) -> None:
        """Between steps a GPU is others' who share it: this allocator would keep all that it ever had."""
        self._move_optimizer(torch.device("cpu"))
        if self.device.type == "cuda" and (self.settings.gpus or 0) < 1:
            for optimizer in filter(None, (self.optimizer, self.critic_optimizer)):
                optimizer.zero_grad(set_to_none=True)
            torch.cuda.empty_cache()

    def _set_learning_rates(self) -> None:
        """The schedule is the policy's and that of a critic's trunk; a head learns at its own, but halved with them."""
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

    def export(self) -> WeightUpdate:
        """All workers must ask for it; only rank 0 gets the tensors."""
        self.policy.activate()
        in_half = self.settings.sharding == "fsdp"  # there layers have no other weights
        with self._autocast() if in_half else nullcontext():
            update = export_weights(self.policy, self.version, keep=self.world.rank == 0)
        self._give_back()
        return update


def total(norm: torch.Tensor) -> float:
    return float(norm.full_tensor() if isinstance(norm, DTensor) else norm)


def means(totals: Mapping[str, float]) -> dict[str, float]:
    """Sums over updates and tokens as means."""
    totals = dict(totals)
    tokens = max(totals.pop("tokens", 0.0), 1.0)
    per = {
        "value_loss": max(totals.pop("sampled_tokens", 0.0), 1.0),
        "kl_to_warm_start": max(totals.pop("kl_tokens", 0.0), 1.0),
        "gradient_norm": max(totals.pop("updates", 0.0), 1.0),
    }
    metrics = {"skipped_updates": totals.pop("skipped_updates", 0.0), "trained_tokens": tokens}
    metrics["gradient_norm"] = totals.pop("gradient_norm", 0.0) / per["gradient_norm"]
    return metrics | {name: total / per.get(name, tokens) for name, total in totals.items()}


def _is_out_of_memory(error: RuntimeError) -> bool:
    """On CPU torch raises a plain RuntimeError, and so do CUDA's libraries where a GPU is shared."""
    said = ("can't allocate memory", "ALLOC_FAILED", "out of memory")
    return isinstance(error, torch.OutOfMemoryError) or any(words in str(error) for words in said)
