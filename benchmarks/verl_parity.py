"""Compares estimators and losses with verl's, on the same model, completions, rewards and log-probabilities.

verl as a whole needs a GPU's libraries, but its algorithms are functions of padded tensors. They are extracted by name
from its unmodified source (its wheel, which `make .bench` unpacks): only their decorators, which register them, and the
classes of its configs are left out. The first table has whole updates, as in benchmarks/trl_parity.py: this project's
`Advantages.credit` and `Learner.step` against verl's functions on a plain forward pass of the same model, fp32.
The second table has definitions, in fp64 on random tensors with gaps between the sampled tokens, up to log ratios of
30.

Known differences, which are not compared: verl keeps groups whose rewards are all equal, with an advantage of about 0,
and counts their tokens (here they are left out); its GRPO divides by std + 1e-6 (it is given this project's 1e-4); its
value loss is half of this project's (it is doubled).
"""

import __future__

import ast
import sys
import tempfile
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from transformers import AutoModelForCausalLM

from benchmarks.report import arguments, write
from benchmarks.trl_parity import (
    CLIP,
    DR_GRPO,
    GSPO,
    KL,
    LIMIT,
    RLOO,
    SEQUENCE,
    TOKEN,
    Case,
    differences,
    learn,
    line,
    recorded,
)
from benchmarks.trl_runner import TRL_DIRECTORY, Observed, Recorded, gradient, make_models
from learners.advantages.gae import gae
from learners.losses import Objective, kl, policy_loss, value_loss
from learners.settings import LearnerSettings
from learners.targets import Targets, whiten
from sparring.core.batch import Sample

VERL = TRL_DIRECTORY / "verl"
FUNCTIONS = {
    "utils/torch_functional.py": (
        "masked_sum",
        "masked_mean",
        "masked_var",
        "masked_whiten",
        "clip_by_value",
    ),
    "trainer/ppo/rollout_corr_helper.py": (
        "SAFETY_BOUND",
        "_parse_rollout_is_threshold",
        "compute_is_metrics",
        "compute_rollout_correction_weights",
    ),
    "trainer/ppo/core_algos.py": (
        "agg_loss",
        "compute_gae_advantage_return",
        "compute_grpo_outcome_advantage",
        "compute_rloo_outcome_advantage",
        "compute_reinforce_plus_plus_outcome_advantage",
        "compute_policy_loss_vanilla",
        "compute_policy_loss_gspo",
        "compute_policy_loss_cispo",
        "compute_value_loss",
        "kl_penalty",
        "kl_penalty_forward",
    ),
}
"""Functions to extract, by file. Those of a file see those of the files before it as verl_F, which is verl's name for
them."""

AGGREGATION = {
    "token": "token-mean",
    "sequence": "seq-mean-token-mean",
    "constant": "seq-mean-token-sum-norm",
}
CISPO = {**TOKEN, "objective": "cispo"}
CAP = {"importance_cap": 1.1}
NO_DUAL_CLIP = 1e12
"""A dual clip so high that no ratio reaches it (they are e^20 at most), since verl always applies one."""
CASES = (
    Case("grpo", SEQUENCE, {}),
    Case("grpo, on policy", SEQUENCE, {}, off_policy=0.0),
    Case("grpo, temperature 0.7", SEQUENCE, {}, temperature=0.7),
    Case("grpo, inserted tokens", SEQUENCE, {}, data={"inserted": True}),
    Case("grpo, dual clip 1.5", {**SEQUENCE, "dual_clip": 1.5}, {}, off_policy=0.6),
    Case("grpo, token mean", TOKEN, {}),
    Case("grpo, token mean, KL (k3)", {**TOKEN, **KL}, {}),
    Case("grpo, KL (k3)", {**SEQUENCE, **KL}, {}),
    Case("grpo, entropy bonus", {**SEQUENCE, "entropy_coefficient": 0.01}, {}),
    Case("grpo, truncated importance weights", {**TOKEN, **CAP}, {}),
    Case("dr_grpo", DR_GRPO, {}),
    Case("dr_grpo, KL (k3)", {**DR_GRPO, **KL}, {}),
    Case("rloo", RLOO, {}),
    Case("gspo", GSPO, {}, off_policy=0.01),
    Case("gspo, truncated importance weights", {**GSPO, **CAP}, {}),
    Case("cispo", CISPO, {}),
    Case("cispo, truncated importance weights", {**CISPO, **CAP}, {}),
)


