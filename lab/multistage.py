"""Demonstrations for the multi-stage game: reasoning in stages, and test suites."""

from collections.abc import Iterator
from random import Random

from lab import grammar, sampling, traces
from lab.lessons import Demonstration, Lesson, answered
from lab.problems import toy_problems, toy_specs
from lab.settings import WarmUp
from sparring.core.interfaces import PromptFormat
from sparring.core.problem import Problem
from sparring.core.seeding import derive_seed
from sparring.core.stages import REASONING_STAGES
from sparring.games.multistage import messages
from sparring.games.multistage.rules import MultistageRules

_DEMONSTRATED = (
    "informal reasoning",
    "structured reasoning",
    "pseudocode",
    "constraints and invariants",
    "executable code",
)
"""Names of the stages for which demonstrations have a text."""
_NO_TEXT = "Nothing to add.\n"
"""Text of a demonstration at any other stage."""


def lesson(rules: MultistageRules, role: str, settings: WarmUp) -> Lesson:
    numbers = settings.numbers
    pairs = list(zip(toy_problems("train", numbers), toy_specs("train", numbers), strict=True))

    def solve(style: PromptFormat, rng: Random) -> Demonstration:
        problem, spec = rng.choice(pairs)
        trace = traces.flawed_trace(spec, rng, settings.misconceptions, settings.misreadings)
        return _solved(style, problem, trace)

    def attack(style: PromptFormat, rng: Random) -> Demonstration:
        problem, spec = rng.choice(pairs)
        suite = traces.discriminator_suite(
            spec,
            rng,
            tests=rules.max_tests,
            weak=settings.weak_suites,
            invalid=settings.invalid_suites,
            computed=rules.test_format != "input_only",
        )
        program = None
        if rules.attack == "program":
            program = traces.flawed_trace(spec, rng, settings.misconceptions, settings.misreadings)[-1]
        return answered(style, style.say((), messages.attack(problem, rules, program)), suite)

    return Lesson(_texts(), solve if role == "generator" else attack)


def _texts(count: int = 1500) -> Iterator[str]:
    """Yields descriptions, traces and tests of random problems."""
    rng = Random(derive_seed("tokenizer corpus"))
    for _ in range(count):
        spec = sampling.random_spec(rng)
        yield grammar.describe(spec)
        yield from traces.clean_trace(spec)
        for make in (sampling.bland_input, sampling.edge_input):
            argument = make(spec, rng)
            (value,) = sampling.run_reference(spec, [argument])
            yield f"assert f({argument!r}) == {value!r}\n"
            yield f"f({argument!r})\n"


def _solved(style: PromptFormat, problem: Problem, trace: tuple[str, ...]) -> Demonstration:
    """Returns a trace (a text for each stage in _DEMONSTRATED) as one token sequence; the model is trained on the
    tokens that it would have to generate itself."""
    tokens: list[int] = style.say((), messages.solve(problem, REASONING_STAGES[0]))
    learned = [False] * len(tokens)
    texts: dict[str, str] = dict(zip(_DEMONSTRATED, trace, strict=True))
    texts[REASONING_STAGES[-1].name] = trace[-1]  # the last stage writes the program, whatever its name is
    for stage in REASONING_STAGES:
        text = texts.get(stage.name, _NO_TEXT)
        if stage.number > 1:
            tokens = style.say(tokens, messages.go_on(stage))
            learned += [False] * (len(tokens) - len(learned))
        completion = style.completion(text, messages.closing(stage))
        tokens = [*tokens, *completion]
        learned += [True] * len(completion)
    return Demonstration(tokens, learned)
