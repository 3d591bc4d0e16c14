"""Updates that cannot be made: not finite, too large, out of order."""

import math
import pickle
from dataclasses import replace
from pathlib import Path
from unittest import mock

import pytest
import torch
from safetensors.torch import load_file, save_file

from learners.checkpoints import CheckpointError, CheckpointStore
from learners.files import WEIGHTS_FILE
from learners.health import MAX_RELOADS, Health
from learners.learner import NotFinite
from learners.memory import DeviceMemory
from learners.objective import Objective
from learners.recovery import go_back, learn
from learners.state import load_learner, save_learner
from sparring.core.errors import OutOfMemory, RunFailed, WorkerOutOfMemory
from tests.learning import Tokenizer, batch, largest_difference, weights


@pytest.mark.parametrize("broken", [math.nan, math.inf])
def test_an_update_that_is_not_finite_is_skipped_and_too_many_end_the_learner(
    make_learner, sample_of, broken, tmp_path
):
    learner = make_learner(1e-2)
    before = weights(learner)
    bad = sample_of(learner, [3], [4], advantage=broken)
    for step in (1, 2, 3):
        metrics = learner.step(batch(bad, step=step))
        assert metrics["skipped_updates"] == 1 and metrics["trained_tokens"] == 0
        assert learner.health.learning_rate_factor == 0.5**step
    assert largest_difference(before, weights(learner)) == 0
    save_learner(learner, tmp_path)
    again = make_learner(1e-2)
    load_learner(again, tmp_path)
    assert again.health.learning_rate_factor == 0.125
    with pytest.raises(RunFailed, match=r"4th update in a row .* lower the learning rate"):
        learner.step(batch(bad, step=4))
    assert learner.version == 3


@pytest.mark.parametrize(("advantage", "said"), [(1.0, False), (1e6, True)])
def test_a_gradient_that_explodes_is_clipped_and_said(make_learner, sample_of, caplog, advantage, said):
    learner = make_learner()
    metrics = learner.step(batch(sample_of(learner, [3], [4], advantage=advantage)))
    assert (metrics["gradient_norm"] > 100 * learner.settings.gradient_clip) == said
    assert ("scaled down to" in caplog.text) == said


def test_a_good_update_ends_the_row_and_uses_the_halved_rate(make_learner, sample_of):
    learner, halved = make_learner(1e-2), make_learner(5e-3)
    good, bad = (sample_of(learner, [3], [4], advantage=a) for a in (1.0, math.nan))
    learner.step(batch(bad))
    learner.step(batch(good, step=2))
    halved.step(batch(good))
    assert largest_difference(weights(learner), weights(halved)) == 0
    for step in (3, 4, 5):
        learner.step(batch(bad, step=step))


@pytest.mark.parametrize(
    "error",
    [
        torch.OutOfMemoryError("scripted"),
        RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"),
        MemoryError(),
    ],
)
def test_where_memory_runs_out_micro_batches_are_halved_and_the_update_is_the_same(
    make_learner, random_batch, monkeypatch, error
):
    roomy, tight = make_learner(), make_learner(microbatch_tokens=256)
    whole = Objective.part
    rows = []

    def limited(objective, micro, **options):
        rows.append(len(micro.indices))
        if len(micro.indices) > 3:
            raise error
        return whole(objective, micro, **options)

    each = random_batch(roomy)
    expected = roomy.step(each)
    monkeypatch.setattr(Objective, "part", limited)
    metrics = tight.step(each)
    assert rows[0] == 10 and rows[-1] <= 3
    assert tight.microbatch_tokens < roomy.microbatch_tokens
    assert largest_difference(weights(tight), weights(roomy)) < 1e-5  # Adam's steps are 1e-2
    assert metrics["policy_loss"] == pytest.approx(expected["policy_loss"], rel=1e-4)


