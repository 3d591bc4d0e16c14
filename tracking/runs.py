"""Where runs lie."""

from pathlib import Path

from core.errors import SparringError

_NAMED = 12


def find_run(name: str | None, output: Path) -> Path:
    """Raises SparringError."""
    runs = sorted(
        (file for pattern in ("*", "*/*") for file in output.glob(f"{pattern}/metrics.jsonl")),
        key=lambda file: file.stat().st_mtime,
    )
    if name is None and runs:
        return runs[-1].parent
    for directory in (Path(name), output / name) if name is not None else ():
        if (directory / "metrics.jsonl").is_file():
            return directory
    latest = ", ".join(str(file.parent.relative_to(output)) for file in runs[: -_NAMED - 1 : -1])
    there = f"the latest runs in {output}: {latest}" if runs else f"there is none in {output}"
    raise SparringError(f"{name or output}: no run (a directory with metrics.jsonl); {there}")
