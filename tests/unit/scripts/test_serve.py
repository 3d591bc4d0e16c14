"""What is refused before anything starts, each with one line."""

import socket
from pathlib import Path

import pytest

from embedded.teaching import SHIPPED
from scripts.serve import main

GENERATOR = f"--model=gen={SHIPPED / 'generator'}"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--model=gen=nowhere"], "--model nowhere: no such directory"),
        (
            [GENERATOR, "--keys=nowhere.json"],
            "nowhere.json: No such file or directory; `python -m web.keys add",
        ),
        ([GENERATOR, "--host=0.0.0.0"], "--host 0.0.0.0: without keys anybody could use it"),
        ([GENERATOR, "--kv-cache-mb=1000000000"], "GiB are free: give a smaller model"),
        ([GENERATOR, "--max-models=0"], "--max-models 0: 1 or more"),
        ([GENERATOR, "--slots=0"], "--slots 0: 1 or more"),
        ([GENERATOR, "--idle-s=0"], "--idle-s 0: more than 0"),
        ([GENERATOR, "--max-model-len=10"], "--max-model-len 10: 32 or more"),
    ],
)
def test_it_is_refused_in_one_line(
    arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main([*arguments, "--sandbox=none"])
    error = capsys.readouterr().err
    assert ended.value.code == 2 and error.count("\n") == 1 and said in error, error


def test_a_directory_that_is_no_model_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main([f"--model=gen={tmp_path}", "--sandbox=none"])
    assert f"--model {tmp_path}: cannot be loaded" in capsys.readouterr().err


def test_a_port_that_is_taken_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(SystemExit):
            main([GENERATOR, f"--port={port}", "--sandbox=none", "--kv-cache-mb=16"])
    assert f"--port {port}: Address already in use" in capsys.readouterr().err
