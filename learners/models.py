"""The networks: a causal language model that scores tokens, and a value head."""

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint
from transformers import AutoModelForCausalLM, PreTrainedModel
from transformers.utils import logging as transformers_logging

from learners.attention import PACKED
from learners.packing import LEAST_SHARED, PackedRow, places, row_of, spread
from learners.settings import LOGITS_MB

transformers_logging.disable_progress_bar()  # a bar per save would drown the run's own display
LOGITS_AT_ONCE = LOGITS_MB << 18
"""Maximum number of logits, of 4 bytes each, that are computed at once if the model's own limit is not set."""


def load_model(path: str | Path, device: str | torch.device = "cpu", **options: Any) -> PreTrainedModel:
    """Loads a causal LM from a directory or a hub id, without dropout and in fp32: steps of an RL learning rate vanish
    in bfloat16's 8 bits. `options` are passed to from_pretrained. Raises OSError with transformers' own message if
    there is no such model."""
    if "quantization_config" in options and torch.device(device).type == "cpu":
        options |= {"device_map": {"": "cpu"}}  # else bitsandbytes takes a GPU if there is one
    model: Any = AutoModelForCausalLM.from_pretrained(
        path, **{"dtype": torch.float32, "attn_implementation": PACKED} | options
    )
    assert isinstance(model, PreTrainedModel)
    remove_dropout(model)
    if "quantization_config" not in options:  # bitsandbytes has moved it
        model.to(device)  # pyright: ignore[reportArgumentType]
    return model


def remove_dropout(model: PreTrainedModel) -> None:
    """Disables dropout. Probability ratios compare two forward passes of the same tokens, so noise in them would be
    taken for learning."""
    for name, value in model.config.to_dict().items():
        if "drop" in name and isinstance(value, float):
            setattr(model.config, name, 0.0)
    for module in model.modules():
        if isinstance(module, nn.Dropout):
            module.p = 0.0


def limit_logits(model: PreTrainedModel, mb: int | None) -> None:
    """Applies learner.logits_mb to a model."""
    if mb is not None:
        model.logits_at_once = mb << 18  # pyright: ignore[reportAttributeAccessIssue, reportArgumentType]


def buffers_of(model: nn.Module) -> dict[str, torch.Tensor]:
    """Returns the buffers that a model's files contain beside its parameters, by Hugging Face name: a router's bias,
    Gemma 4's layer_scalar."""
    return {
        f"{place}.{name}".removeprefix(".").replace(".base_layer.", "."): buffer
        for place, module in model.named_modules()
        for name, buffer in module.named_buffers(recurse=False)
        if name not in module._non_persistent_buffers_set
    }


def output_head(model: PreTrainedModel) -> nn.Module:
    head = model.get_output_embeddings()
    assert head is not None, f"{type(model).__name__} is no causal language model"
    return head


@torch.no_grad()
def check_packing(model: PreTrainedModel, exact: bool = True) -> None:
    """Raises ValueError if packed sequences get other scores than each sequence gets in the model's own forward pass.

    Args:
        exact: Whether the model rounds no more than its dtype does.
    """
    # the first tokens are special ones in most vocabularies, whose hidden states are ill-conditioned in 16 bits
    middle = model.config.get_text_config().vocab_size // 2
    first, second = [middle, middle + 1, middle + 2], [middle + 2, middle + 1, middle, middle - 1]
    beginning = (second * LEAST_SHARED)[:LEAST_SHARED]
    rows = [first, [*beginning, *second], [*beginning, *first]]  # the last two share a beginning
    apart = torch.cat([hidden_states(model, row_of([tokens], model.device)) for tokens in rows])
    together = hidden_states(model, row_of(rows, model.device))
    exact &= model.dtype == torch.float32 and not hasattr(model.config, "quantization_config")
    tolerance = 1e-3 if exact else 0.1

    def apart_by(one: torch.Tensor, other: torch.Tensor) -> float:
        return float((one - other).norm() / other.norm())

    hidden_error, logits_error = math.inf, math.inf
    # in 16 bits, eager attention rounds its scores, which is everything to a model with large ones (Qwen2.5-0.5B);
    # SDPA does not, but leaves out what only eager attention knows (Gemma 2's cap)
    for own_attention in ("eager",) if exact or not model._supports_sdpa else ("eager", "sdpa"):
        model.set_attn_implementation(own_attention)
        try:
            tokens = torch.tensor([first], device=model.device)
            own = model.base_model(input_ids=tokens, use_cache=False).last_hidden_state[0]
            logits = model(input_ids=tokens, use_cache=False).logits[0]
        finally:
            model.set_attn_implementation(PACKED)
        hidden_error = min(hidden_error, apart_by(together[: len(first)], own))
        logits_error = min(logits_error, apart_by(logits_of(model, own), at_least_fp32(logits)))

    name, instead = type(model).__name__, "use another model (Qwen2, Llama, Mistral, Gemma 2, Granite, ...)"
    if apart_by(together, apart) > tolerance:  # int8 rounding depends on the whole row
        raise ValueError(
            f"{name}: its layers do not hand `lengths` on to their attention, so sequences cannot be packed: {instead}"
        )
    if hidden_error > tolerance:
        raise ValueError(f"{name}: its attention does more than learners/attention.py knows: {instead}")
    if logits_error > tolerance:
        raise ValueError(f"{name}: it makes logits otherwise than learners/models.py knows: {instead}")


