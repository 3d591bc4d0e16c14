"""Finds runs on disk, and explains the rows of their attempts in words."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sparring.core.errors import SparringError
from sparring.tracking.episodes import episode_files
from sparring.tracking.rows import read_rows

if TYPE_CHECKING:
    from sparring.games.rules import Rules

Row = Mapping[str, Any]
NAMED = 12
UNJUDGED = {
    "sandbox_failure": "the sandbox failed, so the attempt was dropped",
    "no_valid_test": "there was no valid test to run it on, so the attempt was dropped",
}
BECAME = {
    "valid": "valid",
    "parse": "not a test in the asked form",
    "literal": "arguments or expected value are no plain values",
    "contract": "does not fit the function's signature, or the types in the problem's own tests",
    "size": "input too big (game.input_limits)",
    "shown": "repeats a test that the prompt shows",
    "duplicate": "repeats an earlier test",
    "repeat": "fails the same programs as an earlier test",
    "silent": "its outcome counts for no program",
    "rejected": "the reference fails it",
    "unstable": "the reference gives another result each time",
    "weak": "programs that return nonsense pass it",
    "no_literal": "the reference's result cannot be written as a literal in a test",
}
"""The possible statuses of a test that a discriminator wrote. The outcomes of a program have verdicts instead."""


def find_run(name: str | None, output: Path) -> Path:
    """Returns the directory of a run. Raises SparringError if there is no such run.

    Args:
        name: a directory, or a name under `output`. Default: the latest run under `output`.
    """
    runs = sorted(
        (file for pattern in ("*", "*/*") for file in output.glob(f"{pattern}/metrics.jsonl")),
        key=lambda file: file.stat().st_mtime,
    )
    if name is None and runs:
        return runs[-1].parent
    for directory in (Path(name), output / name) if name is not None else ():
        if (directory / "metrics.jsonl").is_file():
            return directory
    latest = ", ".join(str(file.parent.relative_to(output)) for file in runs[: -NAMED - 1 : -1])
    there = f"the latest runs in {output}: {latest}" if runs else f"there is none in {output}"
    raise SparringError(f"{name or output}: no run (a directory with metrics.jsonl); {there}")


def played(run: Path) -> Iterator[Row]:
    """Yields the rows of all attempts of a run, the oldest first."""
    for file in episode_files(run):
        yield from read_rows(file)


def players_of(rows: Iterable[Row]) -> list[str]:
    """Returns the players whose rewards are in the rows of metrics."""
    columns = dict.fromkeys(column for row in rows for column in row)
    return [column.removesuffix("_reward") for column in columns if column.endswith("_reward")]


def rules_of(run: Path) -> "Rules | None":
    """Returns the rules of the run's game. None if the config cannot be read, or was written by another version."""
    import yaml
    from pydantic import TypeAdapter, ValidationError

    from sparring.games import GameRules

    try:
        return TypeAdapter(GameRules).validate_python(
            yaml.safe_load((run / "config.yaml").read_text("utf-8"))["game"]
        )
    except (OSError, yaml.YAMLError, KeyError, TypeError, ValidationError):
        return None


def read_section(kind: Any, config: Row, key: str, run: Path) -> Any:
    """Returns a section of a run's stored settings, validated as `kind`. Raises SparringError if the run was made by another
    version of this software."""
    from pydantic import TypeAdapter, ValidationError

    from configs.layers import place
    from configs.schema import Config

    try:
        return TypeAdapter(kind).validate_python(config[key])
    except KeyError:
        raise of_another_version(run, f"its settings have no key {key}") from None
    except ValidationError as error:
        first = error.errors()[0]
        unknown = first["type"] == "extra_forbidden"
        said = "unknown here" if unknown else first["msg"].removeprefix("Value error, ")
        raise of_another_version(run, f"{place((key, *first['loc']), Config)[0]}: {said}") from None


def of_another_version(run: Path, said: str) -> SparringError:
    """Returns the error for a run that was made by another version. said: how the difference shows."""
    return SparringError(
        f"{run}: {said}: this run is of another version of this software: use that version (versions.json of the "
        "run names the commit), or give a run of the installed version"
    )


def is_suite(outcomes: Sequence[Row]) -> bool:
    """Whether the outcomes are those of a suite (statuses of its tests), not those of a program (verdicts)."""
    return bool(outcomes) and outcomes[0]["status"] in BECAME


def why(row: Row, rules: "Rules | None") -> str:
    """Explains an attempt's reward. Empty if that is not possible, for example for the components of another version."""
    if row["reward"] is None:
        return next((text for name, text in UNJUDGED.items() if name in row["components"]), "not judged")
    try:
        return rules.why(row["player"], row["components"]) if rules is not None else ""
    except KeyError:
        return ""
