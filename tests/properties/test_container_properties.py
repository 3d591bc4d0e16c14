"""A data test and its program have each list together, as they have in Python, whoever made it and whoever changes it."""

from typing import Any

from hypothesis import assume, given, settings
from hypothesis import strategies as st

from sandbox_workers.runner.data_tests import read
from sandbox_workers.runner.roles import Program, run_data
from tests.unit.sandbox_workers.test_data_tests import program

PROGRAM = """
kept = []
def keep(x): kept.append(x); return x
def new(n): x = [n]; return keep(x)
def old(i): return kept[i % len(kept)] if kept else []
def put(x, value): x.append(value)
def drop(x): return x.pop() if x else 0
def turn(x): x.reverse()
def part(x, i): return x[i % len(x)] if x else x
def renew(x): x[:] = [[*p] if isinstance(p, list) else p for p in x]
def put_all():
    for x in kept: x.append(0)
def several(): return [*kept[:2], *kept[:1]]
"""
NAMES = frozenset(["keep", "new", "old", "put", "drop", "turn", "part", "renew", "put_all", "several"])
variables = st.sampled_from(["a", "b", "c"])
lines = st.one_of(
    st.builds("{} = {}".format, variables, st.sampled_from(["[]", "[1]", "[[1], 2]", "[[1], [1]]", "several()"])),
    st.builds("{} = {}(a)".format, variables, st.sampled_from(["keep", "drop"])),
    st.builds("{} = {}({})".format, variables, st.sampled_from(["new", "old"]), st.integers(0, 3)),
    st.builds("{} = part({}, {})".format, variables, variables, st.integers(0, 3)),
    st.builds("put({}, {})".format, variables, st.one_of(variables, st.integers(0, 3), st.just("[5]"))),
    st.builds("{}({})".format, st.sampled_from(["keep", "turn", "renew", "drop"]), variables),
    st.just("put_all()"),
)  # fmt: skip


@settings(max_examples=300, deadline=None)
@given(st.lists(lines, min_size=1, max_size=12))
def test_a_list_of_both_is_one_list(body: list[str]) -> None:
    body = ["a, b, c = new(0), [], []", *body]
    names: dict[str, Any] = {}
    exec(PROGRAM, names)
    for line in body:
        try:
            exec(line, names)
        except (AttributeError, TypeError):  # a number where a list is due
            assume(False)
        holds = repr((names["a"], names["b"], names["c"]))
        assume("..." not in holds + repr(names["kept"]))  # a list that holds itself is an object
    source = "\n".join(body)
    test = read(f"{source}\nassert (a, b, c) == {holds}")
    with program(PROGRAM) as caller:
        caller.begin(test, False)
        assert run_data(test, Program(NAMES, frozenset()), caller) is None
