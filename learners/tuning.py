"""The weights of a model that are trained (all, the last layers, or a LoRA adapter), and the reference model."""

import re
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.distributed.fsdp import register_fsdp_forward_method
from torch.distributed.tensor import DTensor
from transformers import PreTrainedModel

from learners.attention import PACKED
from learners.files import fill, open_empty
from learners.models import (
    TokenScores,
    buffers_of,
    check_packing,
    limit_logits,
    load_model,
    output_head,
    score_tokens,
)
from learners.packing import PackedRow
from learners.parallel import WorkerGroup, shard, whole
from learners.settings import LearnerSettings, LoraSettings

HALVES = {"bf16": torch.bfloat16, "fp16": torch.float16}


class Scorer(nn.Module):
    """score_tokens as a module, because FSDP gathers a model's own parameters for a forward pass only."""

    def __init__(self, model: PreTrainedModel) -> None:
        super().__init__()
        self.model = model

    def forward(
        self,
        row: PackedRow,
        pick_N: torch.Tensor,
        temperature: float,
        entropy_gradient: bool,
        hidden_N: torch.Tensor | None = None,
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        scores = score_tokens(self.model, row, pick_N, temperature, entropy_gradient, hidden_N)
        return scores.logprobs_P, scores.entropy_P, scores.hidden_SH

    def check(self, half: bool) -> None:
        """Calls check_packing. `half` means that the layers are in bfloat16 and the rest in fp32."""
        with torch.autocast(self.model.device.type, torch.bfloat16, enabled=half):
            check_packing(self.model, exact=not half)


class Tuning(ABC):
    """The weights of one policy."""

    model: PreTrainedModel
    scorer: Scorer

    def activate(self) -> None:  # noqa: B027 - alone, there is nothing to do
        """Makes this policy the active one. If others tune the same model, it must be called before anything else."""

    def score(
        self,
        row: PackedRow,
        pick_N: torch.Tensor,
        temperature: float,
        entropy_gradient: bool = False,
        hidden_N: torch.Tensor | None = None,
    ) -> TokenScores:
        return TokenScores(*self.scorer(row, pick_N, temperature, entropy_gradient, hidden_N))

    @abstractmethod
    def score_reference(self, row: PackedRow, pick_N: torch.Tensor, temperature: float) -> TokenScores:
        """Scores tokens with the reference model (the initial model), without gradients."""

    @abstractmethod
    def trainable(self) -> dict[str, nn.Parameter]: ...

    @abstractmethod
    def kept(self) -> dict[str, torch.Tensor]:
        """Returns the tensors of a checkpoint's safetensors, by their names there. They are not copies; a sharded
        tensor holds this worker's part."""

    @abstractmethod
    def networks(self) -> list[PreTrainedModel]:
        """Returns the models in memory, including the reference."""

    @abstractmethod
    def merged(self) -> Iterator[tuple[str, torch.Tensor]]:
        """Yields the policy as a plain model: (Hugging Face name, tensor), tied tensors once. All ranks must iterate."""


def prepare(scorer: Scorer, settings: LearnerSettings) -> None:
    """Prepares a model for training. Parameters that are to be frozen must be frozen before. Raises ValueError if
    sequences cannot be packed for this model."""
    model = scorer.model
    model.set_attn_implementation(PACKED)
    limit_logits(model, settings.logits_mb)
    model.train()  # there is no dropout; gradient checkpointing needs train mode, as does bitsandbytes on CPU
    spread(scorer, settings)
    scorer.check(half=settings.sharding == "fsdp" and settings.precision == "bf16")
    if settings.gradient_checkpointing:
        model.gradient_checkpointing_enable()


def spread(scorer: Scorer, settings: LearnerSettings) -> None:
    """Shards the model over the workers if settings.sharding says so, and then reads its weights (files.open_empty)."""
    if settings.sharding == "none":
        return
    shard(scorer, list(decoder_layers(scorer.model)), half=settings.precision == "bf16")
    register_fsdp_forward_method(scorer, "check")
    fill(scorer, scorer.model, WorkerGroup())


def decoder_layers(model: PreTrainedModel) -> nn.ModuleList:
    """Returns the layers of the text decoder, also if the model takes images, too. Raises ValueError if the model has
    no list of layers."""
    decoder = model.get_decoder()
    layers = getattr(decoder, "layers", getattr(decoder, "h", None))
    if not isinstance(layers, nn.ModuleList):
        raise ValueError(
            f"{type(model).__name__} has no list of layers: it can neither be frozen nor sharded"
        )
    return layers


class FullTuning(Tuning):
    """Trains all weights, or the last `trainable_layers` layers. The reference is a separate, frozen model."""

    def __init__(
        self, model: PreTrainedModel, reference: PreTrainedModel | None, settings: LearnerSettings
    ) -> None:
        """`reference` is None if settings.kl needs no reference."""
        self.model = model
        if settings.trainable_layers is not None:
            freeze_all_but_last(model, settings.trainable_layers)
        self.reference, self.scorer = reference, Scorer(model)
        prepare(self.scorer, settings)
        if reference is not None:
            limit_logits(reference, settings.logits_mb)
            self._reference_scorer = Scorer(reference.eval().requires_grad_(False))
            spread(self._reference_scorer, settings)

    @torch.no_grad()
    def score_reference(self, row: PackedRow, pick_N: torch.Tensor, temperature: float) -> TokenScores:
        return TokenScores(*self._reference_scorer(row, pick_N, temperature, False))

    def trainable(self) -> dict[str, nn.Parameter]:
        return {name: p for name, p in self.model.named_parameters() if p.requires_grad}

    def kept(self) -> dict[str, torch.Tensor]:
        # tied weights appear once, as in named_parameters
        return {name: p.detach() for name, p in self.model.named_parameters()} | buffers_of(self.model)

    def networks(self) -> list[PreTrainedModel]:
        return [self.model] if self.reference is None else [self.model, self.reference]

    def merged(self) -> Iterator[tuple[str, torch.Tensor]]:
        for name, parameter in self.model.named_parameters():
            yield name, whole(parameter.detach())
        yield from buffers_of(self.model).items()


def freeze_all_but_last(model: PreTrainedModel, count: int) -> None:
    """Freezes everything but the last `count` layers and the norm after them. Embeddings and head are frozen, tied or
    not.

    Raises:
        ValueError: The model has fewer layers.
    """
    layers = decoder_layers(model)
    if count > len(layers):
        raise ValueError(f"trainable_layers is {count}, but the model has {len(layers)}")
    model.requires_grad_(False)
    for layer in layers[len(layers) - count :]:
        layer.requires_grad_(True)
    for name, module in model.get_decoder().named_children():
        if "norm" in name or name == "ln_f":
            module.requires_grad_(True)


class Backbone:
    """A frozen model on which several policies have their adapters. Without adapters it is their reference."""

    def __init__(self, settings: LearnerSettings, path: str | Path, device: torch.device) -> None:
        assert settings.lora is not None
        self.path = str(path)
        # the backbone is not trained, and engines hold it in half precision, too
        dtype = HALVES.get(settings.precision or "fp32", torch.float32)
        options = quantisation(settings.lora, settings.precision) or {"dtype": dtype}
        if settings.sharding == "fsdp":
            self.model = open_empty(path, dtype)
        else:
            self.model = load_model(path, device, **options)
        self.model.requires_grad_(False)  # before any pass: bitsandbytes adds to biases in place
        self.scorer = Scorer(self.model)
        prepare(self.scorer, settings)
        if settings.gradient_checkpointing:
            self.model.enable_input_require_grads()

    def add(self, name: str, lora: LoraSettings, seed: int) -> None:
        """Adds the adapter of a policy. Raises ValueError if a layer cannot have an adapter."""
        from peft import LoraConfig  # imported here, since it takes seconds
        from peft.tuners.lora import LoraLayer

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
        layers: list[tuple[str, Any]] = [
            (n, m) for n, m in self.model.named_modules() if isinstance(m, LoraLayer) and name in m.r
        ]
        for place, layer in layers:
            # an adapter of stacked expert weights or of embeddings would be neither merged nor saved
            if name not in layer.lora_A or not hasattr(layer.base_layer, "weight"):
                raise ValueError(
                    f"learner.lora.target_modules: {place} ({type(layer.get_base_layer()).__name__}) cannot have an adapter: "
                    "choose linear layers, such as q_proj, k_proj, v_proj and o_proj"
                )
            if len(layer.r) == 1:  # else another policy's adapter has added the hook
                layer.register_forward_pre_hook(cast_input_unless_autocast)
        for parameter in self.adapter(name).values():
            parameter.data = parameter.data.float()  # peft creates them in the backbone's dtype
        if any(n.startswith("lora_") for n, _ in output_head(self.model).named_parameters()):
            raise ValueError("learner.lora.target_modules: the output head cannot have an adapter")

    def adapter(self, name: str) -> dict[str, nn.Parameter]:
        marks = (f".lora_A.{name}.", f".lora_B.{name}.")
        return {n: p for n, p in self.model.named_parameters() if any(mark in n for mark in marks)}

    @contextmanager
    def without_adapters(self) -> Iterator[None]:
        self.model.disable_adapters()
        try:
            yield
        finally:
            self.model.enable_adapters()


def cast_input_unless_autocast(layer: Any, inputs: tuple[torch.Tensor, ...]) -> None:
    """A hook that disables the input cast of PEFT's layers under autocast. PEFT casts the input to the fp32 of its
    adapters, and autocast casts it back at once: two copies of each input, without any change of its bits."""
    layer.cast_input_dtype_enabled = not torch.is_autocast_enabled(inputs[0].device.type)


def quantisation(lora: LoraSettings, precision: str | None = None) -> dict[str, Any]:
    """Returns quantization options for from_pretrained. precision: see LearnerSettings; 4-bit weights are multiplied in it,
    since a T4 emulates bfloat16. Raises ValueError if bitsandbytes is not installed."""
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
            bnb_4bit_compute_dtype=torch.float16 if precision == "fp16" else torch.bfloat16,
        )
    }


