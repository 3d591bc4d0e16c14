"""Compares advantages, loss and gradient of one update with TRL's, on the same model, completions, rewards and old
log-probabilities (Hugging Face TRL, GRPOTrainer and RLOOTrainer). Both sides divide by the group's std with Bessel's
correction plus 1e-4; TRL's constant for dr_grpo is max_completion_length, here max_loss_tokens.

Each row runs TRL's trainer for one optimizer update and this project's `Advantages.credit` and `Learner.step`, both in
fp32 with a learning rate of 0. In the rows of the second table the two define something differently, as the note
explains; the printed values are the resulting differences. The learner logs the policy loss and the KL as means over
tokens, so the loss of a minibatch is computed here from steps on one sample each; the gradient is that of the whole
minibatch.
"""

import dataclasses
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from benchmarks.report import arguments, write
from benchmarks.trl_runner import Observed, Recorded, gradient, load_trl, make_models, make_trainer, record
from learners.advantages.estimate import Advantages
from learners.learner import Learner
from learners.schedule import Constant
from learners.settings import LearnerSettings
from sparring.core.batch import Batch, Sample

LIMIT = 1e-5
CLIP = {"clip_low": 0.2, "clip_high": 0.28}
TRL_DEFAULTS = {"epsilon": 0.2, "epsilon_high": 0.28, "beta": 0.0, "max_completion_length": 64}
SEQUENCE = {"estimator": {"kind": "grpo"}, "loss_normaliser": "sequence", **CLIP}
TOKEN = {"estimator": {"kind": "grpo"}, "loss_normaliser": "token", **CLIP}
DR_GRPO = {"estimator": {"kind": "dr_grpo"}, "loss_normaliser": "constant", "max_loss_tokens": 64, **CLIP}
RLOO = {"estimator": {"kind": "rloo"}, "loss_normaliser": "constant", "max_loss_tokens": 1, **CLIP}
KL = {"kl": {"kind": "loss", "coefficient": 0.04}}
CISPO = {"estimator": {"kind": "grpo"}, "objective": "cispo", "clip_low": 0.999, "clip_high": 0.28}
GSPO = {**SEQUENCE, "objective": "gspo", "clip_low": 3e-4, "clip_high": 4e-4}
TRL_GSPO = {
    "loss_type": "grpo",
    "importance_sampling_level": "sequence",
    "epsilon": 3e-4,
    "epsilon_high": 4e-4,
}
TRL_DR_GRPO = {"loss_type": "dr_grpo", "scale_rewards": "none"}


@dataclass(frozen=True, slots=True)
class Case:
    name: str
    ours: dict[str, Any]
    theirs: dict[str, Any]
    """Keys of TRL's config, in addition to TRL_DEFAULTS."""
    algorithm: str = "GRPO"
    off_policy: float = 0.2
    """Scale of the noise in the old log-probabilities; at 0.2 about a tenth of the tokens are clipped."""
    temperature: float = 1.0
    microbatches: int = 1
    data: dict[str, Any] = field(default_factory=dict)
    differs: str = ""
    """The definition in which TRL differs; empty if the two must agree."""


SAME = (
    Case("grpo", SEQUENCE, {"loss_type": "grpo"}),
    Case("grpo, on policy", SEQUENCE, {"loss_type": "grpo"}, off_policy=0.0),
    Case("grpo, KL (k3)", {**SEQUENCE, **KL}, {"loss_type": "grpo", "beta": 0.04}),
    Case("grpo, temperature 0.7", SEQUENCE, {"loss_type": "grpo"}, temperature=0.7),
    Case("grpo, inserted tokens", SEQUENCE, {"loss_type": "grpo"}, data={"inserted": True}),
    Case("grpo, 4 micro-batches", SEQUENCE, {"loss_type": "grpo"}, microbatches=4),
    Case(
        "grpo, std not divided by",
        {**SEQUENCE, "estimator": {"kind": "dr_grpo"}},
        {"loss_type": "grpo", "scale_rewards": "none"},
    ),
    Case(
        "grpo, dual clip 1.5",
        {**SEQUENCE, "dual_clip": 1.5},
        {"loss_type": "grpo", "delta": 1.5},
        off_policy=0.6,
    ),
    Case("dapo", TOKEN, {"loss_type": "dapo"}),
    Case("dapo, KL (k3)", {**TOKEN, **KL}, {"loss_type": "dapo", "beta": 0.04}),
    Case("dapo, inserted, 4 micro-b.", TOKEN, {"loss_type": "dapo"}, microbatches=4, data={"inserted": True}),
    Case(
        "dapo, entropy bonus",
        {**TOKEN, "entropy_coefficient": 0.01},
        {"loss_type": "dapo", "entropy_coef": 0.01},
    ),
    Case("bnpo", TOKEN, {"loss_type": "bnpo"}),
    Case("dr_grpo", DR_GRPO, TRL_DR_GRPO),
    Case("dr_grpo, KL (k3)", {**DR_GRPO, **KL}, {**TRL_DR_GRPO, "beta": 0.04}),
    Case("gspo", GSPO, TRL_GSPO, off_policy=0.01),
    Case("gspo, KL (k3)", {**GSPO, **KL}, {**TRL_GSPO, "beta": 0.04}, off_policy=0.01),
    Case("cispo", CISPO, {"loss_type": "cispo", "epsilon_high": 1.28}),
)

