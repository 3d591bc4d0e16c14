"""Jobs that are products: type x the way that it travels, style of test x problem, iterable x what consumes it."""

import re
from collections.abc import Iterator

from tests.honest.jobs import Job

MODULES = "array collections datetime enum functools http itertools math pathlib re uuid".split()  # noqa: SIM905
NAMES = {
    "collections": "ChainMap Counter OrderedDict UserDict UserList UserString defaultdict deque",
    "datetime": "date time timedelta timezone",
    "decimal": "Decimal",
    "fractions": "Fraction",
    "types": "MappingProxyType SimpleNamespace",
}


def importing(source: str) -> str:
    """The source with the imports that it needs, of those that the values here use."""
    words = set(re.findall(r"[A-Za-z]+", source))
    lines = [f"import {module}" for module in MODULES if f"{module}." in source]
    for module, names in NAMES.items():
        if used := [name for name in names.split() if name in words]:
            lines.append(f"from {module} import {', '.join(used)}")
    if "moment(" in source:
        lines.append("from datetime import datetime as moment")
    return "\n".join([*lines, source])


def products() -> Iterator[Job]:
    yield from travelling_values()
    yield from defined_by_the_program()
    yield from test_styles()
    yield from results_consumed()
    yield from arguments_consumed()


def job(theme: str, name: str, program: str, test: str, wrong: str) -> Job:
    return Job(theme=theme, name=name, program=program, tests=(test,), wrong=(wrong,))


# ---------------------------------------------------------------- type x the way that it travels

