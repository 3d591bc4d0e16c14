"""Plays a run's checkpoints against each other: a league, with ratings.

    python -m sparring league                        the latest run; writes RUN/league.json
    python -m sparring league RUN --problems 120     on more of its held-out problems

In the adversarial game, every program of every kept checkpoint, and of the models before the run, is run on every
suite. In a board game, each pair plays matches on both sides. Ratings are Bradley-Terry's in points of the Elo scale,
with 95% intervals of a bootstrap over problems; if two intervals overlap widely, no difference is shown. `python -m
sparring report` shows the league on the run's page.
A run keeps the checkpoints at the ends of its stages, the best and the latest two; of
large models only the best and the latest two. --checkpoint.keep of driver.py keeps more.
"""

import argparse
import os
import sys
from collections.abc import Mapping, Sequence
from typing import Any, get_args

from sparring.core.commands import parser_of, plain_endings
from sparring.core.errors import SparringError
from sparring.core.interfaces import SandboxKind
from sparring.evaluation.intervals import print_table
from sparring.runtime.logs import quiet_logs
from sparring.tracking.runs import find_run

_EFFORT = {
    "problems": (60, "number of held-out problems; in a board game, number of seeds of matches"),
    "programs": (4, "programs of each generator for each problem"),
    "suites": (2, "suites of each discriminator for each problem"),
    "matches": (4, "in a board game: matches of each pair per seed and side"),
}
"""The default of each option, and its help."""


def main(arguments: Sequence[str]) -> None:
    options = _options(arguments)
    with plain_endings():
        from sparring.runtime.league import FILE, Effort, members_of, play_league, read_config
        from sparring.tracking.progress import say
        from sparring.tracking.rows import write_json

        run = find_run(options.run, options.output_dir)
        config = read_config(run)
        if options.seed is not None:
            config = config.model_copy(update={"seed": options.seed})
        of_others = ("matches",) if "suites" in config.game.uses else ("programs", "suites")
        if unused := [name for name in of_others if getattr(options, name) is not None]:
            raise SparringError(
                f"--{unused[0]} has no effect in a league of game {config.game.kind}; leave it out"
            )
        given = {name: getattr(options, name) for name in _EFFORT}
        effort = Effort(**{name: _EFFORT[name][0] if n is None else n for name, n in given.items()})
        league = play_league(members_of(run, config), config, effort, options.sandbox, say)
        write_json(run / FILE, league)
        show(league)
        print(f"\n{run / FILE}")


def show(league: Mapping[str, Any]) -> None:
    """Prints the tables of a league."""
    names = league["members"]
    titles = {
        "kills": "share of the column's wrong programs that the row's suites fail",
        "survival": "share of the row's programs that pass all suites of the column",
        "scores": "share of the games against the column that the row wins (a draw counts half)",
    }
    for key, title in titles.items():
        if key in league:
            rows = [[name, *map(_figure, row)] for name, row in zip(names, league[key], strict=True)]
            print_table(f"{key}: {title}", ["", *names], rows)
    rated = [
        [r["policy"], r["member"], f"{r['points']:.0f}", f"{r['low']:.0f} to {r['high']:.0f}"]
        for r in league["ratings"]
    ]
    print_table(
        "ratings (Elo): 400 points ahead wins 10 of 11 games", ["policy", "member", "points", "95%"], rated
    )


def _figure(rate: float | None) -> str:
    return "" if rate is None else f"{rate:.3f}"


def _options(arguments: Sequence[str]) -> argparse.Namespace:
    parser = parser_of("sparring league", __doc__, of_runs=True)
    parser.add_argument("run", nargs="?", help="directory or name of a run. Default: the latest run")
    for name, (usual, text) in _EFFORT.items():
        parser.add_argument(f"--{name}", type=int, help=f"{text}. Default: {usual}")
    parser.add_argument("--sandbox", choices=get_args(SandboxKind), default="auto")
    parser.add_argument("--seed", type=int, help="seed of the sampling. Default: the run's seed")
    options = parser.parse_args(arguments)
    for name in _EFFORT:
        if (number := getattr(options, name)) is not None and number < 1:
            parser.error(f"argument --{name}: at least 1, not {number}")
    return options


if __name__ == "__main__":
    quiet_logs()
    os.environ.setdefault("TORCHDYNAMO_DISABLE", "1")  # vLLM would compile a helper at its first request
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    main(sys.argv[1:])
