"""What our commands have in common: how their help looks, and how they end."""

import argparse
import os
import select
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from core.errors import SparringError, exit_interrupted, exit_with

_STDOUT = 1


def parser_of(module: str, text: str | None, *, of_runs: bool = False) -> argparse.ArgumentParser:
    """text: the module's docstring, which the help shows as it stands. of_runs: it takes runs by name."""
    parser = argparse.ArgumentParser(
        prog=f"python -m {module}", description=text, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    if of_runs:
        parser.add_argument(
            "--output-dir", type=Path, default=Path("output"), help="where runs are (%(default)s)"
        )
    return parser


@contextmanager
def plain_endings() -> Iterator[None]:
    """What a user can act on ends the command with one line and exit status 2, Ctrl-C with one line and 130; who reads no
    further (`... | head`) ends it without a word."""
    try:
        yield
        sys.stdout.flush()
    except (SparringError, OSError) as error:
        if isinstance(error, BrokenPipeError) and _nobody_reads(_STDOUT):
            os.dup2(os.open(os.devnull, os.O_WRONLY), _STDOUT)  # what is left is flushed at the end
            raise SystemExit(1) from None
        exit_with(error)
    except KeyboardInterrupt as interrupt:
        exit_interrupted(interrupt)


def _nobody_reads(pipe: int) -> bool:
    asked = select.poll()
    asked.register(pipe, select.POLLOUT)
    return any(event & select.POLLERR for _, event in asked.poll(0))
