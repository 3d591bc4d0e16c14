import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from actors.transformers_policy import _sample
from learners.packing import LEAST_SHARED, pack, places, plan, row_of
from sparring.core.batch import Sample
from sparring.core.episode import Completion, FinishReason, Trajectory, Turn
from tests.playing import sample_of

examples = settings(max_examples=150, deadline=None)

token = st.integers(0, 50)
CPU = torch.device("cpu")


# ---------------------------------------------------------------------- samples
@st.composite
def trajectories(draw):
    said: list[int] = []
    turns = []
    for stage in range(1, draw(st.integers(1, 5)) + 1):
        prompt = [*said, *draw(st.lists(token, min_size=1 if stage == 1 else 0, max_size=4))]
        tokens = draw(st.lists(token, min_size=1, max_size=6))
        logprobs = draw(st.lists(st.floats(-9, -0.01), min_size=len(tokens), max_size=len(tokens)))
        completion = Completion(
            tokens=tuple(tokens),
            logprobs=tuple(logprobs),
            version=draw(st.integers(0, 9)),
            finish_reason=FinishReason.STOP,
        )
        turns.append(Turn(stage=stage, prompt_tokens=tuple(prompt), completion=completion, text=""))
        said = [*prompt, *tokens]
    return Trajectory(player="generator", attempt=0, turns=turns, reward=draw(st.floats(0, 1)))


stages = st.one_of(st.none(), st.lists(st.integers(1, 5), unique=True).map(tuple))


@examples
@given(trajectories(), stages)
def test_a_sample_is_its_trajectory(trajectory, trained_stages):
    sample = sample_of(trajectory, stages=trained_stages)
    last = trajectory.turns[-1]
    assert list(sample.tokens) == [*last.prompt_tokens, *last.completion.tokens]
    assert len(sample.sampled) == len(sample.trained) == len(sample.logprobs) == len(sample.tokens)
    picked = [i for i, s in enumerate(sample.sampled) if s]
    said = [
        (turn.stage, *one)
        for turn in trajectory.turns
        for one in zip(turn.completion.tokens, turn.completion.logprobs, strict=True)
    ]
    assert [(sample.tokens[i], sample.logprobs[i]) for i in picked] == [one[1:] for one in said]
    assert all(x == 0 for x, s in zip(sample.logprobs, sample.sampled, strict=True) if not s)
    assert not sample.sampled[0]  # the first token has no prediction
    learnt = [
        i
        for i, (stage, *_) in zip(picked, said, strict=True)
        if trained_stages is None or stage in trained_stages
    ]
    assert [i for i, t in enumerate(sample.trained) if t] == learnt


# ---------------------------------------------------------------------- micro-batches
@st.composite
def samples(draw):
    beginning = tuple(range(draw(st.sampled_from([0, LEAST_SHARED, 2 * LEAST_SHARED]))))
    tokens = beginning + tuple(draw(st.lists(token, min_size=2, max_size=40)))
    length = len(tokens)
    sampled = draw(st.lists(st.booleans(), min_size=length - 1, max_size=length - 1))
    return Sample(
        tokens=tokens,
        sampled=(False, *sampled),
        trained=(False, *sampled),
        logprobs=tuple(-1.0 if s else 0.0 for s in (False, *sampled)),
        reward=0.0,
        advantage=0.0,
    )


@examples
@given(st.lists(samples(), min_size=1, max_size=12), st.integers(1, 200), st.integers(1, 4), st.data())
def test_micro_batches_hold_every_sample_once_without_padding_within_the_budget(batch, budget, ranks, data):
    indices = data.draw(st.lists(st.sampled_from(range(len(batch))), unique=True))
    indices.sort(key=lambda i: batch[i].tokens)
    chunks = plan(batch, indices, budget, ranks)
    assert [i for chunk in chunks for i in chunk] == indices
    assert len(chunks) % ranks == 0 or len(chunks) == len(indices)
    for chunk in chunks:
        micro = pack(batch, chunk, CPU)
        size, shared = len(micro.row.tokens_N), sum(micro.row.prefixes)
        assert size == sum(len(batch[i].tokens) for i in chunk)
        assert size - 7 / 8 * shared <= budget or len(chunk) == 1
        start = 0
        for sequence, (index, length) in enumerate(zip(chunk, micro.row.lengths, strict=True)):
            sample, here = batch[index], slice(start, start + length)
            assert micro.row.tokens_N[here].tolist() == list(sample.tokens)
            assert micro.row.positions_N[here].tolist() == list(range(length))
            assert micro.sampled_N[here].tolist() == list(sample.sampled)
            assert micro.trained_N[here].tolist() == list(sample.trained)
            assert micro.logprobs_N[here].tolist() == list(sample.logprobs)
            assert set(micro.sequences_N[here].tolist()) == {sequence}
            start += length


# ---------------------------------------------------------------------- sampling
logit = st.one_of(st.floats(-30, 30, width=32), st.just(float("-inf")))
logits = st.lists(logit, min_size=2, max_size=12).filter(lambda row: max(row) > float("-inf"))
uniform = st.one_of(st.floats(0, 1, exclude_max=True, width=32), st.sampled_from([0.0, 1 - 2**-24]))


