"""Which tests are data and which are code."""

import sys
from dataclasses import asdict

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sandbox_workers.jobs import MOST_TEST_CHARS, Job, is_data
from sandbox_workers.languages import Language, UnknownLanguage, languages
from sparring.core.verdict import KnownTest, Limits, OutputTest, ReferenceTest

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
    assert is_data(call)
    assert is_data(f"assert {call} == {expected!r}")


def test_of_what_was_looked_at_no_text_is_kept() -> None:
    looked_at = f"f('{'x' * 100_000}')"
    before = sys.getrefcount(looked_at)
    assert is_data(looked_at) and is_data(looked_at)
    assert sys.getrefcount(looked_at) == before


def test_what_is_too_long_to_be_parsed_here_is_code() -> None:
    assert not is_data("import " + "a." * 80_000 + "a")
    assert not is_data(f"f('{'x' * MOST_TEST_CHARS}')")


def test_the_runner_is_told_how_each_test_is_judged() -> None:
    tests = (
        "assert f(1) == 2",
        "import os",
        ReferenceTest("assert f(1) == 2", "f"),
        ReferenceTest("import os"),
        KnownTest("f(1)", data=True, shadowed=["f"]),
        KnownTest("f(1)", data=True, plain=False),
        *(KnownTest("f(1)", plain=p) for p in (True, False)),
    )
    told = Job(program="p", tests=tests, limits=Limits()).message()["tests"]
    assert [test[1:] for test in told] == [
        [False, "text", "", None], [False, "code", "", None], [False, "reference", "f", None], [False, "code", "", None],
        [True, "data", "", ["f"]], [False, "data", "", None], [True, "code", "", None], [False, "code", "", None],
    ]  # fmt: skip


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
