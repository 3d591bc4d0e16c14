import warnings
import weakref

import numpy as np
import pytest
import torch

from actors.weights import tensors_of
from learners import weights
from learners.models import load_model
from sparring.core.weights import digest_of, joined
from tests.learning import export, plain_logprobs


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_tensors_travel_to_the_bit_and_tied_ones_once(model_path, dtype):
    """A buffer in fp32 or of whole numbers beside parameters of half precision, too."""
    model = load_model(model_path).to(dtype)
    model.register_buffer("scale", torch.tensor([1.5, 1e-30]))
    model.register_buffer("seen", torch.tensor(70_000))
    update = export(model, 4)
    assert update.version == 4
    arrived, sent = tensors_of(update), model.state_dict(keep_vars=True)
    assert arrived.keys() == sent.keys() - {"lm_head.weight"}
    for name, tensor in arrived.items():
        assert tensor.dtype == sent[name].dtype and torch.equal(tensor, sent[name])


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_parameters_travel_in_the_engines_half_precision_and_buffers_as_they_are(model_path, dtype):
    model = load_model(model_path)
    model.register_buffer("scale", torch.tensor([1.5, 1e-30]))
    whole, half = export(model, 1), export(model, 1, dtype)
    arrived = tensors_of(half)
    assert torch.equal(arrived.pop("scale"), model.scale)
    for name, tensor in arrived.items():
        assert tensor.dtype == dtype
        assert torch.equal(tensor, torch.empty_like(tensor).copy_(tensors_of(whole)[name]))
    assert half.probe_logprobs == whole.probe_logprobs


def test_an_update_is_a_copy(model_path):
    model = load_model(model_path)
    update = export(model, 1)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(1.0)
    assert digest_of(update.tensors) == update.digest
    assert export(model, 2).digest != update.digest


def test_the_probe_is_scored_as_plain_transformers_score_it(model_path):
    model = load_model(model_path)
    update = export(model, 1)
    assert len(update.probe_logprobs) == len(update.probe) - 1
    expected = plain_logprobs(model, update.probe).tolist()
    assert update.probe_logprobs == pytest.approx(expected, abs=1e-5)


@pytest.mark.parametrize("dtype", [None, torch.bfloat16])
def test_an_engine_reads_what_arrived_where_it_is(model_path, dtype):
    """Arrays are read-only when Ray maps them from shared memory; a copy would be another model's worth of memory."""
    update = export(load_model(model_path), 1, dtype)
    for array in update.tensors.values():
        array.flags.writeable = False
    with warnings.catch_warnings(action="error"):
        tensors = tensors_of(update)
    assert update.tensors
    for name, array in update.tensors.items():
        assert tensors[name].data_ptr() == array.__array_interface__["data"][0]


@pytest.mark.parametrize("adapter", [False, True])
def test_weights_leave_in_parts_of_which_one_is_there_at_a_time(make_learner, monkeypatch, adapter):
    """And say together what they say as a whole."""
    monkeypatch.setattr(weights, "PART_BYTES", 2000)
    learner = make_learner(lora={"rank": 8} if adapter else None)
    sent, alive = [], []

    def put(part):
        assert not any(array() is not None for array in alive), "the part before is still held"
        alive.extend(weakref.ref(array) for array in part.values())
        sent.append({name: array.copy() for name, array in part.items()})
        return len(sent) - 1

    update = learner.export(adapter, "bfloat16", put)
    whole = learner.export(adapter, "bfloat16")
    assert not update.tensors and len(sent) > 2 and list(update.parts) == list(range(len(sent)))
    arrived = joined(update, [sent[number] for number in update.parts])
    assert arrived.digest == whole.digest == digest_of(arrived.tensors)
    assert arrived.tensors.keys() == whole.tensors.keys()
    for name, array in whole.tensors.items():
        assert np.array_equal(array, arrived.tensors[name])
