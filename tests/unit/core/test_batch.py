from dataclasses import replace

import pytest

from core.batch import sample_from
from core.episode import Completion, Episode, FinishReason, Trajectory, Turn


def turn(stage, prompt, tokens) -> Turn:
    completion = Completion(
        tokens=tuple(tokens),
        logprobs=tuple(-t / 10 for t in tokens),
        version=0,
        finish_reason=FinishReason.STOP,
    )
    return Turn(stage=stage, prompt_tokens=tuple(prompt), completion=completion, text="")


def trajectory(*turns, reward=0.5) -> Trajectory:
    return Trajectory(player="generator", attempt=0, turns=list(turns), reward=reward)


TWO_STAGES = trajectory(turn(1, [9, 8], [1, 2]), turn(2, [9, 8, 1, 2, 7], [3]))


def test_turns_become_one_sequence():
    sample = sample_from(TWO_STAGES, 0.25, None)
    assert list(sample.tokens) == [9, 8, 1, 2, 7, 3]
    assert list(sample.sampled) == [0, 0, 1, 1, 0, 1]
    assert sample.trained == sample.sampled
    assert list(sample.logprobs) == [0.0, 0.0, -0.1, -0.2, 0.0, -0.3]
    assert (sample.reward, sample.advantage) == (0.5, 0.25)


@pytest.mark.parametrize(
    ("stages", "trained"),
    [
        ([1], [0, 0, 1, 1, 0, 0]),
        ([2], [0, 0, 0, 0, 0, 1]),
        ([1, 2], [0, 0, 1, 1, 0, 1]),
        ([3], [0] * 6),
        ([], [0] * 6),
    ],
)
def test_only_the_stages_under_training_are_trained(stages, trained):
    sample = sample_from(TWO_STAGES, None, stages)
    assert list(sample.trained) == trained
    assert list(sample.sampled) == [0, 0, 1, 1, 0, 1]


def test_a_completion_that_was_cut_off_is_no_step_of_anybodys():
    last = TWO_STAGES.turns[1]
    cut = replace(last, completion=replace(last.completion, finish_reason=FinishReason.LENGTH))
    masked = sample_from(trajectory(TWO_STAGES.turns[0], cut), None, None, mask_truncated=True, by_turn=True)
    assert masked.sampled == masked.trained
    assert list(masked.sampled) == [0, 0, 1, 1, 0, 0]
    assert list(masked.logprobs) == [0.0, 0.0, -0.1, -0.2, 0.0, 0.0]
    assert masked.segments == (2,)
    assert sample_from(TWO_STAGES, None, None, by_turn=True).segments == (2, 1)


@pytest.mark.parametrize("prompt", [[9, 8, 1, 5, 7], [9, 8, 1], [8, 9, 1, 2, 7], []])
def test_a_prompt_that_rewrites_what_was_said_is_refused(prompt):
    with pytest.raises(ValueError, match="the prompt of stage 2 rewrites earlier tokens"):
        sample_from(trajectory(turn(1, [9, 8], [1, 2]), turn(2, prompt, [3])), None, None)


def test_an_unjudged_trajectory_is_no_sample():
    with pytest.raises(AssertionError):
        sample_from(trajectory(turn(1, [9], [1]), reward=None), None, None)


def test_a_completion_has_one_logprob_per_token():
    with pytest.raises(AssertionError):
        Completion(tokens=(1, 2), logprobs=(0.0,), version=0, finish_reason=FinishReason.STOP)


def test_the_group_of_a_player_are_its_judged_attempts():
    attempts = [trajectory(turn(1, [9], [1]), reward=r) for r in (0.0, None, 1.0)]
    episode = Episode(problem_id="p", trajectories=attempts)
    assert [t.reward for t in episode.judged("generator")] == [0.0, 1.0]
    assert episode.judged("discriminator") == []
    assert list(episode.dropped()) == [attempts[1]]