# A value, another that is not equal, and what the value can do. All are expressions.
VALUES: dict[str, tuple[str, str, str]] = {
    "int": ("7", "8", "v.bit_length() == 3 and v % 4 == 3"),
    "large int": ("3 ** 500", "3 ** 500 + 1", "len(str(v)) == 239 and v % 3 == 0"),
    "negative int": ("-5", "5", "abs(v) == 5 and v // 2 == -3"),
    "bool": ("True", "False", "v is True and v + v == 2"),
    "None": ("None", "0", "v is None"),
    "Ellipsis": ("...", "None", "v is ..."),
    "float": ("0.1 + 0.2", "0.3", "v.hex() == '0x1.3333333333334p-2'"),
    "negative zero": ("-0.0", "1.0", "math.copysign(1, v) == -1"),
    "infinity": ("math.inf", "-math.inf", "v > 10 ** 400 and math.isinf(v)"),
    "complex": ("1 + 2j", "1 - 2j", "v.imag == 2 and abs(v) ** 2 - 5 < 1e-9"),
    "str": ("'naïve ✓ 😀'", "'naive'", "v.upper()[0] == 'N' and len(v) == 9"),
    "str of odd letters": (r"'\x00\n\r\t\x7f\u2028\ufeff'", r"'\n'", r"len(v) == 7 and v[0] == '\0'"),
    "lone surrogate": (r"'a\ud83d'", "'a?'", "len(v) == 2 and ord(v[1]) == 0xd83d"),
    "surrogate pair": (r"'\ud83d' + '\ude00'", "'\\U0001F600'", "len(v) == 2"),
    "bytes": (r"b'\x00\xffz'", "b'z'", "v.hex() == '00ff7a' and v[1] == 255"),
    "bytearray": ("bytearray(b'ab')", "bytearray(b'ba')", "v.decode() == 'ab' and v[0] == 97"),
    "memoryview": ("memoryview(b'abc')", "memoryview(b'abd')", "v.tobytes() == b'abc' and len(v) == 3"),
    "list": ("[1, [2, 'x']]", "[1, [2, 'y']]", "v[1][1] == 'x' and v.index(1) == 0"),
    "tuple": ("(1, (2,), ())", "(1, 2)", "v[1] == (2,) and v.count(1) == 1"),
    "set": ("{1, (2, 3)}", "{1, 2}", "(2, 3) in v and v - {1} == {(2, 3)}"),
    "frozenset": ("frozenset({1, 2})", "frozenset({1})", "hash(v) == hash(frozenset([2, 1])) and v < {1, 2, 3}"),
    "dict of odd keys": (
        "{1: 'a', 'b': None, (2, 3): [], None: {}, 1.5: 2, True and b'k': 0}",
        "{1: 'a'}",
        "v[2, 3] == [] and list(v)[:2] == [1, 'b'] and v[b'k'] == 0",
    ),
    "namedtuple": (
        "collections.namedtuple('P', 'x y')(1, 2)",
        "collections.namedtuple('P', 'x y')(1, 3)",
        "v.x == 1 and v._fields == ('x', 'y') and v._asdict() == {'x': 1, 'y': 2} and v == (1, 2) and v._replace(y=9)[1] == 9",
    ),
    "Counter": ("Counter('aab')", "Counter('abb')", "v.most_common(1) == [('a', 2)] and v['z'] == 0 and v.total() == 3"),
    "defaultdict": ("defaultdict(list, {'a': [1]})", "defaultdict(list)", "v['a'] == [1] and v['new'] == [] and 'new' in v"),
    "defaultdict of a lambda": ("defaultdict(lambda: 'N/A', a=1)", "defaultdict(int)", "v['zz'] == 'N/A'"),
    "OrderedDict": (
        "OrderedDict([('b', 1), ('a', 2)])",
        "OrderedDict([('a', 2), ('b', 1)])",
        "list(v) == ['b', 'a'] and v != OrderedDict(a=2, b=1) and v == {'a': 2, 'b': 1} and v.popitem(last=False) == ('b', 1)",
    ),
    "deque": ("deque([1, 2], maxlen=2)", "deque([2, 1])", "v.maxlen == 2 and v[-1] == 2 and not v.append(3) and list(v) == [2, 3]"),
    "range": ("range(2, 11, 3)", "range(2, 11)", "list(v) == [2, 5, 8] and v.step == 3 and 5 in v and v[-1] == 8 and len(v) == 3"),
    "slice": ("slice(1, None, 2)", "slice(1)", "[0, 1, 2, 3][v] == [1, 3] and v.indices(4) == (1, 4, 2)"),
    "keys of a dict": ("{'a': 1, 'b': 2}.keys()", "{'a': 1}.keys()", "'a' in v and len(v) == 2 and v & {'a'} == {'a'} and sorted(v) == ['a', 'b']"),
    "items of a dict": ("{'a': 1}.items()", "{'a': 2}.items()", "('a', 1) in v and dict(v) == {'a': 1}"),
    "date": ("date(2024, 2, 29)", "date(2024, 3, 1)", "v.isoformat() == '2024-02-29' and v.weekday() == 3 and f'{v:%d.%m.}' == '29.02.'"),
    "datetime": ("moment(2024, 1, 2, 3, 4, 5, 6)", "moment(2024, 1, 2)", "v.microsecond == 6 and v - moment(2024, 1, 2) > timedelta(0)"),
    "datetime with a zone": (
        "moment(2024, 1, 2, tzinfo=timezone(timedelta(hours=2)))",
        "moment(2024, 1, 2, tzinfo=timezone.utc)",
        "v.utcoffset() == timedelta(hours=2) and v.astimezone(timezone.utc).hour == 22",
    ),
    "time": ("time(12, 30)", "time(12, 31)", "v.minute == 30 and v < time(13)"),
    "timedelta": ("timedelta(days=1, seconds=5)", "timedelta(days=1)", "v.total_seconds() == 86405 and v * 2 > v and str(v) == '1 day, 0:00:05'"),
    "timezone": ("timezone(timedelta(hours=1), 'X')", "timezone.utc", "str(v) == 'X'"),
    "Fraction": ("Fraction(3, 6)", "Fraction(1, 3)", "v.denominator == 2 and v == 0.5 and v + 1 == Fraction(3, 2)"),
    "Decimal": ("Decimal('1.10')", "Decimal('1.2')", "str(v) == '1.10' and v == Decimal('1.1') and v.as_tuple().exponent == -2"),
    "UUID": ("uuid.UUID(int=5)", "uuid.UUID(int=6)", "v.int == 5 and str(v)[-1] == '5'"),
    "path": ("pathlib.PurePosixPath('/a/b.txt')", "pathlib.PurePosixPath('/a')", "v.name == 'b.txt' and v.suffix == '.txt' and str(v.parent) == '/a' and v / 'c' > v"),
    "member of the library's IntEnum": ("http.HTTPStatus.NOT_FOUND", "http.HTTPStatus.OK", "v == 404 and v.phrase == 'Not Found' and v is http.HTTPStatus(404)"),
    "pattern": ("re.compile('a+', re.I)", "re.compile('a')", "v.fullmatch('AA') and v.pattern == 'a+'"),
    "array": ("array.array('d', [1, 2.5])", "array.array('d', [1])", "v.typecode == 'd' and v.tolist() == [1, 2.5] and sum(v) == 3.5"),
    "UserList": ("UserList([1, 2])", "UserList([2])", "v.data == [1, 2] and v == [1, 2] and v[0] == 1 and len(v) == 2"),
    "UserDict": ("UserDict({'a': 1})", "UserDict({})", "v.data == {'a': 1} and v == {'a': 1} and v['a'] == 1 and 'a' in v"),
    "UserString": ("UserString('ab')", "UserString('b')", "v.data == 'ab' and v == 'ab' and v.upper() == 'AB'"),
    "ChainMap": ("ChainMap({'a': 1}, {'a': 2, 'b': 3})", "ChainMap({'a': 1})", "v == {'a': 1, 'b': 3} and v['b'] == 3 and len(v.maps) == 2"),
    "MappingProxyType": ("MappingProxyType({'a': 1})", "MappingProxyType({'a': 2})", "v['a'] == 1 and v == {'a': 1} and list(v.items()) == [('a', 1)]"),
    "SimpleNamespace": ("SimpleNamespace(a=1, b=[2])", "SimpleNamespace(a=2)", "v.a == 1 and v.b[0] == 2 and vars(v)['a'] == 1"),
    "deep list": ("(lambda f: f(f, 120))(lambda f, n: [f(f, n - 1)] if n else [])", "[[]]", "len(v) == 1 and str(v).count('[') == 121"),
    "records": ("[{'id': 1, 'tags': {'x'}, 'at': date(2020, 1, 1), 'size': (1, 2.5)}]", "[{'id': 1}]", "v[0]['tags'] == {'x'} and v[0]['at'].year == 2020"),
    "builtin type": ("int", "float", "v('5') == 5 and v.__name__ == 'int' and issubclass(bool, v)"),
    "builtin function": ("len", "max", "v('abc') == 3 and v.__name__ == 'len'"),
    "exception": ("ValueError('a', 1)", "ValueError('b')", "v.args == ('a', 1) and isinstance(v, ValueError) and type(v) is ValueError"),
}  # fmt: skip
NEVER_EQUAL = {"exception"}
"""Each is equal to itself only."""

