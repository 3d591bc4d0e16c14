"""Programs that try to be passed without the answer, or to find it: each gets the verdict it deserves."""

from collections.abc import Callable

import pytest

from sandbox_workers.local import LocalSandbox
from sparring.core.verdict import KnownTest, ReferenceTest, known_by
from tests.attacks.conftest import ERROR, OUTPUT, TIME, WRONG, asked, judge

HELLO = """
import sys
roles = sys.modules["runner.roles"]
send = roles.send_frame
def forge(connection, message, *cap):
    if "names" in message: edit(message)
    send(connection, message, *cap)
roles.send_frame = forge
"""
REPLY = """
import sys
calls = sys.modules["runner.calls"]
send = calls.send_frame
def forge(connection, message, *cap):
    if message.get("v") == 5: edit(message)
    send(connection, message, *cap)
calls.send_frame = forge
"""
SECRET = "expected = 'zq' + '7771'; expected += 'zq'; held = [expected]; assert f() == expected"
SEARCH = "def seen(t): return isinstance(t, str) and t.startswith('zq7771') and t.endswith('zq')\n"

ERRORS = {
    "exit while loaded": "import sys; sys.exit(0)",
    "exit in the call of a test that is code": (
        "import functools, sys\nf = functools.partial(sys.exit, None)",
        "import math\nassert f() == math.floor(2.5)",
    ),
    "exit in a test that ends by one": (
        "def f(x): raise SystemExit(0)",
        "import sys\nassert f(1) == 2\nsys.exit(0)",
    ),
    "os._exit while loaded": "import os; os._exit(0)",
    "os._exit in the call": "import os\ndef f(x): os._exit(0)",
    "exit under a bare except": ("import os\ndef f(x): os._exit(0)", "try:\n    f(1)\nexcept:\n    pass"),
    "write verdicts to every descriptor": (
        "import os, json, struct\n"
        "b = json.dumps({'index': 0, 'status': 'PASSED', 'value': None, 'error': ''}).encode()\n"
        "def f(x):\n"
        "    for fd in range(3, 300):\n"
        "        try: os.write(fd, struct.pack('>I', len(b)) + b)\n"
        "        except OSError: pass\n"
    ),
    "deeply nested reply": "import os, struct\ndef f(x): os.write(11, struct.pack('>I', 200_000) + b'[' * 200_000)",
    "close every descriptor": "import os\ndef f(x): os.closerange(0, 300)",
    "globals of a callback": (
        "def f(g): return g.__globals__['wanted']",
        "wanted = 7\nassert f(lambda: 1) == wanted",
    ),
    "view of the test's dict that empties it": (
        REPLY + "edit = lambda reply: reply.update(v={'m': ['dict', None, {'w': ['clear', {'=': 0}]}, []]})\n"
        "def f(x): return 5",
        "d = {1: 2}\nassert f(d) == {key: value * 2 for key, value in d.items()}",
    ),
    "frame of a generator": (
        "def f(g): return g.gi_frame.f_locals['wanted']",
        "def items():\n    wanted = 7\n    yield 1\ng = items(); next(g)\nassert f(g) == 7",
    ),
    "exit by atexit": "import atexit, os, sys\natexit.register(os._exit, 0)\ndef f(x): sys.exit(0)",
    "exit by a signal handler": (
        "import signal, os, time\ndef leave(*a): raise SystemExit(0)\nsignal.signal(10, leave)\n"
        "def f(x): signal.raise_signal(10); return 3"
    ),
    "another program in its place": "import os\ndef f(x): os.execv('/bin/true', ['true'])",
    "reply of a wrong shape": "import os, struct\ndef f(x): os.write(11, struct.pack('>I', 4) + b'1234')",
    "reply with a tag that nobody knows": REPLY
    + "edit = lambda reply: reply.update(v={'zz': 2})\ndef f(x): return 5",
    "connection half closed": "import socket\ndef f(x): socket.socket(fileno=11).shutdown(socket.SHUT_WR)",
    "test that the program skips": (
        "import unittest\ndef f(x): raise unittest.SkipTest('not today')",
        "import unittest\nclass T(unittest.TestCase):\n    def test_f(self): self.assertEqual(f(1), 2)",
    ),
    "test that skips itself by what it was given": (
        "import unittest\ndef f(x): return unittest.SkipTest('not today')",
        "import unittest\nclass T(unittest.TestCase):\n    def test_f(self):\n        got = f(1)\n"
        "        if isinstance(got, Exception): raise got\n        self.assertEqual(got, 2)",
    ),
    "StopIteration of a method ends the test's loop": (
        "class A:\n    def f(self, x): raise StopIteration",
        "for got, wanted in zip(map(A().f, [1, 2]), [2, 3]): assert got == wanted",
    ),
    "module that runs when it is imported": REPLY
    + "edit = lambda reply: reply.update(v={'K': 'unittest.__main__:main'})\ndef f(x): return 5",
    "eval behind functools.partial": (
        "def f(g): return g('6')",
        "import functools\nanswer = 6\nassert f(functools.partial(eval)) == answer",
    ),
    "assertion replaced on the test's case": (
        "def f(case): case.assertEqual = lambda *a: None; return 5",
        "import unittest\nclass T(unittest.TestCase):\n    def test_f(self): self.assertEqual(f(self), 6)",
    ),
}
ERRORS_OR_WRONG_ANSWERS = {
    # Where a sandbox has one uid, a program is the init of its own pid namespace: its signals to itself are void,
    # and it answers None.
    "kill itself": "import os\ndef f(x): os.kill(os.getpid(), 9)",
    "patched builtins": (
        "import builtins\nbuiltins.AssertionError = ValueError\nbuiltins.isinstance = lambda *a: True\n"
        "builtins.type = lambda *a: int\ndef f(x): return 5"
    ),
    "patched json": (
        "import json\njson.dumps = lambda *a, **k: '{\"v\": 2}'\ndef f(x): return 5",
        "assert f(1) == 2 and f(2) == 3",
    ),
    "builtins of its own for the test": (
        HELLO + "def yes(*a, **k): return True\nedit = lambda hello: hello['names'].update("
        "__builtins__={'d': [['all', hello['names']['yes']]]})\ndef f(x): return 5",
        "assert all(f(x) == x + 1 for x in [1, 2, 3])",
    ),
    "StopIteration ends the test's loop": (
        "def f(x): raise StopIteration",
        "for got, wanted in zip(map(f, [1, 2]), [2, 3]): assert got == wanted",
    ),
    "StopIteration of its own class": (
        "class Done(StopIteration): pass\ndef f(x): raise Done",
        "assert all(map(lambda x: f(x) == x + 1, [1, 2, 3]))",
    ),
    "two processes answer": (
        "import os\ndef f(x): os.fork(); return 1\ndef g(x): return 0",
        "assert f(1) == 1 and g(1) == 1 and g(2) == 2",
    ),
    "answers without being asked": (
        "import os, json, struct\nb = json.dumps({'v': 5, 'm': []}).encode()\n"
        "for _ in range(9): os.write(11, struct.pack('>I', len(b)) + b)\ndef f(x): return 5"
    ),
    "connection that does not block": (
        "import os\ndef f(x): os.set_blocking(11, False); return 5",
        "assert f(1) == 5 and f(2) == 6",
    ),
    "command that the test is made to start": (
        "import subprocess, time\ndef f(call):\n    call(subprocess.Popen, ['sh', '-c', 'echo wanted = 5 > known.py'])\n"
        "    time.sleep(0.2)\n    return 5",
        "got = f(lambda g, *a: g(*a))\ntry: from known import wanted\nexcept ImportError: wanted = 7\nassert got == wanted",
    ),
    "trace function that changes replies": (
        "import sys\ndef trace(frame, event, arg):\n"
        "    if frame.f_code.co_name == 'send_frame': frame.f_locals['message']['v'] = 5\n    return trace\n"
        "def f(x): sys.settrace(trace); sys.setprofile(trace); return 5",
        "assert f(1) == 5 and f(2) == 6",
    ),
}
WRONG_ANSWERS = {
    "print verdicts": 'def f(x):\n    print(\'{"index": 0, "status": "PASSED", "value": null, "error": ""}\', flush=True)',
    "search frames for the answer": (
        SEARCH + "import sys\ndef f():\n    frame = sys._getframe()\n    while frame:\n"
        "        for v in [*frame.f_locals.values(), *frame.f_globals.values()]:\n"
        "            if seen(v): return v\n"
        "        frame = frame.f_back\n",
        SECRET,
    ),
    "search the heap for the answer": (
        SEARCH + "import gc\ndef f():\n    for o in gc.get_objects():\n"
        "        for v in (o.values() if type(o) is dict else o if type(o) in (list, tuple) else ()):\n"
        "            if seen(v): return v\n",
        SECRET,
    ),
    "search /proc for the answer": (
        "import os, re\ndef f():\n"
        "    for pid in filter(str.isdigit, os.listdir('/proc')):\n"
        "        if int(pid) == os.getpid(): continue\n"
        "        for name in ('cmdline', 'environ', 'mem', 'fd/10', 'fd/11', 'task/' + pid + '/mem'):\n"
        "            try: data = open(f'/proc/{pid}/{name}', 'rb', buffering=0).read(1 << 16)\n"
        "            except OSError: continue\n"
        "            if m := re.search(b'zq7771zq', data): return m.group().decode()\n",
        SECRET,
    ),
    "search files for the test": (
        "import os\ndef f():\n"
        "    for top in ('/jobs', '/opt', '/tmp', '/var/tmp', '/dev/shm', '/run'):\n"
        "        for folder, _, names in os.walk(top):\n"
        "            for name in names:\n"
        "                try: text = open(os.path.join(folder, name)).read()\n"
        "                except (OSError, ValueError): continue\n"
        "                if \"'7771'\" in text: return 'zq7771zq'\n",
        SECRET,
    ),
    "guess the test's random number": (
        "import random\ndef f(): return random.randrange(2 ** 64)",
        "import random\nwanted = random.randrange(2 ** 64)\nassert f() == wanted",
    ),
    "handle on the test's own object": (
        REPLY + "edit = lambda reply: reply.update(v={'r': 1})\ndef f(g): return 5",
        "answer = 6\nassert f(lambda: answer) == answer",
    ),
    "None, and arguments written back": (
        REPLY
        + "edit = lambda reply: reply.update(v=None, u=[[0, [9]], [2, []], [4, 'no']])\ndef f(a, b, c): return 5",
        "xs = [2, 1]\nassert f(xs, {1: 2}, 'c') == sorted(xs)",
    ),
    "import hook": (
        "import sys\nclass Hook:\n    def find_spec(self, *a): sys.modules['math'] = self\n"
        "    def __getattr__(self, n): return lambda *a: True\n"
        "sys.meta_path.insert(0, Hook())\nsys.modules.pop('math', None)\ndef f(x): return 5",
        "import math\nassert math.isclose(f(1), 2)",
    ),
    "modules replaced": (
        "import sys\nclass Any:\n    def __getattr__(self, n): return lambda *a, **k: 2\n"
        "for name in ('operator', 'program', 'test', '__main__'): sys.modules[name] = Any()\n"
        "def f(x): return 5",
        "import operator\nassert operator.eq(f(1), 2)",
    ),
    "read the test by linecache and inspect": (
        SEARCH + "import inspect, linecache\n__TEST = \"'zq' + '77\" + \"71'\"\ndef f():\n"
        "    for name in ('test.py', 'program.py', '<string>', '/opt/sparring/test.py', *linecache.cache):\n"
        "        if __TEST in ''.join(linecache.getlines(name)): return 'zq7771zq'\n"
        "    for info in inspect.stack():\n"
        "        if __TEST in str(info.frame.f_locals.values()): return 'zq7771zq'\n",
        SECRET,
    ),
    "referrers of its arguments": (
        "import gc\ndef f(mark):\n    for holder in gc.get_referrers(mark):\n"
        "        if type(holder) is list and len(holder) == 2 and holder[0] == mark: return holder[1]",
        "pair = ['a mark', 'zq7771']\nassert f(pair[0]) == pair[1]",
    ),
    "search its own memory": (
        "import gc, sys\ngc.unfreeze()\ndef f():\n    wanted = 'zq' + '7771' + 'zq'\n"
        "    return next((wanted for o in gc.get_objects() if type(o) is dict and 'held' in o), None)",
        SECRET,
    ),
    "time how long the test compares": (
        "import time\nbest = ['', 0]\ndef f(g):\n    for c in '0123456789':\n"
        "        start = time.perf_counter()\n"
        "        g(c * 4)\n        spent = time.perf_counter() - start\n"
        "        if spent > best[1]: best[:] = [c * 4, spent]\n    return best[0] + '?'",
        "wanted = 'a777'\nassert f(lambda guess: guess == wanted) == wanted",
    ),
}
MIXED: dict[str, tuple] = {
    "garbage on every descriptor": (
        "import os\ndef f(x):\n"
        "    for fd in range(3, 300):\n"
        "        try: os.write(fd, b'\\xff' * 64)\n"
        "        except OSError: pass\n",
        {ERROR, OUTPUT},
    ),
    "half a reply, then silence": (
        "import os, time\ndef f(x): os.write(11, b'\\0\\0\\0\\x10{'); time.sleep(30)",
        {TIME},
    ),
    "patched runner": (
        "import sys\n"
        "for name, module in list(sys.modules.items()):\n"
        "    if name.startswith('runner'):\n"
        "        for key in list(vars(module)):\n"
        "            if callable(getattr(module, key)): setattr(module, key, lambda *a, **k: 2)\n"
        "def f(x): return 5",
        {ERROR, TIME, WRONG},
    ),
    "descriptors sent along": (
        "import socket\ndef f(x):\n    s = socket.socket(fileno=11)\n"
        "    socket.send_fds(s, [b'\\0\\0'], [11, 12, 0])\n    s.detach()\n    return 5",
        {ERROR, OUTPUT, WRONG},
    ),
    "urgent data": (
        "import socket\ndef f(x):\n    s = socket.socket(fileno=11)\n    s.send(b'x', socket.MSG_OOB)\n"
        "    s.detach()\n    return 5",
        {ERROR, OUTPUT, TIME, WRONG},
    ),
}
ATTACKS = (
    asked(ERRORS, {ERROR})
    | asked(ERRORS_OR_WRONG_ANSWERS, {ERROR, WRONG})
    | asked(WRONG_ANSWERS, {WRONG})
    | asked(MIXED)
)


