"""Helpers for tests of learners: a model of a few thousand parameters, batches, comparisons."""

import ctypes
import gc
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from random import Random
from typing import Any

import tokenizers
import torch
from tokenizers.models import WordLevel
from torch import multiprocessing
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import TorchDispatchMode
from transformers import PreTrainedModel, PreTrainedTokenizerFast, Qwen2Config, Qwen2ForCausalLM

from learners.learner import Learner
from learners.packing import row_of
from learners.settings import LearnerSettings
from learners.train_spec import LearnerSpec
from learners.tuning import FullTuning
from learners.weights import export_weights
from sparring.core.batch import Batch, Sample
from sparring.core.weights import WeightUpdate

VOCABULARY = 48


@contextmanager
def one_torch_thread() -> Iterator[None]:
    """Limits torch to one thread, since operations on tiny tensors are slower with two."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def run_workers(work: Callable[..., None], *arguments: Any, count: int) -> None:
    """Runs `work(rank, *arguments)` in processes of its own, and raises what one raises. They are forks of one process
    that has imported what learners need, which takes each ten seconds: it stays for the next test."""
    multiprocessing.set_forkserver_preload(
        ["tests.learning", "learners.state", "torch.distributed.fsdp", "peft"]
    )
    multiprocessing.start_processes(work, arguments, nprocs=count, start_method="forkserver")


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
    Tokenizer().save_pretrained(directory)
    return directory


def weights(learner: Learner) -> dict[str, torch.Tensor]:
    """Returns a copy of the weights, as the policy's engine would get them."""
    learner.policy.activate()
    return {name: tensor.clone() for name, tensor in learner.policy.merged()}


def spec_of(model: Path, **settings: Any) -> LearnerSpec:
    """GRPO without warm-up, if no setting says otherwise."""
    keys = {"schedule": {"warmup_updates": 0}, "estimator": {"kind": "grpo"}} | settings
    return LearnerSpec(
        settings=LearnerSettings.model_validate(keys),
        learning_rate=1e-2,
        model_path=str(model),
        reference_path=str(model),
        state_path=None,
        device="cpu",
        seed=3,
    )


def logprobs(learner: Learner, tokens: Sequence[int]) -> torch.Tensor:
    """Returns what the policy says of each token after the first."""
    row = row_of([tokens])
    with torch.no_grad():
        return learner.policy.score(row, row.positions_N > 0, 1.0).logprobs_P


def plain_logprobs(model: Any, tokens: Sequence[int]) -> torch.Tensor:
    """The same by plain transformers."""
    with torch.no_grad():
        scores = model(torch.tensor([tokens])).logits[0, :-1].log_softmax(-1)
    return scores.gather(1, torch.tensor(tokens)[1:, None])[:, 0]


def largest_difference(first: Mapping[str, torch.Tensor], second: Mapping[str, torch.Tensor]) -> float:
    assert first.keys() == second.keys()
    return max((first[name] - second[name]).abs().max().item() for name in first)


def batch(*samples: Sample, step: int = 1, temperature: float = 1.0) -> Batch:
    return Batch(step=step, samples=samples, temperature=temperature, seed=5)


def random_samples(
    seed: int, count: int, *, longest: int = 12, logprob: float = -3.5, advantages: bool = True
) -> tuple[Sample, ...]:
    """Returns random off-policy samples: every behaviour log-probability is `logprob`."""
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


def export(model: PreTrainedModel, version: int, dtype: torch.dtype | None = None) -> WeightUpdate:
    """Exports the weights of a model that belongs to no learner."""
    return export_weights(FullTuning(model, model, LearnerSettings()), version, dtype=dtype)


class Tokenizer:
    """The part of a tokenizer that checkpoints use. The files are those of a tokenizer whose words are <0>, <1> ..."""

    def save_pretrained(self, directory: Path) -> None:
        words = WordLevel({f"<{number}>": number for number in range(VOCABULARY)}, unk_token="<0>")
        PreTrainedTokenizerFast(tokenizer_object=tokenizers.Tokenizer(words)).save_pretrained(directory)


class Operations(TorchDispatchMode):
    """Records the names of the operators that are called, such as "aten._to_copy.default"."""

    def __init__(self) -> None:
        super().__init__()
        self.names: list[str] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.names.append(str(func))
        return func(*args, **(kwargs or {}))


class Live(TorchDispatchMode):
    """Measures the peak bytes of CPU tensors that operators have returned and that are still referenced; temporary
    tensors within an operator do not count."""

    def __init__(self, *before: torch.Tensor, dtype: torch.dtype | None = None) -> None:
        """before: existing tensors, which count from the start. dtype: of those that count; None: all do."""
        super().__init__()
        self._dtype = dtype
        self._seen: dict[int, StorageWeakRef] = {}
        self.most = 0
        for tensor in before:
            self._see(tensor)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        made = func(*args, **(kwargs or {}))
        for tensor in made if isinstance(made, (tuple, list)) else (made,):
            if type(tensor) is not torch.Tensor or tensor.device.type != "cpu" or tensor.nbytes <= 4096:
                continue
            if self._dtype in (None, tensor.dtype):
                self._see(tensor)
        return made

    def _see(self, tensor: torch.Tensor) -> None:
        storage = tensor.untyped_storage()
        if storage._cdata not in self._seen:
            self._seen[storage._cdata] = StorageWeakRef(storage)
            self.most = max(self.most, self.alive())

    def alive(self) -> int:
        """Returns the bytes now."""
        total = 0
        for key, reference in list(self._seen.items()):
            storage = torch.UntypedStorage._new_with_weak_ptr(reference.cdata)
            if storage is None:
                del self._seen[key]
            else:
                total += storage.nbytes()  # FSDP keeps the storages that it empties
        return total


def small_chunks() -> None:
    """Makes the allocator return freed memory to the system, as it does for large tensors."""
    m_mmap_threshold = -3
    ctypes.CDLL(None).mallopt(m_mmap_threshold, 1 << 16)


def peak_of(work: Callable[[], None]) -> int:
    """Returns the peak memory of `work` in bytes, beyond the memory in use before."""

    def now() -> int:  # mapped files do not count
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