def dense(layer: Any) -> torch.Tensor:
    """Returns a linear layer's weight in fp32, dequantized if necessary."""
    from peft.utils.integrations import dequantize_module_weight

    state = getattr(layer, "state", None)
    if layer.weight.dtype == torch.int8 and state is not None:  # peft would reset the layer's state on CPU
        scale = state.SCB if state.SCB is not None else layer.weight.SCB
        return (
            layer.weight.detach().float() * scale[:, None] / 127
        )  # Dettmers et al. 2022, arXiv:2208.07339, section 2
    return dequantize_module_weight(layer).detach().float()


class LoraTuning(Tuning):
    """A low-rank adapter (Hu et al. 2022, arXiv:2106.09685) on a backbone."""

    def __init__(self, settings: LearnerSettings, backbone: Backbone, name: str, seed: int) -> None:
        assert settings.lora is not None
        self.model, self.name = backbone.model, name
        self.lora, self.base = settings.lora, backbone.path
        self._backbone, self.scorer = backbone, backbone.scorer
        backbone.add(name, settings.lora, seed)
        self.activate()

    def activate(self) -> None:
        self.model.set_adapter(self.name)

    @torch.no_grad()
    def score_reference(self, row: PackedRow, pick_N: torch.Tensor, temperature: float) -> TokenScores:
        with self._backbone.without_adapters():
            return TokenScores(*self.scorer(row, pick_N, temperature, False))

    def trainable(self) -> dict[str, nn.Parameter]:
        return self._backbone.adapter(self.name)

    def kept(self) -> dict[str, torch.Tensor]:
        """Returns the adapter alone, by PEFT's names, in fp32, in which it is trained. It is whole on each worker."""
        return {peft_name(name): p.detach() for name, p in self.trainable().items()}

    def networks(self) -> list[PreTrainedModel]:
        return [self.model]

    def merged(self) -> Iterator[tuple[str, torch.Tensor]]:
        return merged(self.model, self.name)


