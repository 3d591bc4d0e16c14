"""Properties of every program that the output prediction game's grammar can draw."""

import io
from contextlib import redirect_stdout
from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st

from lab.prediction import MAX_OUTPUT, author_demonstration, prediction_topics, random_program

seeds = st.integers(min_value=0, max_value=2**62)
examples = settings(max_examples=100, deadline=None)


def printed(source: str) -> str:
    out = io.StringIO()
    with redirect_stdout(out):
        exec(compile(source, "program", "exec"), {})
    return out.getvalue()


@examples
@given(seeds, st.integers(min_value=1, max_value=5))
def test_a_program_prints_its_output_in_as_many_lines_as_asked(seed: int, size: int) -> None:
    program = random_program(Random(seed), size)
    assert printed(program.source) == f"{program.output}\n"
    assert 1 <= len(program.output) <= MAX_OUTPUT
    assert program.source.count("\n") == size + 2
    assert random_program(Random(seed), size) == program


@examples
@given(seeds, st.sampled_from(prediction_topics("train")))
def test_an_unbroken_author_writes_a_program_that_prints_one_short_line(seed: int, topic) -> None:
    output = printed(author_demonstration(topic, Random(seed), broken=0.0))
    assert output.count("\n") == 1 and 2 <= len(output) <= MAX_OUTPUT + 1