DIFFERENT = (
    Case(
        "grpo, a group of equal rewards",
        SEQUENCE,
        {"loss_type": "grpo"},
        data={"equal_group": True},
        differs="TRL keeps the group with advantage 0, so it still counts in the mean (and carries KL): its loss is "
        "smaller by the share of such groups. Here it is left out, as in DAPO's dynamic sampling "
        "(arXiv:2503.14476, 3.2); the GRPO paper does not say (the std it divides by is 0)",
    ),
    Case(
        "grpo, on policy, KL, TRL's default",
        {**SEQUENCE, **KL},
        {"loss_type": "grpo", "beta": 0.04, "use_bias_correction_kl": True},
        off_policy=0.0,
        differs="TRL multiplies k3 by the ratio unless told otherwise, which makes the KL's gradient unbiased "
        "(DeepSeek-V3.2, arXiv:2512.02556); here, and above, k3 is as in the GRPO paper (arXiv:2402.03300, eq. 4)",
    ),
    Case(
        "grpo, a completion without trained tokens",
        SEQUENCE,
        {"loss_type": "grpo"},
        data={"untrained": True},
        differs="(a truncated one that is masked) TRL counts it among the sequences of the mean, here it is not counted; "
        "no paper says",
    ),
    Case(
        "bnpo, 4 micro-batches",
        TOKEN,
        {"loss_type": "bnpo"},
        microbatches=4,
        differs="TRL's token mean is per micro-batch, so it depends on the memory at hand; here it is over the "
        "minibatch, as DAPO defines it (eq. 8) and TRL's dapo does",
    ),
    Case(
        "cispo, lower bound 1 - 0.2",
        {**CISPO, "clip_low": 0.2},
        {"loss_type": "cispo", "epsilon_high": 1.28},
        differs="TRL bounds the weight from above only, and its epsilon_high is the bound itself (1 + clip_high here). "
        "MiniMax-M1's eq. 5 has both bounds, its experiments only the upper one: clip_low 0.999 gives that",
    ),
    Case(
        "grpo, entropy bonus",
        {**SEQUENCE, "entropy_coefficient": 0.01},
        {"loss_type": "grpo", "entropy_coef": 0.01},
        differs="TRL's bonus is a mean over tokens whatever the normaliser; here the entropy is a part of each token's "
        "loss and weighed like it (they agree under dapo)",
    ),
    Case(
        "rloo, on policy",
        RLOO,
        {},
        algorithm="RLOO",
        off_policy=0.0,
        differs="same gradient (loss_normaliser constant, max_loss_tokens 1). TRL's loss is of one ratio per sequence, "
        "here one per token: values differ by the length, not in their gradient (to fp32's digits of TRL's sums "
        "of log-probabilities)",
    ),
    Case(
        "rloo, off policy",
        RLOO,
        {},
        algorithm="RLOO",
        off_policy=0.02,
        differs="TRL clips the ratio of the whole sequence (the product), RLOO's action being the whole "
        "completion (arXiv:2402.14740); here ratios are clipped token by token, PPO's way. The paper clips nothing",
    ),
    Case(
        "rloo, on policy, KL",
        {**RLOO, **KL},
        {"beta": 0.04},
        algorithm="RLOO",
        off_policy=0.0,
        differs="TRL takes k1, summed over the sequence, off the reward, as the paper does; here KL without a critic "
        "is a term of the loss only (k3 or k2)",
    ),
)


@dataclass(frozen=True, slots=True)
class Ours:
    advantages: torch.Tensor
    loss: float
    loss_scale: float
    """The loss if the parts of the sequences did not cancel each other."""
    gradient: dict[str, torch.Tensor]


def main() -> None:
    options = arguments(__doc__).parse_args()
    trl = load_trl()
    torch.set_num_threads(1)
    figures: dict[str, Any] = {"trl_version": trl.__version__}
    with tempfile.TemporaryDirectory() as directory:
        models = make_models(Path(directory))
        print(f"relative differences to TRL {trl.__version__}; below {LIMIT:g} means equal")
        print(f"{'':<42} {'advantages':>11} {'loss':>9} {'norm':>9} {'gradient':>9}")
        worst, unequal = 0.0, []
        for case in SAME[:: 6 if options.quick else 1]:
            row = compare(trl, case, models)
            figures[case.name] = row
            worst = max(worst, *row.values())
            if not all(value < LIMIT for value in row.values()):  # a NaN is not equal either
                unequal.append(case.name)
            print(line(case.name, row) + ("  NOT EQUAL" if case.name in unequal else ""))
        print("\ndefined differently")
        for case in DIFFERENT[:: 4 if options.quick else 1]:
            figures[case.name] = row = compare(trl, case, models)
            print(f"{line(case.name, row)}\n    {case.differs}")
    print("\nPPO: " + about_ppo(trl))
    print(f"largest difference {worst:.1e}")
    write(options.json, {**figures, "largest_difference": worst}, {})
    if unequal:
        raise SystemExit(f"not equal to TRL: {', '.join(unequal)}")


