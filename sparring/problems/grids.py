"""Grid tasks of the code golf competition and of ARC: reads `taskNNN.json` into pairs of grids, and makes problems of them.

    python -m sparring.problems.grids DIRECTORY     # statistics of its tasks, and the tasks by difficulty, as JSON

A program solves a task if its `p(grid)` returns every pair's output. A task is loaded completely or not at all, and
nothing is repaired. Not here: instructions to the model, and rewards; they belong to the game.

The difficulty of a task is a heuristic for the order of a curriculum. It is computed from the grids, not measured:
    complexity = sum of weight * metric, each metric from 0 to 1, the weights' sum 1:
      .30 size          log(mean cells of a grid) / log(900)
      .15 colours       (distinct colours of the task - 1) / 9
      .20 resized       share of pairs whose output has another shape than the input
      .15 changed       mean share of cells that differ, over the pairs that are not resized
      .10 new_colours   share of pairs whose output has a colour that the input does not have
      .10 few_examples  1 / number of train pairs: fewer examples determine the task less
"""

import json
import math
import sys
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any, Literal, get_args

from sparring.core.commands import parser_of, plain_endings
from sparring.core.problem import Problem
from sparring.problems.loader import ProblemFileError, attempt, read_json

Grid = tuple[tuple[int, ...], ...]
"""1 to 30 rows of 1 to 30 cells, all rows of the same length. A cell is a colour from 0 to 9."""

Split = Literal["train", "test", "arc-gen"]

COLOURS, MAX_SIDE = 10, 30
SIGNATURE = "def p(grid):"

_LAYOUT = '{"train": [{"input": [[0, 1]], "output": [[1, 0]]}], "test": [...], "arc-gen": [...]}'

LEVELS = range(1, 6)

_WEIGHTS = {
    "size": 0.30,
    "colours": 0.15,
    "resized": 0.20,
    "changed": 0.15,
    "new_colours": 0.10,
    "few_examples": 0.10,
}
_LEVEL_BOUNDS = (0.25, 0.35, 0.45, 0.55)
"""Minimum complexity of levels 2, 3, 4 and 5."""


@dataclass(frozen=True, slots=True)
class GridPair:
    input: Grid
    output: Grid


@dataclass(frozen=True, slots=True)
class GridTask:
    """One grid task.

    Example:
        GridTask("task001", train=(GridPair(((0, 1),), ((1, 0),)),), test=(GridPair(((2, 0),), ((0, 2),)),))
    """

    id: str
    train: tuple[GridPair, ...]
    test: tuple[GridPair, ...]
    arc_gen: tuple[GridPair, ...] = ()
    """Further, generated pairs; plain ARC has none."""

    @property
    def pairs(self) -> tuple[GridPair, ...]:
        return self.train + self.test + self.arc_gen


# ---------------------------------------------------------------- files


def load_tasks(directory_or_file: str | Path, faults: list[ProblemFileError] | None = None) -> list[GridTask]:
    """Reads the tasks of a directory's *.json files, sorted by name, or of one file. A file holds one task, whose id is the
    file's name without ".json", or tasks by id. ARC Prize's files on Kaggle, NAME_challenges.json, have the outputs of the
    tests in NAME_solutions.json.

    Args:
        faults: if it is given, unusable files are left out, and their errors are put into it.

    Raises:
        ProblemFileError: a file is unusable and there is no list of faults, or there is no usable task.
    """
    place = Path(directory_or_file)
    paths = sorted(place.glob("*.json")) if place.is_dir() else [place]
    paths = [path for path in paths if not (_is_of_solutions(path) and len(paths) > 1)]
    tasks, before = [], len(faults or ())
    for path in paths:
        tasks += attempt(lambda path=path: _tasks_of(path, faults), faults) or []
    if not tasks and faults and len(faults) > before:
        raise faults[before]
    if not tasks:
        found = (
            f"none of its {len(paths)} .json files holds a usable task" if paths else "no .json file in it"
        )
        raise ProblemFileError(f"{place}: {found}; give a task file or a directory of them, each {_LAYOUT}")
    return tasks


