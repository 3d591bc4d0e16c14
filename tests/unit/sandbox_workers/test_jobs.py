"""Which tests are data and which are code."""

import sys
from dataclasses import asdict

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from core.verdict import Limits, OutputTest
from sandbox_workers.jobs import Job, is_inert
from sandbox_workers.languages import Language, UnknownLanguage, languages

literals = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.tuples(inner, inner)
        | st.dictionaries(st.text() | st.integers(), inner, max_size=3)
    ),
    max_leaves=8,
)


@settings(max_examples=150, deadline=None)
@given(st.lists(literals, max_size=3), literals)
def test_calls_with_literals_are_data(arguments, expected) -> None:
    call = f"f({', '.join(map(repr, arguments))})"
    assert is_inert(call)
    assert is_inert(f"assert {call} == {expected!r}")


def test_of_what_was_looked_at_no_text_is_kept() -> None:
    looked_at = f"f('{'x' * 100_000}')"
    before = sys.getrefcount(looked_at)
    assert is_inert(looked_at) and is_inert(looked_at)
    assert sys.getrefcount(looked_at) == before


@pytest.mark.parametrize(
    "test",
    [
        "f",
        "1",
        "f(x)",
        "f(g(1))",
        "f(1)(2)",
        "o.f(1)",
        "f(*[1])",
        "f([x for x in [1]])",
        "f(f'{x}')",
        "f(lambda: 1)",
        "f({**g})",
        "eval('1')",
        "print(1)",
        "__import__('os')",
        "assert f(1)",
        "assert f(1) < 2",
        "assert f(1) == 2 == 2",
        "assert 2 == f(1)",
        "assert f(1) == 2, 'why'",
        "assert f(1) == x",
        "assert set(f(1)) == {1}",
        "f(1); f(2)",
        "x = f(1)",
        "import os",
        "(y := f(1))",
        "await f(1)",
        "f(",
        "f(\0)",
        "f(" + "[" * 500 + "]" * 500 + ")",
        "",
    ],
)
def test_everything_else_is_code(test: str) -> None:
    assert not is_inert(test)


def test_a_job_is_inert_where_all_its_tests_are() -> None:
    def inert(*tests: str) -> bool:
        return Job(program="p", tests=tests, limits=Limits()).message()["inert"]

    assert inert("f(1)", "assert f(1) == 2")
    assert not inert("f(1)", "len(f(1))")


@pytest.mark.parametrize("language", languages().values(), ids=lambda language: language.name)
def test_the_runner_is_told_all_of_a_language_but_its_name_and_mounts(language: Language) -> None:
    told = asdict(language)
    del told["name"], told["mounts"]
    assert language.message() == told


def test_other_languages_take_output_tests_only() -> None:
    job = Job(program="p", tests=(OutputTest(stdin="1", stdout="2"),), limits=Limits(), language="lua")
    assert "2" not in str(job.message()["tests"])  # the expected output stays here
    with pytest.raises(UnknownLanguage):
        Job(program="p", tests=("f(1)",), limits=Limits(), language="lua").message()
