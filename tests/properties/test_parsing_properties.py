import ast

from hypothesis import given, settings
from hypothesis import strategies as st

from sparring.core.answers import extract_program, last_block, without_thinking
from sparring.core.fences import fenced_blocks
from sparring.games.multistage.emitted import InputLimits, parse_suite
from tests.playing import a_problem

examples = settings(max_examples=300, deadline=None)

FORMATS = st.sampled_from(["strict", "relabel", "input_only"])
FAULTS = {"", "parse", "literal", "contract", "size"}

PIECES = (
    """assert |f|(|)|[|]|{|}|==| == |,|1|-|0x|1e999|'|"|#|:|x=|*|**|lambda|None|not |b'|j|.a|```""".split("|")  # noqa: SIM905
)
pieces = st.sampled_from([*PIECES, "\\", "\n", "```python\n", "\x00", "\ud800"])
near_tests = st.lists(pieces, max_size=40).map("".join)
texts = st.one_of(st.text(), near_tests, st.text(alphabet="fasert()[]=0 \n'`"))

scalars = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(10**9), 10**9),
    st.floats(allow_nan=False, allow_infinity=False),
    st.text(max_size=20).filter(lambda s: s.isprintable()),
    st.binary(max_size=10),
)
keys = st.one_of(st.integers(-99, 99), st.text("abc", max_size=3), st.booleans())
values = st.recursive(
    scalars,
    lambda inner: st.one_of(
        st.lists(inner, max_size=4),
        st.tuples(inner, inner),
        st.dictionaries(keys, inner, max_size=3),
        st.sets(keys, max_size=3),
    ),
    max_leaves=6,
)


def parse(text: str, test_format: str, signature: str = "def f(x):", **limits):
    problem = a_problem(function_signature=signature, baseline_tests=())
    return parse_suite(text, problem, test_format=test_format, limits=InputLimits(**limits))


@examples
@given(texts, FORMATS)
def test_parsing_never_raises_and_never_reads_too_much(text, test_format):
    for test in parse(text, test_format):
        assert test.fault in FAULTS
        if not test.fault:
            assert len(test.source) <= InputLimits().chars + 20  # canonical spelling may be a little longer
            ast.parse(test.source)


F = "```"
FENCES = [F, f"{F}python\n", f"{F}text\n", "~~~", f"`{F}"]
BLANKS = ["\n", "\n\n", "    ", "\r", "\x00", "\ud800"]
MARKS = ["- ", "'''", '"""', "'", "#", "\\", "<think>", "</think>"]
LINES = ["def f(x):\n", "    return 1\n", "x = 1\n", "Some words.", "@g\n"]
pieces_of_answers = [*FENCES, *BLANKS, *MARKS, *LINES]
answers = st.one_of(texts, st.lists(st.sampled_from(pieces_of_answers), max_size=40).map("".join))
names = st.sampled_from(["f", "g", "total", "x"])
expressions = st.one_of(
    names, values.map(repr), st.sampled_from(["f(x)", "[y for y in x]", "'`'", "'~'", "x[1:]"])
)
lines = st.one_of(
    st.builds("{} = {}".format, names, expressions),
    st.builds("return {}".format, expressions),
    st.builds("# {}".format, st.sampled_from(["It's so.", "done", "x = '"])),
    st.just('"""A string\nof two lines."""'),
)


@st.composite
def programs(draw) -> str:
    """Python that defines functions, without fences."""
    parts = [draw(st.sampled_from(["", "import math\n\n", "X = 1\n"]))]
    for name in draw(st.lists(names, min_size=1, max_size=3)):
        body = [*draw(st.lists(lines, max_size=3)), f"return {draw(expressions)}"]
        parts.append(f"def {name}(x):\n" + "".join(f"    {line}\n" for line in body))
    return "\n\n".join(part.rstrip("\n") for part in parts if part) + "\n"


SHAPES = {
    "block": f"{F}python\n{{}}{F}\n",
    "untagged": f"{F}\n{{}}{F}\n",
    "tildes": "~~~py\n{}~~~\n",
    "four": f"`{F}python\n{{}}`{F}\n",
    "not closed": f"{F}python\n{{}}",
    "no fence": "{}",
    "usage after": f"{F}python\n{{}}{F}\nUse it:\n\n{F}python\nprint(f(1))\n{F}\n",
    "output after": f"{F}python\n{{}}{F}\n\n{F}\n3\n{F}\n",
    "thinking": f"<think>\n{F}python\ndef f(x): return 0\n</think>\n{F}python\n{{}}{F}\n",
}


@examples
@given(answers, st.sampled_from(["python", "lua"]), st.sampled_from([None, "f"]))
def test_extracting_a_program_never_raises_and_adds_nothing(text, language, entry_point):
    program = extract_program(text, language=language, entry_point=entry_point)
    assert all(line.strip() in text for line in program.split("\n"))
    assert all(line.strip() in text for line in last_block(text).split("\n"))
    assert without_thinking(text) in text


@examples
@given(answers)
def test_blocks_stand_in_the_text_in_its_order(text):
    blocks = fenced_blocks(text)
    places = [place for block in blocks for place in (block.start, block.end)]
    assert places == sorted(places) and all(0 <= place <= len(text) for place in places)


@examples
@given(
    programs(),
    st.sampled_from(list(SHAPES)),
    st.sampled_from(["", "Here is the program:\n\n", "I'm sure.\n\n"]),
)
def test_a_program_comes_back_from_every_shape(program, shape, before):
    assert extract_program(before + SHAPES[shape].format(program)) == program


@examples
@given(st.lists(values, max_size=3), values)
def test_a_canonical_test_evaluates_back_to_the_same_literals(arguments, expected):
    line = f"assert f({', '.join(map(repr, arguments))}) == {expected!r}"
    (test,) = parse(line, "relabel", "def f(*x):", chars=10_000)
    assert test.fault == ""
    got: list = []
    namespace = {"f": lambda *a: got.extend(a)}
    eval(test.call, namespace)
    assert got == arguments and [type(a) for a in got] == [type(a) for a in arguments]
    assert ast.literal_eval(test.expected) == expected
    (again,) = parse(test.source, "relabel", "def f(*x):", chars=10_000)
    assert again.identity == test.identity


@examples
@given(st.lists(st.sampled_from(["f(1)", "f( 1 )", "f(1,)", "f(2)", "f(0x1)", "f(True)"]), max_size=8))
def test_identities_are_those_of_the_arguments(lines):
    tests = parse("\n".join(lines), "input_only")
    spellings = {"f(1)": "1", "f( 1 )": "1", "f(1,)": "1", "f(0x1)": "1", "f(2)": "2", "f(True)": "True"}
    assert [t.identity for t in tests] == [f"f({spellings[line]})" for line in lines]


@examples
@given(values, st.integers(0, 4), st.integers(0, 1000), st.integers(0, 8))
def test_what_passes_the_size_limits_is_small(value, items, abs_int, string):
    (test,) = parse(f"f({value!r})", "input_only", chars=500, items=items, abs_int=abs_int, string=string)
    if test.fault:
        return

    def check(part):
        if isinstance(part, bool):
            return
        if isinstance(part, int):
            assert abs(part) <= abs_int
        elif isinstance(part, str | bytes):
            assert len(part) <= string
        elif isinstance(part, list | tuple | set | dict):
            assert len(part) <= items
            for inner in [*part, *(part.values() if isinstance(part, dict) else ())]:
                check(inner)

    check(value)