def _is_of_solutions(path: Path) -> bool:
    return path.name.endswith("_solutions.json")


def _tasks_of(path: Path, faults: list[ProblemFileError] | None) -> list[GridTask]:
    raw = read_json(path, "task", _LAYOUT)
    if not (
        isinstance(raw, dict) and raw and all(isinstance(v, dict) and "train" in v for v in raw.values())
    ):
        return [parse_task(raw, path.stem, str(path))]
    file = path.with_name(path.name.replace("_challenges.json", "_solutions.json"))
    if file == path or not file.is_file():
        if not any('"output"' in json.dumps(task.get("test")) for task in raw.values()):
            raise ProblemFileError(
                f"{path}: holds tasks by id without the outputs of their tests; put NAME_solutions.json beside NAME_challenges.json"
            )
        outputs = None
    else:
        outputs = read_json(file, "solutions", '{"id": [grid, ...]}')

    def task_of(name: str) -> GridTask:
        whole = raw[name] if outputs is None else _solved(raw[name], outputs, name, file)
        return parse_task(whole, name, f"{path}: task {name}")

    read = (attempt(lambda name=name: task_of(name), faults) for name in raw)
    return [task for task in read if task is not None]


def _solved(task: dict[str, Any], outputs: Any, name: str, file: Path) -> dict[str, Any]:
    """Returns the task with the outputs of its tests."""
    given = outputs.get(name) if isinstance(outputs, dict) else None
    tests = task.get("test")
    if not isinstance(given, list) or not isinstance(tests, list) or len(given) != len(tests):
        raise ProblemFileError(f"{file}: task {name}: expected an output for each of its tests")
    pairs = zip(tests, given, strict=True)
    return {**task, "test": [{**pair, "output": o} if isinstance(pair, dict) else pair for pair, o in pairs]}


def parse_task(raw: Any, task_id: str, where: str) -> GridTask:
    """Returns the task in a JSON document. Raises ProblemFileError, whose message starts with `where`."""
    if not isinstance(raw, dict):
        raise ProblemFileError(f"{where}: expected an object, found {_shown(raw)}; write {_LAYOUT}")
    for split in ("train", "test"):
        if split not in raw:
            raise ProblemFileError(f"{where}: split {split!r}: missing; write {_LAYOUT}")
    unknown = sorted(set(raw) - {*get_args(Split), "name"})
    if unknown:
        raise ProblemFileError(
            f"{where}: unknown key {unknown[0]!r}; remove it, or correct it to one of train, test, arc-gen"
        )
    train, test, arc_gen = (_pairs(raw.get(split, []), split, where) for split in get_args(Split))
    return GridTask(task_id, train, test, arc_gen)


def _pairs(raw: Any, split: Split, where: str) -> tuple[GridPair, ...]:
    where = f"{where}: split {split!r}"
    if not isinstance(raw, list):
        raise ProblemFileError(f"{where}: expected a list of pairs, found {_shown(raw)}; write {_LAYOUT}")
    if not raw and split != "arc-gen":
        raise ProblemFileError(f"{where}: an empty list; add at least one pair")
    return tuple(_pair(entry, f"{where}, pair {index}") for index, entry in enumerate(raw))


def _pair(raw: Any, where: str) -> GridPair:
    if not isinstance(raw, dict):
        raise ProblemFileError(
            f'{where}: expected {{"input": grid, "output": grid}}, found {_shown(raw)}; write it so'
        )
    unknown = sorted(set(raw) - {"input", "output"})
    if unknown:
        raise ProblemFileError(
            f"{where}, field {unknown[0]!r}: unknown field; a pair has input and output only"
        )
    for field in ("input", "output"):
        if field not in raw:
            raise ProblemFileError(f"{where}, field {field!r}: missing; add the grid")
        if fault := _grid_fault(raw[field]):
            raise ProblemFileError(f"{where}, field {field!r}: {fault}")
    return GridPair(as_grid(raw["input"]), as_grid(raw["output"]))