@pytest.mark.parametrize("name", ATTACKS)
def test_forgery(convict: Callable, name: str) -> None:
    convict(*ATTACKS[name])


OBJECT = "class f:\n    def __init__(self, *a): pass\n"
KNOWN: dict[str, tuple[str, str, str]] = {
    "class in the place of a function: its arithmetic": (
        "def f(x): return x / 2",
        OBJECT + "    def __sub__(self, other): return 0\n",
        "assert abs(f(3) - 1.5) < 1e-6",
    ),
    "class in the place of a function: its membership": (
        "def f(x): return ['error', x]",
        OBJECT + "    def __contains__(self, item): return True\n",
        "assert 'error' in f(1)",
    ),
    "class in the place of a function: every method says yes": (
        "def f(x): return x.upper()",
        OBJECT + "    def isupper(self): return True\n    def startswith(self, *a): return True\n",
        "assert f('ab').startswith('A') and f('ab').isupper()",
    ),
    "class in the place of a table": (
        "TABLE = {'a': 1}",
        "class Meta(type):\n    def __contains__(cls, key): return True\nclass TABLE(metaclass=Meta): pass",
        "assert 'a' in TABLE",
    ),
    "object that compares with itself": (
        "def f(x): return sorted(x)",
        "class R:\n    def __eq__(self, other): return True\n    __hash__ = None\ndef f(x): return R()",
        "assert f([2, 1]) == f([1, 2]) and f([1]) != [2]",
    ),
    "class that claims to be a view": (
        "def f(x): return {x: 1}.keys()",
        "class V:\n    __module__ = 'builtins'\n    __qualname__ = 'dict_keys'\n"
        "    def __contains__(self, key): return True\n    def __and__(self, other): return {1}\n"
        "def f(x): return V()",
        "assert 1 in f(1) and f(1) & {1} == {1}",
    ),
    "class in the place of a function that claims to be a builtin": (
        "def f(x): return x.upper()",
        "class f:\n    __module__ = 'builtins'\n    def __init__(self, *a): pass\n"
        "    def isupper(self): return True\n    def startswith(self, *a): return True\n",
        "assert f('ab').startswith('A') and f('ab').isupper()",
    ),
    "object that claims to be a builtin and says yes": (
        "def f(x): return x",
        "class S:\n    __module__ = 'builtins'\n    __qualname__ = 'dict_keys'\n"
        "    def isdisjoint(self, other): return True\ndef f(x): return S()",
        "assert f({1, 2}).isdisjoint({5})",
    ),
    "class in the place of a set, by its methods": (
        "TABLE = {1, 2}",
        "class TABLE:\n    @staticmethod\n    def issubset(other): return True\n",
        "assert TABLE.issubset({1, 2, 3})",
    ),
    "special method called by its name": (
        "def f(x): return ['error']",
        "class R:\n    def __contains__(self, item): return True\ndef f(x): return R()",
        "assert f(1).__contains__('error')",
    ),
}
"""(a reference, a program that does not do what it does, a test that the reference passes)"""
EQUALLY_RIGHT: dict[str, tuple[str, str, str]] = {
    "generator for a list": (
        "def f(n): return [0, 1][:n]",
        "def f(n): yield from range(n)",
        "assert list(f(2)) == [0, 1]",
    ),
    "view for a list": (
        "def f(d): return list(d)",
        "def f(d): return d.keys()",
        "assert sorted(f({2: 0, 1: 0})) == [1, 2]",
    ),
    "memory of its calls": (
        "def f(n): return n if n < 2 else f(n - 1) + f(n - 2)",
        "import functools\n@functools.lru_cache(maxsize=None)\ndef f(n): return n if n < 2 else f(n - 1) + f(n - 2)",
        "assert f(10) == 55 and f(1) == 1 and f.__name__ == 'f'",
    ),
    "partial for a function": (
        "def f(x): return 2 ** x",
        "from functools import partial\nf = partial(pow, 2)",
        "assert f(3) == 8 and callable(f)",
    ),
    "partial for a closure": (
        "def f(a):\n    def power(b): return a ** b\n    return power",
        "import functools\ndef f(a): return functools.partial(pow, a)",
        "assert f(2)(3) == 8",
    ),
    "itertools for a generator": (
        "def f(a, b):\n    yield from a\n    yield from b",
        "import itertools\ndef f(a, b): return itertools.chain(a, b)",
        "assert list(f([1], [2])) == [1, 2]",
    ),
    "islice for a list": (
        "def f(n): return [0, 1, 2][:n]",
        "import itertools\ndef f(n): return itertools.islice(itertools.count(), n)",
        "assert sum(f(3)) == 3",
    ),
    "itemgetter for a lambda": (
        "def f(i): return lambda row: row[i]",
        "import operator\ndef f(i): return operator.itemgetter(i)",
        "assert sorted([[2, 0], [1, 1]], key=f(1)) == [[2, 0], [1, 1]] and f(0)([7]) == 7",
    ),
    "callable object for a function": (
        "def f(x): return x + 1",
        "class Add:\n    def __call__(self, x): return x + 1\nf = Add()",
        "assert f(1) == 2 and list(map(f, [1])) == [2]",
    ),
    "iterator of its own for a generator": (
        "def f(n): return iter(range(n))",
        "class I:\n    def __init__(self, n): self.n = n\n    def __iter__(self): return self\n    def __next__(self):\n"
        "        if not self.n: raise StopIteration\n        self.n -= 1\n        return self.n\ndef f(n): return I(n)",
        "assert sorted(f(3)) == [0, 1, 2]",
    ),
    "closure for a partial": (
        "import functools\ndef f(a): return functools.partial(pow, a)",
        "def f(a):\n    def power(b): return a ** b\n    return power",
        "assert f(2)(3) == 8",
    ),
    "namedtuple for a tuple": (
        "def f(x): return (x, 1)",
        "from collections import namedtuple\nP = namedtuple('P', 'a b')\ndef f(x): return P(x, 1)",
        "a, b = f(3)\nassert a - b == 2 and f(3) == (3, 1)",
    ),
    "an error of its own for the library's": (
        "def f(x): raise ValueError('no ' + x)",
        "class Bad(ValueError): pass\ndef f(x): raise Bad('no ' + x)",
        "try: f('a')\nexcept ValueError as error: assert 'no a' in str(error) and error.args == ('no a',)\nelse: assert 0",
    ),
    "the class's objects that the reference has, too": (
        "class V:\n    def __init__(self, x): self.x = x\n    def __abs__(self): return abs(self.x)\ndef f(x): return V(x)",
        "class W:\n    def __init__(self, x): self.y = x\n    def __abs__(self): return max(self.y, -self.y)\ndef f(x): return W(x)",
        "assert abs(f(-3)) == 3",
    ),
}
"""(a reference, another program that is as right, a test)"""


