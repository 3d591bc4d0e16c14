"""Common parts of the command-line programs: the argument parser and the handling of errors."""

import argparse
import io
import os
import select
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from sparring.core.errors import SparringError, exit_interrupted, exit_with

_STDOUT = 1


def parser_of(module: str, text: str | None, *, of_runs: bool = False) -> argparse.ArgumentParser:
    """Returns the argument parser of `python -m module`.

    Args:
        text: the module's docstring, which the help shows unchanged.
        of_runs: whether the command takes runs by name; it then gets the option --output-dir.
    """
    parser = argparse.ArgumentParser(
        prog=f"python -m {module}", description=text, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    if of_runs:
        parser.add_argument(
            "--output-dir", type=home_path, default=Path("output"), help="where runs are (%(default)s)"
        )
    return parser


def home_path(text: str) -> Path:
    """Returns the path of an argument, with the home directory in place of "~", which a shell leaves in `--key=~/x`."""
    return Path(text).expanduser()


@contextmanager
def plain_endings() -> Iterator[None]:
    """Ends the command without a traceback: with one line and exit status 2 after an error that the user can act on, with
    one line and 130 after Ctrl-C, and without a message if the reader of the output has gone (`... | head`). Characters
    that the terminal's encoding lacks are printed as escapes. Output to a closed stream is dropped."""
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:  # the caller has closed it, as `>&-` does
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115
        elif isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    try:
        yield
        sys.stdout.flush()
    except (SparringError, OSError) as error:
        if isinstance(error, BrokenPipeError) and _nobody_reads(_STDOUT):
            os.dup2(os.open(os.devnull, os.O_WRONLY), _STDOUT)  # Python flushes the rest at its exit
            raise SystemExit(1) from None
        exit_with(error)
    except KeyboardInterrupt as interrupt:
        exit_interrupted(interrupt)


def _nobody_reads(pipe: int) -> bool:
    asked = select.poll()
    asked.register(pipe, select.POLLOUT)
    return any(event & select.POLLERR for _, event in asked.poll(0))
