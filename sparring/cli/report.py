"""Writes a run as one HTML file that needs no network: curves, curriculum, reward components, kills, every stored
attempt.

    python -m sparring report                        the latest run; writes RUN/report.html
    python -m sparring report RUN OTHER --output both.html        runs side by side
    python -m sparring report RUN --follow           again and again while the run goes on; an open page shows it

Reads what the runs have written so far; they may still be going on. docs/runs.md says what the page shows.
"""

import argparse
import math
import signal
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path

from sparring.core.commands import home_path, parser_of, plain_endings
from sparring.core.errors import SparringError
from sparring.tracking.runs import find_run

_EVERY_S = 5.0
_REST = 10
"""With --follow, a pause is at least so many times as long as the last write."""
_WATCHED = ("metrics.jsonl", "episodes.jsonl", "training_results.json", "run.log")


def main(arguments: Sequence[str]) -> None:
    options = _options(arguments)
    with plain_endings():
        runs = _runs(options.run, options.output_dir)
        output = _output(options.output, runs)
        _follow(runs, output, options.every) if options.follow else _write(runs, output, live=False)


def _options(arguments: Sequence[str]) -> argparse.Namespace:
    parser = parser_of("sparring report", __doc__, of_runs=True)
    parser.add_argument(
        "run",
        nargs="*",
        help="directories or names of runs, which are shown side by side. Default: the latest run",
    )
    parser.add_argument(
        "--output",
        type=home_path,
        metavar="FILE",
        help="the HTML file. Default: report.html in the first run's directory",
    )
    parser.add_argument(
        "--follow",
        action="store_true",
        help="write the page again and again until the runs end, or until Ctrl-C",
    )
    parser.add_argument(
        "--every",
        type=float,
        help=f"with --follow, seconds between two updates. Default: {_EVERY_S:g}",
    )
    options = parser.parse_args(arguments)
    if options.every is not None and not options.follow:
        parser.error("argument --every: goes with --follow")
    options.every = _EVERY_S if options.every is None else options.every
    if not 0 < options.every < math.inf:
        parser.error(f"argument --every: seconds above 0, not {options.every:g}")
    return options


def _runs(names: Sequence[str], output: Path) -> list[Path]:
    """Returns the directories of the runs. A run that has only just started counts. Raises SparringError."""
    runs = [_started(name, output) or find_run(name, output) for name in names or [None]]
    for number, run in enumerate(runs):
        if run.resolve() in [other.resolve() for other in runs[:number]]:
            raise SparringError(f"{run}: given twice; name each run once")
    return runs


def _started(name: str | None, output: Path) -> Path | None:
    places = (Path(name), output / name) if name is not None else ()
    return next((place for place in places if (place / "config.yaml").is_file()), None)


def _output(asked: Path | None, runs: Sequence[Path]) -> Path:
    """Returns the output file. Raises SparringError if it cannot be written."""
    output = asked or runs[0] / "report.html"
    if output.is_dir():
        raise SparringError(f"--output {output}: a directory; name a file")
    if not output.resolve().parent.is_dir():
        raise SparringError(f"--output {output}: its directory does not exist; make it first")
    return output


def _write(runs: Sequence[Path], output: Path, *, live: bool) -> None:
    from sparring.tracking.report import gather, names_of, page
    from sparring.tracking.rows import write_text

    gathered = [gather(run, name) for run, name in zip(runs, names_of(runs), strict=True)]
    write_text(output, page(gathered, live))
    attempts = sum(entry["attempts"] for run in gathered for entry in run.summary["index"])
    print(f"{output}: {attempts} attempts, {output.stat().st_size / 1e6:.1f} MB", flush=True)


def _follow(runs: Sequence[Path], output: Path, every: float) -> None:
    """Writes the page again and again. The last version makes open pages stop looking for another one."""
    from sparring.tracking.report import is_over

    print(f"following {', '.join(map(str, runs))}; Ctrl-C ends it", flush=True)
    seen: object = None
    told = threading.Event()  # an exception would be lost if it came in a destructor or a callback
    before = signal.signal(signal.SIGINT, lambda *_: told.set())
    try:
        while not told.is_set() and not all(is_over(run) for run in runs):
            took = 0.0
            if (now := _stamp(runs)) != seen:
                began = time.monotonic()
                _write(runs, output, live=True)
                seen, took = now, time.monotonic() - began
            told.wait(max(every, _REST * took))
    finally:
        signal.signal(signal.SIGINT, before)
    if told.is_set():
        print("no longer following", flush=True)
    _write(runs, output, live=False)


def _stamp(runs: Sequence[Path]) -> list[tuple[int, int]]:
    files = (run / name for run in runs for name in _WATCHED)
    return [(found.st_mtime_ns, found.st_size) for file in files if file.is_file() for found in [file.stat()]]


if __name__ == "__main__":
    main(sys.argv[1:])
