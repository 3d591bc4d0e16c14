"""Plays stored attempts again without a model, so that they are judged and rewarded under other rules or on other tests."""

import statistics
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sparring.core.episode import Completion, FinishReason, Trajectory
from sparring.core.evaluation import mean
from sparring.core.interfaces import Game, Message, Player, Sampling, Sandbox
from sparring.core.problem import Problem
from sparring.core.seeding import derive_seed

_STOP = 0


class _Stored:
    """A policy that gives stored answers, by the seeds of its turns, and its prompt format, in which a token is a character.
    Prompts are empty, since nobody reads them."""

    version = 0

    def __init__(self, answers: Mapping[int, str], prompt: str) -> None:
        """prompt: the prompt of an attempt."""
        self._answers, self._prompt = answers, prompt

    async def generate(self, prompt_tokens: Sequence[int], sampling: Sampling) -> Completion:
        tokens = (*map(ord, self._answers[sampling.seed or 0]), _STOP)
        return Completion(
            tokens=tokens, logprobs=(0.0,) * len(tokens), version=0, finish_reason=FinishReason.STOP
        )

    def say(self, tokens: Sequence[int], message: Message) -> list[int]:
        return [_STOP]

    def shown(self, message: Message) -> str:
        is_tagged = bool(message.marks[0]) and self._prompt.startswith(message.marks[0])
        return message.brief if is_tagged else message.full

    def stop_token_ids(self) -> tuple[int, ...]:
        return (_STOP,)

    def stop_texts(self, begins: str = "") -> tuple[str, ...]:
        return ()

    def text(self, completion_tokens: Sequence[int], begins: str = "") -> str:
        return "".join(map(chr, completion_tokens[:-1]))

    def completion(self, text: str, closes: str = "") -> list[int]:
        return [*map(ord, text), _STOP]


async def play_again(
    game: Game,
    problem: Problem,
    answers: Mapping[str, Sequence[str]],
    prompts: Mapping[str, str],
    places: Sequence[int],
    sandbox: Sandbox,
) -> dict[str, list[Trajectory]]:
    """Plays one episode with stored answers. Returns the judged attempts by player, in the order of the answers. Raises
    SandboxFailure.

    Args:
        answers: by player, the last answer of each attempt. Answers before the last are empty: no reward depends on them.
        prompts: by player, the prompt of an attempt.
        places: numbers of the turns of an attempt, such as the stages. The last one gives the stored answer.
    """
    players = {}
    for name, texts in answers.items():
        # a player who has one turn takes it at place 0
        turns = {
            derive_seed(0, attempt, place): text if place in (0, places[-1]) else ""
            for attempt, text in enumerate(texts)
            for place in (0, *places)
        }
        stored = _Stored(turns, prompts[name])
        players[name] = Player(
            name=name,
            policy=stored,
            format=stored,
            attempts=len(texts),
            temperature=1.0,
            seed=0,
            max_tokens=max(map(len, texts)) + 1,
            once=True,
        )
    episode = await game.play(problem, players, sandbox)
    return {name: [t for t in episode.trajectories if t.player == name] for name in answers}


@dataclass(frozen=True, kw_only=True)
class Judgement:
    """One stored attempt, as it was rewarded then and as it is now."""

    group: tuple[Any, ...]
    """Attempts with the same group are compared with each other in training: (step, problem, ...)."""
    then: float | None
    now: float | None
    right: bool | None = None
    """Whether the program passes all of the problem's tests for evaluation; None: not asked."""


def compared(judgements: Iterable[Judgement]) -> dict[str, float | None]:
    """Returns how the rewards differ. Only attempts with both rewards count.

    rank_agreement is the share of pairs of attempts in a group that both rewards order in the same way, of the pairs that
    both order (Goodman and Kruskal's gamma is 2 * rank_agreement - 1).
    """
    both = [j for j in judgements if j.then is not None and j.now is not None]
    agree = ordered = 0
    for group in _groups(both):
        for place, one in enumerate(group):
            for other in group[:place]:
                sign = (one.then - other.then) * (one.now - other.now)  # type: ignore[operator]
                agree, ordered = agree + (sign > 0), ordered + (sign != 0)
    return {
        "attempts": float(len(both)),
        "mean_then": mean([j.then for j in both]),
        "mean_now": mean([j.now for j in both]),
        "changed": mean([float(abs(j.then - j.now) > 1e-9) for j in both]),  # type: ignore[operator]
        "rank_agreement": agree / ordered if ordered else None,
    }


def told_apart(judgements: Iterable[Judgement], *, now: bool) -> dict[str, float | None]:
    """Returns how well a reward tells right programs from wrong ones. now: the new reward, else the stored one.

    right_over_wrong is the chance that of a right and a wrong program of one group the right one earns more (a tie counts
    half). with_signal is the share of groups whose rewards differ, so that something is learned from them;
    signal_without_right is that share among the groups without a right program, where only wrong programs are reinforced.
    """
    chances, signals, without = list[float](), list[float](), list[float]()
    for group in _groups(judgements):
        of = [(j.right, j.now if now else j.then) for j in group]
        rewards = [(right, reward) for right, reward in of if reward is not None]
        if not rewards:
            continue
        signals.append(float(max(r for _, r in rewards) - min(r for _, r in rewards) > 1e-9))
        good, bad = ([r for right, r in rewards if right is wanted] for wanted in (True, False))
        if good and bad:
            chances.append(statistics.fmean((g > b) + 0.5 * (g == b) for g in good for b in bad))
        elif not good:
            without.append(signals[-1])
    return {
        "right_over_wrong": mean(chances),
        "with_signal": mean(signals),
        "signal_without_right": mean(without),
    }


def _groups(judgements: Iterable[Judgement]) -> list[list[Judgement]]:
    found: dict[tuple[Any, ...], list[Judgement]] = defaultdict(list)
    for judgement in judgements:
        found[judgement.group].append(judgement)
    return list(found.values())
