"""What of a model is trained, and what it is compared with: all weights, the last layers, or a LoRA adapter."""

from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Protocol

import torch
from safetensors.torch import save_file
from torch import nn
from transformers import PreTrainedModel

from learners.attention import PACKED
from learners.models import TokenScores, check_packing, load_model, output_head, score_tokens
from learners.packing import Row
from learners.parallel import World, shard, whole
from learners.settings import LearnerSettings, LoraSettings

WEIGHTS_FILE = "model.safetensors"


class Scorer(nn.Module):
    """score_tokens as a module: what FSDP gathers a model's own parameters for is a forward pass."""

    def __init__(self, model: PreTrainedModel) -> None:
        super().__init__()
        self.model = model

    def forward(
        self, row: Row, pick_N: torch.Tensor, temperature: float, entropy_gradient: bool
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        scores = score_tokens(self.model, row, pick_N, temperature, entropy_gradient)
        return scores.logprobs_P, scores.entropy_P, scores.hidden_PH


class Tuning(Protocol):
    """One policy's weights."""

    model: PreTrainedModel

    def activate(self) -> None:
        """To be called before anything else, where others tune the same model."""
        ...

    def score(
        self, row: Row, pick_N: torch.Tensor, temperature: float, entropy_gradient: bool = False
    ) -> TokenScores: ...

    def score_reference(self, row: Row, pick_N: torch.Tensor, temperature: float) -> TokenScores:
        """By the warm start, without gradients."""
        ...

    def trainable(self) -> dict[str, nn.Parameter]: ...

    def merged(self) -> Iterator[tuple[str, torch.Tensor]]:
        """The policy as a plain model: (Hugging Face name, tensor), tied ones once. All ranks must iterate."""
        ...


def prepare(model: PreTrainedModel, settings: LearnerSettings) -> None:
    model.set_attn_implementation(PACKED)
    model.train()  # dropout is gone; gradient checkpointing wants train mode, as does bitsandbytes on CPU
    check_packing(model)
    if settings.gradient_checkpointing:
        model.gradient_checkpointing_enable()


def decoder_layers(model: PreTrainedModel) -> nn.ModuleList:
    """Raises ValueError where the model has no list of layers."""
    layers = getattr(model.base_model, "layers", getattr(model.base_model, "h", None))
    if not isinstance(layers, nn.ModuleList):
        raise ValueError(
            f"{type(model).__name__} has no list of layers: it can neither be frozen nor sharded"
        )
    return layers


class FullTuning:
    """All weights, or the last `trainable_layers`; the reference is a frozen model of its own."""

    def __init__(
        self, model: PreTrainedModel, reference: PreTrainedModel | None, settings: LearnerSettings
    ) -> None:
        """reference: None where settings.kl asks for none."""
        self.model = model
        prepare(model, settings)
        if settings.trainable_layers is not None:
            freeze_all_but_last(model, settings.trainable_layers)
        self.reference, self._scorers = reference, [Scorer(model)]
        if reference is not None:
            self._scorers.append(Scorer(reference.eval().requires_grad_(False)))
        if settings.sharding == "fsdp":
            for scorer in self._scorers:
                shard(scorer, list(decoder_layers(scorer.model)), half=settings.precision == "bf16")

    def activate(self) -> None:
        """Nobody else tunes it."""

    def score(
        self, row: Row, pick_N: torch.Tensor, temperature: float, entropy_gradient: bool = False
    ) -> TokenScores:
        return TokenScores(*self._scorers[0](row, pick_N, temperature, entropy_gradient))

    @torch.no_grad()
    def score_reference(self, row: Row, pick_N: torch.Tensor, temperature: float) -> TokenScores:
        return TokenScores(*self._scorers[1](row, pick_N, temperature, False))

    def trainable(self) -> dict[str, nn.Parameter]:
        return {name: p for name, p in self.model.named_parameters() if p.requires_grad}

    def merged(self) -> Iterator[tuple[str, torch.Tensor]]:
        for name, parameter in self.model.named_parameters():
            yield name, whole(parameter.detach())


def freeze_all_but_last(model: PreTrainedModel, count: int) -> None:
    """Train the last `count` layers and the norm after them; embeddings and head stay, tied or not.

    Raises:
        ValueError: the model has fewer layers.
    """
    layers = decoder_layers(model)
    if count > len(layers):
        raise ValueError(f"trainable_layers is {count}, but the model has {len(layers)}")
    model.requires_grad_(False)
    for layer in layers[len(layers) - count :]:
        layer.requires_grad_(True)
    for name, module in model.base_model.named_children():
        if "norm" in name or name == "ln_f":
            module.requires_grad_(True)


class Backbone:
    """A frozen model that several policies put their adapters on; without adapters it is their reference."""

    def __init__(self, settings: LearnerSettings, path: str | Path, device: torch.device) -> None:
        assert settings.lora is not None
        self.model = load_model(path, device, **quantisation(settings.lora))
        self.model.requires_grad_(False)  # first: bitsandbytes adds to biases in place
        prepare(self.model, settings)
        if settings.gradient_checkpointing:
            self.model.enable_input_require_grads()

    def add(self, name: str, lora: LoraSettings, seed: int) -> None:
        from peft import LoraConfig  # seconds, which only those pay who use it

        config = LoraConfig(
            r=lora.rank,
            lora_alpha=lora.alpha,
            lora_dropout=0.0,
            target_modules=list(lora.target_modules) if lora.target_modules else "all-linear",
            task_type="CAUSAL_LM",
        )
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            try:
                self.model.add_adapter(config, adapter_name=name)
            except ValueError as error:
                raise ValueError(f"learner.lora.target_modules {lora.target_modules}: {error}") from None
        if any(n.startswith("lora_") for n, _ in output_head(self.model).named_parameters()):
            raise ValueError("learner.lora.target_modules: the output head cannot have an adapter")

    @contextmanager
    def without_adapters(self) -> Iterator[None]:
        self.model.disable_adapters()
        try:
            yield
        finally:
            self.model.enable_adapters()


def quantisation(lora: LoraSettings) -> dict[str, Any]:
    """Options of from_pretrained. Raises ValueError where bitsandbytes is not installed."""
    if lora.quantize is None:
        return {}
    if find_spec("bitsandbytes") is None:
        raise ValueError(
            "learner.lora.quantize needs bitsandbytes, which is not installed: pip install bitsandbytes"
        )
    from transformers import BitsAndBytesConfig

    if lora.quantize == "8bit":
        return {"quantization_config": BitsAndBytesConfig(load_in_8bit=True)}
    return {
        "quantization_config": BitsAndBytesConfig(
            load_in_4bit=True,
            bnb_4bit_quant_type="nf4",
            bnb_4bit_use_double_quant=True,
            bnb_4bit_compute_dtype=torch.bfloat16,
        )
    }


def dense(layer: Any) -> torch.Tensor:
    """A linear layer's weight, out of however few bits."""
    from peft.utils.integrations import dequantize_module_weight

    state = getattr(layer, "state", None)
    if layer.weight.dtype == torch.int8 and state is not None:  # peft would reset the layer's state on CPU
        scale = state.SCB if state.SCB is not None else layer.weight.SCB
        return (
            layer.weight.detach().float() * scale[:, None] / 127
        )  # Dettmers et al. 2022, arXiv:2208.07339, section 2
    return dequantize_module_weight(layer).detach().float()


class LoraTuning:
    """A low-rank adapter (Hu et al. 2022, arXiv:2106.09685) on a backbone."""

    def __init__(self, settings: LearnerSettings, backbone: Backbone, name: str, seed: int) -> None:
        assert settings.lora is not None
        self.model, self.name = backbone.model, name
        self._backbone = backbone
        backbone.add(name, settings.lora, seed)
        self.activate()

    def activate(self) -> None:
        self.model.set_adapter(self.name)

    def score(
        self, row: Row, pick_N: torch.Tensor, temperature: float, entropy_gradient: bool = False
    ) -> TokenScores:
        return score_tokens(self.model, row, pick_N, temperature, entropy_gradient)

    @torch.no_grad()
    def score_reference(self, row: Row, pick_N: torch.Tensor, temperature: float) -> TokenScores:
        with self._backbone.without_adapters():
            return score_tokens(self.model, row, pick_N, temperature)

    def trainable(self) -> dict[str, nn.Parameter]:
        marks = (f".lora_A.{self.name}.", f".lora_B.{self.name}.")
        return {n: p for n, p in self.model.named_parameters() if any(mark in n for mark in marks)}

    def merged(self) -> Iterator[tuple[str, torch.Tensor]]:
        from peft.tuners.lora import LoraLayer

        adapted = {n: m for n, m in self.model.named_modules() if isinstance(m, LoraLayer)}
        for name, parameter in self.model.named_parameters():
            if ".lora_" in name:
                continue
            owner, _, leaf = name.rpartition(".base_layer.")
            if not owner:
                yield name, parameter.detach().float()
            elif leaf == "weight":
                layer: Any = adapted[owner]
                base = dense(layer.base_layer)
                yield f"{owner}.weight", base + layer.get_delta_weight(self.name).detach()
            else:
                yield f"{owner}.{leaf}", parameter.detach().float()


def save_model(tuning: Tuning, directory: Path, world: World) -> None:
    """In Hugging Face format, by rank 0."""
    tensors = {}
    for name, tensor in tuning.merged():
        if world.rank == 0:
            tensors[name] = tensor.cpu().contiguous()
    if world.rank:
        return
    directory.mkdir(parents=True, exist_ok=True)
    config = tuning.model.config
    if hasattr(config, "quantization_config"):
        config = type(config).from_dict(
            {k: v for k, v in config.to_dict().items() if k != "quantization_config"}
        )
    config.save_pretrained(directory)
    if tuning.model.generation_config is not None:
        tuning.model.generation_config.save_pretrained(directory)
    save_file(tensors, directory / WEIGHTS_FILE, metadata={"format": "pt"})
