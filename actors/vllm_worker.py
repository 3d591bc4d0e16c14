"""What runs inside vLLM's worker: new weights, new adapters. Named in `worker_extension_cls`, imported by vLLM."""

import ctypes
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import torch


class Weights:
    """Methods become available to `collective_rpc`."""

    model_runner: Any
    _last: tuple[int | list[int], list[list[int]]] | None = None
    """What stands for the tensors that were given last, and bits of the model's then, on each GPU."""

    def reload(self, tensors: Mapping[str, torch.Tensor], digest: int) -> bool:
        """Load Hugging Face-named tensors in place, which are in the engine's dtype. digest: of these. False where others than last time left the model as
        it was: in bfloat16 the probe would hardly show it."""
        self.model_runner.reload_weights(weights_iterator=iter(tensors.items()))
        model = self.model_runner.get_model()
        _rebuild_tied_head(model)
        own = dict(model.named_parameters())
        given: int | list[int] = digest
        if not all(parameter.numel() for parameter in own.values()):
            # The CPU build has packed its linear maps away: what is left of the parameters says nothing of those.
            own = {
                name: parameter for name, parameter in own.items() if parameter.numel() and name in tensors
            }
            given = [bits([tensors[name].to(parameter.dtype)]) for name, parameter in own.items()]
            # what was packed before would stay with the process, as much memory as the model
            ctypes.CDLL(None).malloc_trim(0)
        # each GPU of a tensor-parallel engine has its part: what changed may all be another's
        now = given, _on_each_gpu([bits([parameter]) for parameter in own.values()])
        last = self._last
        arrived = last is None or now[0] == last[0] or now[1] != last[1]
        if arrived:
            self._last = now
        return arrived

    def put_adapter(self, number: int, tensors: Mapping[str, torch.Tensor], rank: int, alpha: int) -> bool:
        """Load a LoRA adapter under a new number. tensors: by PEFT's names; none change nothing. False,
        and nothing is loaded, where the layers then hold other numbers than were given."""
        from vllm.distributed import get_tp_group
        from vllm.lora.lora_model import LoRAModel
        from vllm.lora.peft_helper import PEFTHelper
        from vllm.lora.request import LoRARequest

        worker = self.model_runner.lora_manager
        manager, dtype = worker._adapter_manager, worker.lora_config.lora_dtype
        names = getattr(manager.model, "hf_to_vllm_mapper", None)
        if tensors:
            adapter = LoRAModel.from_lora_tensors(
                number,
                {name: tensor.clone() for name, tensor in tensors.items()},  # vLLM scales them in place
                PEFTHelper(r=rank, lora_alpha=alpha, target_modules=[]),
                device="cpu",
                dtype=dtype,
                model_vocab_size=worker.vocab_size,
                weights_mapper=names.get_rename_mapper() if names else None,
            )
            manager.add_adapter(adapter)
        else:
            worker._cached_dummy_lora = False  # as it is after start-up: make one, and keep none
            worker.add_dummy_lora(LoRARequest(str(number), number, "zeros"), rank)
        manager.activate_adapter(number)
        given = (t.to(dtype) * (alpha / rank if ".lora_B." in n else 1) for n, t in tensors.items())
        expected, arrived = bits(given), True
        if get_tp_group().world_size > 1:  # this GPU has its part, as vLLM cuts it
            arrived = expected == bits(_registered(manager, number, in_part=False))
            expected = bits(_registered(manager, number, in_part=True))
        arrived = arrived and expected == bits(
            _in_slot(manager, number)
        )  # both rest on zeros, whose bits are none
        if not arrived:
            manager.remove_adapter(number)
        return arrived

    def drop_adapter(self, number: int) -> bool:
        return self.model_runner.lora_manager.remove_adapter(number)

    def adapters(self) -> set[int]:
        """Those that are loaded."""
        return self.model_runner.lora_manager.list_adapters()


def _in_slot(manager: Any, number: int) -> Iterator[torch.Tensor]:
    """An adapter's part of what the layers compute with, padded with zeros."""
    slot = manager.lora_index_to_id.index(number)
    for module in {id(module): module for module in manager.modules.values()}.values():
        for stacks in (module.lora_a_stacked, module.lora_b_stacked):
            for stack in (stacks,) if isinstance(stacks, torch.Tensor) else stacks:
                yield stack[slot]


def _registered(manager: Any, number: int, *, in_part: bool) -> Iterator[torch.Tensor]:
    """An adapter's tensors as vLLM has put them together; in_part: this GPU's part of them."""
    adapter = manager.get_adapter(number)
    for name, module in manager.modules.items():
        if lora := manager._get_lora_layer_weights(adapter, name):
            both = lora.lora_a, lora.lora_b
            if in_part:
                both = module.slice_lora_a(lora.lora_a), module.slice_lora_b(lora.lora_b)
            for held in both:
                yield from (t for t in (held if isinstance(held, list) else [held]) if t is not None)


def _on_each_gpu(numbers: list[int]) -> list[list[int]]:
    """Of all workers of a tensor-parallel engine, all of which call this."""
    from vllm.distributed import get_tp_group

    group = get_tp_group()
    found: list[Any] = [numbers] * group.world_size
    if group.world_size > 1:
        torch.distributed.all_gather_object(found, numbers, group=group.cpu_group)
    return found


def bits(tensors: Iterable[torch.Tensor]) -> int:
    """Sum of all elements' bit patterns as whole numbers, modulo 2**64: whatever their order, and however they are joined."""
    views = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
    total = 0
    with torch.no_grad():
        for tensor in tensors:
            whole = tensor.contiguous().view(views[tensor.element_size()]).flatten()
            # a sum copies 8 bytes an element: on a host larger ones page by page
            parts = whole.split(1 << (20 if whole.is_cpu else 22))
            total += int(sum(part.sum(dtype=torch.int64) for part in parts))
    return total % 2**64


def _rebuild_tied_head(model: torch.nn.Module) -> None:
    """vLLM's CPU build packs lm_head's weights once; with tied embeddings a reload leaves that copy stale,
    silently. Dispatch its GEMM again."""
    from vllm.platforms import current_platform

    head = getattr(model, "lm_head", None)
    if head is not None and current_platform.is_cpu() and hasattr(head, "cpu_linear"):
        from vllm.model_executor.layers.utils import dispatch_cpu_unquantized_gemm

        dispatch_cpu_unquantized_gemm(head, remove_weight=False)
