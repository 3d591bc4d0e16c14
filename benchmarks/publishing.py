"""Measures the weight sync from a learner to the engine on a real Ray: seconds, bytes, and the peak number of copies of
the weights.

The model has random weights and the shape of Qwen2.5-0.5B. An actor hands the weights in as a worker of Ray Train does;
they pass through a mailbox to an actor with vLLM's engine. The time is from the learner's call to the engine's
verification. Three cases: all weights in fp32; all weights in bfloat16, the engine's precision; a LoRA adapter alone.
Memory is that of all of Ray's processes beyond what they hold before the first sync: the previous weights, which the
mailbox keeps, count as one copy. The baseline is to copy the same number of bytes once within one process. All this is
on a CPU: with a GPU, the transfer between the GPU and its host is added.
"""

import logging
import os
import tempfile
import threading
import time
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import psutil
import ray

from actors.engines import EngineActor
from actors.loading import LocalPolicy
from actors.rollout_actor import runtime_env
from actors.settings import VllmEngineSettings
from benchmarks.end_to_end import proportional_set_size
from benchmarks.learner import make_model
from benchmarks.report import arguments, publish
from learners.mailbox import MailboxActor
from learners.settings import GroupEstimator, LearnerSettings, LoraSettings, NoKl
from learners.train_loop import hand_in
from learners.train_spec import LearnerSpec
from sparring.core.interfaces import Policy
from sparring.core.weights import Weights

POLICY = "generator"
RANK = 16
WAYS = {
    "fp32": VllmEngineSettings(max_model_len=512),
    "bf16": VllmEngineSettings(max_model_len=512, dtype="bfloat16"),
    "adapter": VllmEngineSettings(max_model_len=512, dtype="bfloat16", adapter=True),
}
_LOOK_S = 0.02


@ray.remote(num_cpus=0)
class MailboxTrainer:
    """A worker of learners/train_loop.py, but without learning."""

    def __init__(self, spec: LearnerSpec, mailbox: Any) -> None:
        self._spec, self._mailbox = spec, mailbox
        self._learner = spec.build(POLICY)

    def learn(self) -> None:
        import torch

        with torch.no_grad():
            for parameter in self._learner.policy.trainable().values():
                parameter.mul_(1 + 1e-3 * torch.randn(()))

    def publish(self, version: int) -> None:
        self._learner.version = version
        hand_in(self._learner, self._spec, self._mailbox, POLICY, {})


def build_engine(model: str, settings: VllmEngineSettings) -> dict[str, LocalPolicy]:
    from actors.vllm_policy import VllmPolicy, adapter_policies

    if settings.adapter:
        policy: Policy = adapter_policies(model, settings, "cpu", {POLICY: RANK})[POLICY]
    else:
        policy = VllmPolicy(model, settings)
    return {POLICY: LocalPolicy(policy, settings.tolerance)}


class Height:
    """The peak memory of this process and its descendants while the context is entered."""

    def __enter__(self) -> "Height":
        self.most, self._over = held(), threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()
        return self

    def _watch(self) -> None:
        while not self._over.wait(_LOOK_S):
            self.most = max(self.most, held())

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()


def held() -> int:
    own = psutil.Process()
    return sum(map(proportional_set_size, (own, *own.children(recursive=True))))


def measure(model: str, settings: VllmEngineSettings, rounds: int) -> dict[str, float]:
    spec = LearnerSpec(
        settings=LearnerSettings(
            lora=LoraSettings(rank=RANK) if settings.adapter else None,
            kl=NoKl(),
            gradient_checkpointing=False,
            estimator=GroupEstimator(kind="grpo"),
        ),
        learning_rate=1e-6,
        model_path=model,
        reference_path=model,
        state_path=None,
        device="cpu",
        seed=0,
        adapter=bool(settings.adapter),
        engine_dtype=settings.dtype,
    )
    mailbox: Any = MailboxActor.options(num_cpus=0).remote(POLICY)
    trainer: Any = MailboxTrainer.remote(spec, mailbox)
    engine: Any = EngineActor.options(num_cpus=0, runtime_env=runtime_env("cpu")).remote(
        partial(build_engine, model, settings), POLICY
    )
    ray.get([trainer.learn.remote(), engine.ready.remote()])
    floor = held()

    def publish_one(version: int) -> tuple[float, float, Any]:
        """Returns (seconds until the weights are handed in, seconds from then until the engine has them, the object
        reference)."""
        ray.get(trainer.learn.remote())
        began = time.perf_counter()
        ray.get(trainer.publish.remote(version))
        handed_in = time.perf_counter()
        _, (reference,) = ray.get(mailbox.get_result.remote(POLICY, version))
        ray.get(engine.load.remote(POLICY, Weights(version=version, update=reference), version))
        return handed_in - began, time.perf_counter() - handed_in, reference

    publish_one(1)
    timed = [publish_one(2 + number)[:2] for number in range(rounds)]
    with Height() as height:
        *_, reference = publish_one(2 + rounds)
    update: Any = ray.get(reference)
    arrays = [array for part in ray.get(list(update.parts)) for array in part.values()]
    copies = [array.copy() for array in arrays]
    began = time.perf_counter()
    for copy, array in zip(copies, arrays, strict=True):
        np.copyto(copy, array)  # into memory that is already allocated
    copying, size = time.perf_counter() - began, sum(array.nbytes for array in arrays)
    for actor in (trainer, engine, mailbox):
        ray.kill(actor)
    hand_in, load = (median(part) for part in zip(*timed, strict=True))
    return {
        "hand_in_s": hand_in,
        "load_s": load,
        "publish_s": median(map(sum, timed)),
        "copying_once_s": copying,
        "mb": size / 2**20,
        "copies": (height.most - floor) / size,
    }


def main() -> None:
    parser = arguments(__doc__)
    options = parser.parse_args()
    os.environ |= runtime_env("cpu")["env_vars"]
    figures: dict[str, float] = {}
    with tempfile.TemporaryDirectory() as directory:
        model = str(make_model("3m" if options.quick else "qwen_0_5b", Path(directory)))
        for way, settings in WAYS.items():
            ray.init(  # a new Ray: an object store keeps the memory that it once held
                address="local",
                include_dashboard=False,
                log_to_driver=False,
                logging_level=logging.ERROR,
                object_store_memory=(1 if options.quick else 7) << 30,
            )
            found = measure(model, settings, 1 if options.quick else 3)
            ray.shutdown()
            figures |= {f"{way}_{name}": value for name, value in found.items()}
    ratios = {
        f"{way}_vs_copying_once": figures[f"{way}_copying_once_s"] / figures[f"{way}_publish_s"]
        for way in WAYS
    }
    publish(options.json, figures, ratios)


if __name__ == "__main__":
    main()
