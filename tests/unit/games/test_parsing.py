from dataclasses import replace

import pytest

from sparring.core.problem import Problem
from sparring.games.multistage.emitted import EmittedTest, InputLimits, distinct, parse_suite, shown_calls
from sparring.games.parsing import read_program
from tests.playing import a_problem

LIMITS = InputLimits(chars=120, items=5, abs_int=1000, string=8)


def problem(signature: str = "def f(x: int) -> int:") -> Problem:
    return a_problem(function_signature=signature, baseline_tests=())


def parse(text: str, test_format: str = "strict", signature: str = "def f(x):", limits: InputLimits = LIMITS):
    return parse_suite(text, problem(signature), test_format=test_format, limits=limits)


def one(line: str, test_format: str = "strict", signature: str = "def f(x):") -> EmittedTest:
    (test,) = parse(line, test_format, signature)
    return test


# ---------------------------------------------------------------------- programs


def test_a_program_is_read_for_its_problem():
    answer = "```python\ndef f(x):\n    return x\n```\n```python\ndef show(x):\n    print(x)\n```\n"
    assert read_program(answer, problem()).startswith("def f(")
    assert read_program(answer, problem(signature="")).startswith("def show(")
    lua = "```lua\nx = io.read()\n```\n```python\ndef f(): pass\n```\n"
    assert read_program(lua, replace(problem(), language="lua")) == "x = io.read()\n"


# ---------------------------------------------------------------------- the three formats
def test_strict_canonicalises_calls_with_literals():
    test = one("assert f( [1,2] )==  (3)")
    assert test == EmittedTest(source="assert f([1, 2]) == 3", call="f([1, 2])", expected="3")


@pytest.mark.parametrize(
    "line", ["assert f(1)", "assert not f(1)", "assert f(f(1)) > 2", "assert f(1) != 2", "assert 2 == f(1)"]
)
def test_strict_takes_any_assert(line):
    test = one(line)
    assert (test.source, test.expected, test.fault) == (line, None, "")


@pytest.mark.parametrize(
    "line",
    [
        "2 == f(1)",
        "f(n=1) == 2",
        "not f(1) != 2",
        "f(1) in (2,)",
        "f(1) > 0",
        "[f(1)]",
        "f(1) + f(1) == 4",
        "abs(f(1) - 2) < .1",
    ],
)
def test_a_test_is_known_by_its_calls_however_it_asks_for_their_results(line):
    signature = "def f(n, *, base=10)"
    assert one(f"assert {line}", signature=signature).identity == "f(1)"
    assert one(f"assert {line.replace('1', '3')}", signature=signature).identity == "f(3)"


@pytest.mark.parametrize(
    ("signature", "line", "call"),
    [
        ("def f(a, b=0, c=0):", "assert f(1, c=3) == 4", "f(1, c=3)"),
        ("def f(a, b: int = None):", "assert f(1, b=None) == 1", "f(1, None)"),
        ("def f(a, *more, b=1, **others):", "assert f(1, 'x', z=2, b=3) == 1", "f(1, 'x', b=3, z=2)"),
        ("def f(x, y):", "assert f(y='a', x=1) == 1", "f(1, 'a')"),
        ("def f(x, *, y, z):", "assert f(1, z=2, y=3) == 1", "f(1, y=3, z=2)"),
    ],
)
def test_arguments_are_bound_as_python_binds_them(signature, line, call):
    test = one(line, signature=signature)
    assert (test.call, test.fault) == (call, "")
    assert one("assert f(a=1) == 1", signature="def f(a, /):").fault == "contract"


