"""What is refused before anything starts, each with one line."""

import contextlib
import signal
import socket

import pytest

from sparring.cli.serve import main
from sparring.core.project_files import EXAMPLES

GENERATOR = f"--model=gen={EXAMPLES / 'toy/generator'}"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--model=gen=nowhere"], "--model nowhere: no such directory"),
        ([GENERATOR, "--host=0.0.0.0"], "--host 0.0.0.0: without keys anybody could use it"),
        ([GENERATOR, "--kv-cache-mb=1000000000"], "GiB are free: give a smaller model"),
        ([GENERATOR, "--max-models=0"], "--max-models 0: 1 or more"),
        ([GENERATOR, "--slots=0"], "--slots 0: 1 or more"),
        ([GENERATOR, "--idle-s=0"], "--idle-s 0: more than 0"),
        ([GENERATOR, "--idle-s=nan"], "--idle-s nan: more than 0"),
        ([GENERATOR, "--threads=0"], "--threads 0: 1 or more"),
        ([GENERATOR, "--cache-mb=-1"], "--cache-mb -1.0: 0 or more"),
        ([GENERATOR, "--cache-mb=inf"], "--cache-mb inf: a number of MiB"),
        ([GENERATOR, "--max-body-mb=nan"], "--max-body-mb nan: a number above 0"),
        ([GENERATOR, "--max-model-len=10"], "--max-model-len 10: 32 or more"),
    ],
)
def test_it_is_refused_in_one_line(arguments: list[str], said: str, refused) -> None:
    error = refused(main, *arguments, "--sandbox=none")
    assert error.count("\n") == 1 and said in error, error


def test_a_port_that_is_taken_is_refused_and_the_toy_model_was_described(capsys) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken, pytest.raises(SystemExit, match="2"):
        port = taken.getsockname()[1]
        main([GENERATOR, f"--port={port}", "--sandbox=none", "--kv-cache-mb=16"])
    said = capsys.readouterr()
    assert f"--port {port}: Address already in use" in said.err
    assert "gen: This is a toy model" in said.out


def test_who_stops_it_is_told_at_once_that_it_stops(monkeypatch, capsys) -> None:
    said_before_ray_ends: list[str] = []

    @contextlib.contextmanager
    def on_ray(_: object):
        yield
        said_before_ray_ends.append(capsys.readouterr().out)

    monkeypatch.setattr("sparring.cli.serve.on_ray", on_ray)
    monkeypatch.setattr(signal, "signal", lambda number, handler: handler(number, None))  # Ctrl-C
    main([GENERATOR, "--port=0", "--sandbox=none", "--kv-cache-mb=16"])
    (said,) = said_before_ray_ends
    assert "serving gen at" in said and "10 s" in said.splitlines()[-1]
