import ast
from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st

from lab.grammar import code
from lab.sampling import random_spec
from sparring.evaluation.mutants import OPERATORS, mutants

examples = settings(max_examples=100, deadline=None)
sources = st.integers(0, 10**6).map(lambda seed: code(random_spec(Random(seed))))


@examples
@given(sources, st.integers(0, 40), st.integers(0, 100))
def test_mutants_are_distinct_programs_that_differ_from_the_source(source, limit, seed):
    found, every = mutants(source, limit, seed), mutants(source, 10_000, 0)
    trees = [ast.dump(ast.parse(m.source)) for m in found]
    assert len(found) == min(limit, len(every))
    assert len(set(trees)) == len(trees) and ast.dump(ast.parse(source)) not in trees
    assert all(m.operator in OPERATORS and 1 <= m.line <= source.count("\n") for m in found)
    assert found == mutants(source, limit, seed)
    assert {m.source for m in found} <= {m.source for m in every}
