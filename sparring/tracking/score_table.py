"""Prints the scores and failures of an evaluation."""

import sys
from collections.abc import Mapping, Sequence

from rich.console import Console
from rich.markup import escape
from rich.table import Table

_NAMED = 5
_ERROR_CHARACTERS = 120


def print_scores(title: str, columns: Mapping[str, Mapping[str, float | int | None]]) -> None:
    """Prints a table of scores. columns: by heading, the scores by name; a score that a column lacks is left blank."""
    console = Console(width=None if sys.stdout.isatty() else 160)
    console.print(escape(title), highlight=False, soft_wrap=True)
    table = Table(show_header=len(columns) > 1)
    table.add_column("")
    for heading in columns:
        table.add_column(heading, justify="right")
    for name in dict.fromkeys(name for scores in columns.values() for name in scores):
        cells = (_cell(scores[name]) if name in scores else "" for scores in columns.values())
        table.add_row(name if name.isupper() else name.replace("_", " "), *cells)
    console.print(table)


def _cell(value: float | int | None) -> str:
    if value is None:
        return "-"
    return str(value) if isinstance(value, int) else f"{value:.3f}"


def print_failures(failures: Sequence[Mapping[str, str]]) -> None:
    """Prints the first few failures. failures: each is {id, status, error}."""
    for failure in failures[:_NAMED]:
        error = " ".join(failure["error"].split())[:_ERROR_CHARACTERS]
        print(f"  {failure['id']}: {failure['status']}{': ' + error if error else ''}")
    if len(failures) > _NAMED:
        print(f"  and {len(failures) - _NAMED} more")
