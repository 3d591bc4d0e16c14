"""What JSON loses of a value comes back by an example; what normalisation ignores makes no difference."""

import json

from hypothesis import given, settings
from hypothesis import strategies as st

from sparring.problems.contamination import normalised
from sparring.problems.formats.evalplus import _typed_input, literal

ATOMS = st.integers() | st.text(max_size=4) | st.booleans() | st.none() | st.floats(allow_nan=False)
VALUES = st.recursive(
    ATOMS,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.lists(inner, max_size=3).map(tuple)
        | st.dictionaries(st.text(max_size=3), inner, max_size=3)
    ),
    max_leaves=12,
)


@settings(max_examples=100, deadline=None)
@given(st.lists(VALUES | st.sets(st.integers()), max_size=4))
def test_a_value_is_restored_by_itself(arguments) -> None:
    lossy = json.loads(json.dumps(arguments, default=list))
    assert literal(_typed_input(lossy, [arguments])) == literal(arguments)


@settings(max_examples=100, deadline=None)
@given(
    st.lists(st.text("abcXYZ123", min_size=1), max_size=6),
    st.sampled_from([" ", "\n", ", ", " - ", "*", "  ("]),
)
def test_case_blanks_and_punctuation_do_not_count(words, between) -> None:
    once = normalised(" ".join(words))
    assert normalised(between.join(words).swapcase()) == once == normalised(once)