# (program, test): {v} is a value, {w} one that differs, {does} is what it can do.
WAYS: dict[str, tuple[str, str]] = {
    "result": (
        "def f(): return [{v}, 5]",
        "v, five = f()\nassert v == {v}\nassert type(v).__name__ == type({v}).__name__ and {does} and five == 5",
    ),
    "argument": ("def f(v): return v == {v} and bool({does})", "assert f({v}) is True"),
    "there and back": ("def f(x): return x", "v = f({v})\nassert type(v) is type({v}) or isinstance(v, tuple)\nassert {does}"),
    "keyword and nested": ("def f(*, rows): return {{'got': [r['v'] for r in rows]}}", "(v,) = f(rows=[{{'v': {v}}}])['got']\nassert {does}"),
    "attribute": (
        "class C:\n    kind = {v}\n    def __init__(self): self.v = {v}\n    def ok(self):\n        v = self.v\n        return bool({does})",
        "c = C()\nv = c.v\nassert {does}\nv = C.kind\nassert {does}\nc.v = {v}\nassert c.ok()",
    ),
    "constant": ("V = {v}\nTABLE = {{'v': [V]}}", "v = V\nassert {does}\n(w,) = TABLE['v']\nassert type(w) is type(V)"),
    "callback, yielded": (
        "def f(fn):\n    v = fn({v})\n    yield bool({does})\n    yield {v}",
        "def same(v):\n    assert {does}\n    return {v}\nok, v = f(same)\nassert ok and {does}",
    ),
}  # fmt: skip
UNLIKE = {
    "there and back": "def f(x): return {w}",
    "keyword and nested": "def f(*, rows): return {{'got': [{w}]}}",
}
"""Wrong programs of the ways in which the value is the test's."""


def travelling_values() -> Iterator[Job]:
    for kind, (value, other, does) in VALUES.items():
        for way, (program, test) in WAYS.items():
            if kind in NEVER_EQUAL:
                test = test.replace("assert v == {v}\n", "")
                program = program.replace("v == {v} and ", "")
            right = program.format(v=value, w=other, does=does)
            if way == "argument":
                wrong = "def f(v): return None"
            elif way == "callback, yielded":
                wrong = right.replace(f"bool({does})", "False")
            else:
                wrong = UNLIKE.get(way, program).format(v=other, w=other, does=does)
            test = test.format(v=value, does=does)
            yield job(f"value: {way}", kind, importing(right), importing(test), importing(wrong))


# ---------------------------------------------------------------- types that the program defines x the way

