"""What runs inside vLLM's worker: weight reload. Named in `worker_extension_cls`, imported by vLLM."""

from collections.abc import Mapping
from typing import Any

import torch


class WeightReload:
    """Methods become available to `collective_rpc`."""

    model_runner: Any

    def reload(self, tensors: Mapping[str, torch.Tensor]) -> None:
        """Load Hugging Face-named tensors in place."""
        self.model_runner.reload_weights(weights_iterator=iter(tensors.items()))
        _rebuild_tied_head(self.model_runner.get_model())


def _rebuild_tied_head(model: torch.nn.Module) -> None:
    """vLLM's CPU build packs lm_head's weights once; with tied embeddings a reload leaves that copy stale,
    silently. Dispatch its GEMM again."""
    from vllm.platforms import current_platform

    head = getattr(model, "lm_head", None)
    if head is not None and current_platform.is_cpu() and hasattr(head, "cpu_linear"):
        from vllm.model_executor.layers.utils import dispatch_cpu_unquantized_gemm

        dispatch_cpu_unquantized_gemm(head, remove_weight=False)
