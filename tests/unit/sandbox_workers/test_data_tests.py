"""Tests that are data: what is data, what it means, and what a program has to say in it."""

import collections
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, suppress
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sandbox_workers.runner import calls, copies
from sandbox_workers.runner.data_tests import read, shadowing
from sandbox_workers.runner.errors import NotData, ProgramLied
from sandbox_workers.runner.framing import Frames, pack, send_frame
from sandbox_workers.runner.roles import Program, run_data
from sandbox_workers.runner.walk import ObjectCompared

PROGRAM = """
def f(x): return x + 1
def pair(x): return (x, [x])
def fail(text): raise KeyError(text)
def words(text): return {w: len(w) for w in text.split()}
def count():
    yield from range(3)
def grow(xs): xs.append(0); return xs
def deep(xs): xs[0].append(0)
def half_way(xs): xs.clear(); raise ValueError
def forget(*given):
    for one in given: one.clear()
def is_even(n): return n % 2 == 0
def cleared(xs): xs.clear(); return xs
level = 3
class Stack:
    def __init__(self, *xs): self.xs = list(xs)
    def push(self, x): self.xs.append(x); return self
    def pop(self): return self.xs.pop()
    def __len__(self): return len(self.xs)
    def __iter__(self): return iter(self.xs)
    def __eq__(self, other): return True
    def __contains__(self, item): return True
class Half(float):
    def __eq__(self, other): return True
    def __hash__(self): return 0
def half(x): return Half(x / 2)
"""
RIGHT = [
    "assert f(1) == 2",
    "assert f(1) == 2, 'two'",
    "assert 2 == f(1) != 3",
    "assert f(x=1) in (1, 2) and not f(1) > 5",
    "assert abs(f(1.5) - 2.5) < 1e-9",
    "import math\nassert math.isclose(f(0.1), 1.1)",
    "from math import inf\nassert f(inf) == inf",
    "assert sorted(words('a bb')) == ['a', 'bb'] and words('a bb')['bb'] == 2",
    "assert set(words('a bb').values()) == {1, 2} and 'a' in words('a')",
    "assert [f(i) for i in range(3) if i] == [2, 3]",
    "assert all(f(i) == i + 1 for i in range(9))",
    "a, (b,) = pair(4)\nassert a == b == 4",
    "for given, wanted in [(1, 2), (2, 3)]:\n    assert f(given) == wanted",
    "def check(candidate):\n    assert candidate(1) == 2\n    assert candidate(-1) == 0\ncheck(f)",
    "def test_one():\n    assert f(1) == 2",
    "try:\n    fail('no')\n    assert False\nexcept LookupError as error:\n    assert 'no' in str(error)",
    "assert list(count()) == [0, 1, 2] and next(count()) == 0 and sum(count()) == 3",
    "s = Stack()\nassert s.push(1).push(2).pop() == 2 and len(s) == 1 and s.xs == [1] and list(s) == [1]",
    "assert Stack(1) and not Stack()",
    "assert level == 3",
    "assert list(map(f, [1, 2])) == [2, 3] and max([1, 2], key=f) == 2",
    "assert grow([1]) == [1, 0]",
    "xs = [1]\ngrow(xs)\nassert xs == [1, 0] and grow(xs) and xs == [1, 0, 0]",
    "inner = [1]\nxs = [inner, (inner,), {'a': inner}]\ngrow(xs)\nassert xs == [[1], ([1],), {'a': [1]}, 0] and inner == [1]",
    "xs = [[1], [2]]\nfirst = xs[0]\nassert deep(xs) is None and first == [1, 0] == xs[0]",
    "a, b = [1], [2]\ndeep([a, b])\nassert a == [1, 0] and b == [2]",
    "xs = [1]\ntry:\n    half_way(xs)\nexcept ValueError:\n    assert xs == []",
    "d, s = {1: 2}, {1}\nforget(d, s)\nassert (d, s) == ({}, set())",
    "xs = [1]\nassert [len(grow(xs)) for _ in range(3)] == [2, 3, 4]",
    "assert 3 in Stack(3) and 4 not in Stack(3) and [*Stack(1), 2] == [1, 2]",
    "assert f(1) if f(0) else False",
    "assert pair(1)[1][:1] == [1] and f'{f(1)}!' == '2!' and str(f(1)).zfill(3) == '002'",
    "assert half(3) == 1.5 and not half(3) == 2",
    "assert is_even(2) is True and fail is not None",
    "pass",
]
CODE = [
    "import os\nassert f(1) == 2",
    "assert f(1) == 2 and __import__('os')",
    "assert f.__code__.co_nlocals == 1",
    "assert eval('f(1)') == 2",
    "assert open('x')",
    "class A: pass",
    "assert f(lambda: 1)",
    "def g(): return 1\nassert f(g)",
    "with f(1): pass",
    "x = pair(1)\nx[1] = 2",
    "s = Stack()\ns.xs = []",
    "assert f(1) is f(1)",
    "assert '{0.x}'.format(f(1))",
    "assert f'{f(1):>10}'",
    "import datetime\nassert f(datetime.datetime.now())",
    "assert isinstance(f(1), Stack)",
    "while f(1): pass",
    "async def g(): pass",
    "assert (y := f(1)) == 2",
    "f(**{'x': 1})",
    "try:\n    f(1)\nexcept SystemExit:\n    pass",
    "E = KeyError, ValueError\ntry:\n    f(1)\nexcept E:\n    pass",
    "def raises(exc):\n    try:\n        f(1)\n    except exc:\n        return True\nassert raises(ValueError)",
    "@f\ndef g(): pass",
    "global x",
    "del f",
]
RAISES = {
    AssertionError: [
        "assert f(1) == 3",
        "assert f(1) == 2 == 3",
        "assert half(3) == 2",
        "assert 3 in Stack()",
        "xs = [2, 1]\nassert cleared(xs) == sorted(xs)",
        "xs = [2, 1]\nassert all(x in cleared(xs) for x in xs)",
        "xs = [1]\ngrow(xs)\nassert xs == [1]",
        "def test_one():\n    assert f(1) == 3",
        "for i in range(3):\n    assert f(i) < 3",
        "try:\n    f(1)\n    assert False\nexcept ValueError:\n    pass",
    ],
    # Copies of what these program's functions give or change would not do.
    NotData: [
        "assert str(iter([])) != ''",
        "assert f'{[map(f, [])]}'",
        "assert '%s' % (lambda: 1)",
        "import heapq\nxs = pair(1)[1]\nheapq.heappop(xs)",
        "assert Stack() < Stack()",
        "assert f == f",
        "assert f in [f]",
        "xs = [[1], [2]]\nfirst = xs[0]\nxs2 = cleared(xs)\nassert first == [1]",
        "xs = [1]\nforget(xs, xs)\nassert xs == []",
        "deep([[0] * 2] * 2)",
        "def down(n):\n    return 0 if n == 0 else 1 + down(n - 1)\nassert f(900) == down(900) + 1",
        "d = words('a')\ne = d\nd |= {}",
        "assert Stack() == Stack()",
        "xs = pair(1)[1]\nxs.append(2)",
        "try:\n    fail('no')\nexcept KeyError as e:\n    assert e.args == ('no',)",
    ],
    # No object of the program's decides a comparison.
    ObjectCompared: [
        "assert Stack() == 3",
        "assert Stack() < 3",
        "assert 'x' in Stack",
        "assert {Stack()}",
        "assert Stack() - 1",
    ],
}