# The definition, an instance, another instance, what the instance can do.
DEFINED: dict[str, tuple[str, str, str, str]] = {
    "namedtuple class": (
        "from typing import NamedTuple\nclass P(NamedTuple):\n    x: int\n    y: int = 2\n    def sum(self): return self.x + self.y\n",
        "P(1)", "P(3)", "v == (1, 2) and v.x == 1 and v.sum() == 3 and v._replace(x=5) == P(5) and isinstance(v, tuple) and repr(v) == 'P(x=1, y=2)'",
    ),
    "dataclass": (
        "from dataclasses import dataclass, field\n@dataclass(order=True)\nclass P:\n    x: int\n    tags: list = field(default_factory=list)\n",
        "P(1, ['a'])", "P(2)", "v == P(1, ['a']) and v != P(1) and v < P(2) and repr(v) == \"P(x=1, tags=['a'])\" and v.tags == ['a']",
    ),
    "frozen dataclass": (
        "from dataclasses import dataclass\n@dataclass(frozen=True)\nclass P:\n    x: int\n",
        "P(1)", "P(2)", "v == P(1) and hash(v) == hash(P(1)) and {v: 'a'}[P(1)] == 'a' and len({v, P(1), P(2)}) == 2",
    ),
    "enum": (
        "import enum\nclass E(enum.Enum):\n    A = 'a'\n    B = 'b'\n    def twice(self): return self.value * 2\n",
        "E.A", "E.B", "v is E('a') and v is E['A'] and v.name == 'A' and v.twice() == 'aa' and [e.value for e in E] == ['a', 'b'] and v in E and {v: 1}[E.A] == 1",
    ),
    "IntEnum": (
        "import enum\nclass E(enum.IntEnum):\n    A = 1\n    B = 3\n",
        "E.B", "E.A", "v == 3 and v + 1 == 4 and v > E.A and v is E.B and sorted([v, 2, E.A]) == [1, 2, 3] and v.name == 'B' and max(E) == 3",
    ),
    "StrEnum": (
        "import enum\nclass E(enum.StrEnum):\n    A = 'x'\n    B = enum.auto()\n",
        "E.B", "E.A", "v == 'b' and f'{v}!' == 'b!' and v.upper() == 'B' and v is E('b') and {'b': 1}[v] == 1",
    ),
    "str and Enum": (
        "import enum\nclass E(str, enum.Enum):\n    A = 'a'\n    B = 'b'\n",
        "E.A", "E.B", "v == 'a' and v.value == 'a' and v in ('a', 'c') and v is E('a') and v.startswith('a')",
    ),
    "Flag": (
        "import enum\nclass E(enum.Flag):\n    R = 1\n    W = 2\n    RW = R | W\n",
        "E.R | E.W", "E.R", "v == E.RW and E.R in v and v & E.W and not v & ~E.RW and v.value == 3 and (v ^ E.R) is E.W",
    ),
    "IntFlag": (
        "import enum\nclass E(enum.IntFlag):\n    A = 1\n    B = 4\n",
        "E.A | E.B", "E.A", "v == 5 and v & 4 and E.B in v and int(v) == 5 and v | 2 == 7",
    ),
    "subclass of list": (
        "class Stack(list):\n    def push(self, x): self.append(x); return self\n    def peek(self): return self[-1]\n",
        "Stack([1])", "Stack([2])", "v == [1] and v.push(5).peek() == 5 and v == [1, 5] and len(v) == 2 and isinstance(v, list) and v[0] == 1",
    ),
    "subclass of dict": (
        "class Dot(dict):\n    def __getattr__(self, k):\n        if k in self: return self[k]\n        raise AttributeError(k)\n    __setattr__ = dict.__setitem__\n    def __missing__(self, k): return '?'\n",
        "Dot(a=1)", "Dot(a=2)", "v == {'a': 1} and v.a == 1 and v['zz'] == '?' and not hasattr(v, 'zz') and dict(v) == {'a': 1}",
    ),
    "subclass of str": (
        "class Word(str):\n    def shout(self): return self.upper() + '!'\n",
        "Word('ab')", "Word('b')", "v == 'ab' and v.shout() == 'AB!' and v + 'c' == 'abc' and 'b' in v and {'ab': 1}[v] == 1",
    ),
    "subclass of int": (
        "class Cents(int):\n    def euros(self): return f'{self / 100:.2f}'\n    def __add__(self, o): return Cents(int(self) + o)\n",
        "Cents(250)", "Cents(5)", "v == 250 and v.euros() == '2.50' and (v + 5).euros() == '2.55' and range(300)[v] == 250",
    ),
    "subclass of float": ("class Deg(float):\n    def rad(self): return self / 2\n", "Deg(3.0)", "Deg(1)", "v == 3.0 and v.rad() == 1.5 and round(v) == 3"),
    "subclass of set": (
        "class Tags(set):\n    def only(self): return min(self)\n",
        "Tags({'a'})", "Tags({'b'})", "v == {'a'} and v.only() == 'a' and v | {'c'} == {'a', 'c'} and 'a' in v",
    ),
    "subclass of tuple": (
        "class Pair(tuple):\n    def swap(self): return Pair(self[::-1])\n",
        "Pair((1, 2))", "Pair((1, 3))", "v == (1, 2) and v.swap() == (2, 1) and type(v.swap()) is Pair and hash(v) == hash((1, 2))",
    ),
    "subclass of Counter": ("import collections\nclass Bag(collections.Counter):\n    def size(self): return sum(self.values())\n", "Bag('aab')", "Bag('a')", "v.size() == 3 and v['a'] == 2 and v['q'] == 0 and v == {'a': 2, 'b': 1}"),
    "subclass of OrderedDict": (
        "import collections\nclass LRU(collections.OrderedDict):\n    def get(self, k):\n        self.move_to_end(k)\n        return self[k]\n",
        "LRU(a=1, b=2)", "LRU(a=1)", "v.get('a') == 1 and list(v) == ['b', 'a'] and v == {'a': 1, 'b': 2}",
    ),
    "subclass of deque": ("import collections\nclass Last(collections.deque):\n    def last(self): return self[-1]\n", "Last([1, 2], 2)", "Last([1])", "v.last() == 2 and v == collections.deque([1, 2]) and v.maxlen == 2"),
    "subclass of Exception": (
        "class Oops(ValueError):\n    code = 5\n    def __init__(self, at): super().__init__(f'at {at}'); self.at = at\n",
        "Oops(3)", "Oops(4)", "str(v) == 'at 3' and v.at == 3 and v.code == 5 and isinstance(v, ValueError) and v.args == ('at 3',)",
    ),
    "plain class": (
        "class P:\n    def __init__(self, x): self.x = x\n    def __eq__(self, o): return isinstance(o, P) and self.x == o.x\n    def __hash__(self): return hash(self.x)\n    def __repr__(self): return f'P({self.x})'\n",
        "P(1)", "P(2)", "v == P(1) and v != P(2) and repr([v]) == '[P(1)]' and v in [P(0), P(1)] and {v: 1}[P(1)] == 1 and [P(0), v].index(P(1)) == 1",
    ),
    "class equal to numbers": (
        "class Num:\n    def __init__(self, n): self.n = n\n    def __eq__(self, o): return self.n == getattr(o, 'n', o)\n    def __lt__(self, o): return self.n < getattr(o, 'n', o)\n",
        "Num(2)", "Num(3)", "v == 2 and 2 == v and v != 3 and v < 3 and v in [1, 2]",
    ),
    "slots": (
        "class P:\n    __slots__ = ('x', 'y')\n    def __init__(self, x): self.x = x\n",
        "P(1)", "P(2)", "v.x == 1 and not hasattr(v, 'y') and not hasattr(v, '__dict__')",
    ),
    "properties": (
        "class C:\n    def __init__(self, c): self._c = c\n    @property\n    def f(self): return self._c * 9 / 5 + 32\n    @f.setter\n    def f(self, f): self._c = (f - 32) * 5 / 9\n",
        "C(100)", "C(0)", "v.f == 212 and setattr(v, 'f', 32) is None and v._c == 0",
    ),
    "metaclass": (
        "class Reg(type):\n    names = []\n    def __init__(cls, name, bases, d): super().__init__(name, bases, d); Reg.names.append(name)\n    def __len__(cls): return len(cls.__name__)\nclass Base(metaclass=Reg): pass\nclass Child(Base): pass\n",
        "Child()", "Base()", "isinstance(v, Child) and Reg.names == ['Base', 'Child'] and len(Child) == 5 and type(Child) is Reg",
    ),
    "abstract class": (
        "from abc import ABC, abstractmethod\nclass Shape(ABC):\n    @abstractmethod\n    def area(self): ...\n    def twice(self): return 2 * self.area()\nclass Sq(Shape):\n    def __init__(self, s): self.s = s\n    def area(self): return self.s ** 2\n",
        "Sq(3)", "Sq(1)", "v.twice() == 18 and isinstance(v, Shape) and issubclass(Sq, Shape) and Shape.__abstractmethods__ == {'area'}",
    ),
    "generic class": (
        "from typing import Generic, TypeVar\nT = TypeVar('T')\nclass Box(Generic[T]):\n    def __init__(self, v: T): self.v = v\n    def map(self, f): return Box(f(self.v))\n",
        "Box[int](5)", "Box(6)", "v.v == 5 and v.map(str).v == '5' and type(v) is Box",
    ),
    "descriptor": (
        "class Positive:\n    def __set_name__(self, owner, name): self.name = '_' + name\n    def __get__(self, o, owner=None): return self if o is None else getattr(o, self.name)\n    def __set__(self, o, x):\n        if x < 0: raise ValueError('negative')\n        setattr(o, self.name, x)\nclass Item:\n    price = Positive()\n    def __init__(self, p): self.price = p\n",
        "Item(5)", "Item(6)", "v.price == 5 and vars(v) == {'_price': 5}",
    ),
    "cyclic object": (
        "class N:\n    def __init__(self, v): self.v, self.next = v, self\n",
        "N(1)", "N(2)", "v.next is v and v.next.next.v == 1",
    ),
    "closure": ("def adder(n):\n    def add(x): return x + n\n    return add\n", "adder(2)", "adder(3)", "v(1) == 3 and v.__name__ == 'add' and callable(v) and list(map(v, [1, 2])) == [3, 4]"),
    "partial of the program": ("import functools\ndef power(a, b): return a ** b\n", "functools.partial(power, b=2)", "functools.partial(power, b=3)", "v(5) == 25 and v.keywords == {'b': 2} and v.func is power"),
    "bound method": ("class A:\n    def __init__(self, n): self.n = n\n    def get(self): return self.n\n", "A(4).get", "A(5).get", "v() == 4 and v.__self__.n == 4 and v.__name__ == 'get'"),
    "callable object": ("class Poly:\n    def __init__(self, *c): self.c = c\n    def __call__(self, x): return sum(c * x ** i for i, c in enumerate(self.c))\n", "Poly(1, 2)", "Poly(1)", "v(3) == 7 and callable(v) and [*map(v, range(3))] == [1, 3, 5]"),
}  # fmt: skip
DEFINED_WAYS: dict[str, tuple[str, str]] = {
    "result": ("def f(): return {v}\ndef g(): return {{'a': [({v}, 1)]}}", "v = f()\nassert {does}\nv = g()['a'][0][0]\nassert {does}"),
    "there and back": ("def f(x): return x\ndef make(): return {v}", "w = make()\nv = f(w)\nassert v is w\nassert {does}"),
    "attribute and constant": ("class Holder:\n    def __init__(self): self.v = {v}\nV = {v}", "v = Holder().v\nassert {does}\nv = V\nassert {does}"),
    "made by the test": ("", "v = {v}\nassert {does}"),
}  # fmt: skip


