import os
import subprocess
import sys
from pathlib import Path

import pytest

from sparring.core.commands import plain_endings
from sparring.core.errors import SparringError

ROOT = Path(__file__).parents[3]
PLAIN = "import sys; from sparring.core.commands import plain_endings\nwith plain_endings(): "
WITH_NOTE = SparringError("a.json: no such file")
WITH_NOTE.add_note("the checkpoints are in output/run")


@pytest.mark.parametrize(
    ("error", "code", "said"),
    [
        (SparringError("no such run"), 2, "error: no such run\n"),
        (WITH_NOTE, 2, "error: a.json: no such file; the checkpoints are in output/run\n"),
        (PermissionError(13, "Permission denied", "out.json"), 2, "error: out.json: Permission denied\n"),
        (BrokenPipeError(32, "Broken pipe"), 2, "error: [Errno 32] Broken pipe\n"),
        (KeyboardInterrupt(), 130, "interrupted\n"),
        (KeyboardInterrupt("interrupted; start it again"), 130, "interrupted; start it again\n"),
    ],
)
def test_a_command_ends_with_one_line(error: BaseException, code: int, said: str, capsys) -> None:
    with pytest.raises(SystemExit) as ended, plain_endings():
        raise error
    assert ended.value.code == code and capsys.readouterr() == ("", said)


def run(*command: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, cwd=ROOT, env=os.environ | environment, capture_output=True, text=True)


def test_characters_that_a_terminal_lacks_are_escaped() -> None:
    done = run(sys.executable, "-c", f"{PLAIN}print('größe')", PYTHONIOENCODING="ascii")
    assert (done.returncode, done.stdout) == (0, "gr\\xf6\\xdfe\n"), done.stderr


@pytest.mark.parametrize("closed", ["stdout", "stderr"])
def test_a_closed_stream_ends_no_command(closed: str) -> None:
    command = f"{PLAIN}[print(stream.isatty(), file=stream) for stream in (sys.stdout, sys.stderr)]"
    descriptor = {"stdout": 1, "stderr": 2}[closed]
    done = run("sh", "-c", f'"$@" {descriptor}>&-', "sh", sys.executable, "-c", command)
    said = {"stdout": done.stdout, "stderr": done.stderr}
    assert done.returncode == 0 and said.pop(closed) == "" and list(said.values()) == ["False\n"], done


@pytest.mark.parametrize("prints", ["print('x' * 100_000, flush=True)", "print('x')"])
def test_who_reads_no_further_ends_a_command_without_a_word(prints: str) -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", f"{PLAIN}input(); {prints}"],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert process.stdin and process.stdout and process.stderr
    process.stdout.close()
    process.stdin.write(b"\n")
    process.stdin.close()
    assert (process.wait(30), process.stderr.read()) == (1, b"")
