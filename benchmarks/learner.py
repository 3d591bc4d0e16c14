"""Measures how close `Learner.step` comes to the hardware's limit.

    python -m benchmarks.learner                      the toy models' shape and one of 3M parameters, on CPU
    python -m benchmarks.learner --device cuda --precision bf16 --peak-tflops 989     0.5B and 1.5B
    python -m benchmarks.learner --device cuda --precision bf16 --shape qwen_1_5b --lora 16 --checkpointing

The baseline is a bare PyTorch loop on the same model: forward, cross-entropy, backward, gradient clip, AdamW, on
perfectly packed tokens (a full tensor of sequences of the learner's mean length, without padding, reference or ratios).
On a CPU the two alternate in one run; on a GPU, which may not have memory for both, they run one after the other. A
ratio is the median of the pairs' ratios, with the quartiles beside it. On a GPU the figures include torch's peak
reserved memory and its ratio to the memory plan (sparring/runtime/memory_plan.py). Attention's work grows with the square of the
length, so mixed lengths need more of it than equal ones; therefore the ratio on samples of one length is given, too.
The weights are random: speed does not depend on them.
"""

import gc
import multiprocessing
import os
import random
import resource
import statistics
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import psutil
import torch
from torch.nn.functional import cross_entropy
from transformers import Qwen2Config, Qwen2ForCausalLM

from benchmarks.report import arguments, publish
from learners.learner import Learner
from learners.settings import GPU_ALLOCATOR, MICROBATCH_TOKENS, GroupEstimator, LearnerSettings
from sparring.core.batch import Batch, Sample
from sparring.runtime.memory_plan import learner_parts, shape_of


class ModelShape(NamedTuple):
    """The shape of a model; the fields are named as in Qwen2Config."""

    vocab_size: int
    hidden_size: int
    num_hidden_layers: int
    num_attention_heads: int
    num_key_value_heads: int
    intermediate_size: int


SHAPES = {
    "toy": ModelShape(640, 96, 3, 3, 1, 288),
    "3m": ModelShape(4096, 192, 4, 6, 2, 768),
    "qwen_0_5b": ModelShape(151_936, 896, 24, 14, 2, 4864),
    "qwen_1_5b": ModelShape(151_936, 1536, 28, 12, 2, 8960),
}
OF_DEVICE = {"cpu": ("toy", "3m"), "cuda": ("qwen_0_5b", "qwen_1_5b")}
SHORTEST, LONGEST = 60, 400
"""Range of a sample's length in tokens, drawn uniformly; the prompt is a third of the sample."""
BYTES_PER_PARAMETER = 20
"""Bytes per parameter in fp32: weights, gradients, two moments of AdamW, and the reference."""


def make_model(shape: str, directory: Path) -> Path:
    torch.manual_seed(0)
    config = Qwen2Config(**SHAPES[shape]._asdict(), max_position_embeddings=1024, tie_word_embeddings=True)
    Qwen2ForCausalLM(config).save_pretrained(directory)
    return directory


def make_batch(step: int, count: int, vocabulary: int, mixed: bool = True, attempts: int = 1) -> Batch:
    """attempts: number of samples with the same prompt."""
    rng = random.Random(step)
    samples = []
    for number in range(count):
        length = rng.randint(SHORTEST, LONGEST) if mixed else (SHORTEST + LONGEST) // 2
        sampled = tuple(place >= length // 3 for place in range(length))
        tokens = [rng.randrange(vocabulary) for _ in range(length)]
        prompt = random.Random(f"{step} {number // attempts}")
        if attempts > 1:
            tokens[: length // 3] = [prompt.randrange(vocabulary) for _ in range(length // 3)]
        samples.append(
            Sample(
                tokens=tuple(tokens),
                sampled=sampled,
                trained=sampled,
                logprobs=tuple(-6.0 if s else 0.0 for s in sampled),
                reward=rng.random(),
                advantage=rng.gauss(0, 1),
            )
        )
    return Batch(step=step, samples=tuple(samples), temperature=1.0, seed=step)


class BareLoop:
    """The training loop that a researcher writes in ten lines."""

    def __init__(self, path: Path, settings: LearnerSettings, device: str) -> None:
        self.model = Qwen2ForCausalLM.from_pretrained(path, dtype=torch.float32).to(device)  # pyright: ignore
        self.model.train()
        if settings.gradient_checkpointing:
            self.model.gradient_checkpointing_enable()
        fused = device == "cuda" or None
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-6, fused=fused)
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
    shape: str, samples: int, repeats: int, settings: LearnerSettings, device: str, mixed: bool, attempts: int
) -> tuple[dict[str, float], dict[str, float]]:
    """Returns (figures, ratios) of one shape."""
    with tempfile.TemporaryDirectory() as directory:
        path = make_model(shape, Path(directory))
        known = shape_of(str(path))
        makers: dict[str, Callable[[], Callable[[Batch], object]]] = {
            "learner": lambda: Learner(settings, 1e-6, path, path, device=device).step,
            "bare": lambda: BareLoop(path, settings, device).step,
        }
        vocabulary = SHAPES[shape].vocab_size
        batches = [make_batch(n + 1, samples, vocabulary, mixed, attempts) for n in range(repeats + 1)]
        together = [makers] if device == "cpu" else [{name: make} for name, make in makers.items()]
        found = [tokens_per_s(group, batches, device) for group in together]
    assert known is not None
    speeds = {name: values for speeds, _ in found for name, values in speeds.items()}
    ratios = [one / other for one, other in zip(speeds["learner"], speeds["bare"], strict=True)]
    low, middle, high = statistics.quantiles(ratios, n=4)
    if not mixed:
        return {}, {f"{shape}_vs_bare_loop_equal_lengths": middle}
    figures = {
        f"{shape}_parameters": float(known.parameters),
        f"{shape}_learner_tokens_per_s": statistics.median(speeds["learner"]),
        f"{shape}_bare_tokens_per_s": statistics.median(speeds["bare"]),
    }
    compared = {
        f"{shape}_vs_bare_loop": middle,
        f"{shape}_vs_bare_loop_low": low,
        f"{shape}_vs_bare_loop_high": high,
    }
    if device == "cuda":
        planned = sum(learner_parts(known, settings, LONGEST).values())
        figures |= {f"{shape}_planned_mib": planned / 2**20, f"{shape}_reserved_mib": found[0][1] / 2**20}
        compared[f"{shape}_reserved_vs_planned"] = found[0][1] / planned
    return figures, compared