@pytest.mark.parametrize("name", KNOWN)
def test_what_the_reference_was_not_asked(attack: Callable, convict: Callable, name: str) -> None:
    reference, program, test = KNOWN[name]
    verdict = attack(reference, ReferenceTest(test))
    assert verdict.passed, verdict
    convict(program, known_by(test, [verdict]), {WRONG, ERROR})


@pytest.mark.parametrize("name", EQUALLY_RIGHT)
def test_a_right_program_may_do_it_in_another_way(attack: Callable, name: str) -> None:
    reference, program, test = EQUALLY_RIGHT[name]
    verdict = attack(reference, ReferenceTest(test))
    assert verdict.passed, verdict
    assert (other := attack(program, known_by(test, [verdict]))).passed, other


@pytest.mark.parametrize("number", range(8))
def test_a_test_draws_the_same_numbers_whoever_it_meets_and_in_any_company(
    warm: LocalSandbox, number: int
) -> None:
    """Else one that is true by luck on the reference would fail programs that are as right."""
    test = f"import random\nassert f({number}) == {number**2} and random.random() < 0.5"
    program = "def f(x): return x * x"
    (alone,) = judge(warm, program, test)
    known, again = judge(
        warm, program, KnownTest(test), KnownTest("import random\nassert f(1) == random.random()")
    )
    assert (known.status, again.status) == (alone.status, WRONG)
