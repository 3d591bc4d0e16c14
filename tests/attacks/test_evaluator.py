"""The evaluator is kept for the jobs of many authors: no data test changes what a later one finds, and none passes on a
reference and fails the same program afterwards."""

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from sandbox_workers.local import LocalSandbox
from sparring.core.verdict import KnownTest, ReferenceTest, Status, Verdict, known_by
from tests.attacks import conftest
from tests.attacks.conftest import AMPLE, LIMITS

Judge = Callable[..., list[Verdict]]
AMPLY = LIMITS.model_copy(update={**AMPLE, "memory_mb": 512})
LIES = "class O: pass\ndef f(*a): return O()"
WANTED = ["assert f(1) == 2", KnownTest("assert f([3, 1]) == [1, 3]", data=True, plain=True)]
HANDLE = "list(map(type, [f]))[0]"
REDUCED = """\
import copy
T = {metaclass}
H = {target}
def yes(o, other=None):
    return True
def mk():
    return H
def reduced(n, protocol=0):
    return (mk, (), (None, {{'__eq__': yes}}))
X = T('X', (int,), {{'__reduce_ex__': reduced}})
{copied}
assert f(1) == 2
"""
POISONS = {
    "copy": REDUCED.format(metaclass="type(int)", target=HANDLE, copied="copy.copy(X(1))"),
    "deepcopy": REDUCED.format(metaclass="type(int)", target=HANDLE, copied="copy.deepcopy([X(1)])"),
    "type by map": REDUCED.format(metaclass="list(map(type, [int]))[0]", target="Counter", copied="copy.copy(X(1))"),
    "type as a key": REDUCED.format(
        metaclass="sorted([int], key=type)[0]", target=HANDLE, copied="list(map(copy.copy, [X(1)]))"
    ),
    "a class that burns later": "T = type(int)\ndef burn(k=0):\n    return sum(1 for i in range(10**9))\n"
    "X = T('X', (int,), {'__del__': burn})\nx = X(1)\nassert f(1) == 2",
}  # fmt: skip


@pytest.fixture
def judge(warm: LocalSandbox) -> Judge:
    return partial(conftest.judge, warm, limits=AMPLY)


@pytest.mark.parametrize("name", POISONS)
def test_a_data_test_makes_no_class(judge: Judge, name: str) -> None:
    before = [verdict.status for verdict in judge(LIES, *WANTED)]
    assert before == [Status.RUNTIME_ERROR] * 2
    for test in (POISONS[name], ReferenceTest(POISONS[name])):
        judge("def f(x): return x + 1", test)
        assert [verdict.status for verdict in judge(f"{LIES}\n", *WANTED)] == before
        (honest,) = judge("def f(x): return x + 1", "def g(x):\n    return x\nassert f(1) == g(2)")
        assert honest.status is Status.PASSED, honest


@pytest.mark.parametrize(
    "test",
    [
        "def g(x):\n    return x\nbig = [0] * 34000000\nassert f(1) == g(1)",
        "def test():\n    big = [0] * 34000000\n    try:\n        raise ValueError(1)\n    except ValueError as e:\n        assert f(1) == 1",
        "def test():\n    big = [0] * 34000000\n    xs = (f(i) for i in [1, 2])\n    assert next(xs) == 1",
    ],
    ids=[
        "in a cycle of a function and its scope",
        "in the frame of an error that the test catches",
        "beside a generator that is not read to its end",
    ],
)
def test_a_test_leaves_no_memory_taken(judge: Judge, test: str) -> None:
    """It takes two hundred and seventy MB of 512."""
    for number in range(4):
        (verdict,) = judge(f"def f(x): return x  # {number}", test)
        assert verdict.passed, verdict


def test_a_dict_that_makes_items_leaves_no_memory_taken(judge: Judge) -> None:
    """It takes eight MB of 512."""
    program = "from collections import defaultdict\ndef f(n): return defaultdict(list, a='a' * 8_000_000)\ndef g(n): return n"
    for number in range(80):
        (verdict,) = judge(f"{program}  # {number}", "d = f(1)\nassert g(1) == 1")
        assert verdict.passed, verdict