def test_memory_that_cannot_do_for_one_sample_is_an_error(make_learner, sample_of, monkeypatch):
    learner = make_learner(microbatch_tokens=64)
    sample = sample_of(learner, [3] * 20, [4] * 20)
    never = mock.Mock(side_effect=torch.OutOfMemoryError("scripted"))
    monkeypatch.setattr(Objective, "part", never)
    with pytest.raises(OutOfMemory, match=r"one sequence at a time \(scripted\)"):
        learner.step(batch(sample))
    assert never.call_count == 1, "it is one sequence already"


def test_workers_that_share_a_model_begin_anew_if_smaller_micro_batches_can_help(
    make_learner, sample_of, monkeypatch
):
    learner = make_learner(microbatch_tokens=64)
    learner.memory = DeviceMemory(learner.world, learner.device, sharded=True)
    samples = [sample_of(learner, [3] * 10, [token] * 10) for token in (4, 5)]
    monkeypatch.setattr(Objective, "part", mock.Mock(side_effect=torch.OutOfMemoryError("scripted")))
    with pytest.raises(WorkerOutOfMemory, match="scripted") as raised:
        learner.step(batch(*samples))
    again = pickle.loads(pickle.dumps(raised.value))
    assert (str(again), again.policy) == ("scripted", learner.name)
    assert 0 < again.most_tokens < 40, "both samples have 40 tokens"
    learner.limit_micro_batches(0, again.most_tokens)
    with pytest.raises(OutOfMemory, match="one sequence at a time"):
        learner.step(batch(*samples))


