"""What the embedded models are shown before they play: for each game, texts for the tokenizer and demonstrations.

A demonstrator is deliberately flawed (warm_start.misconceptions and the other shares), so that play has something to
improve. Here is what lessons have in common; `catalogue` says which game has which.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice
from random import Random

from core.interfaces import Message, PromptFormat
from core.seeding import derive_seed


@dataclass(frozen=True, slots=True)
class Demonstration:
    """One token sequence; the model learns the tokens where `learned` is True."""

    tokens: list[int]
    learned: list[bool]


@dataclass(frozen=True, slots=True)
class Lesson:
    """What one policy is shown of one game."""

    texts: Iterator[str]
    """What the tokenizer is trained on."""
    draw: Callable[[PromptFormat, Random], Demonstration]


Example = Callable[[Random], tuple[str, str]]
"""Draws a message and its answer."""


def lesson_of(example: Example) -> Lesson:
    return Lesson(texts_of(example), lambda style, rng: _answered(style, *example(rng)))


def texts_of(example: Example, count: int = 2000) -> Iterator[str]:
    """Messages and answers, as they will be met."""
    rng = Random(derive_seed("tokenizer corpus"))
    return (text for pair in islice(iter(lambda: example(rng), None), count) for text in pair)


def _answered(style: PromptFormat, brief: str, answer: str) -> Demonstration:
    return answered(style, style.say((), Message(brief=brief, full=brief)), answer)


def answered(style: PromptFormat, prompt: list[int], answer: str) -> Demonstration:
    completion = style.completion(answer)
    return Demonstration([*prompt, *completion], [False] * len(prompt) + [True] * len(completion))
