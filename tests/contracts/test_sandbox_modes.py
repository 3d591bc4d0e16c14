"""The sandboxes of users that may do less than root: one uid with namespaces, and one uid with nothing."""

from collections.abc import Iterator

import pytest

from sandbox_workers.jobs import Backend, Job, SandboxUnavailable
from sandbox_workers.namespace_backend import NamespaceBackend, Privilege, find_way
from sandbox_workers.process_backend import ProcessBackend
from sparring.core.verdict import Limits, OutputTest, ReferenceTest

QUICK = Limits(cpu_s=0.5, wall_s=3.0, memory_mb=128, output_kb=16, processes=100)


@pytest.fixture(scope="module", params=["namespaces, one uid", "processes, one uid"])
def backend(request: pytest.FixtureRequest) -> Iterator[Backend]:
    if request.param.startswith("processes"):
        made: Backend = ProcessBackend(slots=1, own_uids=False)
    else:
        try:
            made = NamespaceBackend(slots=1, way=find_way((Privilege.ONE_UID,)))
        except SandboxUnavailable as missing:
            pytest.skip(str(missing))
    made.start()
    yield made
    made.close()


def judge(backend: Backend, program: str, *tests: str) -> list[str]:
    verdicts = backend.judge_batch([Job(program=program, tests=tests, limits=QUICK)])[0]
    return [str(verdict.status) for verdict in verdicts]


HONEST = ("def f(x): return x + 1", "assert f(1) == 2", "assert f(1) == 3", "assert [f(1)] == [2]")
VERDICTS = ["PASSED", "WRONG_ANSWER", "PASSED"]


@pytest.mark.parametrize(
    ("program", "status"),
    [
        ("def f(x): return x + 2", "WRONG_ANSWER"),
        ("def f(x):\n    while True: pass", "TIME_LIMIT"),
        ("import os\ndef f(x): os._exit(0)", "RUNTIME_ERROR"),
        (
            "import os, time\ndef f(x):\n    if os.fork() == 0: os.setsid(); time.sleep(60)\n    return 0",
            "WRONG_ANSWER",
        ),
        ("open('left', 'w').write('x')\ndef f(x): return 0", "WRONG_ANSWER"),
    ],
)
def test_each_job_has_its_verdict_and_leaves_nothing(backend: Backend, program: str, status: str) -> None:
    assert judge(backend, program, "assert f(1) == 2") == [status]
    assert judge(backend, *HONEST) == VERDICTS
    assert judge(backend, "import os\ndef f(): return os.listdir('.')", "assert f() == []") == ["PASSED"]


def test_commands_run(backend: Backend) -> None:
    job = Job(
        program="print(int(input()) + 1)",
        tests=(OutputTest(stdin="1", stdout=None), OutputTest(stdin="x", stdout=None)),
        limits=QUICK,
    )
    first, second = backend.judge_batch([job])[0]
    assert (str(first.status), first.stdout) == ("PASSED", "2\n")
    assert str(second.status) == "RUNTIME_ERROR" and "ValueError" in second.stderr


def test_code_that_is_refused_is_not_run(backend: Backend) -> None:
    """Whether a test is code by its text, or since copies of what the program gave would not do."""
    job = Job(
        program="import collections\ndef f(x): return x + 1\ndef g(): return collections.defaultdict(int)",
        tests=("assert f(1) == 2", "import os\nassert f(1) == 2", "assert g()['x'] == 0"),
        limits=QUICK,
        code_tests="refuse",
    )
    verdicts = backend.judge_batch([job])[0]
    assert [(str(v.status), v.isolation) for v in verdicts] == [
        ("PASSED", "separate"), ("UNSUPPORTED", "shared"), ("UNSUPPORTED", "shared"),
    ]  # fmt: skip
    outputs = (OutputTest(stdout="2"), OutputTest(code="print(f(1))", stdout="2"))
    program = Job(program="f = lambda x: x + 1\nprint(2)", tests=outputs, limits=QUICK, code_tests="refuse")
    assert [str(v.status) for v in backend.judge_batch([program])[0]] == ["PASSED", "UNSUPPORTED"]


def test_what_is_built_runs(backend: Backend) -> None:
    if "gcc" not in backend.commands():
        pytest.skip("no gcc here")
    job = Job(
        program='#include <stdio.h>\nint main() { int x; scanf("%d", &x); printf("%d", x + 1); }',
        tests=(OutputTest(stdin="1", stdout=None), OutputTest(stdin="2", stdout=None)),
        limits=QUICK,
        language="c",
    )
    assert [verdict.stdout for verdict in backend.judge_batch([job])[0]] == ["2", "3"]


def test_what_is_built_keeps_to_its_memory(backend: Backend) -> None:
    if "gcc" not in backend.commands():
        pytest.skip("no gcc here")
    program = "#include <stdlib.h>\n#include <unistd.h>\n"
    program += "int main() { volatile char *kept = malloc(1 << 30); for (long i = 0; i < 1 << 30; i += 4096) kept[i] = 1; sleep(1); }"
    job = Job(program=program, tests=(OutputTest(stdout=""),), limits=QUICK, language="c")
    assert [str(verdict.status) for verdict in backend.judge_batch([job])[0]] == ["MEMORY_LIMIT"]


def test_what_the_reference_passes_as_code_alone_is_code(backend: Backend) -> None:
    """Each by itself: it changes nothing for tests that are code by their text."""
    tests = {
        "xs = [1, 2]\nassert pop(xs) + len(xs) == 3": ("PASSED", "shared"),
        "assert pop([1, 2]) == 3": ("WRONG_ANSWER", "separate"),
        "assert count() == 7": ("WRONG_ANSWER", "separate"),
        "import os\nassert count() == 1": ("PASSED", "shared"),
        "assert True or pop([1])": ("RUNTIME_ERROR", "separate"),
    }
    job = Job(
        program="met = []\ndef pop(xs): return xs.pop()\ndef count(): met.append(1); return len(met)",
        tests=tuple(map(ReferenceTest, tests)),
        limits=QUICK,
    )
    verdicts = backend.judge_batch([job])[0]
    assert [(str(verdict.status), verdict.isolation) for verdict in verdicts] == [*tests.values()]
