"""Evaluates a run on held-out problems: when that is due, the baseline programs, the scores, and the reward-hacking
alarm."""

import json
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from configs.schema import Config
from sparring.core.errors import SparringError
from sparring.core.evaluation import Evaluator, Scores, hacking_alarm
from sparring.core.play import PlayRequest, PlayResult
from sparring.core.problem import Problem
from sparring.core.weights import Weights
from sparring.runtime.parts import Parts, Start
from sparring.tracking.clock import Clock
from sparring.tracking.progress import Display
from sparring.tracking.rows import write_json


class Evaluations:
    """The evaluations of one run. If evaluation is not enabled, none is ever due."""

    def __init__(
        self,
        config: Config,
        start: Start,
        held_out: Sequence[Problem],
        parts: Parts,
        weights: Mapping[str, Weights],
        show: Display,
        clock: Clock,
    ) -> None:
        """weights: the current weights by policy (Session.weights), which change as the policies learn."""
        self._settings = config.evaluation
        self._start, self._parts, self._weights = start, parts, weights
        self._show, self._clock = show, clock
        self._evaluator: Evaluator | None = None
        self.categories: dict[str, tuple[str, ...]] = {}
        """Tags of the held-out problems, by id."""
        if config.evaluation.enabled:
            if "problems" in config.game.uses:
                held_out = held_out[: config.evaluation.problems]
            self.categories = {problem.id: problem.tags for problem in held_out}
            self._evaluator = config.game.evaluator(held_out, parts.sandbox, config.evaluation)
        self.shown = self._evaluator.shown if self._evaluator is not None else ()
        self._bank: dict[str, list[str]] = {}
        self._await_bank: Callable[[], None] = lambda: None

    def prepare(self) -> None:
        """Starts to generate the baseline programs at the start of a run; reads them if the run starts from a
        checkpoint."""
        if self._evaluator is None or (request := self._evaluator.bank_request()) is None:
            return
        file = self._start.run_directory / "bank.json"
        if self._start.checkpoint is None:
            return self._begin_bank(request, file)
        # a new run takes the programs of the checkpoint's run, so that their scores can be compared
        if not file.is_file():
            shutil.copy(_bank_beside(self._start.checkpoint), file)
        self._bank = json.loads(file.read_text("utf-8"))
        if new := tuple(p for p in request.problems if p.id not in self._bank):
            self._show.say(
                f"{len(new)} of {len(request.problems)} held-out problems are not of the run before: their baseline "
                "programs are written by the models as they are now"
            )
            self._begin_bank(replace(request, problems=new), file)
            # the models learn before the next evaluation, so these programs must be written now
            self._await_bank()

    def _begin_bank(self, request: PlayRequest, file: Path) -> None:
        """Plays the request's problems, and adds the programs to those that are there already."""
        self._show.phase("baseline programs")
        playing = self._begin(request)

        def wait() -> None:
            assert self._evaluator is not None
            self._show.phase("baseline programs")
            self._bank |= self._parts.wait(self._evaluator.bank_of(playing().episodes))
            write_json(file, self._bank)
            self._clock.lap("evaluation")
            self._await_bank = lambda: None

        self._await_bank = wait

    def _begin(self, request: PlayRequest) -> Callable[[], PlayResult]:
        return self._parts.rollouts.begin(replace(request, weights=dict(self._weights)))

    def begin(self, step: int, last_of_stage: bool = False) -> Callable[[], Scores] | None:
        """Starts the evaluation that is due after this step (0: before the first step). Returns a function that waits
        for its scores, or None if no evaluation is due. No request with other weights may begin until the scores are
        there.

        The function raises SparringError if evaluation.best_by names a score that the game does not have.
        """
        every = self._settings.every
        due = step == 0 or last_of_stage or (every is not None and step % every == 0)
        if self._evaluator is None or not due:
            return None
        if self._evaluator.shows_bank:
            self._await_bank()
        phase = f"step {step}: evaluation" if step else "evaluation before the first step"
        self._show.phase(phase)
        requests = self._evaluator.requests(self._bank)
        return partial(self._scores, phase, [self._begin(request) for request in requests])

    def _scores(self, phase: str, playing: Sequence[Callable[[], PlayResult]]) -> Scores:
        assert self._evaluator is not None
        self._await_bank()
        self._show.phase(phase)
        played = [wait().episodes for wait in playing]
        scores = self._parts.wait(self._evaluator.scores(played, self._bank))
        gap = scores.values.get("proxy_gold_gap")
        if message := hacking_alarm(gap, self._settings.gap_alarm):
            self._show.say(message)
        self._clock.lap("evaluation")
        if (name := self._settings.best_by) is None:
            return scores
        if name in scores.missing:
            return replace(scores, combined=None)
        if name not in scores.values:
            known = ", ".join(sorted(scores.values))
            raise SparringError(f"evaluation.best_by {name}: no score of this game; give one of {known}")
        return replace(scores, combined=scores.values[name])


def _bank_beside(checkpoint: Path) -> Path:
    bank = checkpoint.parent.parent / "bank.json"
    if not bank.is_file():
        raise SparringError(
            f"{checkpoint}: its run's bank.json is missing at {bank}: give a checkpoint inside its run's directory, "
            "or --no-evaluation.enabled if it began without evaluation"
        )
    return bank