def line(name: str, row: dict[str, float]) -> str:
    return (
        f"{name:<42} {row['advantages']:11.1e} {row['loss']:9.1e} {row['norm']:9.1e} {row['gradient']:9.1e}"
    )


def about_ppo(trl: Any) -> str:
    """Returns a note on PPO: without a PPOTrainer in TRL, GAE and the value loss cannot be compared."""
    found = [name for name in dir(trl) if name.startswith("PPO")]
    return f"TRL's {found} is not compared yet" if found else "this TRL has no PPOTrainer to compare with"


def compare(trl: Any, case: Case, models: tuple[Path, Path]) -> dict[str, float]:
    data = recorded(case, models[0])
    algorithm = (
        {"use_bias_correction_kl": False} if case.algorithm == "GRPO" else {"normalize_advantages": False}
    )
    options = {**TRL_DEFAULTS, **algorithm, **case.theirs, "temperature": case.temperature}
    options |= {"learning_rate": 0.0, "max_steps": 1}
    trainer, theirs = make_trainer(trl, case.algorithm, models, data, options, microbatches=case.microbatches)
    trainer.train()
    return differences(learn(case, models, data), theirs)


def recorded(case: Case, model: Path) -> Recorded:
    extra = dict(case.data)
    data = record(
        model,
        groups=4,
        group=4,
        lengths=(4, 60),
        off_policy=case.off_policy,
        temperature=case.temperature,
        inserted=extra.pop("inserted", False),
    )
    if extra.pop("equal_group", False):
        data = dataclasses.replace(data, rewards=[0.5] * 4 + data.rewards[4:])
    if extra.pop("untrained", False):
        data = dataclasses.replace(data, trained=[[False] * len(data.trained[0]), *data.trained[1:]])
    return data


def learn(case: Case, models: tuple[Path, Path], data: Recorded) -> Ours:
    settings = LearnerSettings(
        gradient_clip=1e9,
        minibatch_samples=len(data),
        microbatch_tokens=256,
        schedule=Constant(warmup_updates=0),
        **case.ours,
    )
    groups = Advantages(settings).credit(data.groups(), game="code", player="generator")
    credit = [pair for of_group in groups for pair in (of_group or [None] * data.group)]
    samples = [sample for sample in data.samples(credit) if sample is not None and any(sample.trained)]
    learner = Learner(settings, 0.0, models[0], models[1])
    learner.step(Batch(step=1, samples=tuple(samples), temperature=case.temperature, seed=0))
    whole = gradient(learner.policy.model)
    loss, scale = minibatch_loss(learner, samples, case.temperature)
    return Ours(torch.tensor([pair[1] or 0.0 if pair else 0.0 for pair in credit]), loss, scale, whole)


def minibatch_loss(learner: Learner, samples: Sequence[Sample], temperature: float) -> tuple[float, float]:
    """Returns (loss, loss without cancellation) from the metrics of steps on one sample each. The weights do not
    change, since the learning rate is 0."""
    settings = learner.settings
    means, counts = [], []
    for step, sample in enumerate(samples, start=2):
        metrics = learner.step(Batch(step=step, samples=(sample,), temperature=temperature, seed=0))
        means.append(
            metrics["policy_loss"]
            + (settings.kl.coefficient * metrics["kl_to_initial"] if settings.kl.kind == "loss" else 0.0)
            - settings.entropy_coefficient * metrics["entropy"]
        )
        counts.append(metrics["trained_tokens"])
    match settings.loss_normaliser:
        case "sequence":
            parts = [mean / len(means) for mean in means]
        case "token":
            parts = [mean * count / sum(counts) for mean, count in zip(means, counts, strict=True)]
        case "constant":
            assert settings.max_loss_tokens is not None
            full = len(samples) * settings.max_loss_tokens
            parts = [mean * count / full for mean, count in zip(means, counts, strict=True)]
    return sum(parts), sum(abs(part) for part in parts)


def differences(ours: Ours, theirs: Observed) -> dict[str, float]:
    """Returns the differences of the advantages, relative to the largest; of the loss, relative to the loss without
    cancellation; of the gradient's norm; and of the gradient as a vector."""
    assert ours.gradient.keys() == theirs.gradient.keys()
    mine = torch.cat([ours.gradient[name].flatten() for name in ours.gradient])
    other = torch.cat([theirs.gradient[name].flatten() for name in ours.gradient])
    scale = theirs.advantages.abs().max()
    return {
        "advantages": ((ours.advantages - theirs.advantages).abs().max() / scale).item(),
        "loss": abs(ours.loss - sum(theirs.losses)) / ours.loss_scale,
        "norm": abs(1 - (mine.norm() / other.norm()).item()),
        "gradient": ((mine - other).norm() / other.norm()).item(),
    }


if __name__ == "__main__":
    main()
