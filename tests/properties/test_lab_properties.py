"""Properties of every Spec that the grammar of the toy problems can draw, and of every program to predict."""

import io
from contextlib import redirect_stdout
from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st

from lab.grammar import Kind, code, describe, difficulty, signature, structure
from lab.misconceptions import MISCONCEPTIONS
from lab.prediction import MAX_OUTPUT, author_demonstration, prediction_topics, random_program
from lab.sampling import bland_input, edge_input, random_spec, run_reference
from lab.traces import clean_trace, flawed_trace
from sparring.core.source import parse_signature

seeds = st.integers(min_value=0, max_value=2**62)
specs = seeds.map(lambda seed: random_spec(Random(seed)))
examples = settings(max_examples=200, deadline=None)

TYPES = {"int": int, "list": list, "str": str}


@examples
@given(specs, seeds)
def test_reference_keeps_its_types_and_its_own_tests(spec, seed):
    rng = Random(seed)
    inputs = [bland_input(spec, rng), edge_input(spec, rng)]
    outputs = run_reference(spec, inputs)
    assert all(type(argument) is TYPES[spec.kind.input_type] for argument in inputs)
    assert all(type(output) is TYPES[spec.kind.output_type] for output in outputs)
    namespace: dict = {}
    exec(code(spec), namespace)
    (parameter,) = parse_signature(signature(spec)).args.args
    assert namespace["f"].__code__.co_varnames[0] == parameter.arg == spec.kind.parameter
    for argument, output in zip(inputs, outputs, strict=True):
        exec(f"assert f({argument!r}) == {output!r}", namespace)


def test_a_description_has_one_meaning():
    """Different programs never share a description. (One behaviour may still be described in several ways.)"""
    meaning: dict[str, tuple[str, str]] = {}
    rng = Random(0)
    for _ in range(5000):
        spec = random_spec(rng)
        program = code(spec), signature(spec)
        assert meaning.setdefault(describe(spec), program) == program


@examples
@given(specs, seeds)
def test_traces_have_five_parts(spec, seed):
    clean, flawed = clean_trace(spec), flawed_trace(spec, Random(seed), 0.65)
    for trace in (clean, flawed):
        assert len(trace) == 5
        assert all(text.strip() and text.endswith("\n") for text in trace)
        compile(trace[4], "stage 5", "exec")
    assert clean[4] == code(spec)
    assert flawed_trace(spec, Random(seed), 0.65) == flawed


@examples
@given(specs, seeds)
def test_a_flawed_trace_is_clean_before_the_first_misconception_that_applies(spec, seed):
    stages = [belief.stage for belief in MISCONCEPTIONS if belief.distort(spec) != spec]
    first = min(stages, default=6)
    flawed, clean = flawed_trace(spec, Random(seed), probability=1.0), clean_trace(spec)
    assert flawed[: first - 1] == clean[: first - 1]
    assert (flawed == clean) == (first == 6)


@examples
@given(specs)
def test_difficulty_and_structure_follow_from_the_spec(spec):
    assert 1 <= difficulty(spec) <= 5
    assert all(isinstance(part, str) for part in structure(spec))
    assert (spec.otherwise is not None) == (spec.kind is Kind.INT_TO_INT)


# ---------------------------------------------------------------------- output prediction
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
