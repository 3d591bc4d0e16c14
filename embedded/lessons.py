"""What the embedded models are shown before they play: for each game, texts for the tokenizer and demonstrations.

A demonstrator is deliberately flawed (warm_start.misconceptions and the other shares), so that play has something to
improve.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice
from random import Random

from configs.schema import Config
from configs.sections import WarmStartSettings
from core.interfaces import Message, PromptFormat
from core.problem import Problem
from core.seeding import derive_seed
from embedded import code_execution, grammar, grid_tasks, lua, prediction, sampling, traces
from embedded.problems import embedded_problems, embedded_specs
from embedded.supervised import Demonstration
from games.board_games import KuhnRules, TicTacToeRules
from games.boards import start
from games.code_execution import CodeExecutionRules
from games.code_golf import CodeGolfRules
from games.multistage import MultistageRules
from games.output_prediction import OutputPredictionRules
from games.stages import REASONING_STAGES
from games.unit_tests import UnitTestsRules

_DEMONSTRATED = (
    "informal reasoning",
    "structured reasoning",
    "pseudocode",
    "constraints and invariants",
    "executable code",
)
"""The stages for which demonstrations have a text, by name."""
_NO_TEXT = "Nothing to add.\n"
"""Said at any other stage."""
_GRID_TASKS = 3000
"""Drawn once: each costs some milliseconds."""
Draw = Callable[[PromptFormat, Random], Demonstration]


@dataclass(frozen=True, slots=True)
class Lesson:
    """What one policy is shown of one game."""

    texts: Iterator[str]
    """What the tokenizer is trained on."""
    draw: Draw


def lesson_of(config: Config, role: str) -> Lesson:
    match config.game:
        case MultistageRules(max_tests=tests):
            return _multistage(config.warm_start, tests, role)
        case TicTacToeRules() | KuhnRules():
            return _board(config)
        case OutputPredictionRules():
            return _prediction(config, role)
        case CodeExecutionRules() | UnitTestsRules() | CodeGolfRules():
            return _solver(config)


# ---------------------------------------------------------------------- the reasoning stages
def _multistage(settings: WarmStartSettings, tests: int, role: str) -> Lesson:
    pairs = list(zip(embedded_problems("train"), embedded_specs("train"), strict=True))
    mix = traces.SuiteMix(weak=settings.weak_suites, invalid=settings.invalid_suites)

    def draw(style: PromptFormat, rng: Random) -> Demonstration:
        problem, spec = rng.choice(pairs)
        if role == "generator":
            return solve_demonstration(
                style, problem, traces.flawed_trace(spec, rng, settings.misconceptions)
            )
        return attack_demonstration(
            style, problem, traces.discriminator_suite(spec, rng, tests=tests, mix=mix), tests
        )

    return Lesson(_multistage_texts(), draw)


def _multistage_texts(count: int = 1500) -> Iterator[str]:
    """Descriptions, traces, tests of random problems."""
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


def solve_demonstration(style: PromptFormat, problem: Problem, trace: tuple[str, ...]) -> Demonstration:
    """A trace (a text for each of _DEMONSTRATED) as one sequence; the model learns what it would have to say itself."""
    tokens: list[int] = style.generator_prompt(problem)
    learned = [False] * len(tokens)
    texts: dict[str, str] = dict(zip(_DEMONSTRATED, trace, strict=True))
    texts[REASONING_STAGES[-1].name] = trace[-1]  # whatever it is called, the last stage writes the program
    for stage in REASONING_STAGES:
        text = texts.get(stage.name, _NO_TEXT)
        if stage.number > 1:
            tokens = style.next_stage(tokens, stage.number)
            learned += [False] * (len(tokens) - len(learned))
        completion = style.completion(text, stage.number)
        tokens = [*tokens, *completion]
        learned += [True] * len(completion)
    return Demonstration(tokens, learned)


def attack_demonstration(style: PromptFormat, problem: Problem, suite: str, tests: int) -> Demonstration:
    prompt = style.discriminator_prompt(problem, tests)
    completion = style.completion(suite, 0)
    return Demonstration([*prompt, *completion], [False] * len(prompt) + [True] * len(completion))


# ---------------------------------------------------------------------- one message, one answer
def _answer(style: PromptFormat, brief: str, answer: str) -> Demonstration:
    prompt = style.say((), Message(brief=brief, full=brief))
    completion = style.completion(answer, 0)
    return Demonstration([*prompt, *completion], [False] * len(prompt) + [True] * len(completion))


def _texts(example: Callable[[Random], tuple[str, str]], count: int = 2000) -> Iterator[str]:
    """Messages and answers, as they will be met."""
    rng = Random(derive_seed("tokenizer corpus"))
    return (text for pair in islice(iter(lambda: example(rng), None), count) for text in pair)


def _lesson(example: Callable[[Random], tuple[str, str]]) -> Lesson:
    return Lesson(_texts(example), lambda style, rng: _answer(style, *example(rng)))


def _solver(config: Config) -> Lesson:
    flawed = config.warm_start.misconceptions
    match config.game:
        case CodeExecutionRules():
            share = flawed / 3
            mix = code_execution.ExecutionMix(silent=share, syntax=share, runtime=share)
            specs = embedded_specs("train")

            def example(rng: Random) -> tuple[str, str]:
                spec = rng.choice(specs)
                return grammar.describe(spec), code_execution.execution_demonstration(spec, rng, mix)

        case UnitTestsRules():
            pairs = list(zip(lua.lua_problems("train"), lua.lua_specs("train"), strict=True))

            def example(rng: Random) -> tuple[str, str]:
                problem, spec = rng.choice(pairs)
                return problem.description, lua.lua_demonstration(spec, rng, flawed, flawed / 4)

        case _:
            drawn = Random(derive_seed("grid tasks"))
            pool = [grid_tasks.random_task(drawn) for _ in range(_GRID_TASKS)]

            def example(rng: Random) -> tuple[str, str]:
                task, programs = rng.choice(pool)
                terse = rng.random() >= flawed
                program = programs.terse if terse else rng.choice((programs.verbose, programs.plain))
                return grid_tasks.compact_description(task), program

    return _lesson(example)


def _prediction(config: Config, role: str) -> Lesson:
    flawed = config.warm_start.misconceptions
    topics = list(
        zip(prediction.prediction_problems("train"), prediction.prediction_topics("train"), strict=True)
    )

    def author(rng: Random) -> tuple[str, str]:
        problem, topic = rng.choice(topics)
        return problem.description, prediction.author_demonstration(topic, rng, flawed / 2)

    def opponent(rng: Random) -> tuple[str, str]:
        return prediction.opponent_demonstration(rng, flawed)

    def both(rng: Random) -> tuple[str, str]:
        return rng.choice((author, opponent))(rng)

    if config.seats["author"] == config.seats["opponent"]:
        return _lesson(both)
    lesson = _lesson(author if role == config.seats["author"] else opponent)
    return Lesson(_texts(both), lesson.draw)  # one tokenizer for both: each reads what the other writes


# ---------------------------------------------------------------------- boards
def _board(config: Config) -> Lesson:
    """One side of a match of players who move at random; with warm_start.misconceptions a move is illegal."""
    kind, illegal = config.game.kind, config.warm_start.misconceptions
    every_move = [str(n) for n in range(1, 10)] if kind == "tictactoe" else ["pass", "bet", "card"]

    def draw(style: PromptFormat, rng: Random) -> Demonstration:
        state, side = start(kind, rng), rng.randrange(2)
        tokens: list[int] = []
        learned: list[bool] = []
        while state.payoff_first is None:
            move = rng.choice(state.legal_moves)
            if state.to_move == side:
                spoken = rng.choice(every_move) if rng.random() < illegal else move
                tokens = style.say(tokens, Message(brief=state.brief(), full=state.full()))
                learned += [False] * (len(tokens) - len(learned))
                completion = style.completion(spoken, 0)
                tokens, learned = [*tokens, *completion], [*learned, *[True] * len(completion)]
                if spoken not in state.legal_moves:
                    break
            state = state.after(move)
        return Demonstration(tokens, learned) if tokens else draw(style, rng)

    texts = (text for move in every_move for text in (f"{move}\n", "J pb", "Q b", "K p", "012012012"))
    return Lesson(texts, draw)