POINT = "from collections import namedtuple\nPoint = namedtuple('Point', 'x y')\ndef dist(a, b): return abs(a.x - b.x) + abs(a.y - b.y)"  # fmt: skip
SAME: dict[str, tuple[str, str, str]] = {
    # program, a test that must say the same of it each time, how it is judged
    "an object of a subclass is handed back": (
        POINT,
        "assert dist(Point(0, 0), Point(3, 4)) == 7",
        "separate",
    ),
    "an IntEnum is handed back": (
        "import enum\nclass C(enum.IntEnum):\n    A = 1\ndef f(c): return c.name",
        "assert f(C(1)) == 'A'",
        "separate",
    ),
    "the length of a generator": (
        "def f(n): return (i for i in range(n))",
        "g = f(3)\ntry:\n    len(g)\nexcept TypeError:\n    pass\nassert list(g) == [0, 1, 2]",
        "separate",
    ),
    "the text of a function": (
        "def f(x): return x",
        "assert int(str(f)[-4:-1], 16) % 512 < 512 and f(1) == 1",
        "shared",
    ),
    "the text of functions in a list": (
        "def f(x): return x",
        "assert int(list(map(str, [f]))[0][-4:-1], 16) % 512 < 512 and f(1) == 1",
        "shared",
    ),
}


@pytest.mark.parametrize("name", SAME)
def test_what_a_reference_passes_the_same_program_passes(judge: Judge, name: str) -> None:
    program, test, isolation = SAME[name]
    (of_reference,) = judge(program, ReferenceTest(test))
    again = [judge(f"{program}\n# {n}", known_by(test, [of_reference]))[0] for n in range(3)]
    assert [(v.status, v.isolation) for v in [of_reference, *again]] == [(Status.PASSED, isolation)] * 4