def hidden_states(model: PreTrainedModel, row: PackedRow) -> torch.Tensor:
    """Returns the last hidden states [N, H]. Those of a beginning that sequences share are computed once."""
    tokens_U, positions_U, place_N = row.tokens_N, row.positions_N, None
    if any(row.prefixes):
        own_U, place_N = places(tuple(row.lengths), tuple(row.prefixes), tokens_U.device)
        tokens_U, positions_U = tokens_U[own_U], positions_U[own_U]
    hidden_UH = model.base_model(
        input_ids=tokens_U[None],
        position_ids=positions_U[None],
        use_cache=False,
        lengths=row.lengths,
        prefixes=row.prefixes,
    ).last_hidden_state[0]
    return hidden_UH if place_N is None else spread(hidden_UH, place_N, dim=0)


def at_least_fp32(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.to(torch.promote_types(tensor.dtype, torch.float32))


def logits_of(model: PreTrainedModel, hidden: torch.Tensor) -> torch.Tensor:
    """Returns logits [..., vocabulary], at least in fp32, scaled (Granite divides, Cohere multiplies) and capped
    (Gemma) as in the model's own forward pass. `check_packing` detects models that do anything else."""
    config = model.config.get_text_config()
    logits = at_least_fp32(output_head(model)(hidden))
    if (divisor := getattr(config, "logits_scaling", None)) is not None:
        logits = logits / divisor
    if (factor := getattr(config, "logit_scale", None)) is not None:
        logits = logits * factor
    if (cap := getattr(config, "final_logit_softcapping", None)) is not None:
        logits = cap * (logits / cap).tanh()
    return logits


_VALUE_WIDTH = 128
"""Width of the value head."""


class ValueHead(nn.Module):
    """An MLP on hidden states. If they come from a policy's trunk, the caller detaches them: a value gradient harms a
    small one."""

    def __init__(self, hidden_size: int) -> None:
        super().__init__()
        last = nn.Linear(_VALUE_WIDTH, 1)
        nn.init.zeros_(last.weight)  # starts at 0: the first advantages are plain returns
        nn.init.zeros_(last.bias)
        self.layers = nn.Sequential(nn.Linear(hidden_size, _VALUE_WIDTH), nn.SiLU(), last)

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        with torch.autocast(hidden.device.type, enabled=False):
            return self.layers(at_least_fp32(hidden))[..., 0]


@dataclass(frozen=True, slots=True)
class TokenScores:
    """Scores of P tokens picked from a row, and hidden states for S tokens."""

    logprobs_P: torch.Tensor
    """log-softmax of logits / temperature at the token, fp32."""
    entropy_P: torch.Tensor
    """Entropy of the distribution that the token was drawn from, in nats. It carries a gradient only if that was
    requested."""
    hidden_SH: torch.Tensor
    """Last hidden state of the position before each requested token: the input of a value head."""


def score_tokens(
    model: PreTrainedModel,
    row: PackedRow,
    pick_N: torch.Tensor,
    temperature: float,
    entropy_gradient: bool = False,
    hidden_N: torch.Tensor | None = None,
) -> TokenScores:
    """Scores the tokens at pick_N, and returns the hidden states for the tokens at hidden_N (None: for the same
    tokens). pick_N must not contain the first token of a sequence, for which there is no prediction.

    Logits are computed for these positions only, and in parts if there are many: never [P, vocabulary] in fp32 for a
    large model.
    """
    places = pick_N.nonzero()[:, 0]
    every_NH = hidden_states(model, row)
    hidden_PH = every_NH[places - 1]
    hidden_SH = hidden_PH if hidden_N is None else every_NH[hidden_N.nonzero()[:, 0] - 1]
    targets_P = row.tokens_N[places]
    at_once = getattr(model, "logits_at_once", LOGITS_AT_ONCE)
    most = max(1, at_once // model.config.get_text_config().vocab_size)
    if len(places) <= most:
        logprobs, entropy = _score(model, hidden_PH, targets_P, temperature, entropy_gradient)
        return TokenScores(logprobs, entropy, hidden_SH)
    parts = [
        checkpoint(_score, model, hidden, targets, temperature, entropy_gradient, use_reentrant=False)
        for hidden, targets in zip(hidden_PH.split(most), targets_P.split(most), strict=True)
    ]
    return TokenScores(torch.cat([p[0] for p in parts]), torch.cat([p[1] for p in parts]), hidden_SH)


def _score(
    model: PreTrainedModel,
    hidden_PH: torch.Tensor,
    targets_P: torch.Tensor,
    temperature: float,
    entropy_gradient: bool,
) -> tuple[torch.Tensor, torch.Tensor]:
    logits = logits_of(model, hidden_PH)
    if temperature != 1:
        logits = logits / temperature
    logprobs_PV = logits.log_softmax(-1)
    with torch.set_grad_enabled(entropy_gradient and torch.is_grad_enabled()):
        entropy = -(logprobs_PV.exp() * logprobs_PV).sum(-1)
    return logprobs_PV.gather(1, targets_P[:, None])[:, 0], entropy
