import itertools

import pytest
import torch

from lab.lessons import Demonstration
from lab.supervised import train_supervised
from learners.models import load_model
from tests.learning import one_torch_thread, save_tiny_model

SOLVE = Demonstration([3, 4, 5, 6, 7], [False, False, True, True, True])
SHORT = Demonstration([9, 8], [False, True])


@pytest.fixture(autouse=True)
def one_thread():
    with one_torch_thread():
        yield


@pytest.fixture(scope="module")
def model_path(tmp_path_factory):
    return save_tiny_model(tmp_path_factory.mktemp("tiny"))


def train(model_path, demonstrations, **changes):
    model = load_model(model_path)
    draws = itertools.cycle(demonstrations)
    settings = {"steps": 60, "batch_size": 2, "learning_rate": 1e-2, "warmup_steps": 5} | changes
    return model, train_supervised(model, lambda: next(draws), **settings)


def first_loss(model_path, *demonstrations: Demonstration) -> float:
    """Of one step that hardly changes the model."""
    return train(model_path, demonstrations, steps=1, learning_rate=1e-12)[1]


def loss_of(model, demonstration) -> float:
    tokens = torch.tensor([demonstration.tokens])
    with torch.no_grad():
        logprobs = model(tokens).logits[0, :-1].log_softmax(-1)
    picked = logprobs.gather(1, tokens[0, 1:, None])[:, 0]
    return -picked[torch.tensor(demonstration.learned[1:])].mean().item()


def test_what_is_shown_is_learned(model_path):
    before = loss_of(load_model(model_path), SOLVE)
    model, _ = train(model_path, [SOLVE, SHORT])
    assert loss_of(model, SOLVE) < 0.1 < before


def test_the_loss_is_the_mean_over_the_learned_tokens(model_path):
    """Beside a longer one, a demonstration costs what it costs alone: padding carries no loss."""
    model = load_model(model_path)
    alone, short = loss_of(model, SOLVE), loss_of(model, SHORT)
    assert first_loss(model_path, SOLVE) == pytest.approx(alone, rel=1e-4)
    assert first_loss(model_path, SOLVE, SHORT) == pytest.approx((3 * alone + short) / 4, rel=1e-4)


def test_the_order_of_demonstrations_decides_the_result(model_path):
    first, again, other = (
        train(model_path, order, steps=5, batch_size=1)[0]
        for order in ([SOLVE, SHORT], [SOLVE, SHORT], [SHORT, SOLVE])
    )
    weight = [m.get_input_embeddings().weight for m in (first, again, other)]
    assert torch.equal(weight[0], weight[1])
    assert not torch.equal(weight[0], weight[2])


def test_every_step_is_reported(model_path):
    seen = []
    train(model_path, [SOLVE], steps=3, on_step=lambda step, loss: seen.append((step, loss)))
    assert [step for step, _ in seen] == [1, 2, 3]
    assert all(loss > 0 for _, loss in seen)