@contextmanager
def program(source: str = PROGRAM) -> Iterator[calls.Caller]:
    names: dict[str, Any] = {"__name__": "program"}
    exec(source, names)
    ours, theirs = socket.socketpair()

    def serve() -> None:
        with suppress(EOFError, OSError):
            calls.Server(theirs, names).serve()

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    with ours, theirs:
        yield calls.Caller(ours)
        ours.shutdown(socket.SHUT_RDWR)
        thread.join(10)


def walk(test: str, caller: calls.Caller, plain: bool = False) -> str | None:
    data = read(test)
    caller.begin(data, plain)
    names = "f pair fail words count grow deep half_way forget cleared is_even level Stack half Half"
    return run_data(data, Program(frozenset(names.split()), frozenset(["level"])), caller)


@pytest.mark.parametrize("test", RIGHT)
def test_it_means_what_python_means(test: str) -> None:
    names: dict[str, Any] = {"__name__": "test"}
    # whose objects decide nothing here either
    exec(PROGRAM.replace("__eq__", "_eq").replace("__contains__", "_in"), names)
    exec(test, names)
    with program() as caller:
        assert walk(test, caller) is None


@pytest.mark.parametrize(("test", "error"), [(test, error) for error in RAISES for test in RAISES[error]])
def test_what_does_not_pass_or_is_no_data_says_so(test: str, error: type[Exception]) -> None:
    with program() as caller, pytest.raises(error):
        walk(test, caller)


