"""What runs inside vLLM's worker: weight reload. Named in `worker_extension_cls`, imported by vLLM."""

from collections.abc import Iterable, Mapping
from typing import Any

import torch


class WeightReload:
    """Methods become available to `collective_rpc`."""

    model_runner: Any
    _last: tuple[int, int] | None = None
    """Bits of the tensors that were given last, and of the model then."""

    def reload(self, tensors: Mapping[str, torch.Tensor]) -> bool:
        """Load Hugging Face-named tensors in place. False where others than last time left the model as it was: in
        bfloat16 the probe would hardly show it."""
        self.model_runner.reload_weights(weights_iterator=iter(tensors.items()))
        model = self.model_runner.get_model()
        _rebuild_tied_head(model)
        own, given = dict(model.named_parameters()), tensors
        dtype = next(iter(own.values())).dtype
        if not all(parameter.numel() for parameter in own.values()):
            # The CPU build has packed its linear maps away: what is left of the parameters says nothing of those.
            own = {
                name: parameter for name, parameter in own.items() if parameter.numel() and name in tensors
            }
            given = {name: tensors[name] for name in own}
        now, last = (bits(t.to(dtype) for t in given.values()), bits(own.values())), self._last
        arrived = last is None or now[0] == last[0] or now[1] != last[1]
        if arrived:
            self._last = now
        return arrived


def bits(tensors: Iterable[torch.Tensor]) -> int:
    """Sum of all elements' bit patterns as whole numbers, modulo 2**64: whatever their order, and however they are joined."""
    views = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
    total = 0
    with torch.no_grad():
        for tensor in tensors:
            whole = tensor.contiguous().view(views[tensor.element_size()]).flatten()
            for part in whole.split(1 << 22):  # each sum makes a copy of 8 bytes an element
                total += int(part.sum(dtype=torch.int64))
    return total % 2**64


def _rebuild_tied_head(model: torch.nn.Module) -> None:
    """vLLM's CPU build packs lm_head's weights once; with tied embeddings a reload leaves that copy stale,
    silently. Dispatch its GEMM again."""
    from vllm.platforms import current_platform

    head = getattr(model, "lm_head", None)
    if head is not None and current_platform.is_cpu() and hasattr(head, "cpu_linear"):
        from vllm.model_executor.layers.utils import dispatch_cpu_unquantized_gemm

        dispatch_cpu_unquantized_gemm(head, remove_weight=False)