def defined_by_the_program() -> Iterator[Job]:
    for kind, (definition, value, other, does) in DEFINED.items():
        for way, (program, test) in DEFINED_WAYS.items():
            right = definition + program.format(v=value, does=does)
            wrong = definition + program.format(v=other, does=does)
            if way == "made by the test":
                wrong = "pass"  # no such class
            yield job(f"class: {way}", kind, right, test.format(v=value, does=does), wrong)


# ---------------------------------------------------------------- style of test x problem

# program, wrong programs, entry point, cases (arguments, expected), a property of (arguments a, result r)
PROBLEMS: dict[str, tuple[str, tuple[str, ...], str, list[tuple[tuple, object]], str]] = {
    "numbers to a number": (
        "import math\ndef gcd_of(*xs):\n    return math.gcd(*xs)\n",
        ("def gcd_of(*xs): return min(xs)\n", "def gcd_of(*xs): return xs[-1]\n"),
        "gcd_of",
        [((12, 18), 6), ((7, 5), 1), ((8, 4, 6), 2)],
        "r > 0 and all(x % r == 0 for x in a)",
    ),
    "list to a list": (
        "def running_max(xs):\n    out = []\n    for x in xs: out.append(max(out[-1], x) if out else x)\n    return out\n",
        ("def running_max(xs): return xs[::-1]\n", "def running_max(xs): return xs\n"),
        "running_max",
        [(([1, 3, 2, 5],), [1, 3, 3, 5]), (([],), []), (([-2, -5],), [-2, -2])],
        "len(r) == len(a[0]) and r == sorted(r) and r[-1:] == [max(x)] if (x := a[0]) else r == []",
    ),
    "floats": (
        "def mean_of(xs):\n    return sum(xs) / len(xs)\n",
        ("def mean_of(xs): return sum(xs) // len(xs)\n", "def mean_of(xs): return sorted(xs)[len(xs) // 2]\n"),
        "mean_of",
        [(([1.0, 2.0, 4.0],), 7 / 3), (([0.5, 0.25],), 0.375), (([5],), 5.0)],
        "min(a[0]) <= r <= max(a[0]) and isinstance(r, float)",
    ),
    "text to a dict": (
        "def letters(s):\n    d = {}\n    for c in s: d[c] = d.get(c, 0) + 1\n    return d\n",
        ("def letters(s): return dict.fromkeys(s, 1)\n", "def letters(s): return {c: s.count(c) for c in s[:2]}\n"),
        "letters",
        [(("aab",), {"a": 2, "b": 1}), (("",), {}), (("abcc",), {"c": 2, "a": 1, "b": 1})],
        "sum(r.values()) == len(a[0]) and set(r) == set(a[0])",
    ),
    "Counter for a dict": (
        "from collections import Counter\ndef letters(s): return Counter(s)\n",
        ("from collections import Counter\ndef letters(s): return Counter(set(s))\n",),
        "letters",
        [(("aab",), {"a": 2, "b": 1}), (("",), {})],
        "sum(r.values()) == len(a[0])",
    ),
    "set of tuples": (
        "def pairs(xs, t):\n    return {(a, b) for a in xs for b in xs if a < b and a + b == t}\n",
        ("def pairs(xs, t): return {(a, b) for a in xs for b in xs if a + b == t}\n", "def pairs(xs, t): return {(a, b) for a in xs for b in xs if a + b >= t}\n"),
        "pairs",
        [(([1, 2, 3], 4), {(1, 3)}), (([5], 10), set()), (([0, 1, 2, 3], 3), {(0, 3), (1, 2)})],
        "all(x + y == a[1] and x < y for x, y in r)",
    ),
    "truth": (
        "def balanced(s):\n    depth = 0\n    for c in s:\n        depth += (c == '(') - (c == ')')\n        if depth < 0: return False\n    return depth == 0\n",
        ("def balanced(s): return s.count('(') == s.count(')')\n", "def balanced(s): return True\n"),
        "balanced",
        [(("()()",), True), (("())(",), False), (("",), True), (("((",), False)],
        "r is (a[0].replace('a', '').replace('b', '').replace('()', '').replace('()', '').replace('()', '') == '')",
    ),
    "error for bad input": (
        "def root(n):\n    if n < 0: raise ValueError('negative')\n    return int(n ** .5)\n",
        ("def root(n): return n // 2\n", "def root(n): return n and round(n ** .5, 2)\n"),
        "root",
        [((16,), 4), ((2,), 1), ((0,), 0), ((-1,), ValueError("negative"))],
        "r * r <= a[0] < (r + 1) ** 2",
    ),
}  # fmt: skip


