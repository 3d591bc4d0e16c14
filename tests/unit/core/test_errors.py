import os
import subprocess
import sys
from pathlib import Path

import pytest

from sparring.core.commands import plain_endings
from sparring.core.errors import SparringError, exit_with


def test_a_command_ends_with_one_line_the_error_and_its_notes(capsys) -> None:
    error = SparringError("a.json: no such file")
    error.add_note("the checkpoints are in output/run; continue with --resume")
    with pytest.raises(SystemExit) as ended:
        exit_with(error)
    assert ended.value.code == 2
    said = "error: a.json: no such file; the checkpoints are in output/run; continue with --resume\n"
    assert capsys.readouterr() == ("", said)


def test_of_the_systems_errors_the_file_and_the_reason_are_told(tmp_path, capsys) -> None:
    with pytest.raises(OSError) as missing:
        (tmp_path / "none").read_text()
    with pytest.raises(SystemExit):
        exit_with(missing.value)
    assert capsys.readouterr().err == f"error: {tmp_path}/none: No such file or directory\n"


@pytest.mark.parametrize(
    ("error", "code", "said"),
    [
        (SparringError("no such run"), 2, "error: no such run\n"),
        (PermissionError(13, "Permission denied", "out.json"), 2, "error: out.json: Permission denied\n"),
        (KeyboardInterrupt(), 130, "interrupted\n"),
        (KeyboardInterrupt("interrupted; start it again"), 130, "interrupted; start it again\n"),
    ],
)
def test_a_command_ends_plainly(error: BaseException, code: int, said: str, capsys) -> None:
    with pytest.raises(SystemExit) as ended, plain_endings():
        raise error
    assert (ended.value.code, capsys.readouterr().err) == (code, said)


def test_characters_that_a_terminal_lacks_are_escaped() -> None:
    command = "from sparring.core.commands import plain_endings\nwith plain_endings(): print('größe')"
    done = subprocess.run(
        [sys.executable, "-c", command],
        cwd=Path(__file__).parents[3],
        env=os.environ | {"PYTHONIOENCODING": "ascii"},
        capture_output=True,
        text=True,
    )
    assert (done.returncode, done.stdout) == (0, "gr\\xf6\\xdfe\n"), done.stderr


@pytest.mark.parametrize("closed", ["stdout", "stderr"])
def test_a_closed_stream_ends_no_command(closed: str) -> None:
    command = (
        "import sys; from sparring.core.commands import plain_endings\n"
        "with plain_endings(): [print(stream.isatty(), file=stream) for stream in (sys.stdout, sys.stderr)]"
    )
    descriptor = {"stdout": 1, "stderr": 2}[closed]
    done = subprocess.run(
        ["sh", "-c", f'"$@" {descriptor}>&-', "sh", sys.executable, "-c", command],
        cwd=Path(__file__).parents[3],
        capture_output=True,
        text=True,
    )
    said = {"stdout": done.stdout, "stderr": done.stderr}
    assert done.returncode == 0 and said.pop(closed) == "" and list(said.values()) == ["False\n"], done


@pytest.mark.parametrize("prints", ["print('x' * 100_000, flush=True)", "print('x')"])
def test_who_reads_no_further_ends_a_command_without_a_word(prints: str) -> None:
    command = f"from sparring.core.commands import plain_endings\nwith plain_endings(): input(); {prints}"
    process = subprocess.Popen(
        [sys.executable, "-c", command],
        cwd=Path(__file__).parents[3],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert process.stdin and process.stdout and process.stderr
    process.stdout.close()
    process.stdin.write(b"\n")
    process.stdin.close()
    assert (process.wait(30), process.stderr.read()) == (1, b"")


def test_another_broken_pipe_is_an_error(capsys) -> None:
    with pytest.raises(SystemExit) as ended, plain_endings():
        raise BrokenPipeError(32, "Broken pipe")
    assert ended.value.code == 2 and "Broken pipe" in capsys.readouterr().err
