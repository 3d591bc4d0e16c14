"""A WeightUpdate's arrays as torch tensors."""

from collections.abc import Mapping

import numpy as np
import torch

from core.weights import WeightUpdate


def tensors_of(update: WeightUpdate) -> Mapping[str, torch.Tensor]:
    """The update's parameters as torch tensors."""
    dtype = getattr(torch, update.dtype)
    out = {}
    for name, array in update.tensors.items():
        tensor = torch.from_numpy(np.array(array))
        out[name] = tensor.view(torch.bfloat16) if dtype == torch.bfloat16 else tensor
    return out