VARIES = "class R:\n    def __init__(self, xs): self.xs, self.n = xs, 0\n    def __iter__(self):\n        self.n += 1\n        return iter({})\ndef f(xs): return R(xs)"
ORDERED = "from collections import OrderedDict\ndef f():\n    d = OrderedDict(a=1, b=2)\n    {}return d"
JUDGED: dict[str, tuple[str, str, str, bool]] = {  # reference, test, program, whether it is right
    "an OrderedDict in another order": (
        ORDERED.format("d.move_to_end('a'); "), "assert list(f()) == ['b', 'a']", ORDERED.format(""), False,
    ),
    "an argument is changed within the comparison": (
        "def f(xs): return sorted(xs)", "xs = [3, 1]\nassert (f(xs), xs) == ([1, 3], [3, 1])",
        "def f(xs):\n    xs.sort()\n    return list(xs)", False,
    ),
    "an argument is changed by way of reduce": (
        "def join(a, b): return a + b",
        "import functools\ndata = [[1], [2]]\nassert functools.reduce(join, data) == [1, 2]\nassert data == [[1], [2]]",
        "def join(a, b):\n    a += b\n    return a", False,
    ),
    "a result that equals the cleared argument": (
        "def f(xs): return sorted(xs)", "xs = [3, 1]\nassert f(xs) == sorted(xs)",
        "def f(xs):\n    xs.clear()\n    return []", False,
    ),
    "a defaultdict for a dict, which is given back": (
        "def build(es): return {a: [b] for a, b in es}\ndef near(g, v): return g[v]",
        "g = build([(1, 2)])\nassert near(g, 1) == [2]",
        "import collections\ndef build(es):\n    g = collections.defaultdict(list)\n    for a, b in es: g[a].append(b)\n    return g\n"
        "def near(g, v): return g[v]", True,
    ),
    "a bytearray for bytes": ("def f(s): return s.encode()", "assert f('a') == b'a'", "def f(s): return bytearray(s.encode())", True),
    "another bytearray for bytes": ("def f(s): return s.encode()", "assert f('a') == b'a'", "def f(s): return bytearray(b'b')", False),
    "the keys of a dict for a set": ("def f(d): return set(d)", "assert f({1: 2}) == {1} and f({1: 2}) & {1, 3} == {1}", "def f(d): return d.keys()", True),
    "the keys of another dict for a set": ("def f(d): return set(d)", "assert f({1: 2}) == {1}", "def f(d): return {3: 2}.keys()", False),
    "a mappingproxy for a dict": ("def f(d): return dict(d)", "assert f({1: 2}) == {1: 2}", "import types\ndef f(d): return types.MappingProxyType(d)", True),
    "bytes of a generator": ("def f(n): return list(range(n))", "assert bytes(f(2)) == b'\\x00\\x01'", "def f(n): yield from range(n)", True),
    "pairs for a dict": ("def f(): return {1: 2}", "assert {**f()} == {1: 2}", "def f(): return [(1, 2)]", False),
    "a name of math that only the program defines": (
        "import math\ndef f(x): return math.exp(x)", "assert abs(f(3) - exp(3)) < 1e-9",
        "def exp(x): return 5\ndef f(x): return 5", False,
    ),
    "a name of math that the reference imports": (
        "from math import sin\ndef f(x): return sin(x)", "assert f(3) == sin(3)",
        "import math\ndef sin(x): return math.sin(x) + 0.0\ndef f(x): return sin(x)", True,
    ),
    "a name of math that the reference imports and the program does not": (
        "from math import sin\ndef f(x): return sin(x)", "assert f(3) == sin(3)", "import math\ndef f(x): return math.sin(x)", True,
    ),
    "a list of the test's rows is reversed": (
        "def f(g): return [len(row) for row in reversed(g)]", "a = [1]\nb = [1, 2]\nassert f([a, b]) == [2, 1]\nassert (a, b) == ([1], [1, 2])",
        "def f(g): g.reverse(); return list(map(len, g))", True,
    ),
    "a name of the library that only the program defines, beside one that both do": (
        "import math\ndef lcm(a, b): return math.lcm(a, b)", "assert lcm(4, 6) == 4 * 6 // gcd(4, 6)",
        "def lcm(a, b): return a * b\ndef gcd(a, b): return 1", False,
    ),
    "the rows of an argument are changed": (
        "def f(g): return sum(map(len, g))", "g = [[1, 2], [3]]\nassert f(g) == 3\nassert f(g) >= 0",
        "def f(g):\n    n = 0\n    for row in g:\n        n += len(row)\n        row.clear()\n    return n", True,
    ),
    "an object that has other items when it is read again": (
        "def f(xs): return sorted(xs)", "r = f([3, 1])\nassert set(r) == {1, 3} and all(a <= b for a, b in pairwise(r))",
        VARIES.format("self.xs if self.n == 1 else []"), False,
    ),
    "an object that has the same items when it is read again": (
        "def f(xs): return sorted(xs)", "r = f([3, 1])\nassert set(r) == {1, 3} and all(a <= b for a, b in pairwise(r)) and 3 in r and 1 in r",
        VARIES.format("sorted(self.xs)"), True,
    ),
    "the parts of an argument are changed": (
        "def f(g): return sum(g, [])", "a, b = [1], [2]\nassert f([a, b]) == [1, 2]",
        "def f(g):\n    g[0].extend(g[1])\n    return list(g[0])", True,
    ),
    "NaN is no NaN": ("def f(x): return x", "assert [f(1)] == [f(1)]", "def f(x): return float('nan')", False),
    "a defaultdict for a dict": (
        "def f(s): return {c: 1 for c in s}", "assert sorted(f('ab').items()) == [('a', 1), ('b', 1)] and f('a').get('z') is None",
        "import collections\ndef f(s):\n    d = collections.defaultdict(int)\n    for c in s: d[c] += 1\n    return d", True,
    ),
    "a class that is plain itself": ("def f(x): return str(x)", "assert f(12) == '12'", "f = str", True),
    "a set by its class": ("def f(x): return set(x)", "assert f([1, 1]) == {1}", "f = set", True),
}  # fmt: skip


