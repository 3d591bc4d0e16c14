"""One suite for every sandbox: each backend behind the local client, containers under gVisor, the pool of actors."""

import asyncio
import uuid
from collections.abc import Iterator

import pytest

from actors.watching import end
from sandbox_workers.jobs import SandboxUnavailable
from sandbox_workers.local import LocalSandbox
from sandbox_workers.pool import start_pool
from sparring.core.interfaces import Sandbox
from sparring.core.verdict import Limits, OutputTest, Status, Verdict
from tests.ray_clusters import own_ray
from tests.sandboxes import require

QUICK = Limits(cpu_s=0.5, wall_s=3.0, memory_mb=128, output_kb=16)


@pytest.fixture(scope="module", params=["docker", "runsc", "namespace", "process", "pool"])
def sandbox(request: pytest.FixtureRequest) -> Iterator[Sandbox]:
    if request.param == "runsc":
        try:
            gvisor = LocalSandbox("docker", runtime="runsc", limits=QUICK)
        except SandboxUnavailable as missing:
            pytest.skip(str(missing))
        with gvisor:
            yield gvisor
        return
    if request.param != "pool":
        require(request.param)
        with LocalSandbox(request.param, limits=QUICK) as local:
            yield local
        return
    require("auto")
    with own_ray(resources={"sandbox": 2}):
        pool = start_pool(2, slots=1, run_id=f"test-{uuid.uuid4().hex[:8]}", limits=QUICK, end=end)
        try:
            yield pool.client()
        finally:
            pool.shutdown()


def judge(sandbox: Sandbox, program: str, *tests: str, limits: Limits | None = None) -> list[Verdict]:
    async def bounded() -> list[Verdict]:
        return await asyncio.wait_for(sandbox.judge(program, tests, limits=limits), 60)

    return asyncio.run(bounded())


def statuses(verdicts: list[Verdict]) -> list[str]:
    return [str(verdict.status) for verdict in verdicts]


PLUS_ONE = "def f(x):\n    return x + 1\n"


def test_asserts_pass_or_fail_in_order(sandbox: Sandbox) -> None:
    verdicts = judge(
        sandbox, PLUS_ONE, "assert f(1) == 2", "assert f(1) == 3, 'off by one'", "assert f(0) == 1"
    )
    assert statuses(verdicts) == ["PASSED", "WRONG_ANSWER", "PASSED"]
    assert verdicts[1].error == "off by one"
    assert verdicts[0].value is None and verdicts[0].passed


def test_a_job_may_ask_for_more_memory_than_the_sandbox_was_made_for(sandbox: Sandbox) -> None:
    """Data sets state up to 1024 MB, of which few programs need much."""
    limits = QUICK.model_copy(update={"memory_mb": 2048})
    assert statuses(judge(sandbox, PLUS_ONE, "assert f(1) == 2", limits=limits)) == ["PASSED"]


@pytest.mark.parametrize(
    ("expression", "value"),
    [
        ("f(1)", "2"),
        ("[f(1), (f(2),)]", "[2, (3,)]"),
        ("{'b': 1, 'a': f(0)}", "{'b': 1, 'a': 1}"),
        ("{'c', 'a', 'b'}", "{'a', 'b', 'c'}"),
        ("set(), frozenset([2, 1])", "(set(), frozenset({1, 2}))"),
        ("f(0.5)", "1.5"),
        ("f(float('nan'))", "nan"),
        ("f(10**30)", str(10**30 + 1)),
        ("None", "None"),
        ("b'x'", "b'x'"),
        ("'quote\\'s'", repr("quote's")),
    ],
)
def test_an_expression_has_a_value(sandbox: Sandbox, expression: str, value: str) -> None:
    (verdict,) = judge(sandbox, PLUS_ONE, expression)
    assert (verdict.status, verdict.value) == (Status.PASSED, value)


def test_values_of_the_program_are_reduced_to_plain_ones(sandbox: Sandbox) -> None:
    program = (
        "import collections\ndef f(): return collections.Counter('aab'), collections.OrderedDict(a=[{1}])"
    )
    assert judge(sandbox, program, "f()")[0].value == "({'a': 2, 'b': 1}, {'a': [{1}]})"