@pytest.mark.parametrize(
    ("line", "fault"),
    [
        ("assert 6 == f(iter([1, 2, 3]))", "literal"),
        ("assert 1 == f(10 ** 1000) % 10", "literal"),
        (f"assert not f({10**10})", "size"),
        ("assert 'x' != f(f('x'))", "contract"),
        ("assert f(1) == f(n='1')", "contract"),
        ("assert f(1) == f(1, other=2)", "contract"),
        ("assert f(1) == f(1, 2, 3)", "contract"),
        ("assert f(1, base='2') == 3", "contract"),
        ("assert f(f(f(1))) == f(1, base=2)", ""),
        ("assert f() == 1", "contract"),
        ("assert all(f(n) == n for n in [1, 2])", "literal"),
        ("assert f(f(1)) == 2", ""),
    ],
)
def test_size_and_contract_hold_for_every_spelling(line, fault):
    assert one(line, signature="def f(n: int, *, base: int = 10) -> int").fault == fault


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("assert f(1) == 3", "3"),
        ("assert 3 == f(1)", "3"),
        ("assert f(1) == 3, 'one'", "3"),
        ("assert (f(1) == 3)", "3"),
        ("assert f(1) is None", "None"),
        ("assert f(1)", "True"),
        ("assert not f(1)", "False"),
        ("assert f(1) == [0] * 3", "[0, 0, 0]"),
        ("assert f(1) == g(2)", None),
        ("assert f(1) > 2", None),
        ("assert f(1) == ...", None),
        ("assert f(1) == [1, ...]", None),
        ("assert f(1) == 1e999", None),
        ("assert f(1) == {'a': -1e999}", None),
        ("assert f(1) == 2 == 2", None),
        ("assert len(f(1)) == 2", None),
        ("assert sorted(f(1)) == [1, 2]", None),
        ("assert abs(f(1) - 0.5) < 1e-6", "0.5"),
        ("assert isinstance(f(1), list) and f(1)[0] == 2", None),
        ("self.assertEqual(f(1), 3)", "3"),
        ("assertEqual(3, f(1))", "3"),
        ("self.assertTrue(f(1))", "True"),
        ("self.assertIsNone(f(1), 'none')", "None"),
        ("self.assertAlmostEqual(f(1), 0.5)", None),
        ("solution.f(1) == 3; assert solution.f(1) == 3", "3"),
        ("assert candidate(1) == 3", "3"),
    ],
)
def test_relabel_takes_the_call_of_an_assertion_and_the_value_that_it_states(line, expected):
    test = parse(line, "relabel")[-1]
    assert (test.call, test.expected, test.fault) == ("f(1)", expected, "")


@pytest.mark.parametrize(
    "line",
    [
        "f(1)",
        "assert f(1) == f(2)",
        "assert f(1) < f(2)",
        "assert 1 == 1",
        # a method of a value
        "assert [1, 2].f(1) == 3",
        "assert 'a'.f(1) == 3",
        "assert make().inner.f(1) == 3",
        "assert g(1).f(1) == 3",
    ],
)
def test_relabel_takes_no_assertion_without_a_call_or_with_several(line):
    assert one(line, "relabel").fault


@pytest.mark.parametrize(
    ("line", "calls"),
    [
        ("f( 1 )", ["f(1)"]),
        ("assert f(1) == 2", ["f(1)"]),
        ("x = f(1)", ["f(1)"]),
        ("print(f(1))", ["f(1)"]),
        ("f(1); f(2)\nassert f(3) == f(4)", ["f(1)", "f(2)", "f(3)", "f(4)"]),
        ("for i in f(1): pass", []),
    ],
)
def test_input_only_takes_every_call(line, calls):
    assert [t.call for t in parse(line, "input_only")] == calls


@pytest.mark.parametrize("line", ["f", "1", "assert 1 == 1"])
def test_input_only_takes_nothing_else_for_a_test(line):
    assert one(line, "input_only").fault == "parse"


@pytest.mark.parametrize("code", ["x = 5\nys = [f(x) for x in [1, 2]]", "x = 5\ng = lambda x: f(x)"])
def test_a_variable_of_an_expression_is_no_name_of_the_suite(code):
    assert "f(5)" not in [test.call for test in parse(f"{FENCE}python\n{code}\n{FENCE}", "input_only")]


