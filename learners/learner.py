"""One policy's learner: a plain class, no Ray. `step(batch)` is one PPO-style update."""

import copy
import math
import random
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from core.batch import Batch, Sample
from core.weights import WeightUpdate
from learners.advantages.gae import gae
from learners.losses import clipped_surrogate, kl_k3
from learners.models import ValueHead, load_model, score_tokens
from learners.packing import MicroBatch, micro_batches
from learners.settings import LearnerSettings
from learners.weights import export_weights

STATE_FILE = "learner_state.pt"


@dataclass(slots=True)
class _Targets:
    """Per sample, over its sampled tokens in order (S of them)."""

    advantages_S: torch.Tensor
    returns_S: torch.Tensor | None
    """None for critic-free estimators."""


class Learner:
    """Owns model, reference, value head and optimizers. Metrics are plain floats.

    `reference_path` is the warm start: the KL that is logged is measured against it for the whole run.
    """

    def __init__(
        self,
        settings: LearnerSettings,
        learning_rate: float,
        model_path: str | Path,
        reference_path: str | Path,
        device: str = "cpu",
        seed: int = 0,
    ) -> None:
        self.settings, self.learning_rate, self.device = settings, learning_rate, torch.device(device)
        self.model = load_model(model_path, self.device)
        self.model.train()  # load_model has taken dropout out; gradient checkpointing wants train mode
        if settings.gradient_checkpointing:
            self.model.gradient_checkpointing_enable()
        same = str(model_path) == str(reference_path)
        self.reference = copy.deepcopy(self.model) if same else load_model(reference_path, self.device)
        self.reference.eval().requires_grad_(False)
        self.optimizer = torch.optim.AdamW(
            self.model.parameters(), lr=learning_rate, betas=(0.9, 0.95), weight_decay=0.0
        )
        self.value_head: ValueHead | None = None
        if settings.estimator == "gae":
            with torch.random.fork_rng(devices=[]):
                torch.manual_seed(seed)
                self.value_head = ValueHead(self.model.config.hidden_size, settings.value_hidden).to(
                    self.device
                )
            self.value_optimizer = torch.optim.AdamW(
                self.value_head.parameters(), lr=settings.value_learning_rate, weight_decay=0.0
            )
        self.version = 0
        """Batches learned from; the version of the published weights."""
        self.updates = 0
        """Optimizer updates, several to a batch."""

    # ------------------------------------------------------------------ one step
    def step(self, batch: Batch) -> dict[str, float]:
        """Learn from one batch. Raises FloatingPointError where the loss is not finite; nothing is changed then
        beyond the minibatches before it."""
        assert batch.step == self.version + 1, f"batch {batch.step} after version {self.version}"
        usable = [i for i, s in enumerate(batch.samples) if any(s.trained)]
        totals: dict[str, float] = defaultdict(float)
        metrics = {"samples": float(len(usable)), "learning_rate": self._learning_rate()}
        if usable:
            targets, metrics_before = self._targets(batch, usable)
            metrics |= metrics_before
            rng = random.Random(batch.seed)
            for _ in range(self.settings.epochs):
                order = rng.sample(usable, len(usable))
                for start in range(0, len(order), self.settings.minibatch_samples):
                    chosen = order[start : start + self.settings.minibatch_samples]
                    self._update(batch, chosen, targets, totals)
        self.version = batch.step
        tokens = max(totals.pop("tokens", 0.0), 1.0)
        updates = max(totals.pop("updates", 0.0), 1.0)
        metrics["gradient_norm"] = totals.pop("gradient_norm", 0.0) / updates
        value_tokens = max(totals.pop("value_tokens", 0.0), 1.0)
        if "value_loss" in totals:
            metrics["value_loss"] = totals.pop("value_loss") / value_tokens
        return metrics | {name: total / tokens for name, total in totals.items()} | {"trained_tokens": tokens}

    @torch.no_grad()
    def _targets(self, batch: Batch, usable: Sequence[int]) -> tuple[dict[int, _Targets], dict[str, float]]:
        """Advantages of every sample, and how far engine and learner are apart before the first update."""
        targets: dict[int, _Targets] = {}
        differences = []
        for micro in self._micro_batches(batch.samples, usable):
            scores = score_tokens(self.model, micro.tokens_BT, micro.sampled_BT, batch.temperature)
            behaviour = micro.logprobs_BT[micro.sampled_BT]
            differences.append((scores.logprobs_N - behaviour).abs())
            counts = micro.sampled_BT.sum(1).tolist()
            values_N = self.value_head(scores.hidden_NH) if self.value_head else None
            start = 0
            for index, count in zip(micro.indices, counts, strict=True):
                values = values_N[start : start + count] if values_N is not None else None
                targets[index] = self._sample_targets(batch.samples[index], count, values)
                start += count
        if self.value_head:
            self._normalise(batch, targets)
        all_differences = torch.cat(differences)
        return targets, {
            "mismatch_max": all_differences.max().item(),
            "mismatch_mean": all_differences.mean().item(),
        }

    def _sample_targets(self, sample: Sample, count: int, values_S: torch.Tensor | None) -> _Targets:
        if values_S is None:
            if sample.advantage is None:
                raise ValueError("estimator grpo needs samples with advantages")
            return _Targets(torch.full((count,), sample.advantage, device=self.device), None)
        rewards = torch.zeros(count, device=self.device)
        rewards[-1] = sample.reward
        return _Targets(*gae(rewards, values_S, self.settings.gamma, self.settings.lam))

    def _normalise(self, batch: Batch, targets: Mapping[int, _Targets]) -> None:
        """Zero mean, unit variance over the trained tokens of the batch (PPO's usual; GRPO has its group's)."""
        masks = {i: self._trained_of_sampled(batch.samples[i]) for i in targets}
        pooled = torch.cat([t.advantages_S[masks[i]] for i, t in targets.items()])
        mean = pooled.mean()
        std = pooled.std() if len(pooled) > 1 else torch.ones((), device=self.device)
        for target in targets.values():
            target.advantages_S = (target.advantages_S - mean) / (std + 1e-6)

    def _trained_of_sampled(self, sample: Sample) -> torch.Tensor:
        mask = [t for t, s in zip(sample.trained, sample.sampled, strict=True) if s]
        return torch.tensor(mask, dtype=torch.bool, device=self.device)

    def _update(
        self, batch: Batch, chosen: Sequence[int], targets: Mapping[int, _Targets], totals: dict[str, float]
    ) -> None:
        """One optimizer update on one minibatch, by micro-batches."""
        trained = sum(sum(batch.samples[i].trained) for i in chosen)
        sampled = sum(sum(batch.samples[i].sampled) for i in chosen)
        self.optimizer.zero_grad(set_to_none=True)
        if self.value_head:
            self.value_optimizer.zero_grad(set_to_none=True)
        for micro in self._micro_batches(batch.samples, chosen):
            loss = self._micro_loss(micro, batch.temperature, targets, trained, sampled, totals)
            if not math.isfinite(loss.item()):
                raise FloatingPointError(
                    f"the loss of batch {batch.step} is {loss.item()}: lower the learning rate "
                    f"(now {self._learning_rate():.3g}) and resume from the last checkpoint"
                )
            loss.backward()
        norm = torch.nn.utils.clip_grad_norm_(self.model.parameters(), self.settings.gradient_clip)
        for group in self.optimizer.param_groups:
            group["lr"] = self._learning_rate()
        self.optimizer.step()
        if self.value_head:
            self.value_optimizer.step()
        self.updates += 1
        totals["gradient_norm"] += norm.item()
        totals["updates"] += 1
        totals["tokens"] += trained
        totals["value_tokens"] += sampled

    def _micro_loss(
        self,
        micro: MicroBatch,
        temperature: float,
        targets: Mapping[int, _Targets],
        trained: int,
        sampled: int,
        totals: dict[str, float],
    ) -> torch.Tensor:
        """Token-mean over the minibatch's trained tokens (the value loss: over its sampled tokens)."""
        settings = self.settings
        scores = score_tokens(self.model, micro.tokens_BT, micro.sampled_BT, temperature)
        mask = micro.trained_BT[micro.sampled_BT]
        advantages = torch.cat([targets[i].advantages_S for i in micro.indices])[mask]
        logprobs, entropy = scores.logprobs_N[mask], scores.entropy_N[mask]
        old = micro.logprobs_BT[micro.sampled_BT][mask]
        policy = clipped_surrogate(logprobs, old, advantages, settings.clip_low, settings.clip_high)
        with torch.no_grad():
            reference = score_tokens(
                self.reference, micro.tokens_BT, micro.trained_BT, temperature
            ).logprobs_N
        kl = kl_k3(logprobs, reference)
        loss = policy.loss / trained
        loss = loss - settings.entropy_coefficient * entropy.sum() / trained
        loss = loss + settings.kl_coefficient * kl.sum() / trained
        totals["policy_loss"] += policy.loss.item()
        totals["clip_fraction"] += policy.clipped.item()
        totals["approximate_kl"] += policy.approximate_kl.item()
        totals["entropy"] += entropy.sum().item()
        totals["kl_to_warm_start"] += kl.sum().item()
        if self.value_head:
            returns = torch.cat([r for i in micro.indices if (r := targets[i].returns_S) is not None])
            value_loss = (self.value_head(scores.hidden_NH.detach()) - returns).square().sum()
            totals["value_loss"] += value_loss.item()
            loss = loss + value_loss / sampled
        return loss

    def _micro_batches(self, samples: Sequence[Sample], indices: Sequence[int]):
        return micro_batches(samples, indices, self.settings.microbatch_tokens, self.device)

    def _learning_rate(self) -> float:
        return self.learning_rate * min(1.0, (self.updates + 1) / max(1, self.settings.warmup_updates))

    # ------------------------------------------------------------------ weights and state
    def export(self) -> WeightUpdate:
        return export_weights(self.model, self.version)

    def save(self, directory: Path) -> None:
        """Model in Hugging Face format, everything else in learner_state.pt."""
        self.model.save_pretrained(directory)
        state = {
            "version": self.version,
            "updates": self.updates,
            "optimizer": self.optimizer.state_dict(),
            "value_head": self.value_head.state_dict() if self.value_head else None,
            "value_optimizer": self.value_optimizer.state_dict() if self.value_head else None,
        }
        torch.save(state, directory / STATE_FILE)

    def load_state(self, directory: Path) -> None:
        """Optimizer, value head and counters of a checkpoint whose model this learner was built from."""
        state = torch.load(directory / STATE_FILE, map_location=self.device, weights_only=True)
        if (state["value_head"] is None) != (self.value_head is None):
            was = "grpo" if state["value_head"] is None else "gae"
            raise ValueError(
                f"{directory}: saved with estimator {was}, this run uses {self.settings.estimator}: "
                "resume with the same estimator or start a new run"
            )
        self.version, self.updates = state["version"], state["updates"]
        self.optimizer.load_state_dict(state["optimizer"])
        if self.value_head:
            self.value_head.load_state_dict(state["value_head"])
            self.value_optimizer.load_state_dict(state["value_optimizer"])