@pytest.mark.parametrize("test", CODE)
def test_what_needs_more_is_code_by_its_text_alone(test: str) -> None:
    with pytest.raises(NotData):
        read(test)


@pytest.mark.parametrize(
    "test", ["assert Stack()", "assert len(Stack()) == 0", "Stack().pop()", "assert Stack().xs == []"]
)
def test_a_test_that_asked_the_reference_for_plain_values_asks_no_objects(test: str) -> None:
    with program() as caller:
        with pytest.raises(ObjectCompared):
            walk(test, caller, plain=True)
        assert walk("assert half(3) == 1.5 and list(count()) == [0, 1, 2]", caller, plain=True) is None
        assert not caller.more_than_results


CHANGES = "def f(xs):\n    xs.sort()\n    return list(xs)\ndef cleared(xs):\n    xs.clear()\n    return []"


@pytest.mark.parametrize(
    ("test", "passes"),
    [
        ("xs = [3, 1]\nr = f(xs)\nassert r == sorted(xs)", True),
        ("xs = [3, 1]\nassert f(xs) == f(xs) == [1, 3]", True),
        # it would hold of what is left
        ("xs = [3, 1]\nr = cleared(xs)\nassert r == sorted(xs)", False),
        # an answer is as it was, too
        ("xs = f([3, 1])\nassert xs == [1, 3]\ncleared(xs)\nassert xs == []", False),
        # it asks that nothing be changed
        ("xs = [3, 1]\nf(xs)\nassert xs == [3, 1]", False),
        # it goes two ways
        ("xs = [3, 1]\nf(xs)\nfor x in xs[:1]:\n    if x > 2:\n        assert f(xs)", False),
    ],
)
def test_what_the_reference_did_not_change_helps_no_program_by_its_change(test: str, passes: bool) -> None:
    fate = nullcontext() if passes else pytest.raises((AssertionError, ObjectCompared))
    with program(CHANGES) as caller, fate:
        walk(test, caller, plain=True)


def test_a_change_that_a_test_may_see_is_told_of_the_reference() -> None:
    with program() as caller:
        walk("xs = [1]\nassert len(grow(xs)) == 2", caller)
        assert caller.more_than_results
        walk("assert len(grow([1])) == 2", caller)
        assert not caller.more_than_results


def test_what_an_earlier_tests_values_become_is_nobodys() -> None:
    keeps = "kept = []\ndef f(xs):\n    kept.append(xs)\n    for one in kept: one.append(0)"
    with program(keeps) as caller:
        walk("xs = [1]\nf(xs)\nassert xs == [1, 0]", caller)
        walk("xs = [2]\nf(xs)\nassert xs == [2, 0]", caller)


