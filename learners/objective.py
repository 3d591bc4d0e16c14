"""The loss of one micro-batch, as its part of the minibatch's loss."""

import random
from collections.abc import Mapping
from dataclasses import dataclass

import torch

from learners.critic import Critic
from learners.losses import importance_weights, kl, policy_loss, value_loss
from learners.packing import MicroBatch, PackedRow, row_of
from learners.settings import LearnerSettings
from learners.targets import Targets
from learners.tuning import Tuning

WATCHED = 16
"""If the loss does not need KL to the initial model, it is measured on one sequence out of this many."""


@dataclass(frozen=True, slots=True)
class Size:
    """Size of a whole minibatch, over all workers."""

    samples: int
    trained: int
    """Number of tokens that carry policy loss."""
    sampled: int
    """Number of tokens that carry value loss."""


@dataclass(frozen=True, slots=True)
class LossTerms:
    """The contribution of one micro-batch."""

    loss: torch.Tensor
    sums: dict[str, float]
    """Sums for the log, over the trained tokens; value_loss is summed over the sampled tokens."""
    mismatches_P: torch.Tensor
    """|learner's - engine's log-probability| of the trained tokens."""


@dataclass(frozen=True, slots=True)
class Objective:
    """The loss of one minibatch, which is to be minimised."""

    settings: LearnerSettings
    policy: Tuning
    critic: Critic | None
    targets: Mapping[int, Targets]
    temperature: float
    size: Size

    def part(self, micro: MicroBatch, *, watch: random.Random | None = None) -> LossTerms:
        """Returns the contribution of a micro-batch.

        Args:
            watch: Draws the sequences that the reference scores even if the loss does not need KL. None: it scores none then.
        """
        settings = self.settings
        scores = self.policy.score(
            micro.row,
            micro.trained_N,
            self.temperature,
            entropy_gradient=settings.entropy_coefficient > 0,
            hidden_N=micro.sampled_N if self.critic else None,
        )
        logprobs, entropy = scores.logprobs_P, scores.entropy_P
        sequences = micro.sequences_N[micro.trained_N]
        per_token, sums = self._policy_loss(micro, logprobs, sequences)
        sums["entropy"] = entropy.sum().item()
        if settings.entropy_coefficient:
            per_token = per_token - settings.entropy_coefficient * entropy
        in_loss = settings.kl.kind == "loss"
        if in_loss or (watch is not None and settings.kl.kind != "none"):
            row, trained_N, here = micro.row, micro.trained_N, logprobs
            if watch is not None and not in_loss:
                row, of_row_N = _share(micro, watch)
                trained_N, here = micro.trained_N[of_row_N], logprobs[of_row_N[micro.trained_N]]
            reference = self.policy.score_reference(row, trained_N, self.temperature).logprobs_P
            sums["kl_to_initial"] = kl(here.detach(), reference).sum().item()
            sums["kl_tokens"] = float(len(reference))
            if settings.kl.kind == "loss":
                per_token = per_token + settings.kl.coefficient * kl(here, reference, settings.kl.estimator)
        loss = (per_token * self._weights(micro, sequences)).sum()
        if self.critic:
            errors = self._value_errors(self.critic, micro, scores.hidden_SH)
            sums["value_loss"] = errors.item()
            loss = loss + errors / self.size.sampled
        return LossTerms(loss, sums, (logprobs.detach() - micro.logprobs_N[micro.trained_N]).abs())

    def _policy_loss(
        self, micro: MicroBatch, logprobs: torch.Tensor, sequences: torch.Tensor
    ) -> tuple[torch.Tensor, dict[str, float]]:
        """Returns (loss of each trained token, sums for the log)."""
        settings, trained = self.settings, micro.trained_N[micro.sampled_N]
        behaviour = old = micro.logprobs_N[micro.trained_N]
        if settings.importance_cap:
            only_update = self.targets[micro.indices[0]].logprobs_S is None
            old = logprobs.detach() if only_update else self._sampled(micro, "logprobs_S")[trained]
        found = policy_loss(
            logprobs,
            old,
            self._sampled(micro, "advantages_S")[trained],
            sequences,
            objective=settings.objective,
            clip_low=settings.clip_low,
            clip_high=settings.clip_high,
            dual_clip=settings.dual_clip,
        )
        losses = found.loss_N
        if settings.importance_cap:
            losses = losses * importance_weights(old, behaviour, settings.importance_cap)
        sums = {
            "policy_loss": losses.sum().item(),
            "clip_fraction": found.clipped_N.sum().item(),
            "approximate_kl": found.approximate_kl_N.sum().item(),
        }
        return losses, sums

    def _value_errors(self, critic: Critic, micro: MicroBatch, hidden_SH: torch.Tensor) -> torch.Tensor:
        values = critic(micro.row, micro.sampled_N, hidden_SH)
        old_values, returns = (self._sampled(micro, name) for name in ("values_S", "returns_S"))
        return value_loss(values, old_values, returns, self.settings.gae.value_clip).sum()

    def _sampled(self, micro: MicroBatch, name: str) -> torch.Tensor:
        """Returns one field of the targets, over all sampled tokens of the micro-batch."""
        return torch.cat([getattr(self.targets[i], name) for i in micro.indices]).to(micro.logprobs_N.device)

    def _weights(self, micro: MicroBatch, sequences: torch.Tensor) -> torch.Tensor | float:
        """Returns the weight of each trained token's loss in the minibatch's loss."""
        match self.settings.loss_normaliser:
            case "token":
                return 1.0 / self.size.trained
            case "sequence":
                counts = torch.bincount(sequences, minlength=len(micro.indices))
                return 1.0 / (self.size.samples * counts[sequences])
            case "constant":
                assert self.settings.max_loss_tokens is not None
                return 1.0 / (self.size.samples * self.settings.max_loss_tokens)


def _share(micro: MicroBatch, rng: random.Random) -> tuple[PackedRow, torch.Tensor]:
    """Returns (a row of a sixteenth of the sequences, which of the micro-batch's tokens are in it): enough to monitor KL, at 2%
    of an update's work. They are drawn, since sequences lie in the order of their tokens."""
    count = len(micro.row.lengths)
    drawn = sorted(rng.sample(range(count), -(-count // WATCHED)))
    sequences = micro.row.tokens_N.split(micro.row.lengths)
    row = row_of([sequences[i].tolist() for i in drawn], micro.row.tokens_N.device)
    return row, torch.isin(micro.sequences_N, torch.tensor(drawn, device=micro.sequences_N.device))