def test_lines_that_are_no_tests_are_left_out():
    text = "Here:\n```python\nimport math\nfrom os import path\n# edge cases\n\n  assert f(1) == 2  \nassert f(2) == 4\n```"
    assert [t.call for t in parse(text)] == ["f(1)", "f(2)"]


@pytest.mark.parametrize("text", ["", "   \n\n", "```python\n```", "# nothing"])
def test_a_suite_may_be_empty(text):
    assert parse(text) == []


# ---------------------------------------------------------------------- faults
@pytest.mark.parametrize("line", ["assert f(", "what is this", "def f():", "f(1) ="])
@pytest.mark.parametrize("test_format", ["strict", "relabel", "input_only"])
def test_fault_parse(line, test_format):
    assert one(line, test_format).fault == "parse"


@pytest.mark.parametrize(
    "line",
    [
        "assert f(x) == 2",
        "assert f(1 / x) == 2",
        "assert f(*[1]) == 2",
        "assert f(**{'x': 1}) == 2",
        "assert f(open('/etc/passwd')) == 2",
        "assert g(1) == 2",
        "assert f.g(1) == 2",
        "assert f([y for y in [1]]) == 2",
        "assert f({[]: 1}) == 2",
        "assert f(lambda: 1) == 2",
        # values whose repr is no literal
        "assert f(1e999) == 2",
        "assert f(-1e999) == 2",
        "assert f([1e999]) == 2",
        "assert f(x=1e999) == 2",
    ],
)
def test_fault_literal(line):
    assert one(line).fault == "literal"


@pytest.mark.parametrize("value", ["sorted([3, 1])", "2 ** 10", "float('inf')", "[1] + [2]"])
def test_a_strict_test_may_compute_what_it_expects(value):
    test = one(f"assert f(1) == {value}")
    assert test.fault == "" and test.source.startswith("assert f(1) == ")


@pytest.mark.parametrize(
    ("argument", "fault"),
    [
        ("1000", ""),
        ("-1000", ""),
        ("1001", "size"),
        ("-1001", "size"),
        ("[1, 2, 3, 4, 5]", ""),
        ("[1, 2, 3, 4, 5, 6]", "size"),
        ("[[1], [1, 2, 3, 4, 5, 6]]", "size"),
        ("{1: [1001]}", "size"),
        ("{1001: 1}", "size"),
        ("(1, 2, 3, 4, 5, 6)", "size"),
        ("{1, 2, 3, 4, 5, 6}", "size"),
        ("'12345678'", ""),
        ("'123456789'", "size"),
        ("b'123456789'", "size"),
        ("['123456789']", "size"),
        ("2.5", ""),
        ("None", ""),
    ],
)
def test_fault_size(argument, fault):
    assert one(f"f({argument})", "input_only").fault == fault
    assert one(f"f(x={argument})", "input_only").fault == fault


def test_the_length_of_a_test_is_capped_in_every_form():
    assert one("f(" + ", ".join(["1"] * 60) + ")", "input_only", "def f(*x):").fault == "size"
    assert one("assert " + " or ".join(["f(1)"] * 60)).fault == "size"