def merged(model: nn.Module, adapter: str) -> Iterator[tuple[str, torch.Tensor]]:
    """Yields a model with PEFT's adapters as a plain model into which one adapter is merged, in fp32: (Hugging Face
    name, tensor)."""
    from peft.tuners.lora import LoraLayer

    modules: dict[str, Any] = dict(model.named_modules())
    adapted: dict[str, Any] = {n: m for n, m in modules.items() if isinstance(m, LoraLayer)}
    for name, parameter in model.named_parameters():
        if ".lora_" in name:
            continue
        owner, _, leaf = name.rpartition(".base_layer.")
        if not owner or leaf != "weight":
            packed = not parameter.is_floating_point()  # of a quantised layer without an adapter
            tensor = dense(modules[name.rpartition(".")[0]]) if packed else whole(parameter.detach()).float()
            yield f"{owner}.{leaf}" if owner else name, tensor
            continue
        layer = adapted[owner]
        base = (
            whole(parameter.detach()).float() if isinstance(parameter, DTensor) else dense(layer.base_layer)
        )
        own = adapter in layer.lora_A  # policies on one backbone may adapt different layers
        yield f"{owner}.weight", base + layer.get_delta_weight(adapter).detach() if own else base
    for name, buffer in buffers_of(model).items():
        yield name, buffer.float() if buffer.is_floating_point() else buffer


def peft_name(name: str) -> str:
    """Returns PEFT's name of an adapter's parameter.

    Example: layers.0.q_proj.lora_A.generator.weight -> base_model.model.layers.0.q_proj.lora_A.weight
    """
    return "base_model.model." + re.sub(r"\.(lora_[AB])\.[^.]+\.weight$", r".\1.weight", name)
