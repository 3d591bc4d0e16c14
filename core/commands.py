"""What our commands have in common: how their help looks, and how they end."""

import argparse
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from core.errors import SparringError, exit_with


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
    """What a user can act on ends the command with one line and exit status 2, Ctrl-C with one word and 1."""
    try:
        yield
    except (SparringError, OSError) as error:
        exit_with(error)
    except KeyboardInterrupt:
        raise SystemExit("interrupted") from None
