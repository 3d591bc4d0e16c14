"""A player's move: what it is asked, with which seed, and what becomes of the answer."""

import asyncio
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparring.core.episode import FinishReason, Outcome
from sparring.core.interfaces import Message, Sampling
from sparring.core.seeding import derive_seed
from sparring.core.verdict import Status
from sparring.games.turns import again_message, answer_all, take_turn, worst
from tests.playing import STOP, player


def test_a_turn_holds_what_was_said_and_what_was_answered():
    asked: list[Sampling] = []

    def says(prompt, sampling):
        asked.append(sampling)
        return prompt.upper()

    seat = player("author", says, seed=9, temperature=0.7, max_tokens=50)
    turn = asyncio.run(take_turn(seat, [97, 98], attempt=3, place=2, begins="code"))
    assert (turn.stage, list(turn.prompt_tokens), turn.text) == (2, [97, 98], "AB")
    assert list(turn.completion.tokens) == [65, 66, STOP]
    assert turn.completion.finish_reason is FinishReason.STOP
    assert asked == [
        Sampling(
            max_tokens=50,
            stop_token_ids=(STOP,),
            stop_texts=("end of code",),
            temperature=0.7,
            seed=derive_seed(9, 3, 2),
        )
    ]


def test_who_wants_to_know_is_told_of_the_text_as_it_grows():
    told: list[tuple[int, str]] = []
    seat = replace(player("author", lambda *_: "abc"), on_text=lambda *now: told.append(now))
    asyncio.run(take_turn(seat, [97], attempt=0, place=2))
    assert told == [(2, "a"), (2, "ab"), (2, "abc"), (2, "abc")]  # the last one is of the token that ends it


def test_a_turn_is_cut_at_its_length():
    turn = asyncio.run(take_turn(player("author", lambda *_: "abcdef", max_tokens=3), [97], 0, 0))
    assert turn.text == "abc" and turn.completion.finish_reason is FinishReason.LENGTH


def test_all_attempts_answer_the_same_message_with_seeds_of_their_own():
    asked: list[tuple[str, int | None]] = []

    def says(prompt, sampling):
        asked.append((prompt, sampling.seed))
        return f"answer {len(asked)}"

    made = asyncio.run(answer_all(player("author", says, attempts=5), Message(brief="hello", full="")))
    assert {prompt for prompt, _ in asked} == {"hello>"} and len({seed for _, seed in asked}) == 5
    assert [t.attempt for t in made] == list(range(5))
    assert all(t.player == "author" and t.reward is None and len(t.turns) == 1 for t in made)
    assert [t.artifact for t in made] == [t.turns[0].text for t in made]


def test_no_attempts_ask_nothing():
    nobody = player("author", lambda *_: pytest.fail("asked"), attempts=0)
    assert asyncio.run(answer_all(nobody, Message(brief="", full=""))) == []


OUTCOMES = st.lists(
    st.builds(
        Outcome, test=st.text(max_size=300), status=st.sampled_from(list(Status)), error=st.text(max_size=300)
    ),
    max_size=8,
)


@given(OUTCOMES)
def test_what_is_told_of_failed_tests_has_the_bound_that_their_worst_outcomes_have(
    outcomes: list[Outcome],
) -> None:
    message, bound = again_message(outcomes), again_message(worst([o.test for o in outcomes]))
    assert message.full.isascii() and message.brief.isascii()
    assert len(message.brief) <= len(bound.brief) and len(message.full) <= len(bound.full)
    failed = [outcome for outcome in outcomes if outcome.status != "PASSED"]
    assert f"fails {len(failed)} of {len(outcomes)} tests" in message.full