def test_limits_are_kept_as_tokens_which_a_smaller_setting_is_not_divided_by(
    make_learner, random_batch, tmp_path
):
    learner = make_learner(microbatch_tokens=256)
    learner.limit_micro_batches(1, None)
    assert learner.step(random_batch(learner))["microbatch_tokens"] == learner.microbatch_tokens == 128
    save_learner(learner, tmp_path)
    for setting, left in ((64, 64), (256, 128)):
        again = make_learner(microbatch_tokens=setting)
        load_learner(again, tmp_path)
        again.limit_micro_batches(1, None)  # as in a run that goes on
        assert again.microbatch_tokens == left
        again.limit_micro_batches(2, 100)
        assert again.microbatch_tokens == min(left // 2, 100)


def test_grpo_needs_advantages(make_learner, sample_of):
    learner = make_learner()
    with pytest.raises(ValueError, match="advantage"):
        learner.step(batch(sample_of(learner, [3], [4], advantage=None)))


def test_batches_come_in_order(make_learner):
    with pytest.raises(AssertionError, match="batch 2 after version 0"):
        make_learner().step(batch(step=2))


# ---------------------------------------------------------------------- back to the checkpoint
@pytest.mark.parametrize(
    "settings", [{}, {"estimator": {"kind": "gae"}}, {"lora": {"rank": 4}}], ids=["full", "gae", "lora"]
)
def test_after_too_many_skipped_updates_the_learner_goes_back(make_learner, sample_of, tmp_path, settings):
    learner = make_learner(1e-2, **settings)
    good = sample_of(learner, [3, 4], [5, 6], reward=1.0)
    bad = replace(good, logprobs=(0.0, 0.0, math.nan, math.nan))
    learn(learner, batch(good, replace(good, reward=0.0)), lambda name, version: None)
    save_learner(learner, tmp_path)
    saved = weights(learner)
    learn(learner, batch(good, replace(good, reward=0.0), step=2), lambda name, version: tmp_path)
    for step in (3, 4, 5):
        assert learn(learner, batch(bad, step=step), lambda name, version: tmp_path)["skipped_updates"] == 1
    assert largest_difference(weights(learner), saved) > 0
    metrics = learn(learner, batch(bad, step=6), lambda name, version: tmp_path)
    assert metrics["reloaded"] == 1 and learner.version == 6 and learner.health.learning_rate_factor == 1 / 8
    assert largest_difference(weights(learner), saved) == 0
    assert learn(learner, batch(good, step=7), lambda name, version: tmp_path)["skipped_updates"] == 0


def test_what_was_given_up_for_good_stays_so_when_the_learner_goes_back(make_learner, sample_of, tmp_path):
    learner = make_learner(1e-2)
    good, bad = (sample_of(learner, [3], [4], advantage=a) for a in (1.0, math.nan))
    save_learner(learner, tmp_path)
    learn(learner, batch(good), lambda name, version: tmp_path)
    learner.health.halvings, learner.health.most_tokens = 2, 99  # as if memory had run out
    for step in (2, 3, 4, 5):
        learn(learner, batch(bad, step=step), lambda name, version: tmp_path)
    assert learner.health == Health(
        learning_rate_factor=1 / 8, halvings=2, most_tokens=99, reloads_in_a_row=1
    )
    learn(learner, batch(replace(good, trained=(False, False)), step=6), lambda name, version: tmp_path)
    assert learner.health.reloads_in_a_row == 1, "a step that makes no update proves nothing"
    learn(learner, batch(good, step=7), lambda name, version: tmp_path)
    assert learner.health.reloads_in_a_row == 0


def test_going_back_again_and_again_is_given_up(make_learner, sample_of, tmp_path):
    learner = make_learner(1e-2)
    save_learner(learner, tmp_path)
    bad = sample_of(learner, [3], [4], advantage=math.nan)
    with pytest.raises(NotFinite):
        for step in range(1, 100):
            learn(learner, batch(bad, step=step), lambda name, version: tmp_path)
    assert learner.version == 3 + MAX_RELOADS * 4


def test_weights_that_a_checkpoint_lacks_are_missed(make_learner, tmp_path):
    """Those that another is tied to, too; else it would go on with those that were broken."""
    learner = make_learner()
    save_learner(learner, tmp_path)
    file = tmp_path / WEIGHTS_FILE
    whole = load_file(file)
    assert "lm_head.weight" not in whole, "tied"
    for name in ("model.embed_tokens.weight", "model.layers.1.mlp.up_proj.weight"):
        save_file({other: tensor for other, tensor in whole.items() if other != name}, file)
        with pytest.raises(CheckpointError, match=f"without {name}: not this model's"):
            go_back(learner, tmp_path)
    save_file(whole, file)
    go_back(learner, tmp_path)


def test_without_a_checkpoint_there_is_nothing_to_go_back_to(make_learner, sample_of):
    learner = make_learner(1e-2)
    bad = sample_of(learner, [3], [4], advantage=math.nan)
    for step in (1, 2, 3):
        learn(learner, batch(bad, step=step), lambda name, version: None)
    with pytest.raises(NotFinite, match="lower the learning rate"):
        learn(learner, batch(bad, step=4), lambda name, version: None)


def test_it_goes_back_beyond_the_update_that_broke_the_weights(make_learner, sample_of, tmp_path):
    """A checkpoint after every step: the newest one may hold what every batch breaks on."""
    learner = make_learner(1e-2)
    store = CheckpointStore(tmp_path, keep=10)
    good = sample_of(learner, [3, 4], [5, 6])

    def saved(step: int) -> None:
        save_learner(learner, tmp_path / "policy")
        state = {"versions": {"policy": learner.version}}
        store.save(step, {"policy": tmp_path / "policy"}, {"policy": Tokenizer()}, state)

    def recovery_point(name: str, version: int) -> Path | None:
        found = store.newest_with(name, version)
        return found / name if found else None

    for step in (1, 2):
        learn(learner, batch(good, step=step), recovery_point)
        saved(step)
    whole = weights(learner)
    learn(learner, batch(good, step=3), recovery_point)
    with torch.no_grad():  # as if that update had done it
        next(learner.policy.model.parameters()).fill_(math.nan)
    saved(3)
    for step in (4, 5, 6):
        assert learn(learner, batch(good, step=step), recovery_point)["skipped_updates"] == 1
    assert learn(learner, batch(good, step=7), recovery_point)["reloaded"] == 1
    assert largest_difference(weights(learner), whole) == 0
    assert learn(learner, batch(good, step=8), recovery_point)["skipped_updates"] == 0
