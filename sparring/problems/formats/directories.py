"""Reads a directory with one directory per problem, the layout of the Q set, for any language that the sandbox runs.

<problem>/problem_description.txt
          <lang>_sol.<ext>                        reference solution
          <lang>_test_case_<i>.<ext>              runs after the program (q: appended to it)
          <lang>_exact_ans_test_case_<i>.txt      the expected output
"""

from dataclasses import dataclass
from pathlib import Path

from sparring.core.problem import Problem
from sparring.core.verdict import OutputTest, Verdict
from sparring.problems.formats.sources import limits_for
from sparring.problems.loader import ProblemFileError, attempt

_EXTENSIONS = {"q": "q", "lua": "lua", "bash": "sh", "javascript": "js", "c": "c"}
"""File extension by language. A problem's language is the first one in this order in which it has a solution."""


@dataclass(frozen=True, kw_only=True, slots=True)
class AnswerTest(OutputTest):
    """An OutputTest that ignores blanks around the answer and treats q's `""` as empty output."""

    def judge(self, verdict: Verdict) -> Verdict:
        same = _answer(self.stdout or "") == _answer(verdict.stdout)
        return verdict if same else OutputTest.judge(self, verdict)


def _answer(text: str) -> str:
    text = text.strip(" \t\r\n")
    return "" if text == '""' else text


def directories(
    path: Path, *, split: str | None = None, faults: list[ProblemFileError] | None = None
) -> list[Problem]:
    """Returns the problems of a directory, sorted by name. If the directory holds `train` and `test`, `split` chooses one.
    faults: see loader.attempt.

    Raises ProblemFileError.
    """
    if not path.is_dir():
        raise ProblemFileError(
            f"{path}: no such directory; give the one that holds the problems' directories"
        )
    parts = sorted(part.name for part in path.iterdir() if part.is_dir() and part.name in ("train", "test"))
    if split is None and parts:
        raise ProblemFileError(f"{path}: holds {' and '.join(parts)}; set the split to one of them")
    if split is not None and split not in parts and path.name != split:
        raise ProblemFileError(
            f"{path}: has no directory {split!r}; leave out the split, or correct the path"
        )
    root = path / split if split in parts else path
    folders = [folder for folder in sorted(root.iterdir()) if folder.is_dir()]
    if not folders:
        raise ProblemFileError(f"{root}: holds no problems; give a directory with one directory per problem")
    read = (attempt(lambda folder=folder: _problem(folder), faults) for folder in folders)
    return [problem for problem in read if problem is not None]


def _problem(folder: Path) -> Problem:
    language = next((n for n, ext in _EXTENSIONS.items() if (folder / f"{n}_sol.{ext}").is_file()), None)
    if language is None:
        known = ", ".join(f"{name}_sol.{extension}" for name, extension in _EXTENSIONS.items())
        raise ProblemFileError(f"{folder}: no reference solution; add one of {known}")
    extension = _EXTENSIONS[language]
    start = f"{language}_test_case_"
    numbers = [file.stem.removeprefix(start) for file in folder.glob(f"{start}*.{extension}")]
    if not numbers:
        raise ProblemFileError(f"{folder}: no tests; add {start}1.{extension} and its answer")
    tests = tuple(
        AnswerTest(
            code=_read(folder / f"{start}{number}.{extension}"),
            stdout=_read(folder / f"{language}_exact_ans_test_case_{number}.txt"),
        )
        for number in sorted(numbers, key=lambda number: (len(number), number))
    )
    return Problem(
        id=f"{language}/{folder.name}",
        description=_read(folder / "problem_description.txt").strip(),
        function_signature="",
        baseline_tests=tests,
        reference_solution=_read(folder / f"{language}_sol.{extension}"),
        language=language,
        limits=limits_for(tests),
    )


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise ProblemFileError(f"{path}: no such file; each problem needs it") from None
    except UnicodeDecodeError as error:
        raise ProblemFileError(f"{path}: not UTF-8 text (byte {error.start}); save it as UTF-8") from None
