"""Runs TRL's own trainers on recorded completions: the code that the two benchmarks against TRL share.

Nothing of TRL is rewritten here. Its trainer runs a whole `train()`: data loader, advantages, loss, backward, clipping,
optimizer. Only generation is replaced by the recorded completions and, if requested, by the recorded old
log-probabilities.
"""

import importlib
import os
import random
import sys
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, PrinterCallback, TrainerCallback
from transformers.utils import logging as transformers_logging

from lab.model import build_model, build_tokenizer
from sparring.core.batch import Sample

TRL_DIRECTORY = Path(__file__).parents[1] / ".bench"
"""The directory into which `make .bench` installs the packages of requirements/bench.lock."""
QUIET_ON_CPU: dict[str, Any] = {
    "bf16": False,
    "use_cpu": True,
    "gradient_checkpointing": False,
    "report_to": [],
    "save_strategy": "no",
    "logging_strategy": "no",
    "disable_tqdm": True,
}
"""Settings that every config of TRL takes."""


@dataclass(frozen=True, slots=True)
class Recorded:
    """B completions in groups of G, one prompt per group."""

    group: int
    prompts: list[list[int]]
    completions: list[list[int]]
    trained: list[list[bool]]
    """False for tokens that the game inserted (such as a stage marker): they have no loss."""
    old_logprobs: list[list[float]]
    rewards: list[float]

    def __len__(self) -> int:
        return len(self.rewards)

    def groups(self) -> list[list[float]]:
        return [self.rewards[i : i + self.group] for i in range(0, len(self), self.group)]

    def tokens(self) -> int:
        """Returns the number of tokens of prompts and completions, without padding."""
        return sum(len(row) for row in (*self.prompts, *self.completions))

    def samples(self, credit: Sequence[tuple[float, float | None] | None]) -> list[Sample | None]:
        """Returns the samples for the project's learner; None for a group that is left out."""
        return [self._sample(i, *pair) if pair else None for i, pair in enumerate(credit)]

    def _sample(self, i: int, reward: float, advantage: float | None) -> Sample:
        before = len(self.prompts[i])
        return Sample(
            tokens=(*self.prompts[i], *self.completions[i]),
            sampled=(False,) * before + tuple(self.trained[i]),
            trained=(False,) * before + tuple(self.trained[i]),
            logprobs=(0.0,) * before + tuple(self.old_logprobs[i]),
            reward=reward,
            advantage=advantage,
        )


@dataclass(slots=True)
class Observed:
    """The values that TRL computed in one optimizer update."""

    advantages: torch.Tensor = field(default_factory=lambda: torch.empty(0))
    losses: list[float] = field(default_factory=list)
    """Losses of the micro-batches, scaled for gradient accumulation."""
    gradient: dict[str, torch.Tensor] = field(default_factory=dict)


def load_trl() -> Any:
    """Imports the module trl from TRL_DIRECTORY; ends the program if it is not installed."""
    os.environ["TRL_EXPERIMENTAL_SILENCE"] = "1"
    sys.path.append(str(TRL_DIRECTORY))
    warnings.filterwarnings("ignore", message="TRL currently supports vLLM versions")
    warnings.filterwarnings("ignore", category=FutureWarning)
    transformers_logging.set_verbosity_error()
    try:
        return importlib.import_module("trl")
    except ModuleNotFoundError as error:
        if error.name != "trl":
            raise
        sys.exit("TRL is not installed (it is needed by this benchmark only): run `make .bench`")


def make_models(directory: Path, **size: int) -> tuple[Path, Path]:
    """Makes (policy, reference) with a tokenizer: the toy model, untrained, or a larger one; the reference differs
    slightly."""
    tokenizer = build_tokenizer(["def f(x): return x + 1"], ["<pad>", "<end>"], "<pad>", "<end>")
    model = build_model(tokenizer, seed=1)
    if size:
        values = {name: value for name, value in model.config.to_dict().items() if name != "layer_types"}
        torch.manual_seed(1)
        model = type(model)(type(model.config).from_dict({**values, **size}))
    paths = directory / "policy", directory / "reference"
    for path in paths:
        model.save_pretrained(path)
        tokenizer.save_pretrained(path)
        torch.manual_seed(2)
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.add_(torch.randn_like(parameter) * 0.01)
    return paths


