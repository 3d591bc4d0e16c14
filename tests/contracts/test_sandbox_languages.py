"""Programs of every language in every sandbox: what they print is compared here, never there."""

import asyncio
import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from sandbox_workers.languages import UnknownLanguage
from sandbox_workers.local import LocalSandbox
from sparring.core.interfaces import SandboxFailure
from sparring.core.verdict import Limits, OutputTest, Status, Verdict
from tests.sandboxes import require

QUICK = Limits(cpu_s=1.0, wall_s=6.0, memory_mb=128, output_kb=16)
ADD = {
    "python": "a, b = map(int, input().split())\nprint(a + b)",
    "javascript": "const s = require('fs').readFileSync(0, 'utf8').split(' ').map(Number);\nconsole.log(s[0] + s[1])",
    "lua": "local a, b = io.read('n', 'n')\nprint(a + b)",
    "bash": "read a b; echo $((a + b))",
    "c": '#include <stdio.h>\nint main() { int a, b; scanf("%d %d", &a, &b); printf("%d\\n", a + b); }',
}
HANG = {
    "python": "while True: pass",
    "javascript": "while (true) {}",
    "lua": "while true do end",
    "bash": "while :; do :; done",
    "c": "int main() { for (volatile int i = 0;; i++); }",
}
FAIL = {
    "python": "raise SystemExit(3)",
    "javascript": "process.exit(3)",
    "lua": "os.exit(3)",
    "bash": "exit 3",
    "c": "int main() { return 3; }",
}
HONEST = {
    "bash stops an endless writer": ("bash", "while :; do echo y; done | head -n 2", "", "y\ny\n"),
    "bash uses awk": ("bash", "awk '{ print $2 }'", "a b\n", "b\n"),
    "c with M_PI": (
        "c",
        '#include <math.h>\n#include <stdio.h>\nint main() { printf("%.3f\\n", 2 * M_PI); }',
        "",
        "6.283\n",
    ),
    "c with strdup": (
        "c",
        '#include <stdio.h>\n#include <string.h>\nint main() { puts(strdup("ab")); }',
        "",
        "ab\n",
    ),
    "python with a pool of threads": (
        "python",
        "from concurrent.futures import ThreadPoolExecutor\nfrom threading import Barrier\nall_there = Barrier(32)\n"
        "with ThreadPoolExecutor(32) as pool: print(sum(pool.map(lambda x: x + 0 * all_there.wait(), range(32))))",
        "",
        "496\n",
    ),
    "python in a thread with a large stack": (
        "python",
        "import sys, threading\nsys.setrecursionlimit(10 ** 6)\nthreading.stack_size(512 << 20)\n"
        "def depth(n): return n and 1 + depth(n - 1)\n"
        "thread = threading.Thread(target=lambda: print(depth(int(input()))))\nthread.start()\nthread.join()",
        "20000\n",
        "20000\n",
    ),
    "c with eight threads": (
        "c",
        "#include <pthread.h>\n#include <stdio.h>\nstatic void *run(void *of) { *(int *) of *= 2; return 0; }\n"
        "int main() { pthread_t ids[8]; int values[8], sum = 0;\n"
        "  for (int i = 0; i < 8; i++) { values[i] = i; if (pthread_create(&ids[i], 0, run, &values[i])) return 1; }\n"
        '  for (int i = 0; i < 8; i++) { pthread_join(ids[i], 0); sum += values[i]; } printf("%d\\n", sum); }',
        "",
        "56\n",
    ),
    "javascript counts to fifty million": (
        "javascript",
        "let s = 0; for (let i = 0; i < 5e7; i++) s = (s + i * 7) % 1000003; console.log(s)",
        "",
        "79275\n",
    ),
}
TESTED = {
    "python": ("python", "def f(x): return x + 1", "print(f(1))", "2\n"),
    "python, a script and its module": (
        "python",
        "import pickle, sys\nclass A: pass\ndef f(): return type(pickle.loads(pickle.dumps(A()))).__name__\n"
        "LIMIT = 3\ndef g(): return LIMIT\nif __name__ == '__main__': print(sys.argv, __file__[-8:])",
        "LIMIT = 4\nprint(f(), g())",
        "['main.py'] /main.py\nA 4\n",
    ),
    "python, a stdout that is wrapped": (
        "python",
        "import io, sys\nsys.stdout = io.TextIOWrapper(sys.stdout.buffer)\nprint('a')\ndef f(x): print(x)",
        "f('b')\nprint('c')",
        "a\nb\nc\n",
    ),
    "python, a stdout that is detached": (
        "python",
        "import io, sys\nsys.stdout = io.TextIOWrapper(sys.stdout.detach())\nprint('a')\ndef f(x): print(x)",
        "f('b')\nprint('c')",
        "a\nb\nc\n",
    ),
    "lua": ("lua", "function f(x) return x + 1 end", "print(f(1))", "2\n"),
    "lua, local names": (
        "lua",
        "#!/usr/bin/lua\nlocal function f(x) return x .. 1 end",
        'print(("%q"):format(f("a")), table.concat({1, 2}))\nio.write(#arg)',
        '"a1"\t12\n0',
    ),
    "lua, a function among the library's": (
        "lua",
        "function table.last(t) return t[#t] end function string.twice(s) return s .. s end",
        'print(table.last({1, 2}), ("a"):twice(), string.twice("b"))',
        "2\taa\tbb\n",
    ),
    "javascript": ("javascript", "function f(x) { return x + 1; }", "console.log(f(1));", "2\n"),
    "javascript, a module with const": (
        "javascript",
        "#!/usr/bin/env node\n'use strict';\nvar crypto = require('crypto');\nconst f = () => typeof crypto.createHash;"
        "\nclass A {}\nmodule.exports = { f };",
        "console.log(module.exports.f(), typeof A, require.main === module, __filename.slice(-8));",
        "function function true /main.js\n",
    ),
    "javascript, later": (
        "javascript",
        "const f = () => new Promise(done => setTimeout(() => done(5), 10));",
        "f().then(console.log);",
        "5\n",
    ),
    "bash": ("bash", "f() { echo $(($1 + 1)); }", "f 1; echo $0", "2\nmain.sh\n"),
    "bash, strict": ("bash", "set -euo pipefail\nf() { echo $1; }\n[ $# = 1 ] && exit", "f 1", "1\n"),
    "c": (
        "c",
        "int f(int x) { return x + 1; }",
        '#include <stdio.h>\nint main(int count, char **words) { printf("%d\\n", f(count)); }',
        "2\n",
    ),
}