@pytest.mark.parametrize("name", ["sum", "abs"])
def test_a_name_of_the_librarys_is_the_programs_where_the_test_asks_for_nothing_else(name: str) -> None:
    test = read(f"assert {name}([1, 2]) == len([1, 2])")
    assert shadowing(test, {name}) == {name}
    assert shadowing(test, {name, "len"}) == {name, "len"}  # both with literals: the test says no more
    assert shadowing(read("assert abs(median([1, 2]) - 1.5) < 1e-9"), {"abs", "median"}) == frozenset()
    assert shadowing(test, {name, "len"}, entry_point=name) == {name}  # a program's own `len` decides nothing
    assert shadowing(test, {name, "len"}, entry_point="f") == frozenset()
    assert shadowing(read("assert abs(sum([1, 2]) - 3) < 1e-9"), {"abs", "sum"}) == {"sum"}
    lent = read("assert abs(f(3) - exp(3)) < 1e-9")
    assert [shadowing(lent, {"f", *own}, "f") for own in ([], ["exp"])] == [{"f"}, {"f", "exp"}]


values = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.text(), st.binary(), st.fractions(), st.dates())
    | st.floats(allow_nan=False)
    | st.decimals(allow_nan=False)
    | st.complex_numbers(allow_nan=False),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.tuples(inner, inner)
        | st.dictionaries(st.text() | st.integers(), inner, max_size=3)
        | st.frozensets(st.integers(), max_size=3)
        | st.sets(st.text(), max_size=3)
        | st.lists(inner, max_size=3).map(collections.deque)
    ),
    max_leaves=8,
)


def refuse(*_: Any) -> Any:
    raise AssertionError("a plain value")


@settings(max_examples=200, deadline=None)
@given(values)
def test_a_copy_is_equal_and_of_the_same_type(value: Any) -> None:
    sent = pack(copies.encode(value, refuse))
    parts = iter([sent, b""])
    copy = copies.decode(Frames(lambda _: next(parts), 1 << 25).next(), refuse)
    assert copy == value and type(copy) is type(value)


@settings(max_examples=300, deadline=None)
@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(max_size=5),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(st.sampled_from([*"tszdocmqvhbnkilp", "x", ""]), inner, max_size=2)
        ),
        max_leaves=12,
    )
)
def test_a_program_that_sends_anything_is_answered_with_a_fault_and_no_more(message: Any) -> None:
    """No message makes the reader call, import or raise what nobody expects."""
    stands = {"h": lambda body: object(), "b": lambda body: object()}
    with suppress(
        ValueError, TypeError, KeyError, IndexError, AttributeError, OverflowError, ArithmeticError
    ):
        copies.decode(message, lambda tag, body: stands[tag](body))


def test_an_answer_that_is_none_is_the_programs_lie() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        send_frame(theirs, {"v": {"h": ["one", 2]}})
        caller = calls.Caller(ours)
        with pytest.raises(ProgramLied):
            caller.ask("call", "f")
        with pytest.raises(ProgramLied):  # for good
            caller.ask("call", "f")


@pytest.mark.parametrize(
    "source",
    [
        "f()\nimport " + "a." * 30_000 + "a",
        "f()\nfrom " + "a . " * 30_000 + "a import b",
        "import " + "a.\\\n" * 4_000 + "a",
    ],
)
def test_a_name_that_parsers_take_long_for_is_not_parsed(
    source: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ast.parse", None)
    with pytest.raises(NotData, match="a long name"):
        read(source)


def test_what_the_arguments_of_calls_hold_is_found_at_any_depth() -> None:
    assert read("x = [1]\nassert f(f(f(x))) == 1").keeps
    assert read("import functools\nx = [1]\nassert functools.reduce(f, x) == 1").keeps
    assert not read("x = [1]\nassert f(f(f(1))) == x").keeps
    assert read("assert f(g(1)) == h(2)").with_literals == {"g", "h"}