def record(
    model_path: Path,
    *,
    groups: int,
    group: int,
    lengths: tuple[int, int],
    off_policy: float,
    temperature: float = 1.0,
    inserted: bool = False,
    seed: int = 0,
) -> Recorded:
    """Records random tokens with random rewards.

    Args:
        off_policy: scale of the normal noise that is added to the model's log-probabilities to make the old ones.
        inserted: whether a stretch in the middle of each completion is marked as not sampled by the policy.
    """
    rng, model = random.Random(seed), AutoModelForCausalLM.from_pretrained(model_path)
    vocabulary = len(AutoTokenizer.from_pretrained(model_path))
    data = Recorded(group, [], [], [], [], [])
    for i in range(groups * group):
        if i % group == 0:
            prompt = [rng.randrange(2, vocabulary) for _ in range(rng.randint(5, 20))]
        length = rng.randint(*lengths)
        completion = [rng.randrange(2, vocabulary) for _ in range(length)]
        exact = _logprobs(model, prompt, completion, temperature)
        data.prompts.append(prompt)
        data.completions.append(completion)
        data.trained.append([not (inserted and length // 3 <= t < length // 2) for t in range(length)])
        data.old_logprobs.append([value + off_policy * rng.gauss(0, 1) for value in exact])
        data.rewards.append(round(rng.random(), 3))
    return data


@torch.no_grad()
def _logprobs(model: Any, prompt: list[int], completion: list[int], temperature: float) -> list[float]:
    logits = model(torch.tensor([prompt + completion])).logits[0, len(prompt) - 1 : -1] / temperature
    return logits.log_softmax(-1).gather(1, torch.tensor(completion)[:, None])[:, 0].tolist()


def make_trainer(
    trl: Any,
    algorithm: str,
    models: tuple[Path, Path],
    data: Recorded,
    options: dict[str, Any],
    *,
    microbatches: int = 1,
    give_old: bool = True,
    callbacks: Sequence[TrainerCallback] = (),
) -> tuple[Any, Observed]:
    """Returns a GRPOTrainer or RLOOTrainer for the recorded batch, fp32 on CPU, and the Observed that its `train()`
    fills in."""
    config = getattr(trl, f"{algorithm}Config")(
        output_dir=str(models[0].parent / "trl"),
        per_device_train_batch_size=len(data) // microbatches,
        gradient_accumulation_steps=microbatches,
        num_generations=data.group,
        max_grad_norm=1e9,
        shuffle_dataset=False,
        **QUIET_ON_CPU,
        model_init_kwargs={"dtype": "float32"},
        **options,
    )
    observed = Observed()
    datasets = importlib.import_module("datasets")
    more = {"rollout_func": _rollout(data)} if algorithm == "GRPO" else {}
    trainer = _replaying(getattr(trl, f"{algorithm}Trainer"), data, observed, give_old)(
        model=str(models[0]),
        args=config,
        reward_funcs=lambda completions, **_: data.rewards[: len(completions)],
        train_dataset=datasets.Dataset.from_dict({"prompt": ["x"] * (len(data) // data.group)}),
        processing_class=AutoTokenizer.from_pretrained(models[0]),
        callbacks=[_Gradients(observed), *callbacks],
        **more,
    )
    trainer.remove_callback(PrinterCallback)
    if trainer.ref_model is not None:  # TRL takes the policy's own first weights
        trainer.ref_model.load_state_dict(AutoModelForCausalLM.from_pretrained(models[1]).state_dict())
    return trainer, observed


def _rollout(data: Recorded) -> Any:
    """Returns the `rollout_func` for TRL, which returns the recorded completions."""

    def rollout(prompts: list[str], trainer: Any) -> dict[str, Any]:
        assert len(prompts) == len(data), (len(prompts), len(data))
        return {
            "prompt_ids": data.prompts,
            "completion_ids": data.completions,
            "logprobs": data.old_logprobs,
            "env_mask": [[int(trained) for trained in row] for row in data.trained],
        }

    return rollout


def _replaying(base: Any, data: Recorded, observed: Observed, give_old: bool) -> Any:
    class Replaying(base):
        def _tokenize_prompts(self, prompts: Any) -> Any:  # for RLOOTrainer, which has no rollout_func
            return data.prompts, None, {}

        def _generate_single_turn(self, *_: Any) -> Any:
            return data.completions

        def _generate_and_score_completions(self, inputs: Any) -> Any:
            scored = super()._generate_and_score_completions(inputs)
            observed.advantages = scored["advantages"].clone()
            if give_old and "sampling_per_token_logps" in scored:
                scored["old_per_token_logps"] = scored["sampling_per_token_logps"]
            elif give_old:
                scored["old_logps"] = torch.tensor([sum(row) for row in data.old_logprobs])
            return scored

        def training_step(self, *arguments: Any, **named: Any) -> Any:
            loss = super().training_step(*arguments, **named)
            observed.losses.append(loss.item())
            return loss

    return Replaying


class _Gradients(TrainerCallback):
    def __init__(self, observed: Observed) -> None:
        self.observed = observed

    def on_pre_optimizer_step(self, *_: Any, **named: Any) -> None:
        if not self.observed.gradient:
            self.observed.gradient = gradient(named["model"])


def gradient(model: torch.nn.Module) -> dict[str, torch.Tensor]:
    return {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}