@pytest.fixture(scope="module", params=["docker", "namespace", "process"])
def sandbox(request: pytest.FixtureRequest) -> Iterator[LocalSandbox]:
    require(request.param)
    with LocalSandbox(request.param, limits=QUICK) as local:
        yield local


def judge(
    sandbox: LocalSandbox, language: str, program: str, *tests: OutputTest, limits: Limits | None = None
) -> list[Verdict]:
    async def bounded() -> list[Verdict]:
        return await asyncio.wait_for(sandbox.judge(program, tests, limits=limits, language=language), 120)

    try:
        return asyncio.run(bounded())
    except UnknownLanguage as missing:  # the namespace sandbox has what the host has; the image has all
        if sandbox.description.startswith("sandbox: Docker"):
            raise
        pytest.skip(str(missing))


GREEDY = {
    "python": "kept = b'x' * (400 << 20)\nprint(2)",
    "javascript": "const kept = [];\nfor (let i = 0; i < 8; i++) kept.push(Buffer.alloc(50 << 20, 1));\nconsole.log(2);",
    "c": "#include <stdlib.h>\n#include <string.h>\n#include <stdio.h>\n#include <unistd.h>\n"
    "int main() { for (int i = 0; i < 8; i++) if (fork() == 0) { memset(malloc(50 << 20), 1, 50 << 20); sleep(9); }\n"
    '  sleep(9); puts("2"); }',
}
"""400 MiB where 128 are allowed, in one process or in several."""