@pytest.mark.parametrize("expression", ["f", "object()", "[f]", "(x for x in [1])", "g()", "len"])
def test_what_is_not_plain_has_no_value(sandbox: Sandbox, expression: str) -> None:
    (verdict,) = judge(sandbox, "def f(): pass\ndef g(): yield 1", expression)
    assert verdict.status is Status.RUNTIME_ERROR and "not a plain value" in verdict.error


@pytest.mark.parametrize("test", ["assert f(1) == 2", "import os\nassert f(1) == 2"])
@pytest.mark.parametrize(
    "program",
    ["\ufeffdef f(x): return x + 1", "def f(x): return len(str(3 ** 20_000)) and int('9' * 6_000) % 2 + x"],
    ids=["byte order mark", "long integers"],
)
def test_what_python_runs_is_run(sandbox: Sandbox, program: str, test: str) -> None:
    assert statuses(judge(sandbox, program, test)) == ["PASSED"]


def test_integers_of_any_length_stand_in_tests(sandbox: Sandbox) -> None:
    number = "9" * 5_000
    tests = f"assert f({number}) == {number[:-1]}8 + 2", f"assert f({number}) == {number}", f"f(0) + {number}"
    verdicts = judge(sandbox, PLUS_ONE, *tests, f"import math\nassert f({number}) > 0")
    assert statuses(verdicts) == ["PASSED", "WRONG_ANSWER", "OUTPUT_LIMIT", "PASSED"]


def test_a_program_prints_integers_of_any_length(sandbox: Sandbox) -> None:
    test = OutputTest(stdin="7" * 6_000, stdout=f"{'7' * 5_999}8")
    (verdict,) = asyncio.run(sandbox.judge("print(int(input()) + 1)", [test], limits=QUICK))
    assert verdict.passed, verdict


@pytest.mark.parametrize("code", ["", "print(len('ß'))"])
@pytest.mark.parametrize(
    "beginning",
    [
        "# -*- coding: iso-8859-15 -*-",
        "#!/usr/bin/env python\n# vim: set fileencoding=gb18030 :",
        "\r\n  # coding: cp1251\r\n# coding: utf-8",
        "# coding: koi8-r\n# coding: utf-8",
        "\ufeff#coding=shift_jis",
    ],
)
def test_a_program_is_text_whatever_encoding_it_declares(sandbox: Sandbox, beginning: str, code: str) -> None:
    program = f"{beginning}\nprint(len('ж語'))"
    test = OutputTest(stdout="2\n1" if code else "2", code=code)
    (verdict,) = asyncio.run(sandbox.judge(program, [test], limits=QUICK))
    assert verdict.passed, verdict


@pytest.mark.parametrize(
    "lines", ["text = '''\n# coding: latin-1\n'''", "pass\n# coding: latin-1", "#\n#\n#coding=gbk"]
)
def test_a_text_that_declares_no_encoding_is_left_as_it_is(sandbox: Sandbox, lines: str) -> None:
    program = f"{lines}\nprint(open(__file__).read())"
    (verdict,) = asyncio.run(sandbox.judge(program, [OutputTest(stdout=program)], limits=QUICK))
    assert verdict.passed, verdict


@pytest.mark.parametrize("expression", ["'x' * 5000", "list(range(5000))", "10 ** 5000"])
def test_a_long_value_is_over_the_limit(sandbox: Sandbox, expression: str) -> None:
    assert statuses(judge(sandbox, PLUS_ONE, expression)) == ["OUTPUT_LIMIT"]


@pytest.mark.parametrize(
    ("program", "status"),
    [
        ("def f(x):\n    return 1 / 0", "RUNTIME_ERROR"),
        ("def f(x): raise SystemExit(0)", "RUNTIME_ERROR"),
        ("def f(x): assert False", "RUNTIME_ERROR"),
        ("raise ValueError('at load')", "RUNTIME_ERROR"),
        ("def f(x:", "SYNTAX_ERROR"),
        ("def f(x):\n    while True: pass", "TIME_LIMIT"),
        ("while True: pass", "TIME_LIMIT"),
        ("def f(x): return len('x' * (1 << 30))", "MEMORY_LIMIT"),
        ("def f(x): print('x' * 100_000); return 2", "OUTPUT_LIMIT"),
        ("def f(x):\n    while True: print('x' * 1000)", "OUTPUT_LIMIT"),
    ],
)
def test_the_program_is_to_blame(sandbox: Sandbox, program: str, status: str) -> None:
    verdicts = judge(sandbox, program, "assert f(1) == 2", "import os\nassert f(1) == 2")
    assert [verdict.isolation for verdict in verdicts] == ["separate", "shared"]
    for verdict in verdicts:
        assert str(verdict.status) == status
        assert not verdict.error.startswith("test: ")
        assert not verdict.passed and verdict.value is None