@dataclass(frozen=True, kw_only=True)
class ActorConfig:
    """The fields that verl's losses read from its class of this name."""

    clip_ratio: float = 0.2
    clip_ratio_low: float = CLIP["clip_low"]
    clip_ratio_high: float = CLIP["clip_high"]
    clip_ratio_c: float = NO_DUAL_CLIP
    global_batch_info: Mapping[str, Any] = field(default_factory=dict)

    def get(self, name: str, otherwise: Any) -> Any:
        return getattr(self, name, otherwise)


@dataclass(frozen=True)
class AlgoConfig:
    gamma: float


def main() -> None:
    options = arguments(__doc__).parse_args()
    verl = load_verl()
    version = (VERL / "version" / "version").read_text().strip()
    torch.set_num_threads(1)
    updates: dict[str, dict[str, float]] = {}
    print(f"relative differences to verl {version}; below {LIMIT:g} means equal")
    print(f"{'':<42} {'advantages':>11} {'loss':>9} {'norm':>9} {'gradient':>9}")
    with tempfile.TemporaryDirectory() as directory:
        models = make_models(Path(directory))
        for case in CASES[:: 4 if options.quick else 1]:
            data = recorded(case, models[0])
            row = differences(learn(case, models, data), update(verl, case, models, data))
            updates[case.name] = row
            print(line(case.name, row))
    found = definitions(verl)
    print("\nlargest differences of the definitions")
    for name, value in found.items():
        print(f"{name:<42} {value:11.1e}")
    all_of_them = {name: max(row.values()) for name, row in updates.items()} | found
    figures = {
        "verl_version": version,
        "updates": updates,
        "definitions": found,
        "cases": len(updates),
        "largest_of_updates": max(max(row.values()) for row in updates.values()),
        "largest_of_definitions": max(v for name, v in found.items() if "whitened" not in name),
        "largest_of_whitened": max(v for name, v in found.items() if "whitened" in name),
    }
    write(options.json, figures, {})
    unequal = [name for name, value in all_of_them.items() if not value < LIMIT]  # a NaN is not equal either
    if unequal:
        raise SystemExit(f"not equal to verl: {', '.join(unequal)}")


# ---------------------------------------------------------------------- verl
def load_verl() -> Any:
    """Returns verl's functions by name; ends the program if verl is not installed."""
    if not VERL.is_dir():
        sys.exit("verl is not installed (it is needed by this benchmark only): run `make .bench`")
    given: dict[str, Any] = {
        "torch": torch,
        "np": np,
        "defaultdict": defaultdict,
        "ActorConfig": ActorConfig,
        "AlgoConfig": AlgoConfig,
    }
    found: dict[str, Any] = {}
    for file, names in FUNCTIONS.items():
        found |= cut(VERL / file, names, given | {"verl_F": SimpleNamespace(**found)})
    return SimpleNamespace(**found)


