from dataclasses import replace

import pytest

from sparring.core.batch import BatchSpec, SampleSpec, TokenSelection, transcript_of
from sparring.core.episode import Completion, FinishReason, Trajectory, Turn
from tests.playing import sample_of


def turn(stage, prompt, tokens) -> Turn:
    completion = Completion(
        tokens=tuple(tokens),
        logprobs=tuple(-t / 10 for t in tokens),
        version=0,
        finish_reason=FinishReason.STOP,
    )
    return Turn(stage=stage, prompt_tokens=tuple(prompt), completion=completion, text="")


def trajectory(*turns) -> Trajectory:
    return Trajectory(player="generator", attempt=0, turns=list(turns), reward=0.5)


TWO_STAGES = trajectory(turn(1, [9, 8], [1, 2]), turn(2, [9, 8, 1, 2, 7], [3]))


def test_turns_become_one_sequence():
    sample = sample_of(TWO_STAGES)
    assert list(sample.tokens) == [9, 8, 1, 2, 7, 3]
    assert list(sample.sampled) == [0, 0, 1, 1, 0, 1]
    assert sample.trained == sample.sampled
    assert list(sample.logprobs) == [0.0, 0.0, -0.1, -0.2, 0.0, -0.3]
    assert (sample.reward, sample.advantage) == (0.5, 0.25)


def test_a_completion_that_was_cut_off_is_no_step_of_anybodys():
    last = TWO_STAGES.turns[1]
    cut = replace(last, completion=replace(last.completion, finish_reason=FinishReason.LENGTH))
    masked = sample_of(trajectory(TWO_STAGES.turns[0], cut), mask_truncated=True, by_turn=True)
    assert masked.sampled == masked.trained
    assert list(masked.sampled) == [0, 0, 1, 1, 0, 0]
    assert list(masked.logprobs) == [0.0, 0.0, -0.1, -0.2, 0.0, 0.0]
    assert masked.segments == (2,)
    assert sample_of(TWO_STAGES, by_turn=True).segments == (2, 1)


def test_an_attempt_may_be_read_up_to_a_turn():
    sample = sample_of(TWO_STAGES, turns=1, by_turn=True)
    assert list(sample.tokens) == [9, 8, 1, 2] and sample.segments == (2,)
    assert list(sample.sampled) == [0, 0, 1, 1] and list(sample.logprobs) == [0.0, 0.0, -0.1, -0.2]


def test_a_batch_is_made_where_the_transcripts_are_and_each_place_is_asked_once():
    """Places are told apart by who they are: references, here lists that are equal."""
    one, other = [transcript_of(TWO_STAGES)] * 2, [transcript_of(TWO_STAGES)] * 2
    at = [(one, 1), (other, 0), (one, 0)]
    specs = tuple(SampleSpec(place, i, "generator", 0.5, float(i), TokenSelection()) for place, i in at)
    asked = []

    def fetch(places):
        asked.append(places)
        return places

    batch = BatchSpec(step=3, samples=specs, temperature=0.7, seed=5).batch(fetch)
    assert asked == [[one, other]] and asked[0][0] is one and asked[0][1] is other
    assert (batch.step, batch.temperature, batch.seed) == (3, 0.7, 5)
    assert [s.advantage for s in batch.samples] == [1.0, 0.0, 0.0]
    assert all(list(s.tokens) == [9, 8, 1, 2, 7, 3] for s in batch.samples)


@pytest.mark.parametrize("prompt", [[9, 8, 1, 5, 7], [9, 8, 1], [8, 9, 1, 2, 7], []])
def test_a_prompt_that_rewrites_what_was_said_is_refused(prompt):
    with pytest.raises(ValueError, match="the prompt of stage 2 rewrites earlier tokens"):
        transcript_of(trajectory(turn(1, [9, 8], [1, 2]), turn(2, prompt, [3])))


def test_a_completion_has_one_logprob_per_token():
    with pytest.raises(AssertionError):
        Completion(tokens=(1, 2), logprobs=(0.0,), version=0, finish_reason=FinishReason.STOP)