@pytest.mark.parametrize("language", sorted(ADD))
def test_standard_input_to_standard_output(sandbox: LocalSandbox, language: str) -> None:
    verdicts = judge(
        sandbox,
        language,
        ADD[language],
        OutputTest(stdin="3 4\n", stdout="7"),
        OutputTest(stdin="3 5\n", stdout="7\n"),
        OutputTest(stdin="-3 3\n", stdout=None),
    )
    assert [str(v.status) for v in verdicts] == ["PASSED", "WRONG_ANSWER", "PASSED"]
    assert verdicts[2].stdout == "0\n"
    assert verdicts[0].cpu_ms > 0 and verdicts[0].memory_bytes > 100_000


@pytest.mark.parametrize("language", sorted(HANG))
def test_a_hanging_program_is_over_its_time(sandbox: LocalSandbox, language: str) -> None:
    verdicts = judge(sandbox, language, HANG[language], OutputTest(stdout=""))
    assert [v.status for v in verdicts] == [Status.TIME_LIMIT]
    assert judge(sandbox, language, ADD[language], OutputTest(stdin="1 2", stdout="3"))[0].passed


def test_stdin_may_be_larger_than_a_programs_files(sandbox: LocalSandbox) -> None:
    program = "import sys\nprint(len(sys.stdin.read()))\nopen('large', 'w').write(int(2e6) * ' ')"
    asked = [OutputTest(stdin="a" * (mib << 20), stdout=str(mib << 20)) for mib in (2, 3, 17)]
    limits = QUICK.model_copy(update={"file_mb": 1})
    assert [v.passed for v in judge(sandbox, "python", program, *asked[:2], limits=limits)] == [True, True]
    if sandbox.description.startswith("sandbox: plain"):  # each kind takes seconds for its retries
        with pytest.raises(SandboxFailure, match="above 16777216"):  # not the program's doing
            judge(sandbox, "python", program, asked[2], limits=limits)


def test_a_text_that_is_no_utf8_is_the_programs_to_read(sandbox: LocalSandbox) -> None:
    count = "import sys; print(len(sys.stdin.buffer.read()))"
    tests = [OutputTest(stdin="\udcff", stdout="1\n"), OutputTest(stdin="\ud800", stdout="3\n")]
    for language, program in {"python": "print('\ud800')", "bash": "echo '\ud800' >&2; exit 3"}.items():
        (verdict,) = asyncio.run(sandbox.judge(program, [OutputTest(stdout="")], language=language))
        assert verdict.status in (Status.SYNTAX_ERROR, Status.RUNTIME_ERROR)
    assert [v.status for v in asyncio.run(sandbox.judge(count, tests))] == [Status.PASSED] * 2
    assert not sandbox.worker.replaced


def test_a_run_finds_no_files_of_the_one_before(sandbox: LocalSandbox) -> None:
    asked = [OutputTest(stdin=stdin, stdout="") for stdin in "xy"]
    verdicts = judge(sandbox, "bash", "cat said 2>/dev/null; cat > said", *asked)
    assert [v.status for v in verdicts] == [Status.PASSED] * 2


@pytest.mark.parametrize("language", sorted(FAIL))
def test_a_failing_program_says_how(sandbox: LocalSandbox, language: str) -> None:
    (verdict,) = judge(sandbox, language, FAIL[language], OutputTest(stdout=""))
    assert verdict.status is Status.RUNTIME_ERROR and "exited with code 3" in verdict.error


@pytest.mark.parametrize("style", TESTED)
def test_code_of_the_test_runs_after_the_program(sandbox: LocalSandbox, style: str) -> None:
    language, program, code, printed = TESTED[style]
    verdicts = judge(
        sandbox, language, program, OutputTest(code=code, stdout=printed), OutputTest(code=code, stdout="no")
    )
    assert [str(v.status) for v in verdicts] == ["PASSED", "WRONG_ANSWER"], verdicts
    assert verdicts[1].stdout.splitlines() == printed.splitlines()  # the token is not the program's output