@pytest.mark.parametrize(
    ("signature", "call", "fault"),
    [
        ("def f(x: int) -> int:", "f(1)", ""),
        ("def f(x: int) -> int:", "f('a')", "contract"),
        ("def f(x: int) -> int:", "f(True)", "contract"),
        ("def f(x: int) -> int:", "f(1, 2)", "contract"),
        ("def f(x: float)", "f(1)", ""),
        ("def f(x: list[int]) -> int:", "f([1, 2])", ""),
        ("def f(x: list[int]) -> int:", "f([])", ""),
        ("def f(x: list[int]) -> int:", "f(['a'])", "contract"),
        ("def f(x: list[list[int]]):", "f([[1], ['a']])", "contract"),
        ("def f(x: List[str]):", "f(['a'])", ""),
        ("def f(x: list):", "f((1,))", "contract"),
        ("def f(x: list[int]):", "f({1, 2})", "contract"),
        ("def f(x: set[int]):", "f([1, 1])", "contract"),
        ("def f(x: Set[int]):", "f({1, 2})", ""),
        ("def f(x: Dict[str, int]):", "f({'a': 1})", ""),
        ("def f(x: dict[str, int]):", "f({1: 1})", "contract"),
        ("def f(x: dict[str, int]):", "f([1])", "contract"),
        ("def f(x: tuple[int, str]):", "f((1, 'a'))", ""),
        ("def f(x: tuple[int, str]):", "f((1,))", "contract"),
        ("def f(x: tuple[int, ...]):", "f((1, 2, 3))", ""),
        ("def f(x: Tuple[int]):", "f((1, 2, 3))", ""),
        ("def f(x: list[int, int]):", "f([1, 2, 3])", ""),
        ("def f(x: list[int, int]):", "f((1, 2))", "contract"),
        ("def f(x: float):", "f(True)", "contract"),
        ("def f(x: tuple[int, ...]):", "f(('a',))", "contract"),
        ("def f(x: Optional[int]):", "f(None)", ""),
        ("def f(x: Optional[int]):", "f('a')", "contract"),
        ("def f(x: int | None):", "f('a')", "contract"),
        ("def f(x: Union[int, str]):", "f('a')", ""),
        ("def f(x: str, y: int):", "f('a', 1)", ""),
        ("def f(x: Foo):", "f(1)", ""),
        ("def f(x):", "f(None)", ""),
        ("def f(*x):", "f(1, 2, 3)", ""),
        ("def f(x: 'int'):", "f('a')", ""),
        ("def f(this is no signature", "f('a')", ""),
    ],
)
def test_the_signature_is_the_input_contract(signature, call, fault):
    assert one(call, "input_only", signature).fault == fault


@pytest.mark.parametrize(
    ("call", "fault"),
    [
        ("f([3, 1], 'b')", ""),
        ("f([], 'b')", ""),
        ("f(['a', [None]], 'b')", ""),
        ("f((3, 1), 'b')", "contract"),
        ("f({3, 1}, 'b')", "contract"),
        ("f([1], 2)", "contract"),
        ("f([1], 'b', {1: [1]})", ""),
        ("f([1], 'b', [1])", "contract"),
        ("f([1], 'b', None)", ""),
        ("f([1], 'b', None, 3)", ""),
        ("f([1], 'b', None, 'x', 2)", ""),
        ("f([1], 'b', None, 'x', 2.5)", ""),
        ("f([1], 'b', None, 'x', True)", "contract"),
    ],
)
def test_arguments_without_annotation_have_the_types_of_the_problems_own_tests(call, fault):
    own = replace(
        problem("def f(x, y, z=None, mode='x', size=0):"),
        baseline_tests=(
            "assert f([1, 2], 'a', None, None, 1.5) == 1",
            "assert f([], 'a', {'m': [2]}) == 1",
            "assert g(1)",
        ),
    )
    (test,) = parse_suite(call, own, test_format="input_only", limits=LIMITS)
    assert test.fault == fault


@pytest.mark.parametrize(
    ("suite", "kept"),
    [
        ("f([2])\nf([2], False)\nf([2], flag=False)\nf(x=[2])\nf([1])", ["f([2])", "f([1])"]),
        ("f([2], True)\nf([2])\nf([2.0])", ["f([2], True)", "f([2])", "f([2.0])"]),
    ],
)
def test_a_call_is_one_input_however_it_is_spelled(suite, kept):
    tests = parse(suite, "input_only", "def f(x, flag=False):")
    assert [test.call for test in distinct(tests)] == kept


