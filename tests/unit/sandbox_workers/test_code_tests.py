"""Tests that are code: what they mean, what they leave, and who is blamed."""

import sys
import types

import pytest

from sandbox_workers.runner import roles
from sandbox_workers.runner.code_tests import TEST, NeverAsked, read, run

PROGRAM = """
import math, unittest
LIMIT = 10
def f(x): return min(x, LIMIT)
def check(x): return x
def double(x): return 2 * check(x)
def refuse(): raise AssertionError('no')
def skip(): raise unittest.SkipTest('not today')
class Money:
    def __init__(self, v): self.v = v
    def __eq__(self, other): return self.v == getattr(other, 'v', other)
"""
RIGHT = [
    "import os\nassert f(1) == 1",
    "from program import f as g\nimport solution\nassert g(3) == solution.f(3) == 3",
    "class Rich(Money): pass\nassert Rich(2) == Money(2) == 2",
    "from unittest import mock\nwith mock.patch('program.LIMIT', 3):\n    assert f(9) == 3\nassert f(9) == 9",
    "LIMIT = 3\nassert f(9) == 3",
    "import unittest\nclass T(unittest.TestCase):\n    def test_f(self): self.assertEqual(f(1), 1)\n"
    "if __name__ == '__main__': unittest.main()",
    "class TestF:\n    def setup_method(self): self.x = 1\n    def test_f(self): assert f(self.x) == 1",
    "async def test_f():\n    import asyncio\n    await asyncio.sleep(0)\n    assert f(1) == 1",
    "def test_helper(x): assert f(x) == x\ntest_helper(2)",
    "import io, contextlib\nout = io.StringIO()\nwith contextlib.redirect_stdout(out): print(f(1))\n"
    "assert out.getvalue() == '1\\n'",
    "assert globals()['f'](2) == 2 and __import__('program').f(1) == 1",
    "import pickle\nassert pickle.loads(pickle.dumps(Money(3))).v == 3",
    "assert sqrt(f(4)) == 2 and Counter([f(1)])[1] == 1  # as if imported",
    "from unittest.mock import patch\n@patch('builtins.input', return_value='3')\n"
    "def test_f(mocked): assert f(int(input())) == 3",
    "import pytest\n@pytest.mark.parametrize('x, y', [(1, 1), pytest.param(9, 9)])\n"
    "@pytest.mark.parametrize('z', [(20,), (30,)])\n"
    "def test_f(x, y, z): assert f(x) == y and f(z[0]) == LIMIT",
    "import pytest\n@pytest.mark.skip\ndef test_f(): assert f(1) == 2\n@pytest.mark.xfail\ndef test_g(): assert f(1) == 3\n"
    "@pytest.mark.skipif(False, reason='')\ndef test_h(): assert f(1) == 1",
    "import pytest\n@pytest.mark.parametrize(('x',), [(1,), pytest.param(2, marks=pytest.mark.xfail)])\n"
    "@pytest.mark.parametrize(argnames='y,', argvalues=[[3], [4]])\n"
    "class TestF:\n    def setup_method(self): self.had = []\n"
    "    @pytest.mark.parametrize('z', [1, 2])\n"
    "    def test_f(self, z):\n        self.had.append(z)\n        assert f(len(self.had)) == 1",
    "import unittest\nclass T(unittest.TestCase):\n    @unittest.expectedFailure\n    def test_f(self): self.assertEqual(f(1), 2)\n"
    "    def test_g(self): self.assertEqual(f(1), 1)",
    "def setup_module(module): module.data = [1]\ndef test_f(): assert f(data[0]) == 1",
    "had = []\ndef setup_module(): had.append(1)\ndef setup_function(of): had.append(2)\n"
    "def test_f(): assert f(len(had)) == 2",
    "def testing(letter): return letter\ndef test_f(): assert f(1) == 1",
    "def testing(letter): return letter\nassert f(1) == 1",
    "pass",
]
FAILED = {
    ("WRONG_ANSWER", False): [
        "from unittest.mock import patch\n@patch('builtins.input', return_value='3')\n"
        "def test_f(mocked): assert f(int(input())) == 4",
        "import pytest\n@pytest.mark.parametrize('x', [1, 99])\ndef test_f(x): assert f(x) == x",
        "assert f(1) == 2, 'why'",
        "import unittest\nclass T(unittest.TestCase):\n    def test_f(self): self.assertEqual(f(1), 2)",
        "def test_f(): assert f(1) == 2",
        "async def test_f(): assert f(1) == 2",
    ],
    ("RUNTIME_ERROR", False): [
        "import os\nrefuse()",
        "import unittest\nclass T(unittest.TestCase):\n    def test_f(self): skip()",
    ],
    ("RUNTIME_ERROR", True): [
        "def test_f(capsys): assert f(1) == 2",
        "import pytest\n@pytest.mark.skip\ndef test_f(): assert f(1) == 2",
        "class TestF:\n    def test_f(self, tmp_path): assert f(1) == 2",
        "def back(): 1 / 0\ncheck(back)()",
        "check(None).x",
        "import os\nf(undefined)",
        "[f(y) for y in undefined]",
        "import os\nassert True",
        "assert median([1, 2]) == 1.5  # the library's",
        "import math\nassert math.sqrt(4) == 2  # imported by the program, too",
    ],
}
"""Tests by the status, and whether the test is blamed."""


@pytest.fixture
def module(monkeypatch: pytest.MonkeyPatch) -> types.ModuleType:
    made = types.ModuleType("program")
    for name in ("program", "solution", TEST):
        monkeypatch.setitem(sys.modules, name, made)
    assert "names" in roles.load(PROGRAM, made)
    return made


@pytest.mark.parametrize("test", RIGHT)
def test_a_test_means_what_it_means_at_the_end_of_the_program(module: types.ModuleType, test: str) -> None:
    before = dict(module.__dict__)
    assert run(read(test), module) is None
    assert module.__dict__ == before  # the next test meets the program


@pytest.mark.parametrize(("test", "status", "blamed"), [(t, *said) for said in FAILED for t in FAILED[said]])
def test_what_a_failure_means(module: types.ModuleType, test: str, status: str, blamed: bool) -> None:
    before, streams = dict(module.__dict__), (sys.stdin, sys.stdout, sys.stderr)
    with pytest.raises(BaseException) as raised:
        run(read(test), module)
    outcome = roles.outcome_of_code(raised.value)
    assert (outcome["status"], outcome["error"].startswith("test: ")) == (status, blamed)
    assert module.__dict__ == before and streams == (sys.stdin, sys.stdout, sys.stderr)


def test_an_expressions_value_is_told(module: types.ModuleType) -> None:
    assert run(read("[f(x) for x in (1, 20)]"), module) == "[1, 10]"


def test_a_test_that_says_nothing_of_the_program_is_none(module: types.ModuleType) -> None:
    with pytest.raises(NeverAsked):
        run(read("if __name__ == '__main__':\n    assert 1"), module)
