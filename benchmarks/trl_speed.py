"""Compares tokens per second of a GRPO update: Hugging Face TRL's GRPOTrainer against `Learner.step`, on the same
samples.

TRL's time is that of an optimizer step as its own trainer runs it, with given completions, and micro-batches padded to
their longest sample. Both sides may first choose the fastest of several micro-batch sizes (`tuned`); `default` is the
learner with its default size. They take turns within one run: the ratios are of neighbouring rounds, their median and
quartiles. Both use the same number of threads, fp32, no gradient checkpointing.

`plain`: one update, no KL. `reused`: two updates from the same completions, with KL to a reference, and both sides
compute the old log-probabilities themselves (here: importance_cap). Both do the same work then, except for what the
learner logs: the KL of the first micro-batch in `plain`.
"""

import tempfile
import time
from pathlib import Path
from statistics import median, quantiles
from typing import Any

import torch
from transformers import TrainerCallback

from benchmarks.report import arguments, publish
from benchmarks.trl_runner import Recorded, load_trl, make_models, make_trainer, record
from learners.advantages.estimate import Advantages
from learners.learner import Learner
from learners.settings import MICROBATCH_TOKENS as DEFAULT_TOKENS
from learners.settings import GroupEstimator, KlInLoss, LearnerSettings, NoKl
from sparring.core.batch import Batch

MODELS: dict[str, dict[str, int]] = {
    "toy": {},
    "5M": {
        "hidden_size": 256,
        "num_hidden_layers": 6,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "intermediate_size": 768,
    },
}
MICROBATCH_TOKENS = (512, 1024, 4096)
WORK: dict[str, dict[str, Any]] = {
    "plain": {"updates": 1, "kl": 0.0, "cap": None},
    "reused": {"updates": 2, "kl": 0.04, "cap": 2.0},
}


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--model", choices=MODELS, default="toy")
    options = parser.parse_args()
    trl = load_trl()
    torch.set_num_threads(options.threads)
    figures: dict[str, Any] = {
        "trl_version": trl.__version__,
        "threads": options.threads,
        "model": options.model,
    }
    ratios: dict[str, float] = {}
    small = options.quick or options.model != "toy"
    rounds = 2 if options.quick else 4 if small else 12
    with tempfile.TemporaryDirectory() as directory:
        paths = make_models(Path(directory), **MODELS[options.model])
        data = record(paths[0], groups=2 if small else 4, group=8, lengths=(30, 250), off_policy=0.0)
        for work in WORK:
            found, ratio = measure(trl, paths, data, work, rounds)
            figures |= {f"{work}_{name}": value for name, value in found.items()}
            ratios |= {f"{work}_{name}": value for name, value in ratio.items()}
    publish(options.json, figures, ratios)


def measure(
    trl: Any, paths: tuple[Path, Path], data: Recorded, work: str, rounds: int
) -> tuple[dict[str, float], dict[str, float]]:
    """Returns (tokens per second, ratios ours / TRL's); a token counts once for each update."""
    ours = {size: our_learner(paths, data, work, size) for size in MICROBATCH_TOKENS}
    tried: dict[int, float] = {}
    for count in (k for k in (1, 2, 4, 8) if len(data) // k >= 4):
        turns = take_turns(trl, paths, data, work, count, 2, list(ours.values()))
        tried[count] = median(turns.theirs[1:])
        seconds = [median(times[1:]) for times in turns.ours]
    count, size = min(tried, key=tried.__getitem__), MICROBATCH_TOKENS[seconds.index(min(seconds))]
    default = DEFAULT_TOKENS
    learners = [our_learner(paths, data, work, size), our_learner(paths, data, work, default)]
    turns = take_turns(trl, paths, data, work, count, rounds, learners)
    tokens = data.tokens() * WORK[work]["updates"]
    figures = {
        "trl_tokens_per_s": tokens / median(turns.theirs[1:]),
        "trl_samples_in_microbatch": float(len(data) // count),
        "microbatch_tokens": float(size),
    }
    ratios = {}
    for name, times in zip(("tuned", "default"), turns.ours, strict=True):
        figures[f"{name}_tokens_per_s"] = tokens / median(times[1:])
        each = [theirs / mine for theirs, mine in zip(turns.theirs[1:], times[1:], strict=True)]
        low, middle, high = quantiles(each, n=4, method="inclusive")
        ratios |= {
            f"{name}_vs_trl": middle,
            f"{name}_vs_trl_quartile_1": low,
            f"{name}_vs_trl_quartile_3": high,
        }
    return figures, ratios


def take_turns(
    trl: Any,
    paths: tuple[Path, Path],
    data: Recorded,
    work: str,
    microbatches: int,
    rounds: int,
    learners: list[Learner],
) -> "_Turns":
    """Returns the seconds of every round; the first round is a warm-up."""
    updates = int(WORK[work]["updates"])
    turns = _Turns(learners, data, updates)
    options = {
        "loss_type": "dapo",
        "beta": WORK[work]["kl"],
        "num_iterations": updates,
        "max_steps": (rounds + 1) * updates,
        "max_completion_length": 250,
        "learning_rate": 1e-5,
    }
    trainer, _ = make_trainer(
        trl, "GRPO", paths, data, options, microbatches=microbatches, give_old=False, callbacks=[turns]
    )
    trainer.train()
    return turns


def our_learner(paths: tuple[Path, Path], data: Recorded, work: str, microbatch_tokens: int) -> Learner:
    settings = LearnerSettings(
        estimator=GroupEstimator(kind="grpo"),
        loss_normaliser="token",
        epochs=int(WORK[work]["updates"]),
        minibatch_samples=len(data),
        kl=KlInLoss(coefficient=kl) if (kl := WORK[work]["kl"]) else NoKl(),
        importance_cap=WORK[work]["cap"],
        microbatch_tokens=microbatch_tokens,
    )
    return Learner(settings, 1e-5, paths[0], paths[1])


class _Turns(TrainerCallback):
    """Times TRL's optimizer steps from begin to end, and after each round a step of each learner."""

    def __init__(self, learners: list[Learner], data: Recorded, updates: int) -> None:
        self.learners, self.updates = learners, updates
        settings = learners[0].settings
        groups = Advantages(settings).credit(data.groups(), game="code", player="generator")
        samples = data.samples([pair for of_group in groups for pair in of_group or ()])
        self.samples = tuple(sample for sample in samples if sample is not None)
        assert len(self.samples) == len(data), "every group has a signal"
        self.theirs: list[float] = []
        self.ours: list[list[float]] = [[] for _ in learners]
        self.sum = self.start = 0.0

    def on_step_begin(self, *_: Any, **__: Any) -> None:
        self.start = time.perf_counter()

    def on_step_end(self, _: Any, state: Any, *__: Any, **___: Any) -> None:
        self.sum += time.perf_counter() - self.start
        if state.global_step % self.updates:
            return
        self.theirs.append(self.sum)
        self.sum = 0.0
        for learner, times in zip(self.learners, self.ours, strict=True):
            batch = Batch(step=learner.version + 1, samples=self.samples, temperature=1.0, seed=0)
            start = time.perf_counter()
            learner.step(batch)
            times.append(time.perf_counter() - start)


if __name__ == "__main__":
    main()