def draw_one(row, temperature, u):
    chosen, logprob = _sample(torch.tensor([row]), torch.tensor([temperature]), torch.tensor([u]))
    return chosen.item(), logprob.item()


@examples
@given(logits, st.floats(0.2, 3), uniform)
def test_a_sampled_token_has_a_probability_and_is_scored_with_it(row, temperature, u):
    chosen, logprob = draw_one(row, temperature, u)
    expected = (torch.tensor(row) / temperature).log_softmax(-1)
    assert 0 <= chosen < len(row)
    assert logprob == pytest.approx(expected[chosen].item(), abs=1e-4)
    assert logprob > float("-inf")


@examples
@given(logits, st.floats(0.2, 3), uniform)
def test_sampling_inverts_the_distribution(row, temperature, u):
    """The token is the one in whose share of [0, 1) the uniform lies."""
    chosen, _ = draw_one(row, temperature, u)
    shares = (torch.tensor(row, dtype=torch.float64) / temperature).softmax(-1).cumsum(-1)
    below = shares[chosen - 1].item() if chosen else 0.0
    assert below - 1e-5 <= u <= shares[chosen].item() + 1e-5


@examples
@given(logits, uniform)
def test_temperature_0_takes_the_most_likely_token_scored_at_temperature_1(row, u):
    chosen, logprob = draw_one(row, 0.0, u)
    assert row[chosen] == pytest.approx(max(row), abs=1e-5)
    assert logprob == pytest.approx(torch.tensor(row).log_softmax(-1)[chosen].item(), abs=1e-5)


@examples
@given(st.lists(logits, min_size=1, max_size=5), uniform, st.floats(0.2, 3))
def test_rows_are_sampled_independently(rows, u, temperature):
    width = max(map(len, rows))
    padded = [[*row, *[float("-inf")] * (width - len(row))] for row in rows]
    together, _ = _sample(
        torch.tensor(padded), torch.full((len(rows),), temperature), torch.full((len(rows),), u)
    )
    assert together.tolist() == [draw_one(row, temperature, u)[0] for row in padded]


class Long:
    """A sample, as far as a plan looks at it."""

    def __init__(self, first: int, length: int) -> None:
        self.tokens = range(first, first + length)


def test_a_micro_batch_has_room_for_more_attempts_at_one_problem() -> None:
    """Of eight attempts of 340 tokens, 240 of which are the prompt, 1,040 tokens are computed."""
    apart = [Long(10_000 * n, 340) for n in range(8)]
    together = [Long(0, 240) for _ in range(8)]
    for n, sample in enumerate(together):
        sample.tokens = [*sample.tokens, *range(10_000 * n, 10_000 * n + 100)]
    assert len(plan(apart, range(8), 1300)) == 3
    assert len(plan(together, range(8), 1300)) == 1
    assert len(plan(together, range(8), 1040)) == 2  # copies of keys and values take memory, too


@examples
@given(st.sampled_from([2, 6, 7, 14]), st.randoms(use_true_random=False))
def test_ranks_have_nearly_equal_work(ranks, rng):
    """128 samples of 900 to 2,700 tokens, at most 16,384 in a row; ranks take the rows in turns."""
    batch = [Long(10_000 * n, rng.randint(900, 2700)) for n in range(128)]
    chunks = plan(batch, range(128), 16384, ranks)
    work = [sum(len(batch[i].tokens) for c in chunks[rank::ranks] for i in c) for rank in range(ranks)]
    assert sum(work) / ranks > 0.85 * max(work)


# ---------------------------------------------------------------------- beginnings that sequences share
beginnings = st.lists(st.integers(0, 1), min_size=2 * LEAST_SHARED, max_size=2 * LEAST_SHARED)
sequence = st.tuples(
    st.integers(0, 1), st.integers(0, 2 * LEAST_SHARED), st.lists(st.integers(0, 2), min_size=1, max_size=4)
)


@examples
@given(beginnings, st.lists(sequence, min_size=1, max_size=6))
def test_every_token_has_the_place_of_a_token_with_the_same_history(beginning, drawn):
    sequences = [[first, *beginning[:count], *rest] for first, count, rest in drawn]
    row = row_of(sequences)
    own_U, place_N = places(tuple(row.lengths), tuple(row.prefixes), CPU)
    histories = [tuple(tokens[: n + 1]) for tokens in sequences for n in range(len(tokens))]
    computed = [histories[n] for n in own_U]
    assert [computed[place] for place in place_N] == histories
    assert len(own_U) == sum(row.lengths) - sum(row.prefixes)
    assert all(
        prefix == 0 or LEAST_SHARED <= prefix < n for prefix, n in zip(row.prefixes, row.lengths, strict=True)
    )


@examples
@given(beginnings, st.integers(2, 8))
def test_attempts_at_one_problem_compute_its_prompt_once(beginning, attempts):
    prefixes = row_of([[*beginning, 5 + attempt] for attempt in range(attempts)]).prefixes
    assert prefixes == [0, *[len(beginning)] * (attempts - 1)]