def test_a_strict_test_that_repeats_a_call_beside_another_is_none():
    suite = (
        "assert f(1) == 1 and f(2) == 2\nassert f(1) == 1 and f(3) == 3\nassert f(4) == 4\nassert f(3) != 5"
    )
    assert [test.call for test in distinct(parse(suite))] == ["f(1), f(2)", "f(4)", "f(3)"]


# ---------------------------------------------------------------------- hostile text
HOSTILE = {
    "nested brackets": "f(" + "[" * 3000 + "]" * 3000 + ")",
    "nested parentheses": "f(" + "(" * 150 + "1" + ")" * 150 + ")",
    "long minus": "f(" + "-" * 5000 + "1)",
    "long not": "assert " + "not " * 2000 + "f(1)",
    "long attribute": "assert f" + ".a" * 5000,
    "long sum": "assert " + "f(1)+" * 3000 + "1",
    "huge decimal": "f(" + "9" * 6000 + ")",
    "huge hex": "f(0x" + "f" * 6000 + ")",
    "huge hex expected": "assert f(1) == 0x" + "f" * 6000,
    "huge hex in any assert": "assert f(1) > 0x" + "f" * 6000,
    "huge power": "f(10**10**10)",
    "NUL": "f(1\x00)",
    "NUL in a string": "f('\x00')",
    "lone surrogate": "f('\ud800')",
    "surrogate name": "f(\ud800)",
    "bad escape": "f('\\N{no such name}')",
    "bytes with umlaut": "f(b'ä')",
    "tabs": "\tf(\t1\t)",
    "unterminated": "f('''",
    "fence only": "```python",
    "decorated": "@f\ndef g(): pass",
    "walrus": "assert (f := 1) == 1",
    "starred": "assert f(*f) == 1",
}


@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE.keys())
@pytest.mark.parametrize("test_format", ["strict", "relabel", "input_only"])
def test_hostile_text_is_parsed_or_refused_but_never_raises(text, test_format):
    for test in parse(text, test_format):
        assert test.fault in ("", "parse", "literal", "contract", "size")
        assert len(test.source) <= LIMITS.chars or test.fault


@pytest.mark.parametrize(
    "line", ["assert f" + ".a" * 3000, "assert " + "not " * 2000 + "f(1)", "assert 0x" + "f" * 50_000]
)
def test_an_assert_that_cannot_be_printed_does_not_parse(line):
    (test,) = parse(line, limits=InputLimits(chars=100_000))
    assert test.fault == "parse"


@pytest.mark.parametrize(
    ("suite", "calls"),
    [
        ("assert f(10**4) == 10**4", ["f(10000)"]),
        ("assert f(7 // 2) == 7 % 4", ["f(3)"]),
        ("for case in [(1, 2), (3, 4)]:\n    assert f(case[0]) == case[1]", ["f(1)", "f(3)"]),
        ("tests = [{'xs': 5}]\nfor t in tests:\n    assert f(t['xs']) == 5", ["f(5)"]),
        ("cases = [(1, 2)]\nassert f(cases[7]) == 2", [None]),
    ],
)
def test_boundaries_and_items_of_literal_cases_are_computed(suite, calls):
    found = parse(suite, limits=InputLimits(abs_int=10**5))
    assert [None if test.fault else test.call for test in found] == calls


# ---------------------------------------------------------------------- where tests stand in an answer
FENCE = "```"


