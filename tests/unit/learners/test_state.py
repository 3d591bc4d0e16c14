import pytest
import torch
from torch import nn

from learners.learner import Learner
from learners.models import load_model
from learners.settings import LearnerSettings
from learners.state import load_learner, save_learner
from tests.learning import largest_difference, weights


@pytest.mark.parametrize("estimator", ["gae", "grpo"])
def test_a_resumed_learner_continues_to_the_bit(make_learner, random_batch, model_path, tmp_path, estimator):
    settings = {"estimator": {"kind": estimator}, "schedule": {"warmup_updates": 5}, "minibatch_samples": 4}
    whole, first_half = make_learner(1e-2, **settings), make_learner(1e-2, **settings)
    batches = [random_batch(whole, step) for step in range(1, 5)]
    for played in batches[:2]:
        whole.step(played)
        first_half.step(played)
    save_learner(first_half, tmp_path)
    resumed = Learner(LearnerSettings(**settings), 1e-2, tmp_path, model_path, seed=99)
    load_learner(resumed, tmp_path)
    assert (resumed.version, resumed.updates) == (whole.version, whole.updates)
    for played in batches[2:]:
        assert resumed.step(played) == whole.step(played)
    assert largest_difference(weights(whole), weights(resumed)) == 0
    assert resumed.export().digest == whole.export().digest


def test_saving_before_the_first_update_changes_nothing(make_learner, random_batch, model_path, tmp_path):
    """A policy that waits for its phase is saved with the other, again and again."""
    never, saved = make_learner(), make_learner()
    save_learner(saved, tmp_path)
    resumed = Learner(saved.settings, 1e-2, tmp_path, model_path, seed=99)
    load_learner(resumed, tmp_path)
    played = random_batch(never)
    expected = never.step(played)
    for learner in (saved, resumed):
        assert learner.step(played) == expected
        assert largest_difference(weights(never), weights(learner)) == 0


def test_a_parameter_without_gradients_begins_anew(
    make_learner, random_batch, model_path, tmp_path, monkeypatch
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
    resumed = Learner(saved.settings, 1e-2, tmp_path, model_path, seed=99)
    load_learner(resumed, tmp_path)
    assert resumed.step(batches[1]) == whole.step(batches[1])
    assert (weights(resumed)["gains"] == 1).all()
    for learner in (whole, resumed):
        use(learner)
    assert resumed.step(batches[2]) == whole.step(batches[2])
    assert (weights(resumed)["gains"] != 1).all()
    assert largest_difference(weights(whole), weights(resumed)) == 0


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
