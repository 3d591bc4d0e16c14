"""The output prediction game's programs, topics and demonstrations."""

import io
from contextlib import redirect_stdout
from random import Random

import pytest

from lab.grammar import Op
from lab.prediction import (
    MAX_OUTPUT,
    NUMBER_OPERATIONS,
    STRING_OPERATIONS,
    Topic,
    author_demonstration,
    make_program,
    opponent_demonstration,
    prediction_problems,
    prediction_topics,
    topic_program,
)
from sparring.core.verdict import OutputTest


def printed(source: str) -> str:
    """What a program prints, its line's end included; the programs are this repository's own."""
    out = io.StringIO()
    with redirect_stdout(out):
        exec(compile(source, "program", "exec"), {})
    return out.getvalue()


def test_a_program_reads_as_intended() -> None:
    program = make_program(7, [Op("mul", 3), Op("mix", 2), Op("min", 9)])
    assert program.source == (
        "a = 7\na *= 3\nfor i in range(2): a = a * 7 % 19 + i\na = min(a, 9)\nprint(a)\n"
    )
    assert program.output == "4"
    assert make_program("ab", [Op("repeat", 2), Op("cut", 1)]).output == "bab"


@pytest.mark.parametrize(
    ("operations", "starts"),
    [(NUMBER_OPERATIONS, range(-20, 50)), (STRING_OPERATIONS, ("a", "bc", "abd", "dcba"))],
)
def test_every_operation_has_the_effect_of_its_source(operations, starts) -> None:
    for name, operation in operations.items():
        for constant in operation.constants:
            for start in starts:
                program = make_program(start, [Op(name, constant)])
                assert printed(program.source) == f"{program.output}\n", program.source


def test_a_reference_keeps_to_its_topic_and_prints_what_is_expected() -> None:
    for split in ("train", "held_out"):
        for topic, problem in zip(prediction_topics(split), prediction_problems(split), strict=True):
            assert problem.description == str(topic)
            assert problem.reference_solution.count("\n") == 3 + len(topic.others)
            first_line = topic.table[topic.first.name].source.format(k=topic.first.constant)
            assert problem.reference_solution.splitlines()[1] == first_line
            (test,) = problem.baseline_tests
            assert isinstance(test, OutputTest)
            assert test.stdout == printed(problem.reference_solution)
            assert 1 <= len(test.stdout.strip()) <= MAX_OUTPUT


def test_author_demonstrations_are_broken_as_often_as_asked() -> None:
    topics, rng = prediction_topics("train"), Random(1)

    def is_whole(source: str) -> bool:
        try:
            return bool(printed(source))
        except (SyntaxError, NameError):
            return False

    assert all(is_whole(author_demonstration(topic, rng, 0.0)) for topic in topics)
    assert not any(is_whole(author_demonstration(topic, rng, 1.0)) for topic in topics)
    whole = sum(is_whole(author_demonstration(rng.choice(topics), rng, 0.3)) for _ in range(1000))
    assert whole == pytest.approx(700, abs=60)


def test_authors_vary_within_a_topic_and_now_and_then_go_beyond_it() -> None:
    topic, rng = Topic(Op("mul", 3), ("add",)), Random(2)
    sources = [author_demonstration(topic, rng, 0.0) for _ in range(400)]
    assert len(set(sources)) > 40
    assert all("\na *= 3\n" in source and "\na += " in source for source in sources)
    longer = sum(source.count("\n") == 5 for source in sources)
    assert longer == pytest.approx(100, abs=35)
    assert longer + sum(source.count("\n") == 4 for source in sources) == 400


def test_opponents_are_wrong_as_often_as_asked() -> None:
    for wrong in (0.0, 0.3, 1.0):
        rng, off = Random(3), 0
        for _ in range(1000):
            source, foretold = opponent_demonstration(rng, wrong)
            assert 1 <= len(foretold) <= MAX_OUTPUT
            off += foretold != printed(source).strip()
        assert off == pytest.approx(1000 * wrong, abs=60 if wrong == 0.3 else 0)


def test_every_topic_can_be_written_on_with_any_operation_more() -> None:
    for topic in prediction_topics("train") + prediction_topics("held_out"):
        for seed in range(5):
            assert topic_program(topic, Random(seed), extra=1.0).source.count("\n") == 4 + len(topic.others)