def test_an_error_of_the_tests_code_is_told(sandbox: LocalSandbox) -> None:
    code = "io.stderr:write('why') error('no')"
    (verdict,) = judge(sandbox, "lua", "x = 1", OutputTest(code=code, stdout=""))
    assert verdict.status is Status.RUNTIME_ERROR and verdict.stderr.startswith("why")


@pytest.mark.parametrize("style", HONEST)
def test_programs_of_everyday_styles(sandbox: LocalSandbox, style: str) -> None:
    language, program, stdin, printed = HONEST[style]
    (verdict,) = judge(sandbox, language, program, OutputTest(stdin=stdin, stdout=printed))
    assert verdict.passed, verdict


def test_a_script_may_end_with_127(sandbox: LocalSandbox) -> None:
    (verdict,) = judge(sandbox, "bash", "no_such_command", OutputTest(stdout=""))
    assert verdict.error == "the program exited with code 127" and "no_such_command" in verdict.stderr


def test_memory_of_javascript_is_its_limit(sandbox: LocalSandbox) -> None:
    program = "console.log(Buffer.alloc({} << 20, 1).length >> 20)"
    verdicts = [
        judge(sandbox, "javascript", program.format(mb), OutputTest(stdout=str(mb)))[0] for mb in (90, 250)
    ]
    assert [str(v.status) for v in verdicts] == ["PASSED", "MEMORY_LIMIT"], verdicts


def test_what_does_not_compile_is_a_syntax_error(sandbox: LocalSandbox) -> None:
    verdicts = judge(sandbox, "c", "int main( { }", OutputTest(stdout=""), OutputTest(stdin="1", stdout=""))
    assert [str(v.status) for v in verdicts] == ["SYNTAX_ERROR"] * 2
    assert "error" in verdicts[0].error


def test_too_much_output(sandbox: LocalSandbox) -> None:
    (verdict,) = judge(sandbox, "bash", "while :; do echo xxxxxxxxxxxxxxxx; done", OutputTest(stdout=""))
    assert verdict.status is Status.OUTPUT_LIMIT and len(verdict.stdout) <= QUICK.output_kb << 10


def test_nothing_is_left_for_the_next_job(sandbox: LocalSandbox) -> None:
    leave = "(trap '' TERM; sleep 30) & echo secret > left; mkdir -p d; chmod 000 d; ls -a | wc -l"
    assert judge(sandbox, "bash", leave, OutputTest(stdout=None))[0].passed
    (verdict,) = judge(
        sandbox, "bash", "ls; cat left; ps 2>/dev/null | grep -c sleep", OutputTest(stdout=None)
    )
    assert "secret" not in verdict.stdout and "left" not in verdict.stdout.split()


def test_the_network_is_not_there(sandbox: LocalSandbox) -> None:
    (verdict,) = judge(sandbox, "bash", "exec 3<>/dev/tcp/127.0.0.1/22", OutputTest(stdout=""))
    assert verdict.status is Status.RUNTIME_ERROR


def test_python_source_is_no_test_of_another_language(sandbox: LocalSandbox) -> None:
    with pytest.raises(UnknownLanguage, match="must be OutputTests"):
        asyncio.run(sandbox.judge("print(1)", ["f(1)"], language="lua"))
    with pytest.raises(UnknownLanguage, match="no language 'cobol'; known: python"):
        asyncio.run(sandbox.judge("x", [OutputTest(stdout="")], language="cobol"))


def test_q_says_what_it_needs(sandbox: LocalSandbox) -> None:
    with pytest.raises(UnknownLanguage, match="set Q_BIN"):
        asyncio.run(sandbox.judge("1+1", [OutputTest(stdout="2")], language="q"))


