from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from sparring.core.weights import PublishError, WeightUpdate, digest_of
from sparring.runtime.weight_files import read_weights, write_weights

TENSORS = {
    "model.layers.0.weight": np.arange(6, dtype=np.float32).reshape(2, 3),
    "lm_head": np.array([1, -2], np.int16),  # bfloat16's bits
}
UPDATE = WeightUpdate(
    version=7,
    tensors=TENSORS,
    digest=digest_of(TENSORS),
    probe=(3, 1, 4),
    probe_logprobs=(-0.1, -1 / 3),
)


def test_what_is_read_is_what_was_written_with_its_proof(tmp_path: Path) -> None:
    file = tmp_path / "opponents" / "generator-000007.npz"
    write_weights(UPDATE, file)
    found = read_weights(file)
    assert replace(found, tensors={}) == replace(UPDATE, tensors={})
    assert found.tensors.keys() == TENSORS.keys()
    for name, tensor in found.tensors.items():
        assert tensor.dtype == TENSORS[name].dtype and (tensor == TENSORS[name]).all()
    assert [p.name for p in file.parent.iterdir()] == [file.name]


def test_weights_that_are_not_those_that_were_written_are_refused(tmp_path: Path) -> None:
    changed = {**TENSORS, "lm_head": np.array([1, -3], np.int16)}
    write_weights(replace(UPDATE, tensors=changed), tmp_path / "w.npz")
    with pytest.raises(PublishError, match=r"w\.npz: damaged"):
        read_weights(tmp_path / "w.npz")
