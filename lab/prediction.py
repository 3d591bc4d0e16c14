"""The programs of the output prediction game: a few lines that print one short value, which an opponent must predict.

A program sets one variable, changes it by operations, and prints it. Its output is known without running it: every
operation is defined here both as source and as a function. One operation on small numbers is easy for a tiny model to
predict; chains of operations, products modulo a number and loops are hard. So the author has something to learn.

A topic names a program's operations, the first with its constant, such as "mul 3 add"; the author chooses the rest
(start value, other constants).
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, reduce
from random import Random
from typing import Any

from lab.grammar import Op
from lab.lessons import Lesson, lesson_of, texts_of
from lab.problems import SEED, Split
from lab.settings import WarmUp
from sparring.core.problem import Problem
from sparring.core.verdict import OutputTest
from sparring.games.prediction.rules import OutputPredictionRules

Value = int | str

TRAIN_SIZE, HELD_OUT_SIZE = 300, 60
MAX_OUTPUT = 6
"""Maximum number of characters of a program's output."""
_SIZES, _SIZE_WEIGHTS = (1, 2, 3), (5, 4, 1)
_EXTRA_OPERATION, _LARGE_START, _STRING = 0.25, 0.15, 0.15
_LETTERS = "abcd"


@dataclass(frozen=True, slots=True)
class Operation:
    """One line of a program; {k} is its constant."""

    source: str
    effect: Callable[[Any, int], Any]
    """Maps (value before, constant) to the value after."""
    constants: tuple[int, ...] = (0,)
    weight: int = 1
    """Relative frequency with which the operation is drawn; the easy operations are drawn more often."""


