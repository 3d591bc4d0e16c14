"""Values that pretend to be the right answer: what crosses to the test is exact and plain, or a handle."""

from collections.abc import Callable

import pytest

from tests.attacks.conftest import ERROR, WRONG, asked

ERRORS = {
    "object that equals everything": (
        "class Yes:\n    def __eq__(self, other): return True\n    def __bool__(self): return True\n"
        "def f(x): return Yes()"
    ),
    "class that equals everything": (
        "class Meta(type):\n    def __eq__(cls, other): return True\n    __hash__ = type.__hash__\n"
        "class Yes(metaclass=Meta): pass\ndef f(x): return Yes"
    ),
    "object that compares in order": (
        "class Yes:\n    def __lt__(self, other): return True\n    __gt__ = __le__ = __ge__ = __lt__\n"
        "def f(x): return Yes()",
        "assert f(1) < 3",
    ),
    "shadowed AssertionError": (
        "class AssertionError(Exception): pass\ndef f(x): raise AssertionError('no')",
        "try:\n    f(1)\nexcept AssertionError as e:\n    raise",
    ),
    "assertion of its own": "def f(x): raise AssertionError",
    "signalling NaN": "import decimal\ndef f(x): return decimal.Decimal('sNaN')",
    "exception that cannot be printed": "class Bad(Exception):\n    def __str__(self): raise SystemExit(0)\ndef f(x): raise Bad",
    "Decimal that equals everything": (
        "import decimal\nclass Yes(decimal.Decimal):\n    def __eq__(self, o): return True\n"
        "    __hash__ = None\ndef f(x): return Yes(5)"
    ),
    "lie within a list": (
        "class Yes:\n    def __eq__(self, o): return True\ndef f(x): return [1, (2, {3: Yes()})]",
        "assert f(1) == [1, (2, {3: 4})]",
    ),
    "pickle with __reduce__": (
        "class Yes:\n    def __reduce__(self): return (int, (2,))\n"
        "    __reduce_ex__ = lambda s, n: (int, (2,))\n"
        "    __copy__ = lambda s: 2\ndef f(x): return Yes()"
    ),
    "__getattr__ that has everything": (
        "class Yes:\n    def __getattr__(self, n): return lambda *a, **k: True\n"
        "    __eq__ = __ne__ = lambda s, o: True\n    __hash__ = None\ndef f(x): return Yes()",
        "got = f(1)\nassert got == 2 and not got != 2",
    ),
    "object that has whatever it is asked for": (
        "class Yes:\n    def __contains__(self, o): return True\n    def __len__(self): return 3\n"
        "def f(x): return Yes()",
        "assert 'error' in f(1)",
    ),
    "object that says yes to a text's question": (
        "class Yes:\n    def __getattr__(self, n):\n        if n[:2] == '__': raise AttributeError(n)\n"
        "        return lambda *a: True\ndef f(x): return Yes()",
        "assert f('ab').startswith('A')",
    ),
    "object that says yes to a set's question": (
        "class Yes:\n    def issubset(self, o): return True\ndef f(x): return Yes()",
        "assert f([1]).issubset({1, 2})",
    ),
    "coroutine": "async def f(x): return 2",
    "generator": "def f(x): yield 2",
    "function that has an answer's name": (
        "def f(x): return x\nf.__name__ = f.__qualname__ = '2'",
        "assert f(f) == 2",
    ),
    "object that changes between two looks": (
        "class Yes:\n    n = 0\n    def __len__(self): self.n += 1; return self.n\n"
        "    def __iter__(self): return iter([2] * self.n)\n"
        "def f(x): return Yes()",
        "got = f(1)\nassert len(got) == 1 and list(got) == [2] and got == [2]",
    ),
    "answer only where nobody looks": (
        "class Yes:\n    def __del__(self):\n        import os\n        os._exit(0)\n"
        "def f(x): Yes(); return 2"
    ),
}
WRONG_ANSWERS = {
    "int that equals everything": (
        "class Yes(int):\n    def __eq__(self, other): return True\n    def __abs__(self): return 2\n"
        "def f(x): return Yes(5)"
    ),
    "list that equals everything": (
        "class Yes(list):\n    def __eq__(self, other): return True\n    def __iter__(self): yield 2\n"
        "def f(x): return Yes([5])",
        "assert f(1) == [2]",
    ),
    "str that reads differently": (
        "class Yes(str):\n    def __str__(self): return 'right'\n    def __eq__(self, other): return True\n"
        "def f(x): return Yes('wrong')",
        "assert f(1) == 'right'",
    ),
    "shadowed builtins": ("def len(x): return 2\ndef f(x): return x", "assert len(f([1])) == 2"),
    "change the argument it is compared with": (
        "def f(xs): xs[:] = [0]; return [0]",
        "xs = [2, 1]; assert f(xs) == sorted(xs)",
    ),
    "change the argument, then call back, before it is compared": (
        "def f(xs, key): xs.clear(); key(0); return []",
        "xs = [2, 1]\ndef key(x): return -x\nassert f(xs, key) == sorted(xs, key=key)",
    ),
    "NaN": ("def f(x): return float('nan')", "assert f(1) == f(1)"),
    "float with methods of its own": (
        "class Yes(float):\n    def __eq__(self, o): return True\n    def __sub__(self, o): return 0.0\n"
        "    __rsub__ = __sub__\ndef f(x): return Yes(5)",
        "assert abs(f(1) - 2) < 1e-9",
    ),
    "dict with methods of its own": (
        "class Yes(dict):\n    def __eq__(self, o): return True\n    def __getitem__(self, k): return 2\n"
        "    def items(self): return [(1, 2)]\ndef f(x): return Yes({1: 5})",
        "assert f(1)[1] == 2",
    ),
    "set that contains everything": (
        "class Yes(set):\n    def __contains__(self, o): return True\n    def __len__(self): return 3\n"
        "def f(x): return Yes()",
        "assert 2 in f(1) and len(f(1)) == 3",
    ),
    "tuple with names": (
        "import collections\nclass Yes(collections.namedtuple('P', 'a b')):\n"
        "    def __eq__(self, o): return True\n    def __iter__(self): return iter((1, 2))\n"
        "def f(x): return Yes(3, 4)",
        "assert f(1) == (1, 2)",
    ),
    "bytes that equal everything": (
        "class Yes(bytes):\n    def __eq__(self, o): return True\n    def hex(self): return b'ok'.hex()\n"
        "def f(x): return Yes(b'no')",
        "assert f(1) == b'ok'",
    ),
    "enum member that equals everything": (
        "import enum\nclass Yes(enum.IntEnum):\n    A = 5\n    def __eq__(self, o): return True\n"
        "    __hash__ = int.__hash__\ndef f(x): return Yes.A"
    ),
    "key that is any key": (
        "class Yes(str):\n    def __hash__(self): return hash('right')\n"
        "    def __eq__(self, o): return True\n"
        "def f(x): return {Yes('wrong'): 1}",
        "assert f(1) == {'right': 1}",
    ),
    "class by assignment": (
        "class Yes:\n    __class__ = int\ndef f(x): return Yes()",
        "assert isinstance(f(1), int)",
    ),
    "metaclass that recognizes everything": (
        "class Meta(type):\n    def __instancecheck__(cls, o): return True\n"
        "    def __subclasscheck__(cls, o): return True\n"
        "class P(metaclass=Meta): pass\ndef f(x): return 5",
        "assert isinstance(f(1), P)",
    ),
    "abstract class registered": (
        "import numbers\nclass Yes:\n    def __eq__(self, o): return True\nnumbers.Integral.register(Yes)\n"
        "def f(x): return Yes()",
        "import numbers\nassert isinstance(f(1), numbers.Integral)",
    ),
    "integer for a truth value": ("def f(x): return 1", "assert f(1) is True"),
    "truth value for an integer": ("def f(x): return True", "assert type(f(1)) is int"),
    "negative zero": ("def f(x): return -0.0", "assert str(f(1)) == '0.0'"),
    "infinite instead of large": ("def f(x): return float('inf')", "assert f(1) == 10 ** 400"),
    "int of one bit less": ("def f(x): return (1 << 20_000) - 1", "assert f(1) == 1 << 20_000"),
    "letters that look alike": ("def f(x): return 'p\\u0430ss'", "assert f(1) == 'pass'"),
    "string with a NUL and a surrogate": ("def f(x): return 'ok\\0\\ud800'", "assert f(1) == 'ok'"),
    "names by a module's __getattr__": (
        "def __getattr__(name): return 2\nimport sys\nclass M(type(sys)):\n"
        "    f = staticmethod(lambda x: 2)\n"
        "sys.modules['program'].__class__ = M",
        "import program\nassert getattr(program, 'g', None) == 2",
    ),
}
MIXED: dict[str, tuple] = {
    "list that holds itself": ("def f(x):\n    a = []; a.append(a); return a", {ERROR, WRONG}),
}
ATTACKS = asked(ERRORS, {ERROR}) | asked(WRONG_ANSWERS, {WRONG}) | asked(MIXED)


@pytest.mark.parametrize("name", ATTACKS)
def test_value(convict: Callable, name: str) -> None:
    convict(*ATTACKS[name])