def open_to_all(path: Path) -> None:
    for directory in (path, *path.parents):
        if directory.stat().st_uid == os.getuid() and directory != Path("/"):
            directory.chmod(directory.stat().st_mode | stat.S_IXOTH | stat.S_IROTH)


@pytest.mark.parametrize("kind", ["docker", "namespace", "process"])
def test_programs_and_tests_import_the_users_packages(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    require(kind)
    (tmp_path / "statistics.py").write_text("raise SystemExit('the standard library goes first')")
    (tmp_path / "tiny.py").write_text("def two(): return 2")
    open_to_all(tmp_path)
    program = "import statistics\nfrom tiny import two\ndef f(x): return x * two()"
    tests = ["assert f(2) == 4", "assert f(2) == 5", "import tiny\nassert f(2) == tiny.two() ** 2"]
    with LocalSandbox(kind, limits=QUICK) as without:  # type: ignore[arg-type]
        (verdict,) = asyncio.run(without.judge(program, tests[:1]))
    assert verdict.error == "ModuleNotFoundError: No module named 'tiny'"
    monkeypatch.setenv("SANDBOX_PACKAGES", str(tmp_path))
    with LocalSandbox(kind, limits=QUICK) as local:  # type: ignore[arg-type]
        verdicts = asyncio.run(local.judge(program, tests))
        verdicts += judge(local, "python", "from tiny import two\nprint(two())", OutputTest(stdout="2"))
    assert [str(verdict.status) for verdict in verdicts] == ["PASSED", "WRONG_ANSWER", "PASSED", "PASSED"]
    monkeypatch.setenv("SANDBOX_PACKAGES", str(tmp_path / "nowhere"))
    with pytest.raises(UnknownLanguage, match="no directory; make it by pip install --target"):
        LocalSandbox(kind)  # type: ignore[arg-type]


@pytest.mark.parametrize("kind", ["docker", "namespace"])
def test_the_users_own_q_is_mounted(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """There is no free q: a stand-in shows that executable, home and licence arrive where q looks for them."""
    require(kind)
    open_to_all(tmp_path)
    binary, home, licence = tmp_path / "q", tmp_path / "home", tmp_path / "licence"
    binary.write_text('#!/bin/sh\ncat "$QHOME/q.k" "$QLIC/kc.lic" "$1"; echo "$2"; cat\n')
    binary.chmod(0o755)
    for path, text in ((home / "q.k", "home\n"), (licence / "kc.lic", "licence\n")):
        path.parent.mkdir(mode=0o755)
        path.write_text(text)
    for name, path in (("Q_BIN", binary), ("QHOME", home), ("QLIC", licence)):
        monkeypatch.setenv(name, str(path))
    with LocalSandbox(kind, limits=QUICK) as local:  # type: ignore[arg-type]
        (verdict,) = judge(local, "q", "show 1", OutputTest(stdin="input", stdout=None))
    assert verdict.stdout == "home\nlicence\nshow 1-q\ninput"
    monkeypatch.setenv("QHOME", str(tmp_path / "nowhere"))
    with pytest.raises(UnknownLanguage, match="nowhere does not exist; q needs Q_BIN"):
        LocalSandbox(kind)  # type: ignore[arg-type]


@pytest.mark.parametrize("language", sorted(GREEDY))
def test_memory_is_limited_whatever_the_interpreter_takes_for_itself(
    sandbox: LocalSandbox, language: str
) -> None:
    (verdict,) = judge(sandbox, language, GREEDY[language], OutputTest(stdout="2"))
    assert verdict.status is Status.MEMORY_LIMIT, verdict


def test_a_program_that_uses_what_it_may_is_left_alone(sandbox: LocalSandbox) -> None:
    program = (
        "const kept = [];\nfor (let i = 0; i < 2; i++) kept.push(Buffer.alloc(50 << 20, 1));\nconsole.log(2);"
    )
    (verdict,) = judge(sandbox, "javascript", program, OutputTest(stdout="2"))
    assert verdict.passed, verdict