_SMALL = (2, 3, 4, 5)
NUMBER_OPERATIONS: Mapping[str, Operation] = {
    "add": Operation("a += {k}", lambda a, k: a + k, _SMALL, weight=4),
    "sub": Operation("a -= {k}", lambda a, k: a - k, _SMALL, weight=4),
    "max": Operation("a = max(a, {k})", lambda a, k: max(a, k), _SMALL, weight=3),
    "min": Operation("a = min(a, {k})", lambda a, k: min(a, k), _SMALL, weight=3),
    "mul": Operation("a *= {k}", lambda a, k: a * k, _SMALL, weight=2),
    "if": Operation("if a > {k}: a -= {k}", lambda a, k: a - k if a > k else a, _SMALL, weight=2),
    "div": Operation("a //= {k}", lambda a, k: a // k, _SMALL),
    "mod": Operation("a %= {k}", lambda a, k: a % k, _SMALL),
    "loop": Operation("for i in range({k}): a += i", lambda a, k: a + sum(range(k)), _SMALL),
    "square": Operation("a = a * a % {k}", lambda a, k: a * a % k, (7, 11, 13, 17)),
    "mix": Operation(
        "for i in range({k}): a = a * 7 % 19 + i",
        lambda a, k: reduce(lambda a, i: a * 7 % 19 + i, range(k), a),
        _SMALL,
    ),
}
STRING_OPERATIONS: Mapping[str, Operation] = {
    "repeat": Operation("s *= {k}", lambda s, k: s * k, (2, 3)),
    "cut": Operation("s = s[{k}:]", lambda s, k: s[k:], (1, 2)),
    "head": Operation("s = s[:{k}]", lambda s, k: s[:k], (2, 3)),
    "reverse": Operation("s = s[::-1]", lambda s, k: s[::-1]),
}


@dataclass(frozen=True, slots=True)
class PrintedProgram:
    """A program and its output. Example: PrintedProgram('a = 4\\na *= 3\\nprint(a)\\n', '12')"""

    source: str
    output: str
    """The printed output, without the final newline."""


@dataclass(frozen=True, slots=True)
class Topic:
    """The operations that a program must have. Example: Topic(Op("mul", 3), ("add",)) reads "mul 3 add"."""

    first: Op
    others: tuple[str, ...] = ()

    def __str__(self) -> str:
        constant = (str(self.first.constant),) if self.first.constant else ()
        return " ".join((self.first.name, *constant, *self.others))

    @property
    def table(self) -> Mapping[str, Operation]:
        return STRING_OPERATIONS if self.first.name in STRING_OPERATIONS else NUMBER_OPERATIONS


def make_program(start: Value, operations: Sequence[Op]) -> PrintedProgram:
    """Returns the program that applies the operations in order to `start`; the operations must be of the start value's
    type."""
    name, literal, table = (
        ("s", f'"{start}"', STRING_OPERATIONS)
        if isinstance(start, str)
        else ("a", str(start), NUMBER_OPERATIONS)
    )
    value, lines = start, [f"{name} = {literal}"]
    for op in operations:
        value = table[op.name].effect(value, op.constant)
        lines.append(table[op.name].source.format(k=op.constant))
    lines.append(f"print({name})")
    return PrintedProgram("".join(f"{line}\n" for line in lines), str(value))


def random_program(rng: Random, size: int) -> PrintedProgram:
    """Returns a program of `size` operations that prints 1 to MAX_OUTPUT characters."""
    table = STRING_OPERATIONS if rng.random() < _STRING else NUMBER_OPERATIONS
    return _drawn(table, rng, lambda: [_operation(table, name, rng) for name in _names(table, rng, size)])


def _drawn(table: Mapping[str, Operation], rng: Random, operations: Callable[[], list[Op]]) -> PrintedProgram:
    """Draws programs until the output is neither empty nor too long."""
    while True:
        program = make_program(_start(table, rng), operations())
        if 1 <= len(program.output) <= MAX_OUTPUT:
            return program


def _start(table: Mapping[str, Operation], rng: Random) -> Value:
    if table is STRING_OPERATIONS:
        return "".join(rng.choices(_LETTERS, k=rng.randint(1, 4)))
    return rng.randint(10, 40) if rng.random() < _LARGE_START else rng.randint(0, 9)


def _names(table: Mapping[str, Operation], rng: Random, count: int) -> list[str]:
    return rng.choices(list(table), [operation.weight for operation in table.values()], k=count)


def _operation(table: Mapping[str, Operation], name: str, rng: Random) -> Op:
    return Op(name, rng.choice(table[name].constants))


def prediction_topics(split: Split) -> tuple[Topic, ...]:
    """Returns the topics of `prediction_problems(split)`, in the same order."""
    topics = _all_topics()
    return topics[HELD_OUT_SIZE:] if split == "train" else topics[:HELD_OUT_SIZE]


@cache
def _all_topics() -> tuple[Topic, ...]:
    """Returns the held-out topics followed by the training topics, all distinct."""
    rng = Random(f"{SEED} prediction")
    topics: dict[Topic, None] = {}
    while len(topics) < HELD_OUT_SIZE + TRAIN_SIZE:
        table = STRING_OPERATIONS if rng.random() < _STRING else NUMBER_OPERATIONS
        names = _names(table, rng, rng.choices(_SIZES, _SIZE_WEIGHTS)[0])
        if len(set(names)) == len(names):
            topics[Topic(_operation(table, names[0], rng), tuple(names[1:]))] = None
    return tuple(topics)


def prediction_problems(split: Split) -> list[Problem]:
    """Returns a split's topics as problems: the description is the topic, the reference solution a program on it."""
    first = HELD_OUT_SIZE if split == "train" else 0
    return [_problem(topic, number) for number, topic in enumerate(prediction_topics(split), start=first)]


def _problem(topic: Topic, number: int) -> Problem:
    program = topic_program(topic, Random(f"{SEED} prediction {number}"))
    return Problem(
        id=f"predict{number:05d}",
        description=str(topic),
        function_signature="",
        baseline_tests=(OutputTest(stdout=f"{program.output}\n"),),
        reference_solution=program.source,
        difficulty=1 + len(topic.others),
        tags=(topic.first.name, *topic.others),
    )


def topic_program(topic: Topic, rng: Random, extra: float = 0.0) -> PrintedProgram:
    """Returns a program on the topic; with probability `extra` it has one more operation at its end."""
    longer = rng.random() < extra

    def operations() -> list[Op]:
        names = [*topic.others, *(_names(topic.table, rng, 1) if longer else ())]
        return [topic.first, *(_operation(topic.table, name, rng) for name in names)]

    return _drawn(topic.table, rng, operations)


def author_demonstration(topic: Topic, rng: Random, broken: float) -> str:
    """Returns an author's program on the topic, sometimes with one more operation. With probability `broken` it prints
    nothing, does not compile, or raises."""
    source = topic_program(topic, rng, _EXTRA_OPERATION).source
    if rng.random() >= broken:
        return source
    before, _, name = source.removesuffix(")\n").rpartition("print(")
    return before + rng.choice(["", f"print({name}\n", "print(b)\n"])


def opponent_demonstration(rng: Random, wrong: float) -> tuple[str, str]:
    """Returns (source of a program, predicted output); with probability `wrong` the prediction contains a slip."""
    program = random_program(rng, rng.choices(_SIZES, _SIZE_WEIGHTS)[0])
    output = program.output
    return program.source, _slip(output, rng) if rng.random() < wrong else output


def _slip(output: str, rng: Random) -> str:
    """Returns a wrong output: off by one or by ten, or a string that is too short or too long."""
    if output[-1] in _LETTERS:
        return output[:-1] if len(output) > 1 else output * 2
    return str(int(output) + rng.choice((-10, -1, 1, 10)))


def lesson(rules: OutputPredictionRules, role: str, settings: WarmUp) -> Lesson:
    flawed = settings.misconceptions
    topics = list(zip(prediction_problems("train"), prediction_topics("train"), strict=True))

    def author(rng: Random) -> tuple[str, str]:
        problem, topic = rng.choice(topics)
        return problem.description, author_demonstration(topic, rng, flawed / 2)

    def opponent(rng: Random) -> tuple[str, str]:
        return opponent_demonstration(rng, flawed)

    def both(rng: Random) -> tuple[str, str]:
        return rng.choice((author, opponent))(rng)

    seats = rules.seats
    if seats["author"] == seats["opponent"]:
        return lesson_of(both)
    own = lesson_of(author if role == seats["author"] else opponent)
    return Lesson(texts_of(both), own.draw)  # one tokenizer: each reads what the other writes
