import json
import threading
from dataclasses import replace

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import nn
from torch.distributed.checkpoint import HuggingFaceStorageWriter

from learners import files
from learners.checkpoints import CheckpointError
from learners.models import load_model
from learners.recovery import go_back
from learners.state import begin_save, load_learner, save_learner
from tests.learning import largest_difference, spec_of, weights


@pytest.mark.parametrize("estimator", ["gae", "grpo"])
def test_a_resumed_learner_continues_to_the_bit(make_learner, random_batch, resumed, tmp_path, estimator):
    settings = {"estimator": {"kind": estimator}, "schedule": {"warmup_updates": 5}, "minibatch_samples": 4}
    whole, first_half = make_learner(1e-2, **settings), make_learner(1e-2, **settings)
    batches = [random_batch(whole, step) for step in range(1, 5)]
    for played in batches[:2]:
        whole.step(played)
        first_half.step(played)
    save_learner(first_half, tmp_path)
    second_half = resumed(first_half, tmp_path)
    assert (second_half.version, second_half.updates) == (whole.version, whole.updates)
    for played in batches[2:]:
        assert second_half.step(played) == whole.step(played)
    assert largest_difference(weights(whole), weights(second_half)) == 0
    assert second_half.export().digest == whole.export().digest


@pytest.mark.parametrize("lora", [None, {"rank": 4}])
def test_a_fresh_learner_has_the_weights_of_a_checkpoint_and_nothing_else(
    make_learner, random_batch, model_path, tmp_path, lora
):
    saved = make_learner(1e-2, lora=lora)
    saved.step(random_batch(saved))
    save_learner(saved, tmp_path)
    fresh = replace(spec_of(tmp_path, lora=lora), reference_path=str(model_path)).build()
    assert fresh.export().digest == saved.export().digest
    assert (fresh.version, fresh.updates, len(fresh.optimizer.state)) == (0, 0, 0)


@pytest.mark.parametrize("other", [{"precision": "fp16"}, {"trainable_layers": 1}])
def test_it_goes_on_with_another_precision_or_fewer_layers(
    make_learner, random_batch, resumed, tmp_path, other
):
    saved = make_learner(1e-2)
    saved.step(random_batch(saved))
    save_learner(saved, tmp_path)
    learner = resumed(saved, tmp_path, **other)
    assert (learner.version, learner.updates) == (saved.version, saved.updates)
    learner.step(random_batch(learner, 2))


def test_saving_before_the_first_update_changes_nothing(make_learner, random_batch, resumed, tmp_path):
    """A policy that waits for its phase is saved with the other, again and again."""
    never, saved = make_learner(), make_learner()
    save_learner(saved, tmp_path)
    played = random_batch(never)
    expected = never.step(played)
    for learner in (saved, resumed(saved, tmp_path)):
        assert learner.step(played) == expected
        assert largest_difference(weights(never), weights(learner)) == 0


def test_a_parameter_without_gradients_begins_anew(
    make_learner, random_batch, resumed, tmp_path, monkeypatch
):
    """It has no moments to be saved; its first update is the same whether it was resumed before or not."""

    def with_one_more(*source, **options):
        model = load_model(*source, **options)
        model.gains = nn.Parameter(torch.ones(model.config.hidden_size))
        return model

    def use(learner):
        model = learner.policy.model
        model.base_model.norm.register_forward_hook(lambda module, inputs, output: output * model.gains)

    monkeypatch.setattr("learners.learner.load_model", with_one_more)
    whole, saved = make_learner(), make_learner()
    batches = [random_batch(whole, step) for step in (1, 2, 3)]
    for learner in (whole, saved):
        learner.step(batches[0])
    save_learner(saved, tmp_path)
    again = resumed(saved, tmp_path)
    assert again.step(batches[1]) == whole.step(batches[1])
    assert (weights(again)["gains"] == 1).all()
    for learner in (whole, again):
        use(learner)
    assert again.step(batches[2]) == whole.step(batches[2])
    assert (weights(again)["gains"] != 1).all()
    assert largest_difference(weights(whole), weights(again)) == 0


