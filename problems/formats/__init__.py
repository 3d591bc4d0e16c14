"""Data sets in the formats that they are published in, read into `core.problem.Problem`.

Where a set has public and private tests, the public ones are `baseline_tests`, which a training reward may use;
`evaluation_tests` are always the tests of the official score: `hidden_tests` holds all of them where they are more.
Reading checks what can be seen without running anything; problems/references.py runs the solutions.
"""

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Protocol

from core.problem import Problem
from problems.formats.columns import columns
from problems.formats.contests import apps, code_contests, taco
from problems.formats.directories import directories
from problems.formats.evalplus import humaneval_plus, mbpp_plus
from problems.formats.humaneval import humaneval
from problems.formats.livecodebench import livecodebench
from problems.formats.mbpp import SPLITS, mbpp
from problems.formats.outputs import exact
from problems.grids import load_tasks, to_problem
from problems.loader import ProblemFileError, load_problems


def grids(path: Path, *, hold_out_arc_gen: bool = False) -> list[Problem]:
    """taskNNN.json of the code golf competition or ARC: a file, or a directory of them, whose faulty files are named
    and left out. hold_out_arc_gen: see to_problem."""
    tasks = load_tasks(path, "skip" if path.is_dir() else "raise")
    return [to_problem(task, _SHOWN_PAIRS, hold_out_arc_gen=hold_out_arc_gen) for task in tasks]


FORMATS: Mapping[str, Callable[..., list[Problem]]] = {
    "problems": load_problems,
    "mbpp": mbpp,
    "mbpp_plus": mbpp_plus,
    "humaneval": humaneval,
    "humaneval_plus": humaneval_plus,
    "livecodebench": livecodebench,
    "code_contests": code_contests,
    "apps": apps,
    "taco": taco,
    "q": directories,
    "grids": grids,
    "grids_hidden": partial(grids, hold_out_arc_gen=True),
    "fields": columns,
}
_SHOWN_PAIRS = 4
"""Generated pairs of a grid task that its description shows, besides all of train and test: there are hundreds."""
_SPLITS: Mapping[str, tuple[str, ...] | None] = {
    "mbpp": tuple(SPLITS),
    "q": ("train", "test"),
    "fields": None,
}
"""By format; None where the data set names them. All others have none: each split is a file."""


def load_dataset(
    path: str | Path,
    format: str,
    *,
    fields: Mapping[str, str] | None = None,
    split: str | None = None,
    exact_outputs: bool = False,
) -> list[Problem]:
    """The data set's problems, in its order.

    Args:
        path: a file; a directory for "q"; for "fields" also "owner/name" on the hub.
        format: a key of FORMATS.
        fields: for "fields": our names (columns.FIELDS) to the data set's columns.
        exact_outputs: what a whole program prints is compared line by line, not as the set's own tester does (outputs.py).
        split: for "mbpp" (SPLITS), "q" ("train", "test") and data sets on the hub; None takes all.

    Raises:
        ProblemFileError: one line: file, entry, field, what was expected, how to mend it.
    """
    path = Path(path)
    if format not in FORMATS:
        raise ProblemFileError(f"{path}: unknown format {format!r}; give one of {', '.join(FORMATS)}")
    if (format == "fields") != bool(fields):
        raise ProblemFileError(
            f"{path}: a field map and the format 'fields' go together; give both or neither"
        )
    options: dict[str, object] = {"fields": fields} if fields else {}
    if split is not None:
        options["split"] = _checked_split(path, format, split)
    problems = FORMATS[format](path, **options)
    if exact_outputs:
        problems = exact(problems)
    if not problems:
        raise ProblemFileError(f"{path}: no problem is left; check format and split")
    places: dict[str, int] = {}
    for place, problem in enumerate(problems):
        if (earlier := places.setdefault(problem.id, place)) != place:
            raise ProblemFileError(
                f"{path}: problem {problem.id!r} (index {place}), field 'id': already used at index {earlier}; "
                "give every problem an id of its own"
            )
    return problems


class Written(Protocol):
    """How a data set is written, as configs and commands say it."""

    @property
    def format(self) -> str: ...
    @property
    def fields(self) -> Mapping[str, str]: ...
    @property
    def split(self) -> str | None: ...
    @property
    def exact_outputs(self) -> bool: ...


def load_written(path: str | Path, how: Written) -> list[Problem]:
    """As load_dataset."""
    return load_dataset(path, how.format, fields=how.fields, split=how.split, exact_outputs=how.exact_outputs)


def _checked_split(path: Path, format: str, split: str) -> str:
    if format not in _SPLITS:
        raise ProblemFileError(f"{path}: files of the format {format!r} have no splits; leave out {split!r}")
    known = _SPLITS[format]
    if known and split not in known:
        raise ProblemFileError(f"{path}: no split {split!r}; give one of {', '.join(known)}")
    return split
