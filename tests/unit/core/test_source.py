import ast
import subprocess
import sys
from pathlib import Path

import pytest

from sparring.core.source import MOST_CHARS, is_valid_python, parse, unchecked

ROOT = Path(__file__).parents[3]
HOSTILE = {
    "comprehensions": '"[a " + "for a in b " * 60_000 + "]"',
    "the most comprehensions that are read": f'"[a " + "for a in b " * {(MOST_CHARS - 4) // 11} + "]"',
    "brackets": '"[" * 9_000 + "]" * 9_000',
    "minus signs": '"-" * 19_000 + "1"',
    "calls": '"f" + "()" * 9_000',
    "null": '"f(\\0)"',
    "surrogate": '''"'" + chr(0xD800) + "'"''',
    "a long number": '"9" * 10_000',
    "a long dotted import": '"import a" + ".a" * 500_000',
}
READ = """
import sys
from sparring.core.source import is_valid_python, parse
source = eval(sys.argv[1])
try:
    parse(source)
except SyntaxError:
    assert not is_valid_python(source)
else:
    is_valid_python(source)
"""


@pytest.mark.parametrize("name", HOSTILE)
def test_nothing_that_is_read_ends_the_interpreter(name):
    command = [sys.executable, "-c", READ, HOSTILE[name]]
    read = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert read.returncode == 0, read.stderr


def test_what_is_read():
    assert isinstance(parse("x = '\\d'").body[0], ast.Assign)  # a warning elsewhere
    assert is_valid_python("def f(x): return x" + " " * 10_000)
    assert is_valid_python("1if 1else 2\nx = 10 ** 10 ** 10")
    with pytest.raises(SyntaxError, match="at most 20 are read"):
        parse("x" * 21, most_chars=20)


@pytest.mark.parametrize(
    "source",
    ["return 1", "await x", "(" * 10_000, "lambda:" * 10_000 + "1", "x" + ".y" * 100_000, "9" * 60_000],
    ids=lambda source: source[:8],
)
def test_what_does_not_compile_is_no_valid_python(source):
    assert not is_valid_python(source)


@pytest.mark.parametrize(
    ("test", "found"),
    [
        ("assert f(1) == 2", None),
        ("f(1)", None),
        ("x = f(1)\nassert x", None),
        ('"a docstring"\ncheck(f)', None),
        ("f(1) == 2", "f(1) == 2"),
        ("assert f(1) == 2\nf(2) in [4]", "f(2) in [4]"),
        ("['assert f(1) == 2']", "['assert f(1) == 2']"),
        ("not f(1)", "not f(1)"),
        ("f(1) == 2 or fail()", None),
        ("f(1) == 2 and f(2) == 4", "f(1) == 2 and f(2) == 4"),
        ("f(1) - 2", "f(1) - 2"),
        ("assert f(1) == 1\n'second case'\nassert f(2) == 4", None),
        ("assert (f(1) == 2, 'why')", "assert (f(1) == 2, 'why')"),
        ("assert True", "assert True"),
        ('"assert f(1) == 2"', "'assert f(1) == 2'"),
        ("def test_f():\n    assert f(1) == 2", None),
        ("def test_f():\n    f(1) == 2\ntest_f()", "f(1) == 2"),
        ("def check(n): assert f(n) == n\n[check(n) for n in (1, 2)]", None),
        ("f", "f"),
    ],
)
def test_an_expression_whose_value_nothing_checks_is_no_test(test: str, found: str | None) -> None:
    assert unchecked(parse(test)) == found
