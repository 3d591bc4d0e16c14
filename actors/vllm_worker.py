"""Loads weights and adapters inside vLLM's workers. vLLM imports the class that `worker_extension_cls` names."""

import ctypes
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import torch
from safetensors.torch import load_file


class WeightLoader:
    """Extends vLLM's worker: `collective_rpc` can call these methods."""

    model_runner: Any
    reload_weights: Any
    _last: tuple[int | list[int], list[list[int]]] | None = None
    """A digest of the tensors that were given last, and the `bits` of the model's parameters afterwards, on each GPU."""

    def reload(self, tensors: Mapping[str, torch.Tensor] | str, digest: int) -> bool:
        """Loads tensors in place. Their names are Hugging Face's, their dtype is the engine's.

        Args:
            tensors: by name, or the path of a safetensors file.
            digest: digest of the tensors.

        Returns:
            False if the tensors differ from those of the last call and the model has not changed: in bfloat16 the probe
            would hardly show it.
        """
        if isinstance(tensors, str):
            tensors = load_file(tensors)
        self.reload_weights(weights_iterator=iter(tensors.items()))
        model = self.model_runner.get_model()
        _rebuild_tied_head(model)
        own = dict(model.named_parameters())
        given: int | list[int] = digest
        if not all(parameter.numel() for parameter in own.values()):
            # vLLM's CPU build has packed the weights of linear layers elsewhere and left empty parameters: only the
            # remaining parameters can be compared.
            own = {
                name: parameter for name, parameter in own.items() if parameter.numel() and name in tensors
            }
            given = [bits([tensors[name].to(parameter.dtype)]) for name, parameter in own.items()]
            # else the process would keep the memory of the weights packed before, as much as the model takes
            ctypes.CDLL(None).malloc_trim(0)
        # each GPU of a tensor-parallel engine holds a part of the model, and all changes may be in another GPU's part
        now = given, _on_each_gpu([bits([parameter]) for parameter in own.values()])
        last = self._last
        arrived = last is None or now[0] == last[0] or now[1] != last[1]
        if arrived:
            self._last = now
        return arrived

    def put_adapter(self, number: int, tensors: Mapping[str, torch.Tensor], rank: int, alpha: int) -> bool:
        """Loads a LoRA adapter under a new number.

        Args:
            tensors: by PEFT's names. An empty mapping loads an adapter that changes nothing.

        Returns:
            False, with no adapter loaded, if the layers then hold other values than the given ones.
        """
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
            worker._cached_dummy_lora = False  # its value after start-up: a new dummy is made, and not cached
            worker.add_dummy_lora(LoRARequest(str(number), number, "zeros"), rank)
        manager.activate_adapter(number)
        given = (t.to(dtype) * (alpha / rank if ".lora_B." in n else 1) for n, t in tensors.items())
        expected, arrived = bits(given), True
        if get_tp_group().world_size > 1:  # this GPU holds the part that vLLM assigns to it
            arrived = expected == bits(_registered(manager, number, in_part=False))
            expected = bits(_registered(manager, number, in_part=True))
        arrived = arrived and expected == bits(
            _in_slot(manager, number)
        )  # the padding is zeros, which add nothing to the bits
        if not arrived:
            manager.remove_adapter(number)
        return arrived

    def drop_adapter(self, number: int) -> bool:
        return self.model_runner.lora_manager.remove_adapter(number)

    def adapters(self) -> set[int]:
        """Returns the numbers of the loaded adapters."""
        return self.model_runner.lora_manager.list_adapters()


def _in_slot(manager: Any, number: int) -> Iterator[torch.Tensor]:
    """Yields an adapter's tensors as the layers use them, padded with zeros."""
    slot = manager.lora_index_to_id.index(number)
    for module in {id(module): module for module in manager.modules.values()}.values():
        for stacks in (module.lora_a_stacked, module.lora_b_stacked):
            for stack in (stacks,) if isinstance(stacks, torch.Tensor) else stacks:
                yield stack[slot]


def _registered(manager: Any, number: int, *, in_part: bool) -> Iterator[torch.Tensor]:
    """Yields an adapter's tensors as vLLM has merged them. in_part: whether only this GPU's part is wanted."""
    adapter = manager.get_adapter(number)
    for name, module in manager.modules.items():
        if lora := manager._get_lora_layer_weights(adapter, name):
            both = lora.lora_a, lora.lora_b
            if in_part:
                both = module.slice_lora_a(lora.lora_a), module.slice_lora_b(lora.lora_b)
            for held in both:
                yield from (t for t in (held if isinstance(held, list) else [held]) if t is not None)


def _on_each_gpu(numbers: list[int]) -> list[list[int]]:
    """Returns the numbers of all workers of a tensor-parallel engine; each worker must call this."""
    from vllm.distributed import get_tp_group

    group = get_tp_group()
    found: list[Any] = [numbers] * group.world_size
    if group.world_size > 1:
        torch.distributed.all_gather_object(found, numbers, group=group.cpu_group)
    return found


def bits(tensors: Iterable[torch.Tensor]) -> int:
    """Returns the sum of all elements' bit patterns as integers, modulo 2**64. It depends neither on the order of the
    elements nor on how tensors are concatenated."""
    views = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
    total = 0
    with torch.no_grad():
        for tensor in tensors:
            whole = tensor.contiguous().view(views[tensor.element_size()]).flatten()
            # a sum makes a copy of 8 bytes per element, and on a host a larger copy is allocated page by page
            parts = whole.split(1 << (20 if whole.is_cpu else 22))
            total += int(sum(part.sum(dtype=torch.int64) for part in parts))
    return total % 2**64


def _rebuild_tied_head(model: torch.nn.Module) -> None:
    """Packs the weights of lm_head again: vLLM's CPU build packs them once, and with tied embeddings a reload silently
    leaves that copy stale."""
    from vllm.platforms import current_platform

    head = getattr(model, "lm_head", None)
    if head is not None and current_platform.is_cpu() and hasattr(head, "cpu_linear"):
        from vllm.model_executor.layers.utils import dispatch_cpu_unquantized_gemm

        dispatch_cpu_unquantized_gemm(head, remove_weight=False)
