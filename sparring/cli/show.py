"""Shows what a run did, and why an attempt earned its reward.

    python -m sparring show                                  the latest run: its steps, and what was played
    python -m sparring show RUN --step 12 --problem ID       each attempt: reward, components, what each test did
    python -m sparring show RUN --step 12 --player generator --worst
    python -m sparring show RUN --step 12 --problem ID --prompts     and its prompts, turn by turn

Reads what the run has written so far; it may still be going on.
"""

import argparse
import sys
from collections.abc import Iterator, Mapping, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import Console

    from sparring.games.rules import Rules

from sparring.core.commands import parser_of, plain_endings
from sparring.core.errors import SparringError
from sparring.tracking.rows import read_rows
from sparring.tracking.runs import BECAME, NAMED, Row, find_run, is_suite, played, players_of, rules_of, why

_ATTEMPTS = 10
_SCORES = 4
_FAULT = "fault_"
"""Prefix of the components that count a suite's faulty tests. Those that are 0 are not shown."""


def main(arguments: Sequence[str]) -> None:
    options = _options(arguments)
    with plain_endings():
        run = find_run(options.run, options.output_dir)
        if any(value is not None for value in (options.step, options.problem, options.player)):
            _show_attempts(run, options)
        else:
            _show_run(run)


def _options(arguments: Sequence[str]) -> argparse.Namespace:
    parser = parser_of("sparring show", __doc__, of_runs=True)
    parser.add_argument("run", nargs="?", help="a run's directory or name. Default: the latest run")
    parser.add_argument("--step", type=int, help="show attempts of this step")
    parser.add_argument("--problem", help="show attempts at the problem with this id")
    parser.add_argument("--player", help="show attempts of this player, such as generator")
    parser.add_argument(
        "--worst", action="store_true", help="show the attempts with the lowest rewards first"
    )
    parser.add_argument(
        "--prompts", action="store_true", help="also show the prompt and the completion of each turn"
    )
    parser.add_argument(
        "--limit",
        type=int,
        default=_ATTEMPTS,
        help="maximum number of attempts; 0: all. Default: %(default)s",
    )
    options = parser.parse_args(arguments)
    shows_run = options.step is options.problem is options.player is None
    if shows_run and (options.worst or options.prompts or options.limit != _ATTEMPTS):
        parser.error("--worst, --prompts and --limit are about attempts: give --step, --problem or --player")
    return options


# ---------------------------------------------------------------------- finding
def attempts_of(run: Path, options: argparse.Namespace) -> list[Row]:
    """Returns the attempts that the options select, in the order in which they were played. Raises SparringError."""
    asked = {key: getattr(options, key) for key in ("step", "problem", "player")}
    asked = {key: value for key, value in asked.items() if value is not None}
    there: dict[str, dict[Any, None]] = {key: {} for key in asked}
    found = []
    for row in played(run):
        for key in asked:
            there[key][row[key]] = None
        if all(row[key] == value for key, value in asked.items()):
            found.append(row)
    if found:
        return found
    for key, value in asked.items():
        if value not in there[key]:
            raise SparringError(
                f"{run}: no attempt with {key} {value} in episodes.jsonl; {_known(there[key], value)}"
            )
    raise SparringError(
        f"{run}: no attempt has " + " and ".join(f"{key} {value}" for key, value in asked.items())
    )


def _known(values: Mapping[Any, None], asked: Any) -> str:
    if not values:
        return "it holds none"
    if all(isinstance(value, int) for value in values):
        return f"it has steps {min(values)} to {max(values)}"
    near = get_close_matches(str(asked), values, n=NAMED) or list(values)[:NAMED]
    return f"such as {', '.join(near)} ({len(values)} in all)"


# ---------------------------------------------------------------------- a run
def _show_run(run: Path) -> None:
    from rich.console import Console

    rows = list(read_rows(run / "metrics.jsonl"))
    console = Console(width=None if sys.stdout.isatty() else 160)
    console.print(str(run), highlight=False, markup=False, soft_wrap=True)
    _print_steps(console, rows)
    _print_held_out(console, rows)
    steps: dict[str, dict[int, None]] = {}
    for row in played(run):
        steps.setdefault(row["problem"], {})[row["step"]] = None
    console.print(f"problems played ({len(steps)}), by step:", highlight=False)
    for problem in list(steps)[:NAMED]:
        console.print(f"  {problem}: {', '.join(map(str, steps[problem]))}", markup=False, highlight=False)
    if len(steps) > NAMED:
        console.print(f"  and {len(steps) - NAMED} more", highlight=False)
    console.print("to see why an attempt earned its reward, give --step N or --problem ID", highlight=False)


def _print_steps(console: "Console", rows: Sequence[Row]) -> None:
    """Prints the rewards and rates of each step."""
    from rich.table import Table

    players, table = players_of(rows), Table()
    for heading in ("step", "stage", "phase", *players, "valid", "kill"):
        table.add_column(heading, justify="left" if heading == "phase" else "right")
    for row in (row for row in rows if row["step"]):
        figures = [
            row.get(key) for key in (*(f"{player}_reward" for player in players), "validity", "kill_rate")
        ]
        table.add_row(
            str(row["step"]), str(row.get("stage") or ""), row.get("phase", ""), *map(_figure, figures)
        )
    console.print(table)


