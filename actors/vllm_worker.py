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
        model = self.model_runner.get_model()
        dtype = next(model.parameters()).dtype
        given = bits(tensor.to(dtype) for tensor in tensors.values())
        self.model_runner.reload_weights(weights_iterator=iter(tensors.items()))
        _rebuild_tied_head(model)
        now, last = bits(model.parameters()), self._last
        arrived = last is None or (given == last[0]) == (now == last[1])
        if arrived:
            self._last = given, now
        return arrived


def bits(tensors: Iterable[torch.Tensor]) -> int:
    """Sum of all elements' bit patterns as whole numbers, modulo 2**64: whatever their order, and however they are joined."""
    views = {2: torch.int16, 4: torch.int32}
    with torch.no_grad():
        sums = [t.contiguous().view(views[t.element_size()]).sum(dtype=torch.int64).item() for t in tensors]
    return sum(map(int, sums)) % 2**64


def _rebuild_tied_head(model: torch.nn.Module) -> None:
    """vLLM's CPU build packs lm_head's weights once; with tied embeddings a reload leaves that copy stale,
    silently. Dispatch its GEMM again."""
    from vllm.platforms import current_platform

    head = getattr(model, "lm_head", None)
    if head is not None and current_platform.is_cpu() and hasattr(head, "cpu_linear"):
        from vllm.model_executor.layers.utils import dispatch_cpu_unquantized_gemm

        dispatch_cpu_unquantized_gemm(head, remove_weight=False)
