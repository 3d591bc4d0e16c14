"""What several tests of learners need: a model of a few thousand parameters, batches, comparisons."""

import ctypes
import gc
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from random import Random

import torch
from transformers import PreTrainedModel, Qwen2Config, Qwen2ForCausalLM

from core.batch import Batch, Sample
from core.weights import WeightUpdate
from learners.learner import Learner
from learners.settings import LearnerSettings
from learners.tuning import FullTuning
from learners.weights import export_weights

VOCABULARY = 48


@contextmanager
def one_torch_thread() -> Iterator[None]:
    """Tiny tensors are slower on two."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def tiny_model(**changes: int | bool) -> Qwen2ForCausalLM:
    shape = {
        "vocab_size": VOCABULARY,
        "hidden_size": 16,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "num_key_value_heads": 1,
        "intermediate_size": 32,
        "max_position_embeddings": 512,
        "tie_word_embeddings": True,
        "initializer_range": 0.3,
    }
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return Qwen2ForCausalLM(Qwen2Config(**shape | changes))


def save_tiny_model(directory: Path) -> Path:
    tiny_model().save_pretrained(directory)
    return directory


def weights(learner: Learner) -> dict[str, torch.Tensor]:
    """A copy, as the policy's engine would get them."""
    learner.policy.activate()
    return {name: tensor.clone() for name, tensor in learner.policy.merged()}


def largest_difference(first: Mapping[str, torch.Tensor], second: Mapping[str, torch.Tensor]) -> float:
    assert first.keys() == second.keys()
    return max((first[name] - second[name]).abs().max().item() for name in first)


def batch(*samples: Sample, step: int = 1, temperature: float = 1.0) -> Batch:
    return Batch(step=step, samples=samples, temperature=temperature, seed=5)


def random_samples(
    seed: int, count: int, *, longest: int = 12, logprob: float = -3.5, advantages: bool = True
) -> tuple[Sample, ...]:
    """Off-policy: every behaviour log-probability is `logprob`."""
    rng = Random(seed)
    samples = []
    for _ in range(count):
        prompt, length = rng.randint(1, 6), rng.randint(1, longest)
        sampled = (*[False] * prompt, *[True] * length)
        samples.append(
            Sample(
                tokens=tuple(rng.randrange(VOCABULARY) for _ in sampled),
                sampled=sampled,
                trained=sampled,
                logprobs=tuple(logprob if s else 0.0 for s in sampled),
                reward=rng.random(),
                advantage=rng.gauss(0, 1) if advantages else None,
            )
        )
    return tuple(samples)


def export(model: PreTrainedModel, version: int) -> WeightUpdate:
    """Of a model that no learner has."""
    return export_weights(FullTuning(model, model, LearnerSettings()), version)


class Tokenizer:
    """As far as checkpoints know one."""

    def save_pretrained(self, directory: Path) -> None:
        (directory / "tokenizer.json").write_text("{}")


def small_chunks() -> None:
    """What this process frees is given back, as large tensors are."""
    m_mmap_threshold = -3
    ctypes.CDLL(None).mallopt(m_mmap_threshold, 1 << 16)


def peak_of(work: Callable[[], None]) -> int:
    """Bytes of memory beyond what was there before."""

    def now() -> int:  # what is mapped of files costs nothing
        status = Path("/proc/self/status").read_text()
        return 1024 * int(status.split("RssAnon:")[1].split()[0])

    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)
    before, seen, over = now(), [0], threading.Event()

    def watch() -> None:
        while not over.is_set():
            seen[0] = max(seen[0], now())
            time.sleep(0.0005)

    watcher = threading.Thread(target=watch)
    watcher.start()
    work()
    over.set()
    watcher.join()
    return max(seen[0], now()) - before
