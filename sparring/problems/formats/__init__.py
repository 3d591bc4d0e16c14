"""Reads data sets, in the formats in which they are published, into `sparring.core.problem.Problem`.

If a data set has public and private tests, the public ones are `baseline_tests`, which a training reward may use.
`evaluation_tests` are always the tests of the official score; if these are more than the baseline tests, `hidden_tests`
holds all of them. Reading only checks what can be checked without running code; sparring/problems/references.py runs the solutions.
"""

import logging
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Protocol

from sparring.core.problem import Problem
from sparring.core.project_files import located
from sparring.problems.formats.bigcodebench import bigcodebench
from sparring.problems.formats.columns import check_fields, columns
from sparring.problems.formats.contests import apps, code_contests, taco
from sparring.problems.formats.directories import directories
from sparring.problems.formats.evalplus import humaneval_plus, mbpp_plus
from sparring.problems.formats.humaneval import humaneval
from sparring.problems.formats.kodcode import kodcode
from sparring.problems.formats.livecodebench import livecodebench
from sparring.problems.formats.mbpp import SPLITS, mbpp
from sparring.problems.formats.outputs import exact
from sparring.problems.formats.records import entries, is_on_hub
from sparring.problems.formats.ult import ult
from sparring.problems.grids import load_tasks, to_problem
from sparring.problems.loader import ProblemFileError, load_problems

log = logging.getLogger(__name__)


def grids(
    path: Path, *, hold_out_arc_gen: bool = False, faults: list[ProblemFileError] | None = None
) -> list[Problem]:
    """Reads taskNNN.json of the code golf competition or ARC: one file, or a directory of files. Faulty files of a directory
    are left out, and logged if there is no list of faults. hold_out_arc_gen: see to_problem. faults: see loader.attempt."""
    left_out: list[ProblemFileError] = []
    tasks = load_tasks(path, left_out if faults is None and path.is_dir() else faults)
    for fault in left_out:
        log.warning("left out: %s", fault)
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
    "kodcode": kodcode,
    "bigcodebench": bigcodebench,
    "ult": ult,
    "q": directories,
    "grids": grids,
    "grids_hidden": partial(grids, hold_out_arc_gen=True),
    "fields": columns,
}
_OF_PATHS = ("problems", "q", "grids", "grids_hidden")
"""Formats whose reader gets a path. The others get the entries of a file or of a data set on the hub."""
_SHOWN_PAIRS = 4
"""Number of generated pairs that a grid task's description shows besides all train and test pairs. A task has hundreds."""
_SPLITS: Mapping[str, tuple[str, ...]] = {"mbpp": tuple(SPLITS), "q": ("train", "test")}
"""Names of the splits by format, for files. Files of other formats have no splits: each split is a file."""


def load_dataset(
    path: str | Path,
    format: str,
    *,
    fields: Mapping[str, str] | None = None,
    split: str | None = None,
    exact_outputs: bool = False,
    faults: list[ProblemFileError] | None = None,
) -> list[Problem]:
    """Returns the data set's problems, in the data set's order.

    Args:
        path: a file (see project_files.located) or, for formats whose files have entries, "owner/name" on the hub; a directory
            for "q".
        format: a key of FORMATS.
        fields: for "fields": the data set's column by field name (columns.FIELDS).
        exact_outputs: if true, the output of a whole program is compared line by line, and not as the data set's own tester
            does (outputs.py).
        split: for files of "mbpp" (SPLITS), for "q" ("train", "test"), and for data sets on the hub; None takes all or, on the
            hub, the only one, or "train".
        faults: if it is given, entries that cannot be read as problems are left out, and their errors are put into it, unless
            no problem is left.

    Raises:
        ProblemFileError: the data set is unusable, or it has a faulty entry that is not left out. The message is one line: file,
            entry, field, what was expected, how to fix it.
    """
    path = located(path)
    if format not in FORMATS:
        raise ProblemFileError(f"{path}: unknown format {format!r}; give one of {', '.join(FORMATS)}")
    if (format == "fields") != bool(fields):
        raise ProblemFileError(
            f"{path}: a field map and the format 'fields' go together; give both or neither"
        )
    before = len(faults or ())  # another file's
    options: dict[str, object] = {}
    if fields:
        check_fields(path, fields)
        options["fields"] = fields
    on_hub = format not in _OF_PATHS and is_on_hub(path)
    if split is not None and not on_hub:
        options["split"] = _checked_split(path, format, split)
    if format in _OF_PATHS:
        problems = FORMATS[format](path, faults=faults, **options)
    else:
        problems = FORMATS[format](entries(path, format, split, faults), **options)
    if faults is not None and faults[before:] and not problems:
        raise faults[before]
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


class FormatOptions(Protocol):
    """The format of a data set, as configurations and commands give it."""

    @property
    def format(self) -> str: ...
    @property
    def fields(self) -> Mapping[str, str]: ...
    @property
    def split(self) -> str | None: ...
    @property
    def exact_outputs(self) -> bool: ...


def load_written(
    path: str | Path, how: FormatOptions, *, faults: list[ProblemFileError] | None = None
) -> list[Problem]:
    """Calls load_dataset with the format of `how`."""
    return load_dataset(
        path,
        how.format,
        fields=how.fields,
        split=how.split,
        exact_outputs=how.exact_outputs,
        faults=faults,
    )


def _checked_split(path: Path, format: str, split: str) -> str:
    if format not in _SPLITS:
        raise ProblemFileError(f"{path}: files of the format {format!r} have no splits; leave out {split!r}")
    if split not in _SPLITS[format]:
        raise ProblemFileError(f"{path}: no split {split!r}; give one of {', '.join(_SPLITS[format])}")
    return split