def _grid_fault(raw: Any) -> str:
    """Returns the fault of a grid and how to fix it; empty if there is none."""
    if not isinstance(raw, list) or not 1 <= len(raw) <= MAX_SIDE:
        return f"found {_shown(raw)}; expected a grid: a list of 1 to {MAX_SIDE} rows"
    for number, row in enumerate(raw):
        if not isinstance(row, list) or not 1 <= len(row) <= MAX_SIDE:
            return f"row {number} is {_shown(row)}; expected a list of 1 to {MAX_SIDE} cells"
        if len(row) != len(raw[0]):
            return f"row {number} has {len(row)} cells, row 0 has {len(raw[0])}; make all rows equally long"
        for column, cell in enumerate(row):
            if type(cell) is not int or not 0 <= cell < COLOURS:  # True is not a colour
                return f"row {number}, column {column} is {_shown(cell)}; expected a whole number from 0 to 9"
    return ""


def _shown(value: Any) -> str:
    if isinstance(value, list):
        return f"a list of {len(value)}"
    if isinstance(value, dict):
        return "an object"
    text = json.dumps(value)
    return text if len(text) <= 40 else text[:40] + "..."


def as_grid(rows: Iterable[Iterable[int]]) -> Grid:
    return tuple(tuple(row) for row in rows)


# ---------------------------------------------------------------- text


def grid_to_text(grid: Grid) -> str:
    """Returns the grid with one digit per cell and one line per row, without a newline at the end."""
    return "\n".join("".join(map(str, row)) for row in grid)


def describe(task: GridTask, max_shown: int | None = None) -> str:
    """Returns all train and test pairs, and the first `max_shown` arc-gen pairs (None: all), as text."""
    shown = {"train": task.train, "test": task.test, "arc-gen": task.arc_gen[:max_shown]}
    return "\n\n".join(
        f"{split} {number}\ninput:\n{grid_to_text(pair.input)}\noutput:\n{grid_to_text(pair.output)}"
        for split, pairs in shown.items()
        for number, pair in enumerate(pairs, start=1)
    )


def compact_description(task: GridTask) -> str:
    """Returns the train and test pairs on one line, for models with a short context.

    Example: "012/000/111>210/000/111 100/020/003>001/020/300"
    """
    pairs = ((grid_to_text(pair.input), grid_to_text(pair.output)) for pair in task.train + task.test)
    return " ".join(f"{given}>{wanted}" for given, wanted in pairs).replace("\n", "/")


# ---------------------------------------------------------------- difficulty


def complexity_metrics(task: GridTask) -> dict[str, float]:
    """Returns the metrics of the module's formula, over all pairs, and also `mean_cells` and `pairs`."""
    grids = [grid for pair in task.pairs for grid in (pair.input, pair.output)]
    mean_cells = fmean(len(grid) * len(grid[0]) for grid in grids)
    colours = set[int]().union(*map(_colours, grids))
    same_size = [pair for pair in task.pairs if not _is_resized(pair)]
    return {
        "size": math.log(mean_cells) / math.log(MAX_SIDE**2),
        "colours": (len(colours) - 1) / (COLOURS - 1),
        "resized": fmean(_is_resized(pair) for pair in task.pairs),
        "changed": fmean(map(_changed, same_size)) if same_size else 0.0,
        "new_colours": fmean(bool(_colours(pair.output) - _colours(pair.input)) for pair in task.pairs),
        "few_examples": 1 / len(task.train),
        "mean_cells": mean_cells,
        "pairs": float(len(task.pairs)),
    }


def complexity(task: GridTask) -> float:
    """Returns the complexity of a task, from 0 to 1."""
    metrics = complexity_metrics(task)
    return sum(weight * metrics[name] for name, weight in _WEIGHTS.items())


def difficulty(task: GridTask) -> int:
    """Returns the level of a task, from 1 (easy) to 5."""
    score = complexity(task)
    return 1 + sum(score >= bound for bound in _LEVEL_BOUNDS)


def by_difficulty(tasks: Sequence[GridTask]) -> dict[int, list[GridTask]]:
    """Returns the tasks by level. Levels are ascending, and the tasks of a level are sorted by complexity, then by id."""
    ordered = sorted(tasks, key=lambda task: (complexity(task), task.id))
    levels: dict[int, list[GridTask]] = {}
    for task in ordered:
        levels.setdefault(difficulty(task), []).append(task)
    return levels


