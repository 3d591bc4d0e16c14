"""What must hold of any batch: rows of several sequences score as each alone, and any number of workers make the same
gradient."""

from types import SimpleNamespace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from learners import models
from learners.attention import PACKED
from learners.learner import Learner
from learners.models import score_tokens
from learners.packing import row_of
from learners.settings import LearnerSettings
from learners.targets import Targets, macro_gae
from tests.learning import VOCABULARY, batch, one_torch_thread, random_samples, save_tiny_model, tiny_model

examples = settings(max_examples=100, deadline=None)
sequences = st.lists(
    st.lists(st.integers(0, VOCABULARY - 1), min_size=2, max_size=20), min_size=1, max_size=6
)


@pytest.fixture(scope="module", autouse=True)
def one_thread():
    with one_torch_thread():
        yield


@pytest.fixture(scope="module")
def model():
    model = tiny_model()
    model.set_attn_implementation(PACKED)
    return model


@pytest.fixture(scope="module")
def windowed():
    """Its second layer sees four tokens back."""
    model = tiny_model(use_sliding_window=True, sliding_window=4, max_window_layers=1)
    model.set_attn_implementation(PACKED)
    return model


@examples
@given(sequences, st.floats(0.3, 2.0), st.data())
def test_a_row_scores_and_learns_as_its_sequences_do_apart(model, rows, temperature, data):
    picks = [
        [False, *data.draw(st.lists(st.booleans(), min_size=len(r) - 1, max_size=len(r) - 1))] for r in rows
    ]

    def gradient(parts):
        model.zero_grad()
        scores = [score_tokens(model, row_of(r), torch.tensor(p), temperature, True) for r, p in parts]
        logprobs = torch.cat([s.logprobs_P for s in scores])
        entropy = torch.cat([s.entropy_P for s in scores])
        (logprobs.sum() + 0.5 * entropy.sum()).backward()
        return logprobs.detach(), entropy.detach(), model.model.layers[0].mlp.up_proj.weight.grad.clone()

    if not any(map(any, picks)):
        return
    packed = gradient([(rows, [p for pick in picks for p in pick])])
    apart = gradient([([r], p) for r, p in zip(rows, picks, strict=True) if any(p)])
    for one, other in zip(packed, apart, strict=True):
        assert torch.allclose(one, other, atol=2e-4, rtol=1e-3)


@examples
@given(sequences)
def test_packing_keeps_sliding_windows(windowed, rows):
    with torch.no_grad():
        packed = windowed.base_model(
            input_ids=row_of(rows).tokens_N[None],
            position_ids=row_of(rows).positions_N[None],
            use_cache=False,
            lengths=[len(r) for r in rows],
        ).last_hidden_state[0]
        windowed.set_attn_implementation("eager")
        try:
            apart = [windowed.base_model(input_ids=torch.tensor([r])).last_hidden_state[0] for r in rows]
        finally:
            windowed.set_attn_implementation(PACKED)
    assert torch.allclose(packed, torch.cat(apart), atol=1e-4)


@pytest.fixture(scope="module")
def learner(tmp_path_factory):
    path = save_tiny_model(tmp_path_factory.mktemp("tiny"))
    return Learner(LearnerSettings(estimator={"kind": "grpo"}, microbatch_tokens=64), 1e-2, path, path)


@examples
@given(st.integers(0, 10**6), st.integers(1, 12), st.integers(1, 5), st.sampled_from([64, 100, 16384]))
def test_the_workers_shares_add_up_to_the_gradient_of_one(learner, seed, count, workers, budget):
    samples = random_samples(seed, count)
    played = batch(*samples)
    targets = {i: Targets(torch.full((sum(s.sampled),), s.advantage)) for i, s in enumerate(samples)}
    learner.settings = learner.settings.model_copy(update={"microbatch_tokens": budget})

    def gradient(rank, size):
        learner.world = SimpleNamespace(rank=rank, size=size)
        sums, _ = learner._accumulate(played, range(count), targets)
        grads = [p.grad for p in learner.policy.trainable().values()]
        return sums, torch.cat([g.flatten() for g in grads if g is not None]) if grads[0] is not None else 0.0

    whole_sums, whole = gradient(0, 1)
    parts = [gradient(rank, workers) for rank in range(workers)]
    assert torch.allclose(sum(g for _, g in parts), whole, atol=1e-4, rtol=1e-3)
    for name in ("loss", "tokens", "entropy", "clip_fraction"):
        assert sum(s.get(name, 0.0) for s, _ in parts) == pytest.approx(whole_sums[name], rel=1e-3, abs=1e-5)
    busy = sum("loss" in s for s, _ in parts)
    assert busy == min(workers, count), "work for everybody, where there is any"


@examples
@given(
    st.lists(st.integers(1, 6), min_size=1, max_size=6),
    st.floats(0, 1),
    st.floats(0, 1),
    st.integers(0, 10**6),
)
def test_turns_as_steps_of_gae(segments, gamma, lam, seed):
    """Equal within a turn; with turns of one token it is GAE; at lambda 1 and gamma 1 it is reward to go - value."""
    from learners.advantages.gae import gae

    generator = torch.Generator().manual_seed(seed)
    size = sum(segments)
    rewards, values = torch.randn(size, generator=generator), torch.randn(size, generator=generator)
    advantages, returns = macro_gae(rewards, values, segments, gamma, lam)
    for part in (*advantages.split(segments), *returns.split(segments)):
        assert (part == part[0]).all()
    ones = macro_gae(rewards, values, [1] * size, gamma, lam)
    for one, other in zip(ones, gae(rewards, values, gamma, lam), strict=True):
        assert torch.equal(one, other)
    first = [sum(segments[:i]) for i in range(len(segments))]
    plain, _ = macro_gae(rewards, values, segments, 1.0, 1.0)
    for start in first:
        assert plain[start].item() == pytest.approx((rewards[start:].sum() - values[start]).item(), abs=1e-4)


@examples
@given(sequences, st.integers(1, 7), st.floats(0.3, 2.0))
def test_logits_in_parts_are_logits_at_once(model, rows, most, temperature):
    row = row_of(rows)
    pick = row.positions_N > 0

    def scored():
        model.zero_grad()
        scores = score_tokens(model, row, pick, temperature, entropy_gradient=True)
        (scores.logprobs_P.sum() - 0.3 * scores.entropy_P.sum()).backward()
        gradient = model.get_input_embeddings().weight.grad.clone()
        return scores.logprobs_P.detach(), scores.entropy_P.detach(), gradient

    at_once = scored()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(models, "LOGITS_AT_ONCE", most * VOCABULARY)
        in_parts = scored()
    for one, other in zip(at_once, in_parts, strict=True):
        assert torch.allclose(one, other, atol=1e-4, rtol=1e-4)
