"""The turns of a player, for all games: sampling a completion, and asking again after a failed attempt."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace

from sparring.core.episode import Outcome, Trajectory, Turn
from sparring.core.interfaces import Message, Player, Sampling
from sparring.core.seeding import derive_seed
from sparring.core.verdict import Status, Test


async def take_turn(
    player: Player, tokens: Sequence[int], attempt: int, place: int, begins: str = ""
) -> Turn:
    """Samples one completion of the player and returns it as a turn.

    Args:
        tokens: the prompt, as `PromptFormat.say` returned it.
        attempt: number of the attempt.
        place: number of the stage or of the move. The seed is derived from the attempt and the place.
        begins: the field `begins` of the last message in the prompt.
    """
    on_text = player.on_text
    sampling = Sampling(
        max_tokens=player.max_tokens,
        stop_token_ids=player.format.stop_token_ids(),
        stop_texts=player.format.stop_texts(begins),
        temperature=player.temperature,
        seed=derive_seed(player.seed, attempt, place),
        top_p=player.top_p,
        top_k=player.top_k,
        on_tokens=on_text and (lambda tokens: on_text(place, player.format.text(tokens, begins))),
    )
    completion = await player.policy.generate(list(tokens), sampling)
    text = player.format.text(completion.tokens, begins)
    turn = Turn(stage=place, prompt_tokens=tokens, completion=completion, text=text)
    if player.on_turn is not None:
        player.on_turn(attempt, turn)
    return turn


async def answer_all(player: Player, message: Message) -> list[Trajectory]:
    """Sends the message to the player and returns one trajectory of one turn per attempt. They are not yet judged."""
    tokens = player.format.say((), message)
    turns = await asyncio.gather(
        *(take_turn(player, tokens, i, 0, message.begins) for i in range(player.attempts))
    )
    return [
        Trajectory(player=player.name, attempt=i, turns=[turn], artifact=turn.text)
        for i, turn in enumerate(turns)
    ]


_AGAIN = """Your program fails {failed} of {count} tests:
{tests}
Find the mistake, then write the whole program again in the same form."""
_TOLD_TESTS, _TOLD_CHARACTERS = 3, 200


def again_message(outcomes: Sequence[Outcome]) -> Message:
    """Returns the message that asks a player to write its program again. It shows the first tests that the program
    failed."""
    failed = [outcome for outcome in outcomes if outcome.status != "PASSED"]
    told = [_plain(outcome.test) for outcome in failed[:_TOLD_TESTS]]
    said = [_plain(f"{o.status}{': ' * bool(o.error)}{o.error}") for o in failed[:_TOLD_TESTS]]
    tests = "\n".join(f"- {test}\n  {status}" for test, status in zip(told, said, strict=True))
    return Message(
        brief="\n".join(told), full=_AGAIN.format(failed=len(failed), count=len(outcomes), tests=tests)
    )


def worst(tests: Sequence[Test]) -> list[Outcome]:
    """Returns outcomes of these tests for which `again_message` takes about the most tokens."""
    error = "1 " * _TOLD_CHARACTERS  # few tokenizers have a token for more than one character of this text
    outcomes = [Outcome(test=str(test), status=Status.RUNTIME_ERROR, error=error) for test in tests]
    return sorted(outcomes, key=lambda outcome: len(_plain(outcome.test)), reverse=True)


def _plain(text: str) -> str:
    line = " ".join(text.encode("ascii", "backslashreplace").decode().split())
    return line if len(line) <= _TOLD_CHARACTERS else line[: _TOLD_CHARACTERS - 3] + "..."


async def try_again(player: Player, attempt: Trajectory, message: Message) -> Turn:
    """Sends the message to the player after the last turn of an attempt. Returns the new turn; does not change the
    attempt."""
    last = attempt.turns[-1]
    tokens = player.format.say([*last.prompt_tokens, *last.completion.tokens], message)
    player = replace(player, seed=derive_seed(player.seed, "again", len(attempt.turns)))
    return await take_turn(player, tokens, attempt.attempt, last.stage, message.begins)


def further(chain: Trajectory, number: int, attempts: int) -> Trajectory:
    """Returns the last turn of a conversation as a separate attempt, with its own reward. It forms a group with the other
    attempts of the same number.

    Args:
        chain: the conversation: a first attempt and the attempts after it.
        number: position of the attempt in the conversation, from 2.
        attempts: number of the player's first attempts.
    """
    return replace(
        chain,
        attempt=chain.attempt + (number - 1) * attempts,
        turns=chain.turns[-1:],
        number=number,
        group=f"attempt {number}",
    )
