"""Tables whose cells may be intervals: for the terminal, as Markdown, as plain JSON."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sparring.evaluation.intervals import Interval, print_table

Cell = str | int | float | Interval | None


@dataclass(frozen=True, kw_only=True, slots=True)
class Table:
    title: str
    header: tuple[str, ...]
    rows: Sequence[Sequence[Cell]]
    note: str = ""
    """Text that is shown below the table."""

    def show(self) -> None:
        print_table(self.title, self.header, [[text(cell) for cell in row] for row in self.rows])
        if self.note:
            print(self.note)

    def markdown(self) -> str:
        lines = [self.header, ["---"] * len(self.header), *([text(c) for c in row] for row in self.rows)]
        table = "\n".join(
            "| " + " | ".join(str(c).replace("|", "\\|") for c in line) + " |" for line in lines
        )
        return f"## {self.title}\n\n{table}\n" + (f"\n{self.note}\n" if self.note else "")

    def plain(self) -> dict[str, Any]:
        rows = [{name: plain(cell) for name, cell in zip(self.header, row, strict=True)} for row in self.rows]
        return {"title": self.title, "rows": rows, "note": self.note}


def text(cell: Cell) -> str:
    if cell is None:
        return "-"
    if isinstance(cell, Interval):
        return str(cell) if math.isfinite(cell.half_width) else f"{cell.mean:.3f} (n=1)"
    return f"{cell:.3g}" if isinstance(cell, float) else str(cell)


def plain(cell: Cell) -> Any:
    """Returns a cell as plain JSON, which has no infinity."""
    if not isinstance(cell, Interval):
        return cell
    found = cell.plain()
    return found if math.isfinite(cell.half_width) else found | {"half_width": None}