def cut(path: Path, names: Sequence[str], given: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the functions and constants with these names, as in the file but without their decorators."""
    chosen: list[ast.stmt] = []
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.FunctionDef) and node.name in names:
            node.decorator_list = []
            chosen.append(node)
        elif isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) in names:
            chosen.append(node)
    space = dict(given)
    module = ast.Module(chosen, type_ignores=[])
    # annotations are not evaluated: they name classes that are missing here
    exec(compile(module, str(path), "exec", flags=__future__.annotations.compiler_flag), space)
    return {name: space[name] for name in names}


# ---------------------------------------------------------------------- whole updates
def update(verl: Any, case: Case, models: tuple[Path, Path], data: Recorded) -> Observed:
    """Computes advantages, loss and gradient as verl's trainer combines them."""
    settings = LearnerSettings(**case.ours)
    model, reference = (AutoModelForCausalLM.from_pretrained(path) for path in models)
    mask_BT, old_BT = padded(data.trained), padded(data.old_logprobs)
    logprobs_BT, entropy_BT = scored(model, data, case.temperature)
    advantages_BT = advantages(verl, settings, data, mask_BT)
    weights_BT = None
    if settings.importance_cap:
        engines_BT, old_BT = old_BT, logprobs_BT.detach()
        weights_BT, _ = verl.compute_rollout_correction_weights(
            old_BT - engines_BT, mask_BT, rollout_is_threshold=settings.importance_cap
        )
    scale = {} if settings.max_loss_tokens is None else {"loss_scale_factor": settings.max_loss_tokens}
    config = ActorConfig(
        clip_ratio_low=settings.clip_low,
        clip_ratio_high=settings.clip_high,
        clip_ratio_c=settings.dual_clip or NO_DUAL_CLIP,
        global_batch_info=scale,
    )
    mode = AGGREGATION[settings.loss_normaliser]
    loss, _ = policy_loss_of(verl, settings.objective)(
        old_BT, logprobs_BT, advantages_BT, mask_BT, mode, config, weights_BT
    )
    if settings.kl.kind == "loss":
        with torch.no_grad():
            theirs_BT, _ = scored(reference, data, case.temperature)
        penalty_BT = verl.kl_penalty(logprobs_BT, theirs_BT, settings.kl.estimator)
        loss = loss + settings.kl.coefficient * verl.agg_loss(penalty_BT, mask_BT, mode, **scale)
    loss = loss - settings.entropy_coefficient * verl.agg_loss(entropy_BT, mask_BT, mode, **scale)
    loss.backward()
    of_samples = (advantages_BT * mask_BT).sum(-1) / mask_BT.sum(-1)
    return Observed(of_samples, [loss.item()], gradient(model))


def policy_loss_of(verl: Any, objective: Objective) -> Callable[..., Any]:
    return getattr(verl, f"compute_policy_loss_{'vanilla' if objective == 'ppo' else objective}")


def advantages(verl: Any, settings: LearnerSettings, data: Recorded, mask_BT: torch.Tensor) -> torch.Tensor:
    rewards_BT = torch.zeros_like(mask_BT)
    rewards_BT[:, 0] = torch.tensor(data.rewards)  # verl sums them
    groups = np.arange(len(data)) // data.group
    kind = settings.estimator.kind
    if kind == "rloo":
        return verl.compute_rloo_outcome_advantage(rewards_BT, mask_BT, groups)[0]
    return verl.compute_grpo_outcome_advantage(
        rewards_BT, mask_BT, groups, epsilon=1e-4, norm_adv_by_std_in_grpo=kind == "grpo"
    )[0]


def scored(model: Any, data: Recorded, temperature: float) -> tuple[torch.Tensor, torch.Tensor]:
    """Returns log-probabilities and entropies of the completions' tokens, each [B, T]."""
    logprobs, entropies = [], []
    for prompt, completion in zip(data.prompts, data.completions, strict=True):
        logits = model(torch.tensor([prompt + completion])).logits[0, len(prompt) - 1 : -1] / temperature
        every = logits.log_softmax(-1)
        logprobs.append(every.gather(1, torch.tensor(completion)[:, None])[:, 0])
        entropies.append(-(every.exp() * every).sum(-1))
    pad = torch.nn.utils.rnn.pad_sequence
    return pad(logprobs, batch_first=True), pad(entropies, batch_first=True)


def padded(rows: Sequence[Sequence[float]]) -> torch.Tensor:
    return torch.nn.utils.rnn.pad_sequence([torch.tensor(row, dtype=torch.float32) for row in rows], True)


# ---------------------------------------------------------------------- definitions
def definitions(verl: Any) -> dict[str, float]:
    """Returns the largest differences, in fp64: absolute if the numbers are about 1, otherwise relative."""
    drawn = torch.Generator().manual_seed(0)
    size = (40, 50)

    def noise(scale: float = 1.0) -> torch.Tensor:
        return scale * torch.randn(size, generator=drawn, dtype=torch.float64)

    lengths = torch.randint(2, size[1], (size[0], 1), generator=drawn)
    chosen = (torch.arange(size[1]) < lengths) & (torch.rand(size, generator=drawn) < 0.8)
    chosen[:, 0] = True
    chosen[0, 1] = True
    mask = chosen.double()
    return (
        of_advantages(verl, noise(), noise(), chosen, mask)
        | of_kl(verl, noise(10).clamp(-30, 30), mask)
        | of_values(verl, noise(), noise(), noise(), chosen, mask)
        | of_policy_losses(verl, noise(10).clamp(-30, 30), noise(), chosen, mask)
    )


def of_advantages(
    verl: Any, rewards: torch.Tensor, values: torch.Tensor, chosen: torch.Tensor, mask: torch.Tensor
) -> dict[str, float]:
    samples = [
        Sample(tokens=(), sampled=(True,) * n, trained=(True,) * n, logprobs=(), reward=0.0, advantage=None)
        for n in chosen.sum(-1).tolist()
    ]

    def whitened(advantages: Sequence[torch.Tensor]) -> torch.Tensor:
        targets = {i: Targets(row) for i, row in enumerate(advantages)}
        whiten(samples, targets)
        return torch.cat([targets[i].advantages_S for i in targets])

    found = {}
    for gamma, lam in ((1.0, 1.0), (0.97, 0.9)):
        theirs, returns = verl.compute_gae_advantage_return(rewards * mask, values, mask, gamma, lam)
        ours = [gae(r[c], v[c], gamma, lam) for r, v, c in zip(rewards, values, chosen, strict=True)]
        found[f"gae's returns, gamma {gamma:g}, lambda {lam:g}"] = apart(
            torch.cat([r for _, r in ours]), returns[chosen]
        )
        found[f"gae, gamma {gamma:g}, lambda {lam:g}, whitened"] = apart(
            whitened([a for a, _ in ours]), theirs[chosen]
        )
    outcomes = torch.zeros_like(rewards)
    outcomes[:, 0] = rewards[:, 0]
    for t in range(1, rewards.shape[1]):  # at each sequence's last token, where verl expects it
        last = chosen[:, t] & ~chosen[:, t + 1 :].any(-1)
        outcomes[last] = 0
        outcomes[last, t] = rewards[last, 0]
    theirs, _ = verl.compute_reinforce_plus_plus_outcome_advantage(outcomes, mask, config=AlgoConfig(1.0))
    ours = whitened([r[:1].expand(int(c.sum())) for r, c in zip(rewards, chosen, strict=True)])
    return found | {"reinforce_pp, whitened": apart(ours, theirs[chosen])}


def of_kl(verl: Any, differences: torch.Tensor, mask: torch.Tensor) -> dict[str, float]:
    found = {}
    for estimator in ("k1", "k2", "k3"):
        both = []
        for function in (kl, verl.kl_penalty):
            logprobs = torch.zeros_like(differences, requires_grad=True)
            values = function(logprobs, differences, estimator)
            (values * mask).sum().backward()
            assert logprobs.grad is not None
            both.append(torch.cat([values.detach(), logprobs.grad]))
        found[f"KL, {estimator}"] = apart(*both)
    return found


def of_values(
    verl: Any,
    old: torch.Tensor,
    new: torch.Tensor,
    returns: torch.Tensor,
    chosen: torch.Tensor,
    mask: torch.Tensor,
) -> dict[str, float]:
    found = {}
    for clip in (0.2, None):
        half, _ = verl.compute_value_loss(new, returns, old, mask, 1e6 if clip is None else clip)
        ours = value_loss(new[chosen], old[chosen], returns[chosen], clip).mean()
        found[f"value loss, clip {clip}"] = apart(ours, 2 * half)
    return found


def of_policy_losses(
    verl: Any, log_ratios: torch.Tensor, advantages: torch.Tensor, chosen: torch.Tensor, mask: torch.Tensor
) -> dict[str, float]:
    """Compares loss and gradient; for gspo, all tokens of a sequence have the same advantage, as it requires."""
    found = {}
    sequences = chosen.nonzero()[:, 0]
    cases: tuple[tuple[Objective, float | None], ...] = (
        ("ppo", None),
        ("ppo", 3.0),
        ("gspo", None),
        ("cispo", None),
    )
    for objective, dual_clip in cases:
        old = -log_ratios / (20 if objective == "gspo" else 1)  # bounded at e^10 in verl, at e^20 here
        weights = advantages[:, :1].expand_as(advantages) if objective == "gspo" else advantages
        logprobs = torch.zeros_like(old, requires_grad=True)
        theirs, shares = policy_loss_of(verl, objective)(
            old, logprobs, weights, mask, "token-mean", ActorConfig(clip_ratio_c=dual_clip or NO_DUAL_CLIP)
        )
        (theirs_gradient,) = torch.autograd.grad(theirs, logprobs)
        ours = policy_loss(
            logprobs[chosen],
            old[chosen],
            weights[chosen],
            sequences,
            objective=objective,
            dual_clip=dual_clip,
            **CLIP,
        )
        (ours_gradient,) = torch.autograd.grad(ours.loss_N.mean(), logprobs)
        scale = 1 + abs(theirs.item())  # without a dual clip, values of e^20 are common here
        name = f"{objective}, dual clip {dual_clip:g}" if dual_clip else objective
        found[name] = max(
            apart(ours.loss_N.mean() / scale, theirs / scale),
            apart(ours_gradient / scale, theirs_gradient / scale),
        )
        found[f"{name}, share clipped"] = abs(ours.clipped_N.mean().item() - shares["actor/pg_clipfrac"])
    return found


def apart(one: torch.Tensor, other: torch.Tensor) -> float:
    return (one - other).abs().max().item()


if __name__ == "__main__":
    main()
