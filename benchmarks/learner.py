"""How close `Learner.step` comes to the hardware.

    python -m benchmarks.learner                      the embedded shape and one of 3M parameters, on CPU
    python -m benchmarks.learner --shape qwen_1_5b --device cuda --precision bf16 --peak-tflops 989

The baseline is a bare PyTorch loop on the same model: forward, cross-entropy, backward, gradient clip, AdamW, on
perfectly packed tokens (a full tensor of sequences as long as the learner's are on average, no padding, no
reference, no ratios). Both alternate in one run; a ratio is the median of the pairs' ratios, with the quartiles
beside it. With mixed lengths attention alone has more to do than with equal ones (its work grows with the square), so
the ratio on samples of one length is given, too. Random weights: speed does not depend on them.
"""

import gc
import multiprocessing
import random
import resource
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import psutil
import torch
from torch.nn.functional import cross_entropy
from transformers import Qwen2Config, Qwen2ForCausalLM

from benchmarks.report import arguments, publish
from core.batch import Batch, Sample
from learners.learner import Learner
from learners.settings import MICROBATCH_TOKENS, LearnerSettings, OfGroups


class Shape(NamedTuple):
    """By the names of Qwen2Config."""

    vocab_size: int
    hidden_size: int
    num_hidden_layers: int
    num_attention_heads: int
    num_key_value_heads: int
    intermediate_size: int


SHAPES = {
    "embedded": Shape(640, 96, 3, 3, 1, 288),
    "3m": Shape(4096, 192, 4, 6, 2, 768),
    "qwen_1_5b": Shape(151_936, 1536, 28, 12, 2, 8960),
}
SHORTEST, LONGEST = 60, 400
"""Tokens of a sample, uniformly; a third of them is the prompt."""
BYTES_PER_PARAMETER = 20
"""fp32: weights, gradients, two moments of AdamW, and the reference."""


def make_model(shape: str, directory: Path) -> Path:
    torch.manual_seed(0)
    config = Qwen2Config(**SHAPES[shape]._asdict(), max_position_embeddings=1024, tie_word_embeddings=True)
    Qwen2ForCausalLM(config).save_pretrained(directory)
    return directory