def _print_held_out(console: "Console", rows: Sequence[Row]) -> None:
    """Prints the scores of the evaluations; step 0 is before the first training step."""
    from rich.table import Table

    evaluated = [row for row in rows if row.get("held_out")]
    if not evaluated:
        return
    scores = list(dict.fromkeys(key for row in evaluated for key in row["held_out"]))[:_SCORES]
    table = Table(title="held out", title_justify="left")
    for heading in ("step", *scores):
        table.add_column(heading.replace("_", " "), justify="right")
    for row in evaluated:
        table.add_row(str(row["step"]), *(_figure(row["held_out"].get(key)) for key in scores))
    console.print(table)


def _figure(value: float | None) -> str:
    return "" if value is None else f"{value:.2f}"


# ---------------------------------------------------------------------- attempts
def _show_attempts(run: Path, options: argparse.Namespace) -> None:
    from rich.console import Console

    if options.limit < 0:
        raise SparringError(f"--limit {options.limit}: give 0 (all attempts) or more")
    attempts = attempts_of(run, options)
    if options.worst:
        attempts.sort(key=lambda row: float("inf") if row["reward"] is None else row["reward"])
    shown = attempts[: options.limit or None]
    rules, console = rules_of(run), Console(width=None if sys.stdout.isatty() else 160)
    for row in shown:
        for line, style in lines_of(row, rules, options.prompts):
            console.print(line, style=style, markup=False, highlight=False, soft_wrap=True)
    if len(shown) < len(attempts):
        console.print(f"{len(attempts) - len(shown)} more attempts: --limit 0 prints all", highlight=False)


def lines_of(row: Row, rules: "Rules | None", prompts: bool = False) -> Iterator[tuple[str, str]]:
    """Yields (line, style) for one attempt. prompts: whether its turns are included."""
    stage = f", stage {row['stage']}" if row.get("stage") else ""
    again = f" (attempt {row['number']} of its conversation)" if row.get("number") else ""
    yield (
        f"{row['player']} #{row['attempt']}{again} at {row['problem']}, step {row['step']}{stage}, {row['phase']}",
        "bold",
    )
    yield f"  {_reward(row, rules)}", ""
    shown = {name: value for name, value in row["components"].items() if value or not name.startswith(_FAULT)}
    parts = ", ".join(f"{name} {value:.4g}" for name, value in shown.items())
    yield f"  components: {parts or 'none'}", "dim"
    tokens = f"{sum(row['tokens'])} tokens in {len(row['tokens'])} turns"
    cut = [str(turn) for turn, reason in enumerate(row["finish"], 1) if reason == "length"]
    cut_off = f"; cut off by its length limit: turn {', '.join(cut)}" if cut else ""
    yield f"  policy {row['policy']}, version {row['version']}, {tokens}{cut_off}", "dim"
    if prompts:
        yield from _turns(row)
    for line in row.get("artifact", "").rstrip().splitlines() or ["(empty)"]:
        yield f"  | {line}", ""
    for outcome in _without_repeats(row["outcomes"]):
        yield f"  {_outcome(outcome)}", _style(outcome)
    yield "", ""


def _turns(row: Row) -> Iterator[tuple[str, str]]:
    """Yields the prompts and answers of an attempt, without the last answer, which its artifact shows."""
    if "prompts" not in row:
        yield "  its prompts are not stored: the run is of an earlier version", "dim"
    for turn, prompt in enumerate(row.get("prompts", ())):
        yield from ((f"  > {line}", "cyan") for line in prompt.rstrip().splitlines())
        said = row["texts"][turn] if turn < len(row.get("texts", ())) - 1 else ""
        yield from ((f"  < {line}", "") for line in said.rstrip().splitlines())


def _reward(row: Row, rules: "Rules | None") -> str:
    said = why(row, rules)
    if row["reward"] is None:
        return f"no reward: {said}"
    words = f" = {said}" if said else ""
    return f"reward {row['reward']:.4g}{words}{_tally(row['outcomes'])}"


def _tally(outcomes: Sequence[Row]) -> str:
    """Returns, for a program, how many of the tests that count it passes."""
    if not outcomes or is_suite(outcomes):
        return ""
    counted = [outcome for outcome in outcomes if outcome.get("counts", True)]
    return f" ({sum(outcome['status'] == 'PASSED' for outcome in counted)} of {len(counted)} passed)"


def _outcome(outcome: Row) -> str:
    status = outcome["status"]
    if status in BECAME:
        kills = outcome.get("kills", ())
        failed = f"; fails programs {' '.join(f'#{attempt}' for attempt in kills)}" if kills else ""
        said = f"{BECAME[status]}{failed}"
    else:
        said = status if outcome.get("counts", True) else f"{status}, does not count"
    error = " ".join(outcome.get("error", "").split())
    owner = f"  [{outcome['owner']}]" if "owner" in outcome else ""
    return f"{outcome['test']}{owner}: {said}{f' ({error})' if error else ''}"


def _without_repeats(outcomes: Sequence[Row]) -> Sequence[Row]:
    """Returns the outcomes; if the program does not parse, which each test reports, one outcome for all tests."""
    reported = {(outcome["status"], outcome.get("error", "")) for outcome in outcomes}
    if len(outcomes) < 2 or len(reported) > 1 or outcomes[0]["status"] != "SYNTAX_ERROR":
        return outcomes
    ((status, error),) = reported
    return [{"test": f"all {len(outcomes)} tests", "status": status, "error": error}]


def _style(outcome: Row) -> str:
    if not outcome.get("counts", True):
        return "dim"
    return "green" if outcome["status"] in ("PASSED", "valid") else "red"


if __name__ == "__main__":
    main(sys.argv[1:])