def test_styles() -> Iterator[Job]:
    for problem, (program, wrong, name, cases, holds) in PROBLEMS.items():
        good = [(arguments, want) for arguments, want in cases if not isinstance(want, Exception)]
        bad = [(arguments, want) for arguments, want in cases if isinstance(want, Exception)]
        for style, tests in styles(name, good, bad, holds).items():
            yield Job(
                theme="test style", name=f"{style}: {problem}", program=program, tests=tests, wrong=wrong
            )


def styles(name: str, good: list, bad: list, holds: str) -> dict[str, tuple[str, ...]]:
    """The same cases as tests of many styles."""

    def call(arguments: tuple) -> str:
        return f"{name}({', '.join(map(repr, arguments))})"

    def lines(indent: str, template: str, bad_template: str) -> str:
        each = [template.format(call=call(a), want=repr(w)) for a, w in good]
        each += [bad_template.format(call=call(a), text=str(w), kind=type(w).__name__) for a, w in bad]
        return "".join(indent + line.replace("\n", "\n" + indent) + "\n" for line in each)

    trying = "try:\n    {call}\nexcept {kind} as e:\n    assert '{text}' in str(e)\nelse:\n    assert False, 'no error'"
    raising = "with self.assertRaises({kind}) as c:\n    {call}\nself.assertIn('{text}', str(c.exception))"
    asserts = lines("    ", "assert {call} == {want}", trying)
    inputs, results = [list(a) for a, _ in good], [w for _, w in good]
    checks = "".join(f"    assert candidate{call(a)[len(name) :]} == {w!r}\n" for a, w in good)
    checks += "".join(
        f"    try: candidate{call(a)[len(name) :]}; assert False, 'no error'\n    except {type(w).__name__}: pass\n"
        for a, w in bad
    )
    found: dict[str, tuple[str, ...]] = {
        "asserts in one test": (asserts.replace("\n    ", "\n")[4:],),
        "expectation in a variable": (
            f"for args, want in {good!r}:\n    got = {name}(*args)\n    assert got == want, f'{{args}}: {{got}} != {{want}}'",
        ),
        "check(candidate)": (f"METADATA = {{'author': 'x'}}\n\ndef check(candidate):\n{checks}\ncheck({name})",),
        "check(candidate), tolerance": (
            "def close(a, b): return abs(a - b) < 1e-6 if isinstance(b, float) else a == b\n"
            f"def check(candidate):\n    for args, want in {good!r}:\n        assert close(candidate(*args), want)\n"
            + (checks[checks.index("    try:") :] if bad else "")
            + f"check({name})",
        ),
        "inputs and results, deep comparison": (
            "def is_floats(x) -> bool:\n"
            "    if isinstance(x, float): return True\n"
            "    if isinstance(x, (list, tuple)) and x: return all(isinstance(i, float) for i in x)\n"
            "    return False\n\n"
            "def assertion(out, exp, atol):\n"
            "    if atol == 0 and is_floats(exp): atol = 1e-6\n"
            "    if out != exp and atol != 0:\n"
            "        assert type(out) == type(exp), f'out = {out}, exp = {exp}'\n"
            "        if isinstance(exp, (list, tuple)): assert len(out) == len(exp)\n"
            "        pairs = zip(out, exp) if isinstance(exp, (list, tuple)) else [(out, exp)]\n"
            "        assert all(abs(a - b) <= atol + 1e-7 * abs(b) for a, b in pairs), f'{out} {exp}'\n"
            "    else:\n"
            "        assert out == exp, f'out = {out}, exp = {exp}'\n\n"
            f"inputs = {inputs!r}\nresults = {results!r}\n"
            "for i, (inp, exp) in enumerate(zip(inputs, results)):\n"
            f"    assertion({name}(*inp), exp, 0)\n"
            + "".join(trying.format(call=call(a), text=str(w), kind=type(w).__name__) for a, w in bad),
        ),
        "pytest function": (f"def test_{name}():\n{asserts}",),
        "pytest functions and a helper": (
            f"CASES = {good!r}\n\ndef assert_case(args, want):\n    got = {name}(*args)\n    assert got == want, (args, got)\n\n"
            "def test_first():\n    assert_case(*CASES[0])\n\ndef test_rest():\n    for case in CASES[1:]:\n        assert_case(*case)\n\n"
            f"def test_errors(times=1):\n    pass\n{lines('    ', 'assert {call} == {want}', trying)}",
        ),
        "pytest class": (f"class Test{name.title()}:\n    def setup_method(self):\n        self.f = {name}\n\n    def test_all(self):\n{lines('        ', 'assert self.f is not None and {call} == {want}', trying)}",),
        "asynchronous test": (f"import asyncio\n\nasync def test_it():\n    await asyncio.sleep(0)\n{asserts}",),
        "under the main guard": (f"def main():\n{asserts}\nif __name__ == '__main__':\n    main()",),
        "unittest": (f"import unittest\n\nclass T(unittest.TestCase):\n    def test_it(self):\n{lines('        ', 'self.assertEqual({call}, {want})', raising)}",),
        "unittest, setUp, subTest, almost": (
            "import unittest\nfrom unittest import TestCase\n\nclass Cases(TestCase):\n"
            "    @classmethod\n    def setUpClass(cls): cls.tolerance = 7\n"
            f"    def setUp(self): self.cases = {good!r}\n"
            "    def tearDown(self): self.cases = None\n\n"
            "    def test_cases(self):\n        for args, want in self.cases:\n            with self.subTest(args=args):\n"
            f"                got = {name}(*args)\n"
            "                if isinstance(want, float): self.assertAlmostEqual(got, want, places=self.tolerance)\n"
            "                else: self.assertEqual(got, want)\n\n"
            f"    def test_errors(self):\n        self.assertTrue(callable({name}))\n" + lines("        ", "{call}", raising),
        ),
        "unittest.main()": (
            f"import unittest\n\nclass T(unittest.TestCase):\n    def test_it(self):\n{lines('        ', 'self.assertEqual({call}, {want})', raising)}\n"
            "if __name__ == '__main__':\n    unittest.main()",
        ),
        "assertions of a TestCase that is not run": (
            f"from unittest import TestCase\nt = TestCase()\nfor args, want in {good!r}:\n    t.assertEqual({name}(*args), want)\n"
            + "".join(f"t.assertRaises({type(w).__name__}, {name}, *{a!r})\n" for a, w in bad),
        ),
        "doctest of a text": (
            "import doctest\nexamples = '''\n" + lines("", ">>> {call} == {want}\nTrue", ">>> {call}\nTraceback (most recent call last):\n{kind}: {text}")
            + f"'''\ntest = doctest.DocTestParser().get_doctest(examples, {{'{name}': {name}}}, 'd', None, 0)\n"
            "runner = doctest.DocTestRunner(verbose=False)\nrunner.run(test, out=lambda s: None)\nassert runner.summarize(verbose=False).failed == 0",
        ),
        "property, own random inputs": (property_test(name, good[0][0], holds),),
        "collected failures": (
            f"failures = []\nfor args, want in {good!r}:\n    try:\n        got = {name}(*args)\n        assert got == want\n"
            "    except Exception as e:\n        failures.append((args, repr(e)))\nassert not failures, failures",
        ),
        "by name": (f"f = globals()['{name}']\nassert all(f(*args) == want for args, want in {good!r})\nassert callable(f) and f.__name__ == '{name}'",),
        "imported from the program": (f"from solution import {name} as f\nimport solution\nassert [f(*args) for args, _ in {good!r}] == {results!r}\nassert solution.{name}(*{good[0][0]!r}) == {good[0][1]!r}",),
    }  # fmt: skip
    if all("(" not in repr(w) and not isinstance(w, Exception) for _, w in good + bad):
        found["inert asserts"] = tuple(f"assert {call(a)} == {w!r}" for a, w in good)
    return found


