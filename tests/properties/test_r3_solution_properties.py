"""Properties of the code golf requirements (R3) that are about stored solutions, by their numbers."""

import io
import tempfile
import tokenize
from pathlib import Path
from random import Random

from hypothesis import given
from hypothesis import strategies as st

from sparring.tracking.solutions import SolutionDatabase, implementation
from tests.properties.test_r3_golf_properties import examples, programs

entries = st.lists(
    st.tuples(
        st.sampled_from(["a", "b", "c"]),
        programs | st.text(max_size=8).map(lambda text: text.replace("\0", "")),
        st.sampled_from([0.25, 0.5, 1.0]),
    ),
    max_size=12,
)


def store(solutions: SolutionDatabase, added: list[tuple[str, str, float]]) -> None:
    for step, (problem, program, rate) in enumerate(added):
        solutions.add(problem, program, pass_rate=rate, step=step)


# R3, property 31: solution storage persistence.
@examples
@given(entries)
def test_what_was_found_is_there_when_opened_again(added):
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "solutions.sqlite"
        with SolutionDatabase(path) as solutions:
            store(solutions, added)
        with SolutionDatabase(path) as solutions:
            kept = {p: solutions.best(p, 99) for p in "abc"}
    for problem, program, rate in added:
        (same,) = [s for s in kept[problem] if implementation(s.program) == implementation(program)]
        assert (same.pass_rate, -same.bytes) >= (rate, -len(program.encode()))
        assert (problem, same.program, same.pass_rate) == added[same.step]


# R3, property 32: solution ranking correctness.
@examples
@given(entries)
def test_more_correct_then_shorter_ranks_higher(added):
    with SolutionDatabase(":memory:") as solutions:
        store(solutions, added)
        ranked = {problem: solutions.best(problem, 99) for problem in "abc"}
        for problem, of_problem in ranked.items():
            order = [(-s.pass_rate, s.bytes) for s in of_problem]
            assert order == sorted(order)
            assert of_problem[:1] == solutions.best(problem)


def relaid(program: str, rng: Random) -> str:
    """The same program with comments, blank lines and spaces in other places."""
    tokens = tokenize.generate_tokens(io.StringIO(program).readline)
    words = [(t.type, t.string + " " * (t.type == tokenize.OP and rng.random() < 0.3)) for t in tokens]
    lines = tokenize.untokenize(words).split("\n")
    lines = [line + "  # x" * (bool(line.strip()) and rng.random() < 0.5) for line in lines]
    return "\n" * rng.randrange(3) + "\n\n".join(lines) + "\n# end"


# R3, property 33: solution diversity.
@examples
@given(programs, programs, st.randoms(use_true_random=False))
def test_stored_solutions_are_different_implementations(program, other, rng):
    variants = [relaid(program, rng), program, relaid(program, rng), relaid(other, rng), other]
    with SolutionDatabase(":memory:") as solutions:
        store(solutions, [("a", text, 1.0) for text in variants])
        kept = [s.program for s in solutions.best("a", 99)]
    assert sorted(kept) == sorted({program, other})
    assert len(set(map(implementation, kept))) == len(kept)
