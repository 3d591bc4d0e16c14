"""Loads the problems that a run is trained on and those that it is evaluated on."""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path

from configs.schema import Config
from configs.sections import ProblemSettings
from sandbox_workers.jobs import is_data
from sparring.core.evaluation import EVALUATION_PROBLEMS
from sparring.core.problem import Problem
from sparring.core.verdict import Status
from sparring.problems.contamination import drop_contaminated
from sparring.problems.difficulty import difficulty_from_pass_rate, keep_learnable
from sparring.problems.formats import load_dataset, load_written
from sparring.problems.loader import ProblemFileError
from sparring.problems.references import Offence
from sparring.problems.shown_tests import with_shown_tests
from sparring.problems.splits import split_problems
from sparring.tracking.progress import say

_NAMED = 3


def load_splits(config: Config) -> tuple[list[Problem], list[Problem]]:
    """Returns the (training, held-out) problems. Raises ProblemFileError."""
    settings = config.problems
    if "problems" not in config.game.uses:
        return config.game.own_problems(config.evaluation.problems or EVALUATION_PROBLEMS)
    leaves_out = settings.failing_references == "leave_out"
    faults: list[ProblemFileError] | None = [] if leaves_out else None
    with _key("problems.file"):
        train = load_written(settings.file, settings, faults=faults)
    if settings.held_out.kind == "share":
        train, held_out = split_problems(
            train, settings.held_out.fraction, least=int(config.evaluation.enabled)
        )
    else:
        form = settings.held_out.format or settings.format
        fields = settings.fields if form == "fields" else None
        with _key("problems.held_out.file"):
            held_out = load_dataset(
                settings.held_out.file,
                form,
                fields=fields,
                split=settings.held_out.split,
                exact_outputs=settings.exact_outputs,
                faults=faults,
            )
    if faults:
        say(f"{len(faults)} entries that cannot be read as problems left out, such as {faults[0]}")
    known = {p.id for p in train}  # parts of a set may both count from 0
    held_out = [replace(p, id=f"{p.id}/held_out") if p.id in known else p for p in held_out]
    if settings.known_tests is not None:
        train, held_out = (
            [
                replace(
                    p,
                    baseline_tests=p.baseline_tests[: settings.known_tests],
                    hidden_tests=p.evaluation_tests,
                )
                for p in problems
            ]
            for problems in (train, held_out)
        )
    refuse = partial(_refused, config)
    train = playable(train, settings.file, refuse, leave_out=leaves_out)
    held_out = playable(held_out, settings.held_out_from, refuse, leave_out=leaves_out)
    train = _learnable(_without(train, held_out, settings), settings.pass_rates)
    with _key("problems.shown_tests"):
        return with_shown_tests(train, settings.shown_tests), with_shown_tests(held_out, settings.shown_tests)


def playable(
    problems: list[Problem], file: object, refuse: Callable[[Problem], str | None], *, leave_out: bool
) -> list[Problem]:
    """Returns the problems that can be played. Raises ProblemFileError for the first that cannot, unless problems are to be
    left out, which are named, and some remain.

    Args:
        refuse: returns the reason why a problem cannot be played, or None, as Rules.refuse does.
    """
    refused = {p.id: reason for p in problems if (reason := refuse(p)) is not None}
    if not refused:
        return problems
    name, reason = next(iter(refused.items()))
    if len(refused) == len(problems):
        raise ProblemFileError(f"{file}: problem {name}: {reason}")
    if not leave_out:
        raise ProblemFileError(
            f"{file}: problem {name}: {reason}; or leave such problems out: problems.failing_references leave_out"
        )
    say(f"{_named(list(refused), 'problems')} left out; {name}: {reason}")
    return [p for p in problems if p.id not in refused]


def _refused(config: Config, problem: Problem) -> str | None:
    """Returns the reason why the problem is not played; None if it is. Tests of a problem with a reference solution are judged
    on it first (judge_references), which shows whether they are code."""
    tests = [*problem.baseline_tests, *problem.hidden_tests]
    if config.sandbox.code_tests == "refuse" and not problem.reference_solution:
        code = next((t for t in tests if isinstance(t, str) and not is_data(t)), None)
        if code is not None:
            return f"the test {code!r:.80} is code, which sandbox.code_tests refuse does not run"
    return config.game.refuse(problem)


@contextmanager
def _key(name: str) -> Iterator[None]:
    """Adds the config key to an error, since a recipe, and not the user, may have named the file."""
    try:
        yield
    except ProblemFileError as error:
        error.add_note(f"it is {name}")
        if error.is_of_entry:
            error.add_note("or leave such entries out: problems.failing_references leave_out")
        raise


def _without(train: list[Problem], held_out: list[Problem], settings: ProblemSettings) -> list[Problem]:
    """Returns the training problems without those that are also held out, under whatever id."""
    kept, dropped = drop_contaminated(train, held_out)
    if not kept:
        raise ProblemFileError(
            f"{settings.held_out_from}: every problem of {settings.file} is also "
            "held out: nothing is left to train on"
        )
    if dropped:
        named = _named([problem.id for problem in dropped], "training problems")
        say(f"{named} are also held out and are not trained on")
    return kept


def without_failing(problems: Sequence[Problem], failing: Mapping[str, Sequence[Offence]]) -> list[Problem]:
    """Returns the problems without those whose references fail, which are printed. Raises ProblemFileError if none is
    left.

    failing: what each failing reference does wrong, by problem id.
    """
    kept = [problem for problem in problems if problem.id not in failing]
    dropped = [problem.id for problem in problems if problem.id in failing]
    if not kept:
        raise ProblemFileError(f"every reference fails its own tests, such as {failing[dropped[0]][0].text}")
    if dropped:
        unserved = sum(
            any(offence.status is Status.UNSUPPORTED for offence in failing[name]) for name in dropped
        )
        why = f"; of {unserved} a test is not run here: it is code (sandbox.code_tests)" if unserved else ""
        say(f"{_named(dropped, 'problems')} left out, for their references fail their own tests{why}")
    return kept


def _named(ids: Sequence[str], what: str) -> str:
    return f"{len(ids)} {what} ({', '.join(ids[:_NAMED])}{', ...' if len(ids) > _NAMED else ''})"


def _learnable(train: list[Problem], file: Path | None) -> list[Problem]:
    """Returns the problems without those that the policy measured in `file` always or never solved. The difficulty of
    each measured problem follows from its pass rate."""
    if file is None:
        return train
    try:
        rates = json.loads(file.read_text("utf-8"))["pass_rates"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ProblemFileError(
            f"{file}: no result of sparring evaluate --json ({type(error).__name__}: {error}); write one"
        ) from error
    if not any(p.id in rates for p in train):
        raise ProblemFileError(
            f"{file}: has none of the training problems (they are named as {train[0].id}): evaluate on these problems"
        )
    kept = keep_learnable(train, rates)
    if not kept:
        raise ProblemFileError(
            f"{file}: no training problem was solved sometimes but not always; sample more often"
        )
    say(f"{len(kept)} of {len(train)} training problems are solved sometimes but not always ({file})")
    return [
        replace(p, difficulty=difficulty_from_pass_rate(rates[p.id])) if p.id in rates else p for p in kept
    ]
