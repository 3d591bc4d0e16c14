"""A player's move in any game."""

import asyncio
from collections.abc import Sequence

from core.episode import Trajectory, Turn
from core.interfaces import Message, Player, Sampling
from core.seeding import derive_seed


async def take_turn(player: Player, tokens: Sequence[int], attempt: int, place: int) -> Turn:
    """place: the stage, or the number of the move; with the attempt it decides the seed."""
    sampling = Sampling(
        max_tokens=player.max_tokens,
        stop_token_ids=player.format.stop_token_ids(),
        temperature=player.temperature,
        seed=derive_seed(player.seed, attempt, place),
        top_p=player.top_p,
        top_k=player.top_k,
    )
    completion = await player.policy.generate(list(tokens), sampling)
    text = player.format.text(completion.tokens)
    return Turn(stage=place, prompt_tokens=tuple(tokens), completion=completion, text=text)


async def answer_all(player: Player, message: Message) -> list[Trajectory]:
    """One completion per attempt, all to the same message. Not yet judged."""
    tokens = player.format.say((), message)
    turns = await asyncio.gather(*(take_turn(player, tokens, i, 0) for i in range(player.attempts)))
    return [
        Trajectory(player=player.name, attempt=i, turns=[turn], artifact=turn.text)
        for i, turn in enumerate(turns)
    ]
