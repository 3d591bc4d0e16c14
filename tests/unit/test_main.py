"""`python -m sparring`: which command runs what."""

import importlib.util
import runpy
import sys

import pytest

from sparring.__main__ import COMMANDS, main


def test_every_command_is_a_module() -> None:
    assert all(importlib.util.find_spec(module) for module in COMMANDS.values())


@pytest.mark.parametrize(
    ("given", "module", "left"),
    [
        (["show", "RUN", "--step", "1"], "sparring.cli.show", ["RUN", "--step", "1"]),
        (["plan", "--config", "chat"], "driver", ["--plan", "--config", "chat"]),
    ],
)
def test_a_command_gets_the_arguments_after_its_name(given, module, left, monkeypatch) -> None:
    ran = []
    monkeypatch.setattr(sys, "argv", ["sparring", *given])
    monkeypatch.setattr(runpy, "run_module", lambda name, **_: ran.append((name, sys.argv[1:])))
    main()
    assert ran == [(module, left)]


@pytest.mark.parametrize("given", [[], ["no_such_command"]])
def test_what_is_no_command_is_refused_with_the_commands(given, monkeypatch) -> None:
    monkeypatch.setattr(sys, "argv", ["sparring", *given])
    with pytest.raises(SystemExit, match="commands: train, solve"):
        main()