# ---------------------------------------------------------------------- while it goes on learning
def test_a_save_is_of_the_moment_at_which_it_began(
    make_learner, random_batch, resumed, tmp_path, monkeypatch
):
    learner, unsaved = make_learner(estimator={"kind": "gae"}), make_learner(estimator={"kind": "gae"})
    batches = [random_batch(learner, step) for step in (1, 2)]
    go_on, write = threading.Event(), HuggingFaceStorageWriter.write_data

    def slowly(*arguments):
        assert go_on.wait(30)
        return write(*arguments)

    monkeypatch.setattr(HuggingFaceStorageWriter, "write_data", slowly)
    for each in (learner, unsaved):
        each.step(batches[0])
    before = weights(learner)
    wait = begin_save(learner, tmp_path)
    expected = learner.step(batches[1])
    assert expected == unsaved.step(batches[1]) and learner.export().digest == unsaved.export().digest
    go_on.set()
    wait()
    again = resumed(learner, tmp_path)
    assert again.version == 1 and largest_difference(weights(again), before) == 0
    assert again.step(batches[1]) == expected
    assert again.export().digest == learner.export().digest


def test_what_goes_wrong_while_it_is_written_is_not_lost(make_learner, random_batch, tmp_path, monkeypatch):
    def full(*arguments):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(HuggingFaceStorageWriter, "write_data", full)
    learner = make_learner()
    learner.step(random_batch(learner))
    wait = begin_save(learner, tmp_path)
    with pytest.raises(OSError, match="No space left"):
        wait()


def test_a_large_one_is_in_several_files(make_learner, random_batch, resumed, tmp_path, monkeypatch):
    monkeypatch.setattr(files, "FILE_BYTES", 5_000)
    learner = make_learner()
    learner.step(random_batch(learner))
    save_learner(learner, tmp_path)
    saved = sorted(tmp_path.glob("*.safetensors"))
    assert len(saved) > 2 and saved[0].name == f"model-00001-of-{len(saved):05d}.safetensors"
    largest = max(p.nbytes for p in weights(learner).values())
    assert all(sum(t.nbytes for t in load_file(file).values()) <= max(5_000, largest) for file in saved)
    index = json.loads((tmp_path / "model.safetensors.index.json").read_text())
    assert index["weight_map"].keys() == weights(learner).keys()
    assert len(list((tmp_path / "learner_state").glob("*.safetensors"))) > 2
    again = resumed(learner, tmp_path)
    assert again.export().digest == learner.export().digest
    played = random_batch(learner, 2)
    assert again.step(played) == learner.step(played)
    go_back(learner, tmp_path)
    assert learner.version == 1
    learner.step(played)
    assert largest_difference(weights(again), weights(learner)) == 0


@pytest.mark.parametrize("missing", ["a tensor", "a file"])
def test_moments_that_a_checkpoint_lacks_are_missed(make_learner, random_batch, tmp_path, missing):
    learner = make_learner()
    learner.step(random_batch(learner))
    save_learner(learner, tmp_path)
    (file,) = (tmp_path / "learner_state").glob("*.safetensors")
    if missing == "a file":
        file.unlink()
    else:
        whole = load_file(file)
        whole.pop("policy.exp_avg.model.norm.weight")
        save_file(whole, file)
    with pytest.raises(CheckpointError, match=r"learner_state: without policy\.exp_avg\.model"):
        load_learner(learner, tmp_path)


def test_fewer_workers_than_died_over_it_save_again(make_learner, random_batch, tmp_path):
    learner = make_learner()
    learner.step(random_batch(learner))
    left = tmp_path / "learner_state" / "shard-00002-model-00001-of-00001.safetensors"
    left.parent.mkdir()
    left.write_bytes(b"half")
    save_learner(learner, tmp_path)
    load_learner(learner, tmp_path)


# ---------------------------------------------------------------------- what is not saved
def test_the_reference_does_not_move(make_learner, random_batch):
    learner = make_learner()
    before = {n: p.clone() for n, p in learner.policy.reference.named_parameters()}
    learner.step(random_batch(learner))
    assert all(torch.equal(p, before[n]) for n, p in learner.policy.reference.named_parameters())
    assert not any(p.requires_grad for p in learner.policy.reference.parameters())


def test_building_a_learner_does_not_touch_the_global_generator(make_learner):
    torch.manual_seed(1)
    expected = torch.rand(3)
    torch.manual_seed(1)
    make_learner(estimator={"kind": "gae"})
    assert torch.equal(torch.rand(3), expected)
