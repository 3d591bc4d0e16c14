"""Exports the tests that a run's discriminator wrote and that failed programs, as a data set with harder tests.

    python -m sparring export-tests RUN --to DIR                    the valid tests that failed at least one program
    python -m sparring export-tests RUN --to DIR --least-kills 4    those that failed at least four

DIR is a folder of the Hugging Face Hub: README.md (its card), train.jsonl (a line for each problem, in the fields of
APPS, with all tests as asserts and the number of programs that each failed) and problems.json (the same problems for
`problems.file`: the new tests are hidden tests, with the problem's own). A test repeats none of the problem's baseline tests.
"""

import argparse
import ast
import json
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from sparring.cli.export import check_free, whole_or_not_at_all
from sparring.core.commands import home_path, parser_of, plain_endings
from sparring.core.errors import SparringError
from sparring.core.problem import Problem
from sparring.games.multistage.emitted import InputLimits, parse_suite
from sparring.games.multistage.suite_statements import split_assertion
from sparring.problems.loader import write_problems
from sparring.tracking.runs import Row, find_run, is_suite, played

Kills = Mapping[str, int]
"""Source of a test -> number of programs that it failed in the run."""

_CARD = """\
---
pretty_name: Tests that broke programs, from {run}
tags: [code, tests, sparring]
configs:
- config_name: default
  data_files: train.jsonl
---
# Tests that broke programs

{tests} tests of {problems} problems. A model wrote each of them to break the programs of another one, in the run `{run}` of
Sparring, and it failed at least {least} of them. Each test passed twice on the problem's reference solution.

| field | content |
|---|---|
| `problem_id`, `question`, `starter_code`, `solutions`, `input_output` | as in APPS; `input_output` has the tests whose values JSON can hold |
| `own_tests` | the problem's own asserts, as far as they were known |
| `tests` | the new asserts, the one that failed most programs first |
| `kills` | number of programs that each of them failed |

`problems.json` has the same problems for Sparring: `--problems.file problems.json`. The problems are those of
`{source}`, under its licence.
"""


def main(arguments: Sequence[str]) -> None:
    options = _options(arguments)
    with plain_endings():
        export_tests(options)


def _options(arguments: Sequence[str]) -> argparse.Namespace:
    parser = parser_of("sparring export-tests", __doc__, of_runs=True)
    parser.add_argument("run", nargs="?", help="a run's directory or name. Default: the latest run")
    parser.add_argument(
        "--to", required=True, type=home_path, help="a directory that does not exist or is empty"
    )
    parser.add_argument(
        "--least-kills",
        type=int,
        default=1,
        metavar="N",
        help="minimum number of programs that a test failed. Default: %(default)s",
    )
    return parser.parse_args(arguments)


def export_tests(options: argparse.Namespace) -> None:
    """Writes the data set. Raises SparringError or OSError."""
    from sparring.runtime.league import read_config
    from sparring.runtime.problem_sets import load_splits

    if options.least_kills < 1:
        raise SparringError(f"--least-kills {options.least_kills}: give 1 or more")
    run = find_run(options.run, options.output_dir)
    check_free(options.to)
    config = read_config(run)
    killing = tests_that_killed(played(run), options.least_kills)
    if not killing:
        raise SparringError(
            f"{run}: no test of a discriminator failed {options.least_kills} programs; lower --least-kills, or take "
            "a run of game multistage that is longer"
        )
    train, _ = load_splits(config)
    found = [
        (problem, new) for problem in train if (new := _without_own(problem, killing.get(problem.id, {})))
    ]
    tests = sum(len(new) for _, new in found)
    if not tests:
        raise SparringError(f"{run}: every test that failed programs repeats one of its problem's own tests")
    with whole_or_not_at_all(options.to) as draft:
        with (draft / "train.jsonl").open("w", encoding="utf-8") as lines:
            lines.writelines(json.dumps(row_of(problem, new)) + "\n" for problem, new in found)
        write_problems(draft / "problems.json", [_harder(problem, new) for problem, new in found])
        card = _CARD.format(
            run=run.name,
            tests=tests,
            problems=len(found),
            least=options.least_kills,
            source=config.problems.file if config.problems.are_examples else Path(config.problems.file).name,
        )
        (draft / "README.md").write_text(card, "utf-8")
    print(f"{options.to}: {tests} tests of {len(found)} of {len(train)} problems")


def tests_that_killed(rows: Iterable[Row], least: int) -> dict[str, Kills]:
    """Returns the valid tests of all suites that failed at least `least` programs, by problem, the one that failed most
    first."""
    killed: dict[str, dict[str, set[tuple[int, int]]]] = defaultdict(lambda: defaultdict(set))
    for row in rows:
        if not is_suite(outcomes := row.get("outcomes", ())):
            continue
        for outcome in outcomes:
            if outcome["status"] == "valid":
                programs = {(row["step"], attempt) for attempt in outcome.get("kills", ())}
                killed[row["problem"]][outcome["test"]] |= programs
    return {
        problem: kept
        for problem, tests in killed.items()
        if (
            kept := {
                test: len(programs)
                for test, programs in sorted(tests.items(), key=lambda kv: (-len(kv[1]), kv[0]))
                if len(programs) >= least
            }
        )
    }


def row_of(problem: Problem, new: Kills) -> dict[str, Any]:
    """Returns a line of train.jsonl."""
    calls = list(_as_json(problem, new))
    cases = {
        "fn_name": problem.entry_point,
        "inputs": [inputs for inputs, _ in calls],
        "outputs": [[output] for _, output in calls],
    }
    return {
        "problem_id": problem.id,
        "question": problem.description,
        "starter_code": problem.function_signature,
        "solutions": json.dumps([problem.reference_solution]),
        "input_output": json.dumps(cases) if calls else "",
        "difficulty": str(problem.difficulty),
        "own_tests": list(problem.baseline_asserts),
        "tests": list(new),
        "kills": list(new.values()),
    }


def _as_json(problem: Problem, tests: Iterable[str]) -> Iterator[tuple[list[Any], Any]]:
    """Yields the (arguments, result) of the tests that state these by position, as values that JSON keeps as they are: a
    tuple would come back as a list."""
    for test in tests:
        match ast.parse(test).body:
            case [ast.Assert(test=asserted)]:
                call, expected = split_assertion(asserted, problem.entry_point)
                if not isinstance(call, ast.Call) or call.keywords or expected is None:
                    continue
            case _:
                continue
        try:
            values = [ast.literal_eval(part) for part in (*call.args, expected)]
            if json.loads(json.dumps(values, allow_nan=False)) == values:
                yield values[:-1], values[-1]
        except (ValueError, TypeError):
            continue


def _harder(problem: Problem, new: Kills) -> Problem:
    """Returns the problem with the new tests among the hidden ones, after its own."""
    return replace(problem, hidden_tests=tuple(dict.fromkeys((*problem.evaluation_tests, *new))))


def _without_own(problem: Problem, tests: Kills) -> Kills:
    """Returns the tests that call the function with other arguments than the problem's baseline tests do."""

    def calls(test: str) -> set[str]:
        read = parse_suite(test, problem, test_format="strict", limits=InputLimits())
        return {call for found in read for call in found.inputs}

    own = {call for test in problem.baseline_asserts for call in calls(test)}
    return {test: kills for test, kills in tests.items() if not calls(test) <= own}


if __name__ == "__main__":
    main(sys.argv[1:])
