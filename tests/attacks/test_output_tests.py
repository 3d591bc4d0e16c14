"""Programs that want to pass an output test's code without its answer: they end before it, print for it, or read it."""

import pytest

from sandbox_workers.local import LocalSandbox
from sparring.core.verdict import OutputTest, Status
from tests.attacks.conftest import AMPLE, LIMITS, judge

AMPLY = LIMITS.model_copy(update=AMPLE)
PRINTS_TRUE = {
    "python": "print(f(1) == 2)",
    "lua": 'print(string.format("%s", f(1) == 2))',
    "javascript": "console.log(f(1) === 2);",
    "bash": '[ "$(f 1)" = 2 ] && echo true || echo false',
    "c": '#include <stdio.h>\nint main() { puts(f(1) == 2 ? "true" : "false"); }',
}
# language: attack, and its program
END_BEFORE_THE_CODE = {
    "python: prints and exits": "print(True)\nraise SystemExit",
    "python: prints and ends at once": "import os\nprint(True, flush=True)\nos._exit(0)",
    "python: turns a failure into a success at exit": "import atexit, os\nprint(True, flush=True)\natexit.register(lambda: os._exit(0))",
    "lua: prints and ends": "io.write('true\\n') os.exit(0)",
    "lua: prints and returns": "io.write('true\\n') do return end",
    "javascript: prints and exits": "console.log('true'); process.exit(0)",
    "javascript: prints and returns": "console.log('true'); return",
    "javascript: every error is a success": "console.log('true'); process.on('uncaughtException', () => process.exit(0));",
    "bash: prints and exits": "echo true; exit 0",
    "bash: a trap makes it a success": "trap 'echo true; exit 0' EXIT; exit 1",
    "c: prints and ends": '#include <stdio.h>\n#include <stdlib.h>\nint f(int x) { puts("true"); exit(0); }',
    "c: prints before main": (
        "#include <stdlib.h>\n#include <unistd.h>\nint f(int x) { return 0; }\n"
        '__attribute__((constructor)) void g(void) { write(1, "true\\n", 5); _exit(0); }'
    ),
}
PRINT_FOR_IT = {
    "python: a print of its own": "import sys\ndef f(x): return 0\ndef print(*values): sys.stdout.write('True\\n')",
    "python: a built-in print of its own": "import builtins, sys\ndef f(x): return 0\nbuiltins.print = lambda *v: sys.stdout.write('True\\n')",
    "python: a stdout of its own": (
        "import sys\nclass Out:\n    def write(self, text): sys.__stdout__.write(text.replace('Fals', 'Tru'))\n"
        "    def flush(self): pass\nsys.stdout = Out()\ndef f(x): return 0"
    ),
    "python: reads the code in the files": "import glob\ndef f(x): return 2 * any('f' '(1)' in open(n).read() for n in glob.glob('*'))",
    "lua: a print of its own": "local p = print print = function() p(true) end function f() return 0 end",
    "lua: a format of its own": "string.format = function() return 'true' end function f() return 0 end",
    "lua: reads the code in the files": (
        "function f() for _, n in ipairs{'main.lua', 'test.lua', 'run.lua'} do local h = io.open(n) "
        "if h and h:read('a'):find('f%(1%)') then return 2 end end end"
    ),
    "javascript: a console of its own": "const log = console.log; console.log = () => log('true'); function f() { return 0; }",
    "javascript: a stdout of its own": (
        "const out = process.stdout, write = out.write; out.write = () => write.call(out, 'true\\n'); "
        "function f() { return 0; }"
    ),
    "javascript: reads the code in the files": (
        "const fs = require('fs'); const f = () => 2 * fs.readdirSync('.').some(n => fs.readFileSync(n, 'utf8')"
        ".includes('f' + '(1)'));"
    ),
    "bash: an echo of its own, and nobody to unset it": "echo() { command echo true; }; unset() { :; }; builtin() { :; }; eval() { :; }; f() { :; }",
}
ANOTHER_MAIN = {
    "c: another main": (
        'int puts(const char *);\nint f(int x) { return 0; }\nint main() { puts("true"); return 0; }\n#define main g'
    )
}
REASONS = {
    "the program ended before the test's code did": END_BEFORE_THE_CODE,
    "other output than expected": PRINT_FOR_IT,
    "redefinition": ANOTHER_MAIN,
}
ATTACKS = {
    name: (name.partition(":")[0], program, reason)
    for reason, programs in REASONS.items()
    for name, program in programs.items()
}


@pytest.mark.parametrize("name", ATTACKS)
def test_no_output_test_is_passed_without_its_answer(warm: LocalSandbox, name: str) -> None:
    language, program, reason = ATTACKS[name]
    code = PRINTS_TRUE[language]
    expected = "True" if language == "python" else "true"
    test = OutputTest(code=code, stdout=expected)
    (verdict,) = judge(warm, program, test, limits=AMPLY, language=language)
    assert not verdict.passed and reason in verdict.error, verdict


def test_no_link_that_an_earlier_test_left_keeps_the_code(warm: LocalSandbox) -> None:
    program = (
        "import os\nif os.path.lexists('kept'): print(open('kept').read())\n"
        "else: open('kept', 'w'); os.symlink('kept', 'test.py')\ndef f(x): return 0"
    )
    tests = [OutputTest(code=f"print(f(1), {n})", stdout=f"0 {n}") for n in range(2)]
    assert "print(f(1)" not in judge(warm, program, *tests)[1].stdout


@pytest.mark.parametrize(
    "program",
    [
        "const b = Buffer.alloc(300 << 20, 1); console.log(b.length);",
        "const b = []; for (let i = 0; i < 60; i++) b.push(new Array(1e6).fill(i)); console.log(b.length);",
    ],
    ids=["beside the heap", "on the heap"],
)
def test_memory_of_javascript_is_limited(warm: LocalSandbox, program: str) -> None:
    (verdict,) = judge(warm, program, OutputTest(stdout="60"), limits=AMPLY, language="javascript")
    assert verdict.status in (Status.MEMORY_LIMIT, Status.RUNTIME_ERROR), verdict