def test_a_sleeping_program_is_over_its_time(sandbox: Sandbox) -> None:
    limits = QUICK.model_copy(update={"wall_s": 0.5})
    (verdict,) = judge(sandbox, "import time\ndef f(): time.sleep(60)", "f()", limits=limits)
    assert verdict.status is Status.TIME_LIMIT


@pytest.mark.parametrize(
    ("test", "status"),
    [
        ("assert f(1) == unknown_name", "RUNTIME_ERROR"),
        ("assert f(1) ==", "SYNTAX_ERROR"),
        ("import os\nassert f(1) == unknown_name", "RUNTIME_ERROR"),
        ("import os\nassert True", "RUNTIME_ERROR"),
    ],
)
def test_the_test_is_to_blame(sandbox: Sandbox, test: str, status: str) -> None:
    verdicts = judge(sandbox, PLUS_ONE, test, "assert f(1) == 2")
    assert statuses(verdicts) == [status, "PASSED"]
    assert verdicts[0].error.startswith("test: ")


def test_a_test_that_hangs_is_over_its_time(sandbox: Sandbox) -> None:
    verdicts = judge(sandbox, PLUS_ONE, "assert all(f for _ in range(10 ** 12))", "assert f(1) == 2")
    assert statuses(verdicts) == ["TIME_LIMIT", "PASSED"]


@pytest.mark.parametrize(
    ("test", "status"),
    [
        ("import os; f; os._exit(0)", "RUNTIME_ERROR"),
        ("f\nwhile True: pass", "TIME_LIMIT"),
        ("f\nprint('x' * 100_000)\nassert True", "OUTPUT_LIMIT"),
    ],
)
def test_code_that_ends_its_process_costs_only_itself(sandbox: Sandbox, test: str, status: str) -> None:
    after = "import os\nassert f(1) == 2"
    assert statuses(judge(sandbox, PLUS_ONE, after, test, after)) == ["PASSED", status, "PASSED"]


def test_a_hanging_test_costs_only_itself(sandbox: Sandbox) -> None:
    program = "def f(x):\n    while x == 3: pass\n    return x"
    verdicts = judge(sandbox, program, *[f"assert f({x}) == {x}" for x in range(6)])
    assert statuses(verdicts) == ["PASSED"] * 3 + ["TIME_LIMIT"] + ["PASSED"] * 2


def test_a_dying_program_costs_only_its_test(sandbox: Sandbox) -> None:
    program = "import os\ndef f(x):\n    if x == 1: os._exit(7)\n    return x"
    verdicts = judge(sandbox, program, "f(0)", "f(1)", "f(2)")
    assert statuses(verdicts) == ["PASSED", "RUNTIME_ERROR", "PASSED"]
    assert "exited with code 7" in verdicts[1].error


def test_expected_exceptions_cross(sandbox: Sandbox) -> None:
    program = "class Odd(ValueError): pass\ndef f(x):\n    if x % 2: raise Odd('odd')\n    return [][x]"
    test = "try:\n    f(1)\nexcept Odd as e:\n    assert str(e) == 'odd'\nelse:\n    assert False"
    other = "try:\n    f(2)\nexcept IndexError:\n    pass"
    assert statuses(judge(sandbox, program, test, other)) == ["PASSED", "PASSED"]


def test_objects_generators_callbacks_and_arguments_in_place(sandbox: Sandbox) -> None:
    program = (
        "class Stack:\n    def __init__(self): self.items = []\n    def push(self, x): self.items.append(x)\n"
        "def count(n):\n    yield from range(n)\n"
        "def apply(g, x): return g(x)\n"
        "def sort_it(xs): xs.sort()\n"
    )
    tests = [
        "s = Stack(); s.push(3); assert s.items == [3]",
        "assert list(count(3)) == [0, 1, 2]",
        "assert apply(lambda x: x * 2, 4) == 8",
        "xs = [3, 1]; sort_it(xs); assert xs == [1, 3]",
        "def test_stack():\n    assert Stack().items == [1]",
    ]
    assert statuses(judge(sandbox, program, *tests)) == ["PASSED"] * 4 + ["WRONG_ANSWER"]


