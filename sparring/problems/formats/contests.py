"""CodeContests, APPS and TACO: contest problems with many solutions.

Expected outputs are compared as the data sets' own testers do (outputs.py). For problems with several correct outputs, only
the listed output is accepted.
"""

import ast
import json
import logging
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

from pydantic import AliasChoices, Field

from sparring.core.problem import Problem
from sparring.core.verdict import Test
from sparring.problems.formats.outputs import AppsTest, CodeContestsTest
from sparring.problems.formats.records import Entry, Record, problems_of
from sparring.problems.formats.sources import (
    HARNESS_IMPORTS,
    call_test,
    limits_for,
    method_of_solution,
    python_solutions,
    signature_of,
)
from sparring.problems.loader import kind_of

log = logging.getLogger(__name__)

_PYTHON3 = (3, "PYTHON3")
_CASES = '{"input": [strings], "output": [as many strings]}'
_SOLUTIONS = '{"language": [numbers], "solution": [as many sources]}'


# ------------------------------------------------------------ CodeContests


class _Cases(Record):
    input: list[str] = []
    output: list[str] = []


class _Solutions(Record):
    language: list[int | str] = []
    solution: list[str] = []


class _Duration(Record):
    seconds: float = 0.0
    nanos: float = 0.0


class _Contest(Record):
    name: str = Field(min_length=1, description="the problem's name")
    description: str = Field(description="the problem's text")
    public_tests: _Cases = Field(description=_CASES)
    private_tests: _Cases = Field(default=_Cases(), description=_CASES)
    generated_tests: _Cases = Field(default=_Cases(), description=_CASES)
    solutions: _Solutions = Field(default=_Solutions(), description=_SOLUTIONS)
    incorrect_solutions: _Solutions = Field(default=_Solutions(), description=_SOLUTIONS)
    time_limit: _Duration | float | None = Field(default=None, description='seconds, or {"seconds", "nanos"}')
    memory_limit_bytes: int | None = Field(default=None, ge=0, description="bytes")
    difficulty: int | str = Field(default="unknown", description="a number or a word")
    cf_tags: list[str] = Field(default=[], description="a list of words")
    source: int | str = Field(default="unknown", description="a number: where the problem is from")
    input_file: str | None = Field(default=None, description='a file name, or ""')
    output_file: str | None = Field(default=None, description='a file name, or ""')


def code_contests(rows: Iterable[Entry]) -> list[Problem]:
    """Reads CodeContests. Public tests are the baseline tests, and all tests together are the evaluation tests. Only solutions
    in Python 3 are used. Problems whose programs read or write files are left out, and the log states their number.

    Raises ProblemFileError.
    """
    sources, with_files = [], 0

    def convert(entry: Entry) -> Problem | None:
        nonlocal with_files
        contest = entry.validated(_Contest)
        if contest.input_file or contest.output_file:
            with_files += 1
            return None
        problem = _contest_problem(entry, contest)
        sources.append(contest.source)
        return problem

    problems = problems_of(rows, convert)
    if with_files:
        log.warning("code_contests: %d problems want files: left out", with_files)
    times = Counter(problem.id for problem in problems)
    for place, problem in enumerate(problems):
        if times[problem.id] > 1:  # two sources may use the same name for different problems
            problems[place] = replace(problem, id=f"{problem.id} (source {sources[place]})")
    return with_tests(problems, "code_contests")