@pytest.mark.parametrize(
    ("code", "calls"),
    [
        ("def f(x):\n    assert x > 0\n    return x\n\nassert f(1) == 2", ["f(1)"]),
        (
            "def test_f():\n    assert f(1) == 2\n    assert f(2) == 3\n\ntest_f()\nprint('ok')",
            ["f(1)", "f(2)"],
        ),
        ("class T(unittest.TestCase):\n    def test(self):\n        self.assertEqual(f(1), 2)\n", ["f(1)"]),
        ("def check(candidate):\n    assert candidate(1) == 2\n\ncheck(f)", ["f(1)"]),
        ("assert f(\n    1\n) == (\n    2\n), 'one'", ["f(1)"]),
        ("x = 1\nresult = f(x)\nassert result == 2\nx = [2]\nassert f(x) == 2", ["f(1)", "f([2])"]),
        ("a, b = 1, 2\nassert f(a) == b\nassert f(b) == a", ["f(1)", "f(2)"]),
        ("for x, y in [(1, 2), (3, 4)]:\n    assert f(x) == y", ["f(1)", "f(3)"]),
        ("for i, (x, y) in enumerate([(1, 2), (3, 4)]):\n    assert f(x) == y", ["f(1)", "f(3)"]),
        ("for i, x in enumerate(['a', 'b'], start=1):\n    assert f(i) == x", ["f(1)", "f(2)"]),
        (
            "xs = [1, 3]\nfor i, (x, y) in enumerate(zip(xs, (2, 4)), 1):\n    assert f(x) == y",
            ["f(1)", "f(3)"],
        ),
        ("for x, y in {1: 2, 3: 4}.items():\n    assert f(x) == y", ["f(1)", "f(3)"]),
        ("cases = [1, 2]\nfor x in cases:\n    assert f(x)", ["f(1)", "f(2)"]),
        ("for x in [1]:\n    assert f(x)\nelse:\n    assert f(9)", ["f(1)", "f(9)"]),
        ("try:\n    assert f(1) == 2\nexcept ValueError:\n    assert f(2) == 2", ["f(1)", "f(2)"]),
        ("if __name__ == '__main__':\n    assert f(1) == 2", ["f(1)"]),
        ("assert f(1) == 2\nassert f(2) ==", ["f(1)"]),
        ("def test_f():\n    x = 1\n    assert f(x) == 2\n    assert f(", ["f(1)"]),
        ("with literal arguments only:\n    assert f(1) == 2", ["f(1)"]),
    ],
)
def test_tests_are_found_wherever_they_stand(code, calls):
    found = parse(f"Here they are:\n{FENCE}python\n{code}\n{FENCE}\nThey cover it.", "relabel")
    assert [test.call for test in found if not test.fault] == calls


def test_tests_of_all_blocks_are_read_and_no_other_languages():
    text = f"{FENCE}python\nassert f(1) == 2\n{FENCE}\nthen\n{FENCE}\nassert f(2) == 3\n{FENCE}\n{FENCE}bash\nassert f(3)\n{FENCE}"
    assert [test.call for test in parse(text, "relabel")] == ["f(1)", "f(2)"]


@pytest.mark.parametrize(
    ("argument", "written"),
    [
        ("1 + 11", "12"),
        ("-2 * 3", "-6"),
        ("'ab' * 2 + 'c'", "'ababc'"),
        ("1 / 4", "0.25"),
        ("-1 / 3", "-0.3333333333333333"),
        ("[0] * 3 + [1]", "[0, 0, 0, 1]"),
        ("range(3)", "[0, 1, 2]"),
        ("list(range(1, 7, 2))", "[1, 3, 5]"),
        ("tuple([1, 2])", "(1, 2)"),
        ("set([2, 1])", "{1, 2}"),
        ("list('ab')", "['a', 'b']"),
    ],
)
def test_simple_arguments_are_written_out(argument, written):
    test = one(f"assert f({argument}) == 1", "relabel")
    assert (test.call, test.fault) == (f"f({written})", "")


@pytest.mark.parametrize(
    "argument",
    [
        "1 / 0",
        "2 / x",
        "10 ** 400 / 2",
        "9 ** 9 ** 9",
        "[0] * 10 ** 9",
        "'a' * 1000",
        "range(10 ** 9)",
        "range(10 ** 30)",
        "1 + x",
        "list(x)",
    ],
)
def test_what_is_large_or_unknown_is_not(argument):
    assert one(f"assert f({argument}) == 1", "relabel").fault == "literal"


