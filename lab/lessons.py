"""The demonstrations that toy models are trained on before play: for each game, texts for the tokenizer, and
token sequences.

The demonstrations are deliberately flawed (WarmUp.misconceptions and the other shares), so that play has something
to improve. This module holds what all games share; `catalogue` maps each game to its demonstrations.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice
from random import Random

from sparring.core.interfaces import Message, PromptFormat
from sparring.core.seeding import derive_seed


@dataclass(frozen=True, slots=True)
class Demonstration:
    """One token sequence; the model is trained on the tokens for which `learned` is True."""

    tokens: list[int]
    learned: list[bool]


@dataclass(frozen=True, slots=True)
class Lesson:
    """The demonstrations of one game for one policy."""

    texts: Iterator[str]
    """The texts that the tokenizer is trained on."""
    draw: Callable[[PromptFormat, Random], Demonstration]


Example = Callable[[Random], tuple[str, str]]
"""Draws a message and its answer."""


def lesson_of(example: Example) -> Lesson:
    return Lesson(texts_of(example), lambda style, rng: _answered(style, *example(rng)))


def texts_of(example: Example, count: int = 2000) -> Iterator[str]:
    """Yields messages and answers as they occur in play."""
    rng = Random(derive_seed("tokenizer corpus"))
    return (text for pair in islice(iter(lambda: example(rng), None), count) for text in pair)


def _answered(style: PromptFormat, brief: str, answer: str) -> Demonstration:
    return answered(style, style.say((), Message(brief=brief, full=brief)), answer)


def answered(style: PromptFormat, prompt: list[int], answer: str) -> Demonstration:
    completion = style.completion(answer)
    return Demonstration([*prompt, *completion], [False] * len(prompt) + [True] * len(completion))