def _contest_problem(entry: Entry, contest: _Contest) -> Problem:
    public = _output_tests(entry, "public_tests", contest.public_tests)
    others = [
        *_output_tests(entry, "private_tests", contest.private_tests),
        *_output_tests(entry, "generated_tests", contest.generated_tests),
    ]
    right = python_solutions(_sources(entry, "solutions", contest.solutions))
    wrong = python_solutions(_sources(entry, "incorrect_solutions", contest.incorrect_solutions))
    duration = contest.time_limit
    cpu_s = duration.seconds + duration.nanos / 1e9 if isinstance(duration, _Duration) else duration
    memory_mb = (contest.memory_limit_bytes or 0) / 2**20
    return Problem(
        id=f"code_contests/{contest.name}",
        description=contest.description.strip(),
        function_signature="",
        baseline_tests=tuple(public),
        reference_solution=right[0] if right else "",
        difficulty=contest.difficulty,
        tags=tuple(tag for tag in contest.cf_tags if tag),
        hidden_tests=tuple(public + others) if others else (),
        limits=limits_for(public + others, cpu_s, memory_mb),
        other_solutions=right[1:],
        wrong_solutions=wrong,
    )


def _output_tests(entry: Entry, field: str, cases: _Cases) -> list[Test]:
    if len(cases.input) != len(cases.output):
        raise entry.fault(field, f"{len(cases.input)} inputs but {len(cases.output)} outputs", _CASES)
    return [CodeContestsTest(stdin=i, stdout=o) for i, o in zip(cases.input, cases.output, strict=True)]


def _sources(entry: Entry, field: str, found: _Solutions) -> Iterable[str]:
    if len(found.language) != len(found.solution):
        raise entry.fault(
            field, f"{len(found.language)} languages but {len(found.solution)} solutions", _SOLUTIONS
        )
    pairs = zip(found.language, found.solution, strict=True)
    return (source for language, source in pairs if language in _PYTHON3)


def with_tests(problems: Sequence[Problem], format: str) -> list[Problem]:
    """Leaves out the problems without tests, which cannot be judged, and logs their number."""
    kept = [problem for problem in problems if problem.baseline_tests or problem.hidden_tests]
    if len(kept) < len(problems):
        log.warning(
            "%s: %d of %d problems have no tests: left out", format, len(problems) - len(kept), len(problems)
        )
    return kept


# ------------------------------------------------------------ APPS and TACO


class _AppsRecord(Record):
    problem_id: int | str | None = Field(
        default=None, validation_alias=AliasChoices("problem_id", "id"), description="the problem's number"
    )
    question: str = Field(description="the problem's text")
    solutions: str | list[str] = Field(default="", description='a JSON list of sources, or ""')
    starter_code: str | None = Field(default="", description='the head of the function, or ""')
    input_output: str | dict[str, Any] = Field(
        default="", description='JSON {"inputs", "outputs"[, "fn_name"]}, or ""'
    )
    difficulty: str | int = Field(default="unknown", description='a word, such as "introductory"')
    tags: str | list[str] | None = Field(default=None, description="a list of words, or its Python repr")
    time_limit: str | None = Field(default=None, description='words such as "2.0 seconds"')
    memory_limit: str | None = Field(default=None, description='words such as "256.0 megabytes"')


def apps(rows: Iterable[Entry]) -> list[Problem]:
    """Reads APPS. All tests are baseline tests, and the first solution in Python 3 is the reference solution. If the tests call
    a function, programs get the imports of LeetCode.

    Raises ProblemFileError."""
    return with_tests(problems_of(rows, _problem), "apps")


def taco(rows: Iterable[Entry]) -> list[Problem]:
    """Reads TACO in the same way as `apps`. If a problem has no id, its id is its place in the file. Raises
    ProblemFileError."""
    return with_tests(problems_of(rows, _problem), "taco")