def make_batch(step: int, count: int, vocabulary: int, mixed: bool = True) -> Batch:
    rng = random.Random(step)
    samples = []
    for _ in range(count):
        length = rng.randint(SHORTEST, LONGEST) if mixed else (SHORTEST + LONGEST) // 2
        sampled = tuple(place >= length // 3 for place in range(length))
        samples.append(
            Sample(
                tokens=tuple(rng.randrange(vocabulary) for _ in range(length)),
                sampled=sampled,
                trained=sampled,
                logprobs=tuple(-6.0 if s else 0.0 for s in sampled),
                reward=rng.random(),
                advantage=rng.gauss(0, 1),
            )
        )
    return Batch(step=step, samples=tuple(samples), temperature=1.0, seed=step)


class BareLoop:
    """What a researcher writes in ten lines."""

    def __init__(self, path: Path, settings: LearnerSettings, device: str) -> None:
        self.model = Qwen2ForCausalLM.from_pretrained(path, dtype=torch.float32).to(device)  # pyright: ignore
        self.model.train()
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-6)
        self.budget, self.device = settings.microbatch_tokens or MICROBATCH_TOKENS, device
        self.dtype = {"bf16": torch.bfloat16}.get(settings.precision or "fp32")

    def step(self, batch: Batch) -> None:
        total = sum(len(sample.tokens) for sample in batch.samples)
        length = total // len(batch.samples)
        tokens = torch.tensor([t for s in batch.samples for t in s.tokens][: length * len(batch.samples)])
        rows = tokens.view(len(batch.samples), length).to(self.device)
        self.optimizer.zero_grad(set_to_none=True)
        for part in rows.split(max(1, self.budget // length)):
            with torch.autocast(self.device, dtype=self.dtype, enabled=self.dtype is not None):
                logits = self.model(input_ids=part, use_cache=False).logits
            loss = cross_entropy(logits[:, :-1].flatten(0, 1).float(), part[:, 1:].flatten(), reduction="sum")
            (loss / total).backward()
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.optimizer.step()


def seconds(work: Callable[[], object], device: str) -> float:
    if device == "cuda":
        torch.cuda.synchronize()
    started = time.perf_counter()
    work()
    if device == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter() - started


def compare(
    shape: str, samples: int, repeats: int, settings: LearnerSettings, device: str, mixed: bool
) -> tuple[dict[str, float], dict[str, float]]:
    """(figures, ratios) of one shape."""
    figures: dict[str, list[float]] = {"learner": [], "bare": []}
    with tempfile.TemporaryDirectory() as directory:
        path = make_model(shape, Path(directory))
        learner, bare = Learner(settings, 1e-6, path, path, device=device), BareLoop(path, settings, device)
        vocabulary = SHAPES[shape].vocab_size
        for step in range(1, repeats + 2):
            batch = make_batch(step, samples, vocabulary, mixed)
            tokens = sum(len(sample.tokens) for sample in batch.samples)
            works = {"learner": lambda b=batch: learner.step(b), "bare": lambda b=batch: bare.step(b)}
            for name in sorted(works, reverse=step % 2 == 0):
                gc.collect()
                speed = tokens / seconds(works[name], device)
                if step > 1:  # the first is a warm-up
                    figures[name].append(speed)
        parameters = sum(p.numel() for p in learner.policy.model.parameters())
    ratios = [one / other for one, other in zip(figures["learner"], figures["bare"], strict=True)]
    low, middle, high = statistics.quantiles(ratios, n=4)
    if not mixed:
        return {}, {f"{shape}_vs_bare_loop_equal_lengths": middle}
    return (
        {
            f"{shape}_parameters": float(parameters),
            f"{shape}_learner_tokens_per_s": statistics.median(figures["learner"]),
            f"{shape}_bare_tokens_per_s": statistics.median(figures["bare"]),
        },
        {
            f"{shape}_vs_bare_loop": middle,
            f"{shape}_vs_bare_loop_low": low,
            f"{shape}_vs_bare_loop_high": high,
        },
    )


def peak_bytes(shape: str, samples: int, settings: LearnerSettings) -> float:
    """Resident memory of one step at its height, beyond what a process has once it has made another, tiny one."""
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return pool.apply(_peak, (shape, samples, settings))


def _peak(shape: str, samples: int, settings: LearnerSettings) -> float:
    with tempfile.TemporaryDirectory() as directory:
        tiny = make_model("embedded", Path(directory, "embedded"))
        Learner(settings, 1e-6, tiny, tiny).step(make_batch(1, 1, 640))
        path = make_model(shape, Path(directory, shape))
        gc.collect()
        before = psutil.Process().memory_info().rss
        Learner(settings, 1e-6, path, path).step(make_batch(1, samples, SHAPES[shape].vocab_size))
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024.0 - before


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--shape", action="append", choices=SHAPES, help="default: embedded and 3m")
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    parser.add_argument("--precision", choices=["fp32", "bf16"], default="fp32")
    parser.add_argument("--lora", type=int, metavar="RANK", help="tune an adapter")
    parser.add_argument("--samples", type=int, default=64)
    parser.add_argument("--repeats", type=int, default=15)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--peak-tflops", type=float, help="of the device at this precision: prints MFU")
    options = parser.parse_args()
    if options.quick:
        options.samples, options.repeats = 8, 3
    torch.set_num_threads(options.threads)
    settings = LearnerSettings(
        estimator=OfGroups(kind="grpo"),
        minibatch_samples=options.samples,
        microbatch_tokens=4096,
        precision=options.precision,
        lora={"rank": options.lora} if options.lora else None,  # pyright: ignore[reportArgumentType]
    )
    figures, ratios = {}, {}
    for shape in options.shape or ("embedded", "3m"):
        for mixed in (True, False):
            found = compare(shape, options.samples, options.repeats, settings, options.device, mixed)
            figures, ratios = figures | found[0], ratios | found[1]
        parameters = figures[f"{shape}_parameters"]
        if (
            options.peak_tflops
        ):  # 6 flops per parameter and token: Kaplan et al. 2020, arXiv:2001.08361, section 2.1
            speed = figures[f"{shape}_learner_tokens_per_s"]
            ratios[f"{shape}_mfu"] = 6 * parameters * speed / (options.peak_tflops * 1e12)
        if options.device == "cpu":
            peak = peak_bytes(shape, options.samples, settings)
            figures[f"{shape}_peak_mib"] = peak / 2**20
            ratios[f"{shape}_peak_vs_minimum"] = peak / (BYTES_PER_PARAMETER * parameters)
    publish(options.json, figures, ratios)


if __name__ == "__main__":
    main()