def property_test(name: str, example: tuple, holds: str) -> str:
    """Random inputs like the example's; a wrong program must fail on it, too."""
    draws = {
        int: "r.randint(1, 60)",
        str: "''.join(r.choice('()ab') for _ in range(r.randint(0, 6)))" if name == "balanced" else "''.join(r.choice('abc') for _ in range(r.randint(0, 9)))",
        list: "[r.randint(0, 9) for _ in range(r.randint(1, 6))]",
    }  # fmt: skip
    arguments = ", ".join(draws[type(value)] for value in example)
    return (
        f"import random\nr = random.Random(7)\nrng = r\nfor _ in range(60):\n    r = rng\n    a = ({arguments},)\n"
        f"    r = {name}(*a)\n    assert {holds}, (a, r)\nassert {name}(*{example!r}) is not None"
    )


# ---------------------------------------------------------------- iterable results x what the test does with them

MAKERS: dict[str, str] = {
    "list": "def f(n): return [i * i for i in range(n)]",
    "tuple": "def f(n): return tuple(i * i for i in range(n))",
    "generator": "def f(n):\n    for i in range(n): yield i * i",
    "generator expression": "def f(n): return (i * i for i in range(n))",
    "map": "def f(n): return map(lambda i: i * i, range(n))",
    "filter": "def f(n): return filter(lambda x: int(x ** .5) ** 2 == x, range((n - 1) ** 2 + 1))",
    "iterator of a list": "def f(n): return iter([i * i for i in range(n)])",
    "reversed": "def f(n): return reversed([i * i for i in range(n)][::-1])",
    "chain": "import itertools\ndef f(n): return itertools.chain([0], (i * i for i in range(1, n)))",
    "accumulate": "import itertools\ndef f(n): return itertools.accumulate(range(1, 2 * n - 2, 2), initial=0)",
    "deque": "import collections\ndef f(n): return collections.deque(i * i for i in range(n))",
    "keys of a dict": "def f(n): return {i * i: i for i in range(n)}.keys()",
    "values of a dict": "def f(n): return {i: i * i for i in range(n)}.values()",
    "dict": "def f(n): return {i * i: None for i in range(n)}",
    "subclass of list": "class L(list): pass\ndef f(n): return L(i * i for i in range(n))",
    "class with __iter__": "class Sq:\n    def __init__(self, n): self.n = n\n    def __iter__(self): return (i * i for i in range(self.n))\ndef f(n): return Sq(n)",
    "class with __next__": "class Sq:\n    def __init__(self, n): self.i, self.n = -1, n\n    def __iter__(self): return self\n    def __next__(self):\n        self.i += 1\n        if self.i >= self.n: raise StopIteration\n        return self.i ** 2\ndef f(n): return Sq(n)",
    "class with __getitem__": "class Sq:\n    def __init__(self, n): self.n = n\n    def __getitem__(self, i):\n        if i >= self.n: raise IndexError(i)\n        return i * i\ndef f(n): return Sq(n)",
    "array": "import array\ndef f(n): return array.array('i', [i * i for i in range(n)])",
}  # fmt: skip
CONSUMERS = {
    "whole": "assert list(f(5)) == [0, 1, 4, 9, 16]\nassert tuple(f(2)) == (0, 1)\nassert [*f(3)] == [0, 1, 4]\nassert set(f(3)) == {0, 1, 4}",
    "reduced": "assert sum(f(4)) == 14 and max(f(4)) == 9 and sorted(f(3), reverse=True) == [4, 1, 0] and any(f(2)) and not all(f(2))\n"
    "from collections import Counter\nassert Counter(iter(f(3)))[4] == 1 and ','.join(map(str, f(3))) == '0,1,4' and 4 in f(3) and 5 not in f(4)",
    "taken apart": "a, b, *rest = f(5)\nassert (a, b, rest) == (0, 1, [4, 9, 16])\n"
    "assert [(i, x) for i, x in enumerate(f(3))] == [(0, 0), (1, 1), (2, 4)]\n"
    "assert dict(zip('ab', f(5))) == {'a': 0, 'b': 1} and next(iter(f(1))) == 0\n"
    "from itertools import islice\nassert list(islice(f(100), 2, 4)) == [4, 9]",
    "looped over": "got = []\nfor x in f(1000):\n    if x > 30: break\n    got.append(x)\nassert got == [0, 1, 4, 9, 16, 25]\nassert [x for x in f(7) if x % 2] == [1, 9, 25]",
}  # fmt: skip