def test_plain_types_and_the_programs_imports_are_the_same_on_both_sides(sandbox: Sandbox) -> None:
    program = "import sys, math\nimport os.path as path\ndef f(kind): return [x for x in (1, 'a') if isinstance(x, kind)]"
    tests = [
        "assert f(int) == [1]",
        "assert f(str) == ['a']",
        "assert f(int)[0] < math.floor(2.5) < sys.maxsize",
    ]
    assert statuses(judge(sandbox, program, *tests, "assert path")) == ["PASSED"] * 3 + ["RUNTIME_ERROR"]


def test_output_and_cpu_are_told(sandbox: Sandbox) -> None:
    program = "print('load')\ndef f(x):\n    print('call', x)\n    return sum(range(3_000_000))"
    first, second = judge(sandbox, program, "f(1)", "f(2)")
    assert (first.stdout, second.stdout) == ("load\ncall 1\n", "load\ncall 2\n")
    assert 1 < first.cpu_ms < 10_000


def test_output_belongs_to_the_test_that_caused_it(sandbox: Sandbox) -> None:
    program = "import sys\nprint('load')\ndef f(x):\n    print(x)\n    print(-x, file=sys.stderr)"
    verdicts = judge(sandbox, program, *[f"f({x})" for x in range(1, 15)])
    assert [v.stdout for v in verdicts] == [f"load\n{x}\n" for x in range(1, 15)]
    assert [v.stderr for v in verdicts] == [f"-{x}\n" for x in range(1, 15)]


@pytest.mark.parametrize("first", ["", "import os\n"])
def test_stderr_may_be_long_and_its_end_is_kept(sandbox: Sandbox, first: str) -> None:
    program = "import sys\ndef f(n):\n    for i in range(n): print('step', i, file=sys.stderr)\n    return n"
    tests = [f"{first}assert f({n}) == {n}" for n in (60_000, 60_001, 200_000)]
    verdicts = judge(sandbox, program, *tests)
    assert statuses(verdicts) == ["PASSED", "PASSED", "OUTPUT_LIMIT"]
    assert all(len(verdict.stderr) == QUICK.output_kb << 10 for verdict in verdicts)
    assert verdicts[0].stderr.endswith("step 59999\n")


def test_a_whole_programs_stderr_may_be_long(sandbox: Sandbox) -> None:
    program = "import sys\nfor i in range(9_000): print('step', i, file=sys.stderr)\nprint(int(input()) + 1)"
    tests = [OutputTest(stdin="3", stdout="4"), OutputTest(stdin="x", stdout="4")]
    verdicts = asyncio.run(sandbox.judge(program, tests, limits=QUICK))
    assert statuses(verdicts) == ["PASSED", "RUNTIME_ERROR"]
    assert "ValueError" in verdicts[1].stderr[-100:]


def test_no_tests_no_verdicts(sandbox: Sandbox) -> None:
    assert judge(sandbox, PLUS_ONE) == []


def test_many_at_once_keep_apart(sandbox: Sandbox) -> None:
    async def all_of_them() -> list[list[Verdict]]:
        wanted = [
            sandbox.judge(f"def f(x): return x + {n}", [f"f({x})" for x in range(3)]) for n in range(30)
        ]
        return await asyncio.wait_for(asyncio.gather(*wanted), 60)

    for n, verdicts in enumerate(asyncio.run(all_of_them())):
        assert [verdict.value for verdict in verdicts] == [str(x + n) for x in range(3)]


def test_another_run_is_judged_afresh(sandbox: Sandbox) -> None:
    async def twice(first: int, second: int) -> list[str | None]:
        program = "import os\ndef f(): return os.urandom(8).hex()"
        return [(await sandbox.judge(program, ["f()"], run=run))[0].value for run in (first, second)]

    same = asyncio.run(twice(1, 1))
    other = asyncio.run(twice(2, 3))
    assert same[0] == same[1] and other[0] != other[1]