def tokens_per_s(
    makers: Mapping[str, Callable[[], Callable[[Batch], object]]], batches: Sequence[Batch], device: str
) -> tuple[dict[str, list[float]], int]:
    """Measures the makers in turns. Returns (tokens per second by name, without the first batch, which is a warm-up;
    peak bytes on the GPU)."""
    gc.collect()
    if device == "cuda":
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
    steps = {name: make() for name, make in makers.items()}
    speeds: dict[str, list[float]] = {name: [] for name in steps}
    for batch in batches:
        tokens = sum(len(sample.tokens) for sample in batch.samples)
        for name in sorted(steps, reverse=batch.step % 2 == 0):
            gc.collect()
            speed = tokens / seconds(lambda step=steps[name], b=batch: step(b), device)
            if batch.step > 1:
                speeds[name].append(speed)
    return speeds, torch.cuda.max_memory_reserved() if device == "cuda" else 0


def peak_bytes(shape: str, samples: int, settings: LearnerSettings) -> float:
    """Returns the peak resident memory of one step, in bytes, beyond that of a process that has made a step of a tiny
    model."""
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return pool.apply(_peak, (shape, samples, settings))


def _peak(shape: str, samples: int, settings: LearnerSettings) -> float:
    with tempfile.TemporaryDirectory() as directory:
        tiny = make_model("toy", Path(directory, "toy"))
        Learner(settings, 1e-6, tiny, tiny).step(make_batch(1, 1, 640))
        path = make_model(shape, Path(directory, shape))
        gc.collect()
        before = psutil.Process().memory_info().rss
        Learner(settings, 1e-6, path, path).step(make_batch(1, samples, SHAPES[shape].vocab_size))
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024.0 - before


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument(
        "--shape", action="append", choices=SHAPES, help="default: toy and 3m, on cuda 0.5B and 1.5B"
    )
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    parser.add_argument("--precision", choices=["fp32", "bf16"], default="fp32")
    parser.add_argument("--lora", type=int, metavar="RANK", help="tune an adapter")
    parser.add_argument("--checkpointing", action="store_true", help="learner.gradient_checkpointing")
    parser.add_argument("--microbatch-tokens", type=int, default=4096)
    parser.add_argument("--logits-mb", type=int, help="learner.logits_mb")
    parser.add_argument("--samples", type=int, default=64)
    parser.add_argument(
        "--attempts", type=int, default=1, help="samples with the same prompt, a third of each"
    )
    parser.add_argument("--repeats", type=int, default=15)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--peak-tflops", type=float, help="of the device at this precision: prints MFU")
    options = parser.parse_args()
    if options.quick:
        options.samples, options.repeats = 8, 3
    torch.set_num_threads(options.threads)
    os.environ |= GPU_ALLOCATOR
    settings = LearnerSettings(
        estimator=GroupEstimator(kind="grpo"),
        minibatch_samples=options.samples,
        microbatch_tokens=options.microbatch_tokens,
        gradient_checkpointing=options.checkpointing,
        logits_mb=options.logits_mb,
        precision=options.precision,
        lora={"rank": options.lora} if options.lora else None,  # pyright: ignore[reportArgumentType]
    )
    figures, ratios = {}, {}
    for shape in options.shape or OF_DEVICE[options.device]:
        for mixed in (True, False):
            found = compare(
                shape, options.samples, options.repeats, settings, options.device, mixed, options.attempts
            )
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