def _problem(entry: Entry) -> Problem:
    question = entry.validated(_AppsRecord)
    number = entry.index if question.problem_id is None else question.problem_id
    name, tests = _tests(entry, question.input_output)
    written = question.solutions
    is_empty = isinstance(written, str) and not written.strip()
    solutions = [] if is_empty else entry.json("solutions", written, "a list")
    if not isinstance(solutions, list) or not all(isinstance(source, str) for source in solutions):
        raise entry.fault("solutions", f"JSON of {kind_of(solutions)}", "a JSON list of sources")
    right = python_solutions(solutions)
    heads = [question.starter_code or "", *right[:1]]
    signature = next((s for head in heads if name and (s := signature_of(head, name))), None)
    return Problem(
        id=f"{entry.format}/{number}",
        description=question.question.strip(),
        function_signature=signature or (f"def {name}(*args):" if name else ""),
        baseline_tests=tuple(tests),
        reference_solution=right[0] if right else "",
        difficulty=question.difficulty.lower()
        if isinstance(question.difficulty, str)
        else question.difficulty,
        tags=_tags(entry, question.tags),
        limits=limits_for(
            tests,
            _amount(question.time_limit, {"second": 1.0, "millisecond": 1e-3}),
            _amount(question.memory_limit, {"megabyte": 1.0, "kilobyte": 1 / 1024, "gigabyte": 1024.0}),
        ),
        other_solutions=right[1:],
        preamble=HARNESS_IMPORTS if name else "",
        epilogue=method_of_solution(name) if name else "",
    )


def _tests(entry: Entry, text: str | dict[str, Any]) -> tuple[str | None, list[Test]]:
    """Returns (name of the function that the tests call, or None for a whole program; the tests). Returns no tests if one of
    them contains an integer that is too long to read (sparring/core/__init__.py), or an input that is no list of arguments."""
    expected = 'JSON {"inputs": [...], "outputs": [as many][, "fn_name"]}'
    if isinstance(text, str) and not text.strip():
        return None, []
    try:
        cases = json.loads(text) if isinstance(text, str) else text
    except (json.JSONDecodeError, RecursionError):
        raise entry.fault("input_output", "not valid JSON", expected) from None
    except ValueError:
        return None, []
    if not isinstance(cases, dict):
        raise entry.fault("input_output", f"JSON of {kind_of(cases)}", expected)
    inputs, outputs, name = cases.get("inputs") or [], cases.get("outputs") or [], cases.get("fn_name")
    if not isinstance(inputs, list) or not isinstance(outputs, list) or len(inputs) != len(outputs):
        raise entry.fault("input_output", "inputs and outputs are no lists of one length", expected)
    pairs = zip(inputs, outputs, strict=True)
    if name is None:
        return None, [AppsTest(stdin=_text(i), stdout=_text(o)) for i, o in pairs]
    if not isinstance(name, str) or not name.isidentifier():
        raise entry.fault("input_output", f"fn_name {name!r}", "the name of a function")
    if not all(isinstance(arguments, list) for arguments in inputs):
        return name, []  # some of TACO's rows have code there
    return name, [
        call_test(name, _with_numbers(i), [o, *o[:1]] if isinstance(o, list) else [o]) for i, o in pairs
    ]


def _with_numbers(arguments: Sequence[Any]) -> list[Any]:
    """Returns the arguments of a call as the data sets' own testers pass them: JSON has turned the whole numbers that were
    keys of the first one into strings. What a program returns is compared as JSON (call_test), so its keys need no mending.
    """
    first, *others = arguments or [None]
    if isinstance(first, dict):
        with suppress(ValueError):
            return [{int(key): value for key, value in first.items()}, *others]
    return [*arguments]


def _text(value: Any) -> str:
    """Returns an input or output as text; some of them are lists of lines."""
    return "\n".join(map(str, value)) if isinstance(value, list) else str(value)


def _tags(entry: Entry, tags: str | list[str] | None) -> tuple[str, ...]:
    if not tags:
        return ()
    if isinstance(tags, str):
        try:
            tags = ast.literal_eval(tags)
        except (ValueError, SyntaxError):
            raise entry.fault("tags", "no Python list", "a list of words, such as \"['Math']\"") from None
    return tuple(map(str, tags or ()))


def _amount(text: str | None, units: dict[str, float]) -> float | None:
    """Returns the amount in a text, such as 2.0 for "2.0 seconds"; None if the text is no amount in these units."""
    found = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([a-z]+?)s?\s*", text or "", re.IGNORECASE)
    return float(found[1]) * units[found[2].lower()] if found and found[2].lower() in units else None
