"""What runs inside vLLM's worker: weight reload. Named in `worker_extension_cls`, imported by vLLM."""

from typing import Any

import torch


class WeightReload:
    """Methods become available to `collective_rpc`."""

    model_runner: Any

    def reload_from_file(self, path: str) -> None:
        """Load Hugging Face-named tensors from a safetensors file on this node, in place."""
        from safetensors import safe_open

        with safe_open(path, "pt", device="cpu") as file:
            tensors = ((name, file.get_tensor(name)) for name in file.keys())  # noqa: SIM118
            self.model_runner.reload_weights(weights_iterator=tensors)
        _rebuild_tied_head(self.model_runner.get_model())


def _rebuild_tied_head(model: torch.nn.Module) -> None:
    """vLLM's CPU build packs lm_head's weights once; with tied embeddings a reload leaves that copy stale,
    silently. Dispatch its GEMM again."""
    from vllm.platforms import current_platform

    head = getattr(model, "lm_head", None)
    if head is not None and current_platform.is_cpu() and hasattr(head, "cpu_linear"):
        from vllm.model_executor.layers.utils import dispatch_cpu_unquantized_gemm

        dispatch_cpu_unquantized_gemm(head, remove_weight=False)