@pytest.mark.parametrize("name", JUDGED)
def test_a_program_is_judged_as_by_python(judge: Judge, name: str) -> None:
    reference, test, program, right = JUDGED[name]
    (verdict,) = judge(reference, ReferenceTest(test))
    assert verdict.passed, verdict
    known = known_by(test, [verdict])
    assert [judge(one, known)[0].passed for one in (program, f"{reference}\n")] == [right, True]


AS_PYTHON: dict[str, tuple[str, str, bool]] = {  # program, test, whether Python passes it: without a reference
    "keys and a set": ("def f(d): return d.keys()", "assert f({1: 2}) == {1} and {1}.issubset(f({1: 2})) and 1 in f({1: 2})", True),
    "keys and a list": ("def f(d): return d.keys()", "assert f({1: 2}) == [1]", False),
    "keys of nothing": ("def f(): return {}.keys()", "assert f() == set() and not f() and len(f()) == 0", True),
    "items and a set": ("def f(d): return d.items()", "assert f({1: 2}) == {(1, 2)} and sorted(f({3: 1, 2: 1}))[0] == (2, 1)", True),
    "values": ("def f(d): return d.values()", "assert list(f({1: 2})) == [2] and 2 in f({1: 2}) and f({1: 2}) != [2]", True),
    "values and values": ("def f(d): return d.values()", "assert f({1: 2}) == f({1: 2})", False),
    "keys in an order": ("import collections\ndef f(): return collections.OrderedDict(b=1, a=2).keys()", "assert list(f()) == ['b', 'a'] and f() == {'a', 'b'}", True),
    "keys that are given on": ("def f(ks): return sorted(ks)", "d = {2: 1, 1: 1}\nassert f(d.keys()) == [1, 2]", True),
    "bytearray and bytes": ("def f(): return bytearray(b'ab')", "assert f() == b'ab' == bytearray(f()) and f()[0] == 97 and f().upper() == b'AB'", True),
    "a bytearray that is changed": ("def f(b): b[0] = 65", "b = bytearray(b'ab')\nf(b)\nassert b == b'Ab'", True),
    "a mappingproxy": ("import types\ndef f(): return types.MappingProxyType({1: 2})", "assert f() == {1: 2} and f()[1] == 2 and len(f()) == 1", True),
    "a class": ("def f(x): return type(x)", "assert f(1) == int and f('') is str and f([]) in (list, tuple)", True),
    "another class": ("def f(x): return bool", "assert f(1) == int", False),
    "a result that is changed later": ("xs = []\ndef f(): return xs\ndef g(): xs.append(1)", "a = f()\ng()\nassert a == [1]", True),
    "a result that is no copy": ("xs = []\ndef f(): return xs\ndef g(): xs.append(1)", "a = f()\ng()\nassert a == []", False),
    "an attribute that is changed later": (
        "class A:\n    def __init__(self): self.xs = [[1]]\n    def add(self, x): self.xs[0].append(x)",
        "a = A()\nxs = a.xs\na.add(2)\nassert xs == [[1, 2]]\na.add(3)\nassert xs == [[1, 2, 3]]", True,
    ),
    "a result that makes up items is changed later": (
        "import collections\ndef f(): return collections.defaultdict(list)\ndef g(d, k): d[k].append(1)",
        "d = f()\ng(d, 'a')\nassert d == {'a': [1]} and len(d) == 1", True,
    ),
    "many arguments": (
        "kept = []\ndef f(xs): kept.append(xs)\ndef g():\n    for xs in kept: xs.append(0)",
        "xss = [[i] for i in range(300)]\nfor xs in xss: f(xs)\ng()\nassert all(len(xs) == 2 for xs in xss)", True,
    ),
    "many calls that keep nothing": (
        "def f(xs): return xs",
        "xs, ys = [1], []\nfor i in range(2000):\n    r = f(xs)\n    ys = f(r)\nassert xs == r == ys == [1]", True,
    ),
    "many readings of what grows": (
        "class A:\n    def __init__(self): self.xs = []\n    def add(self, x): self.xs.append(x)",
        "a = A()\nfor i in range(700):\n    a.add(i)\n    xs = a.xs\n    assert xs[-1] == i\nassert len(xs) == 700", True,
    ),
    "an argument changed within the comparison": ("def f(xs): xs.sort(); return list(xs)", "xs = [3, 1]\nassert (f(xs), xs) == ([1, 3], [3, 1])", False),
    "an argument changed within a chain": ("def f(xs): xs.sort(); return list(xs)", "xs = [3, 1]\nassert f(xs) == [1, 3] != xs", False),
    "an argument changed within a sum": ("def f(xs): xs.sort(); return list(xs)", "xs = [3, 1]\nassert f(xs) + xs == [1, 3, 3, 1]", False),
    "an iterator over a changed argument": (
        "def f(xs):\n    xs.append(0)\n    yield from xs",
        "xs = [3, 1]\nassert list(f(xs)) == [3, 1, 0]\nassert xs == [3, 1, 0]\nassert list(f([1])) == [1, 0]", True,
    ),
    "an iterable that is read before its comprehension begins": ("def f(n): return n", "xs = [1]\ng = (f(x) for x in xs)\nxs = [5]\nassert list(g) == [1]", True),
    "results in one expression that are no copies": ("def f(x, kept=[]): kept.append(x); return kept", "assert [f(1), f(2)] == [[1], [1, 2]]", False),
    "a result that a function of the test is given": (
        "xs = []\ndef f(): return xs\ndef g(): xs.append(1)", "def check(a):\n    g()\n    assert a == [1]\ncheck(f())", True,
    ),
    "objects that are handed out again": (
        "class Node:\n    def __init__(self, value, rest=None): self.value, self.rest = value, rest\ndef f(node): return node",
        "def listed(node):\n    return [] if node is None else [node.value] + listed(node.rest)\n"
        "assert listed(f(Node(1, Node(2, Node(3))))) == [1, 2, 3]", True,
    ),
    "an IntEnum and numbers": (
        "import enum\nclass C(enum.IntEnum):\n    A = 1\n    B = 2\ndef f(): return C.B",
        "assert f() + 1 == 3 == 1 + f() and f() > 1 and f() in (1, 2) and {2: 'b'}[f()] == 'b' and 10 % f() == 0", True,
    ),
    "a named tuple as a key": (
        "from typing import NamedTuple\nclass P(NamedTuple):\n    x: int\n    y: int\ndef f(d): return max(p.x for p in d)",
        "assert f({P(1, 2), P(3, 4)}) == 3 == f({P(3, 4): 5}) and P(1, 2) < (2, 0) and P(1, 2) + (3,) == (1, 2, 3)", True,
    ),
    "a result that is the argument": ("def f(xs): xs.append(1); return xs", "xs = []\nr = f(xs)\nf(xs)\nassert r == [1, 1] == xs", True),
    "steps that change a list and return it": (
        "def step(xs): xs.append(xs.pop(0)); return xs", "xs = [3, 1, 2, 4]\nfor i in range(3):\n    xs = step(xs)\nassert xs == [4, 3, 1, 2]", True,
    ),
    "steps within steps": ("def step(xs): xs.append(xs.pop(0)); return xs", "a = [3, 1, 2, 4]\nassert step(step(step(a))) == [4, 3, 1, 2]\nassert a == [4, 3, 1, 2]", True),
    "a copy that the program replaces by another": (
        "class B:\n    def push(self, xs): self.data = xs; xs.append(len(xs))", "b, xs = B(), []\nb.push(xs)\nb.push(xs)\nassert xs == [0, 1]", True,
    ),
    "tuples in a list are sorted": ("def f(xs): xs.sort()", "xs = [(3, 'a'), (1, 'b')]\nf(xs)\nassert xs == [(1, 'b'), (3, 'a')]", True),
    "tuples in a list were sorted": ("def f(xs): xs.sort()", "xs = [(3, 'a'), (1, 'b')]\nf(xs)\nassert xs == [(3, 'a'), (1, 'b')]", False),
    "a tuple in a dict is replaced": ("def f(d): d['a'] = (2, 3)\ndef g(d): d['a'] = (1,)", "d = {'a': (1, 2)}\nf(d)\nassert d == {'a': (2, 3)}\ng(d)\nassert d == {'a': (1,)}", True),
    "an object of a list's subclass is changed": ("class L(list): pass\ndef f(s): s.append(1)", "s = L()\nf(s)\nassert len(s) == 1", True),
    "objects of a list's subclass are changed within a map": (
        "class L(list): pass\ndef f(s): s.append(1); return 99", "ss = [L(), L()]\nassert all(map(lambda s: f(s) == 3, ss))", False,
    ),
    "rows that the test has names for are sorted": (
        "def f(g): g.sort(); return sum(g, [])", "g = [[2], [1]]\nfor row in g:\n    assert len(row) == 1\nassert f(g) == [1, 2]\nassert g == [[1], [2]]", True,
    ),
    "a method of what a call has taken": ("xs = ['a', 'b']\ndef f(): return xs.pop(0)", "assert f().upper() == 'A' and f().strip().upper() == 'B'", True),
    "a fold": (
        "import datetime\ndef f(): return datetime.datetime(2020, 1, 1, fold=1), datetime.time(1, fold=1)",
        "assert [t.fold for t in f()] == [1, 1]", True,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", AS_PYTHON)
def test_the_verdict_is_pythons_without_a_reference(judge: Judge, name: str) -> None:
    program, test, right = AS_PYTHON[name]
    (verdict,) = judge(program, test)
    assert (verdict.passed, verdict.isolation) == (right, "separate"), verdict
    names: dict[str, Any] = {}
    exec(program, names)
    try:
        exec(test, names)
    except Exception:
        assert not right
    else:
        assert right


def test_more_values_than_are_watched_are_no_data(judge: Judge) -> None:
    program = "kept = []\ndef f(xs): kept.append(xs)\ndef g():\n    for xs in kept: xs.append(0)"
    test = (
        "xss = [[i] for i in range(600)]\nfor xs in xss: f(xs)\ng()\nassert all(len(xs) == 2 for xs in xss)"
    )
    (verdict,) = judge(program, test)
    assert verdict.passed and verdict.isolation == "shared", verdict
    (verdict,) = judge(program, KnownTest(test, data=True))
    assert verdict.status is Status.RUNTIME_ERROR and "500 values" in verdict.error, verdict


NEEDS_PYTHON = {  # what the evaluator cannot do, and Python can
    "a copy of the program's objects": (
        "class P:\n    def __init__(self, x): self.x = x\ndef f(p): return p.x",
        "import copy\nassert [f(p) for p in copy.deepcopy([P(1)])] == [1]",
    ),
    "a row that the program puts another in place of": (
        "def fill(g):\n    for i in range(len(g)): g[i] = [1]",
        "g = [[0]]\nrow = g[0]\nfill(g)\nassert row == [0] and g == [[1]]",
    ),
    "keys of a dict that is changed": (
        "d = {1: 2}\ndef f(): return d.keys()\ndef g(): d[3] = 4",
        "ks = f()\ng()\nassert ks == {1, 3}",
    ),
    "a list that is passed twice": ("def f(a, b): a.append(1); return b", "xs = []\nassert f(xs, xs) == [1]"),
    "a row that a list holds twice": (
        "def f(g): g[0][0] = 1; return g",
        "assert f([[0] * 2] * 2) == [[1, 0], [1, 0]]",
    ),
    "names of the library that the program defines": (
        "def sum(a, b): return a + b\ndef sub(a, b): return a - b",
        "assert sum(1, 2) == 3 and sub(3, 1) == 2",
    ),
}


@pytest.mark.parametrize("name", NEEDS_PYTHON)
def test_what_only_python_can_run_is_run_by_it(judge: Judge, name: str) -> None:
    program, test = NEEDS_PYTHON[name]
    alone = [] if "library" in name else [test]
    for asked in (ReferenceTest(test), *alone):
        (verdict,) = judge(program, asked)
        assert verdict.passed and verdict.isolation == "shared", (asked, verdict)