def task_statistics(tasks: Sequence[GridTask]) -> dict[str, Any]:
    """Returns counts and means over the tasks as plain JSON. The means are None if there is no task."""
    sides = [
        side
        for task in tasks
        for pair in task.pairs
        for grid in (pair.input, pair.output)
        for side in (len(grid), len(grid[0]))
    ]
    metrics = [complexity_metrics(task) for task in tasks]
    levels = Counter(map(difficulty, tasks))
    return {
        "tasks": len(tasks),
        "pairs": {
            "train": sum(len(task.train) for task in tasks),
            "test": sum(len(task.test) for task in tasks),
            "arc-gen": sum(len(task.arc_gen) for task in tasks),
        },
        "smallest_side": min(sides, default=None),
        "largest_side": max(sides, default=None),
        "means": {name: fmean(m[name] for m in metrics) for name in metrics[0]} if metrics else None,
        "difficulty": {str(level): levels[level] for level in LEVELS},
    }


def _is_resized(pair: GridPair) -> bool:
    return (len(pair.input), len(pair.input[0])) != (len(pair.output), len(pair.output[0]))


def _changed(pair: GridPair) -> float:
    cells = [
        before != after
        for row, wanted in zip(pair.input, pair.output, strict=True)
        for before, after in zip(row, wanted, strict=True)
    ]
    return fmean(cells)


def _colours(grid: Grid) -> set[int]:
    return {cell for row in grid for cell in row}


# ---------------------------------------------------------------- problems


def to_problem(
    task: GridTask,
    max_shown: int | None = None,
    *,
    hold_out_arc_gen: bool = False,
    reference_solution: str = "",
) -> Problem:
    """Returns the task as a problem with one test per pair.

    Args:
        max_shown: number of arc-gen pairs that the description shows; None: all.
        hold_out_arc_gen: if true, the second half of the arc-gen pairs becomes the hidden tests and is never shown. A pair
            that also occurs among the other pairs is not used as a hidden test.
    """
    held_out = len(task.arc_gen) // 2 if hold_out_arc_gen else 0
    known = task.arc_gen[: len(task.arc_gen) - held_out]
    visible = GridTask(task.id, task.train, task.test, known)
    hidden = [pair for pair in task.arc_gen[len(known) :] if pair not in visible.pairs]
    resized = any(map(_is_resized, task.pairs))
    return Problem(
        id=task.id,
        description=describe(visible, max_shown),
        function_signature=SIGNATURE,
        baseline_tests=pair_tests(visible.pairs),
        hidden_tests=pair_tests(hidden),
        reference_solution=reference_solution,
        difficulty=difficulty(task),
        tags=("grid", "resized" if resized else "same-size"),
    )


def pair_tests(pairs: Sequence[GridPair]) -> tuple[str, ...]:
    """Returns one test per pair as Python source. A program may return lists or tuples; cells are compared by ==, so True
    equals 1."""
    return tuple(
        f"found = p({_as_lists(pair.input)})\n"
        "assert type(found) in (list, tuple) and all(type(row) in (list, tuple) for row in found), 'not a grid'\n"
        f"assert [list(row) for row in found] == {_as_lists(pair.output)}"
        for pair in pairs
    )


def _as_lists(grid: Grid) -> list[list[int]]:
    return [list(row) for row in grid]


# ---------------------------------------------------------------- the command


def main(arguments: Sequence[str] | None = None) -> None:
    parser = parser_of("sparring.problems.grids", "Statistics of grid tasks.")
    parser.add_argument("place", help="a directory of task files, or one")
    with plain_endings():
        faults: list[ProblemFileError] = []
        tasks = load_tasks(parser.parse_args(arguments).place, faults)
        for fault in faults:
            print(f"left out: {fault}", file=sys.stderr)
        levels = {str(level): [t.id for t in of_level] for level, of_level in by_difficulty(tasks).items()}
        print(json.dumps({**task_statistics(tasks), "tasks_by_difficulty": levels}, indent=2))


if __name__ == "__main__":
    main()