@pytest.mark.parametrize(
    ("code", "calls"),
    [
        ("n = 5\nn += 1\nassert f(n) == 1", [""]),
        ("xs = [3]\nxs.append(0)\nassert f(xs) == 1", [""]),
        ("xs = [3]\nxs[0] = 1\nassert f(xs) == 1", [""]),
        ("xs = [3]\nys = xs.copy()\nassert f(xs) == 1", ["f([3])"]),
        ("x = 3\nfor x in read():\n    assert f(x) == 1", [""]),
        ("for x, y in zip([1, 3], read()):\n    assert f(x) == y", [""]),
        ("for x, y in zip([*a], [1]):\n    assert f(x) == y", [""]),
        ("for x, y in {1: 2, **a}.items():\n    assert f(x) == y", [""]),
        ("for i, x in enumerate([1], 'a'):\n    assert f(x) == 1", [""]),
        ("n = 5\nfor x in [1, 2]:\n    assert f(n) == 1\n    n += x", ["", ""]),
        ("n = 5\nwith make() as n:\n    assert f(n) == 1", [""]),
        ("with make():\n    n = 5\n    assert f(n) == 1", ["f(5)"]),
        ("x = 5\ndef test(x):\n    assert f(x) == 1\nassert f(x) == 1", ["", "f(5)"]),
        ("xs: list[int] = [3]\nassert f(xs) == 1", ["f([3])"]),
        ("xs = [3]\nassert f(xs) == 1\nassert f(xs, [", ["f([3])", ""]),
    ],
)
def test_a_name_stands_for_what_it_was_given_last(code, calls):
    assert [test.call for test in parse(code, "relabel")] == calls


@pytest.mark.parametrize("asserted", ["sorted(f([1])) == [9, 9]", "len(f([2])) == 7", "round(f(1), 1) == 5"])
def test_a_strict_test_keeps_what_is_asserted(asserted):
    (test,) = parse(f"assert {asserted}", "strict")
    assert (test.source, test.fault) == (f"assert {asserted}", "")


@pytest.mark.parametrize("asserted", ["f(3) > 2", "sorted(f([1])) == [1]", "f(3) == g(4)"])
def test_a_relabelled_test_without_a_literal_result_is_read_again_as_itself(asserted):
    (test,) = parse(f"assert {asserted}", "relabel")
    (again,) = parse(test.source, "relabel")
    assert again == test and test.call and not test.fault


def test_loops_and_names_do_not_grow_without_bound():
    tests = "for a in range(100):\n for b in range(100):\n  for c in range(100):\n   assert f([a, b, c]) == a"
    nested = "".join("    " * depth + f"for x{depth} in {list(range(100))}:\n" for depth in range(8))
    bomb = "a = [1]\n" + "a = [a, a]\n" * 60 + "assert f(a) == a"
    many = "x = 'y'\n" + f"assert f([{'x, ' * 4000}])"
    for code in (tests, nested + "    " * 8 + "assert f(x0) == 1", bomb, many):
        assert len(parse(code, "relabel")) <= 256


# ---------------------------------------------------------------------- tests that the prompt shows
@pytest.mark.parametrize(
    ("prompt", "calls"),
    [
        ("assert f(1) == 2", {"f(x=1)"}),
        ("    >>> f(x = 1)\n    2", {"f(x=1)"}),
        ("For f(1)->2 and f( [1, (2,)] ) it is 3, f(')') => 4", {"f(x=1)", "f(x=[1, (2,)])", "f(x=')')"}),
        ("def f(x: int) -> int:\nf(x), g(1), f(len('a')), cf(1), f(1", set()),
        ("assert f(f(1)) == 4", {"f(x=1)"}),
        ("f(**{'x': 1}), f(*[1]), f((1), \0), f(2)", {"f(x=2)"}),
        ("", set()),
    ],
)
def test_the_calls_in_a_prompt(prompt, calls):
    assert shown_calls(prompt, problem(), LIMITS) == calls