def results_consumed() -> Iterator[Job]:
    for maker, program in MAKERS.items():
        for consumer, test in CONSUMERS.items():
            wrong = f"{program}\nright = f\ndef f(n): return right(n // 2 + 1)"
            yield job(f"result: {consumer}", maker, program, test, wrong)


# ---------------------------------------------------------------- iterables of the test x what the program does with them

SIZED = {
    "list": "[3, 1, 2]", "tuple": "(3, 1, 2)", "set": "{3, 1, 2}", "range": "range(3, 0, -1)", "dict": "{3: 'a', 1: 'b', 2: 'c'}",
    "keys of a dict": "{3: 'a', 1: 'b', 2: 'c'}.keys()", "values of a dict": "{'a': 3, 'b': 1, 'c': 2}.values()",
    "deque": "__import__('collections').deque([3, 1, 2])", "bytes": "bytes([3, 1, 2])", "Counter": "__import__('collections').Counter([3, 1, 2, 1])",
}  # fmt: skip
ITERABLES = SIZED | {
    "generator": "(x for x in (3, 1, 2))", "map": "map(int, '312')", "filter": "filter(None, [0, 3, 1, 2])",
    "zip": "(a for a, _ in zip([3, 1, 2], 'abc'))", "iterator": "iter([3, 1, 2])", "reversed": "reversed([2, 1, 3])",
    "islice of an endless one": "__import__('itertools').islice((n for n in __import__('itertools').cycle([3, 1, 2])), 3)",
    "class of the test": "type('It', (), {'__iter__': lambda self: iter([3, 1, 2])})()",
}  # fmt: skip
# {i} is the iterable; each wrong program is the right one with one replacement
READERS: dict[str, tuple[str, str, str]] = {
    "list, tuple, unpacking": (
        "def f(xs, ys, zs): return sorted(list(xs) + [*ys] + list(tuple(zs)))",
        "assert f({i}, {i}, {i}) == [1, 1, 1, 2, 2, 2, 3, 3, 3]",
        "[*ys] => []",
    ),
    "sorted, sum, max": ("def f(xs, ys, zs): return sorted(xs), sum(ys), max(zs)", "assert f({i}, {i}, {i}) == ([1, 2, 3], 6, 3)", "max(zs) => min(zs)"),
    "loops and next": (
        "def f(xs, ys):\n    out = []\n    for x in xs: out.append(x)\n    it = iter(ys)\n    return sorted(out), next(it) + sum(it)",
        "assert f({i}, {i}) == ([1, 2, 3], 6)",
        "next(it) + => next(it) -",
    ),
    "extend, update, join": (
        "def f(xs, ys, zs):\n    a, s = [0], {9}\n    a.extend(xs)\n    s.update(ys)\n    return sorted(a), sorted(s), len(','.join(map(str, zs)))",
        "assert f({i}, {i}, {i}) == ([0, 1, 2, 3], [1, 2, 3, 9], 5)",
        "s.update(ys) => pass",
    ),
    "truth": ("def f(xs): return 'none' if not xs else 'some'", "assert f({i}) == 'some'", "'none' if not => 'none' if"),
}  # fmt: skip


def arguments_consumed() -> Iterator[Job]:
    for reader, (program, test, change) in READERS.items():
        old, _, new = change.partition(" => ")
        for iterable, expression in ITERABLES.items():
            wrong = program.replace(old, new, 1)
            yield job(f"argument: {reader}", iterable, program, test.format(i=expression), wrong)
    program = "def f(xs): return len(xs), 3 in xs, 5 in xs, bool(xs), sorted(enumerate(xs))[0][0]"
    wrong = program.replace("5 in xs", "2 in xs")
    for iterable in sorted(SIZED):
        test = f"assert f({SIZED[iterable]}) == (3, True, False, True, 0)"
        yield job("argument: length, membership", iterable, program, test, wrong)
