"""A run from its command line to its files: where it starts, what it evaluates, saves and reports."""

import errno
import shutil
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from actors.episodes import PlayRequest
from configs.load import Run
from configs.schema import Config
from configs.sections import EMBEDDED
from core.episode import Episode
from core.interfaces import Branching, EngineFailure, SandboxFailure
from core.problem import Problem
from core.weights import PublishError
from curriculum.curriculum import Assignment
from evaluation.choice import build_evaluator
from evaluation.evaluator import Evaluator, Scores, load_bank, save_bank
from evaluation.gap import GapAlarm
from games.code_golf import CodeGolfRules
from games.stages import REASONING_STAGES
from learners.advantages.estimate import Advantages
from learners.checkpoints import CheckpointError, CheckpointStore
from problems.loader import ProblemFileError
from problems.references import judge_references, validate_references
from runtime.build import check_context_lengths, ordered_ids
from runtime.parts import Parts, Start
from runtime.plan import make_plan
from runtime.problem_sets import load_splits, without_failing
from runtime.start import STARTED_FROM, SessionError, load_tokenizers, make_embedded_models, resolve
from sandbox_workers.jobs import SandboxUnavailable
from tracking.clock import Clock
from tracking.divergence import Divergence
from tracking.episodes import episode_rows
from tracking.plots import LearningCurves
from tracking.progress import Display, display, say
from tracking.run_log import run_log
from tracking.run_record import RunRecord, versions
from tracking.solutions import SolutionDatabase

_OURS = (SandboxFailure, PublishError, CheckpointError, SandboxUnavailable, ProblemFileError)
_SECONDS = (
    "warm_start",
    "startup",
    "rollout",
    "sandbox",
    "learn",
    "publish",
    "evaluation",
    "checkpoint",
    "records",
)
"""Parts of a run's time that its results always name."""
_SAMPLES = 3
"""Episodes written out per stage."""
_UNWRITABLE = (errno.ENOSPC, errno.EDQUOT, errno.EROFS)


@contextmanager
def open_session(run: Run, recipe: str) -> Iterator["Session"]:
    """Set everything up, and take it down again. Raises SessionError."""
    try:
        clock = Clock()
        with run_log() as log, display() as show:
            config, start, state = resolve(run, recipe)
            log.open(start.run_directory)
            train, held_out = _problems(config)
            if obstacles := make_plan(config, start, train, held_out).obstacles:
                raise SessionError("; ".join(obstacles))
            clock.lap("startup")
            make_embedded_models(config, start.models)
            clock.lap("warm_start")
            _check_lengths(config, start, [*train, *held_out])
            show.phase("starting the sandbox and the engines")
            with _parts(config, start, train) as parts:
                if config.problems.file == EMBEDDED:
                    pass  # a test of ours judges those
                elif config.problems.failing_references == "refuse":
                    show.phase("judging the problems' references")
                    held_out_file = config.problems.held_out_file or config.problems.file
                    train = parts.wait(validate_references(train, parts.sandbox, config.problems.file))
                    held_out = parts.wait(validate_references(held_out, parts.sandbox, held_out_file))
                else:
                    show.phase("judging the problems' references")
                    train, failing = parts.wait(judge_references(train, parts.sandbox))
                    held_out, also_failing = parts.wait(judge_references(held_out, parts.sandbox))
                    failing |= also_failing
                    train, held_out = (without_failing(problems, failing) for problems in (train, held_out))
                    parts.scheduler.leave_out(set(failing))
                if state is not None:
                    try:
                        parts.scheduler.load_state_dict(state["curriculum"])
                    except ValueError as error:  # the schedule is shorter than what is done already
                        raise SessionError(f"{start.checkpoint}: {error}") from error
                done = state["step"] if state else 0
                show.begin(parts.scheduler.total_steps, done)
                session = Session(config, start, parts, train, held_out, show, clock, state)
                yield session
            session.account()
    except (CheckpointError, ProblemFileError, SandboxUnavailable) as error:
        raise SessionError(str(error)) from error
    except OSError as error:
        if error.errno not in _UNWRITABLE:
            raise
        raise SessionError(
            f"{error.filename or run.output_dir}: {error.strerror}; make room and continue with --resume"
        ) from error


def show_plan(run: Run, recipe: str) -> None:
    """Print what would run. Raises SessionError with the reasons why it cannot."""
    config, start, _ = resolve(run, recipe)
    train, held_out = _problems(config)
    plan = make_plan(config, start, train, held_out)
    for line in plan.lines:
        say(line)
    if all(
        Path(model).is_dir() for model in start.models.values()
    ):  # the others' tokenizers are not here yet
        _check_lengths(config, start, [*train, *held_out])
    if plan.obstacles:
        raise SessionError("; ".join(plan.obstacles))


def _problems(config: Config) -> tuple[list[Problem], list[Problem]]:
    """(training, held-out). Raises SessionError."""
    try:
        train, held_out = load_splits(config)
        ordered_ids(config, train)  # while a difficulty that is no number can still be told plainly
    except ValueError as error:
        raise SessionError(str(error)) from error
    return train, held_out


def _check_lengths(config: Config, start: Start, problems: Sequence[Problem]) -> None:
    try:
        check_context_lengths(config, problems, load_tokenizers(start.models))
    except ValueError as error:
        raise SessionError(str(error)) from error


@contextmanager
def _parts(config: Config, start: Start, train: list[Problem]) -> Iterator[Parts]:
    if config.local:
        from runtime.local import local_parts

        try:
            with local_parts(config, train, start) as parts:
                yield parts
        except EngineFailure as error:
            raise SessionError(_resumable(error, start)) from error
        return
    from ray.exceptions import RayError

    from learners.mailbox import LearnerFailed
    from runtime.cluster import ClusterTooSmall, cluster_parts

    try:
        with cluster_parts(config, train, start) as parts:
            yield parts
    except ClusterTooSmall as error:
        raise SessionError(str(error)) from error
    except LearnerFailed as error:
        raise SessionError(_resumable(getattr(error, "cause", error), start)) from error
    except RayError as error:
        if isinstance(error, _OURS):  # Ray's wrapper of an error that the driver knows
            raise
        raise SessionError(_resumable(error, start)) from error


def _resumable(error: BaseException, start: Start) -> str:
    """What happened, from the last line of what may be a remote traceback, and how to go on."""
    last = (str(error).strip().splitlines() or [""])[-1]
    kept = f"the checkpoints are in {start.run_directory}; continue with --resume"
    return f"{type(error).__name__}: {last}; {kept}"


class Session:
    """One run under way."""

    def __init__(
        self,
        config: Config,
        start: Start,
        parts: Parts,
        train: Sequence[Problem],
        held_out: Sequence[Problem],
        show: Display,
        clock: Clock,
        state: Mapping[str, Any] | None,
    ) -> None:
        self.config, self.parts, self.display, self.clock = config, parts, show, clock
        self._start, self._state = start, state
        self._train = {p.id: p for p in train}
        self._record = RunRecord(start.run_directory)
        self._store = CheckpointStore(start.run_directory / "checkpoints", config.checkpoint.keep)
        self._evaluator: Evaluator | None = None
        if config.evaluation.enabled:
            self._evaluator = build_evaluator(config.game, config.evaluation, held_out, parts.sandbox)
        self._shown = self._evaluator.shown if self._evaluator else ()
        self._curves = LearningCurves(
            start.run_directory / "learning_curves.png", self._shown, tuple(config.seats)
        )
        self._tokenizers = load_tokenizers(start.models)
        self.advantages = {role: Advantages(config.policy(role).learner) for role in config.policies}
        self._divergence = Divergence(config.stop, config.policies, tuple(config.seats))
        if state:
            for role, remembered in state["advantages"].items():
                self.advantages[role].load_state_dict(remembered)
            self._divergence.load_state_dict(state["divergence"])
        self._solutions = _solutions(config, start, state)
        self._bank: Any = None
        self._results: dict[str, Any] = {}
        for part, seconds in (state["seconds"] if state else {}).items():
            clock.seconds[part] += seconds
        self._stage_began: dict[str, float] = dict(state["stage_began"]) if state else {}
        self._before: dict[str, float] = state["before"] if state else {}
        own = start.checkpoint is not None and start.checkpoint.parent.parent == start.run_directory
        self._best = state["best"] if state and own else None  # not another run's
        self._stages: list[dict[str, Any]] = list(state["stages"]) if state else []
        self._stage_ends: set[str] = set(state["stage_ends"]) if state else set()

    # ------------------------------------------------------------------ the start
    def evaluate_start(self) -> None:
        """Write the config, make (or read again) the bank, and score the players before they learn; without evaluation
        the config alone."""
        self.clock.lap("startup")
        say, directory = self.display.say, self._start.run_directory
        say(f"run: {directory}")
        say(self.parts.describe)
        bank_file = directory / "bank.json"
        if self._state is not None:
            step = self._state["step"]
            say(
                f"resuming after step {step} of {self.parts.scheduler.total_steps} ({self._start.checkpoint})"
            )
            config = self.config.model_dump(mode="json")
            if (directory / "config.yaml").is_file():
                self._record.continue_from(step, config)
            else:  # --resume-from another run
                self._record.start(config)
                (directory / STARTED_FROM).write_text(str(self._start.checkpoint))
            if self._evaluator is not None and self._evaluator.bank_request() is not None:
                if not bank_file.is_file():  # the other run's, so that the scores can be compared
                    shutil.copy(_bank_beside(self._start.checkpoint), bank_file)
                self._bank = load_bank(bank_file)
            return
        self._record.start(self.config.model_dump(mode="json"))
        if self._evaluator is None:
            return
        if (request := self._evaluator.bank_request()) is not None:
            self.display.phase("playing the yardstick of the evaluations")
            episodes = self.parts.rollouts.play(request).episodes
            self._bank = self.parts.wait(self._evaluator.bank_of(episodes))
            save_bank(bank_file, self._bank)
            self.clock.lap("evaluation")
        before = self._evaluate(self._evaluator, step=0)
        self._before = before.values
        self._record.add({"step": 0, "held_out": before.values})
        self.display.scores("before", before.values, self._shown)

    def play_request(self, assignment: Assignment) -> PlayRequest:
        config = self.config
        self.display.phase(f"step {assignment.step}: rollout")
        return PlayRequest(
            address=("step", assignment.step),
            problems=tuple(self._train[i] for i in assignment.problem_ids),
            attempts={player: assignment.attempts[policy] for player, policy in config.seats.items()},
            temperatures=dict.fromkeys(config.seats, config.temperature),
            memory=assignment.memory if self._solutions is None else self._known_solutions(assignment),
            branching=self._branching(assignment),
        )

    def _known_solutions(self, assignment: Assignment) -> dict[str, tuple[str, ...]]:
        assert self._solutions is not None
        best = {i: self._solutions.best(i) for i in assignment.problem_ids}
        return {i: tuple(s.program for s in found) for i, found in best.items()}

    def _branching(self, assignment: Assignment) -> dict[str, Branching]:
        if self.config.credit != "tree" or "generator" not in assignment.learning:
            return {}
        branches, continuations = self.config.tree.branches, self.config.tree.continuations
        if assignment.stage == len(REASONING_STAGES):  # nothing follows that could differ
            branches, continuations = branches * continuations, 1
        return {
            "generator": Branching(stage=assignment.stage, branches=branches, continuations=continuations)
        }

    # ------------------------------------------------------------------ after each step
    def finish_step(self, assignment: Assignment, row: dict[str, Any], episodes: Sequence[Episode]) -> None:
        """Log the step; at the end of a stage, and where it is due, evaluate; save a checkpoint where one is due.

        Raises:
            SessionError: the run has diverged (stop.*); it was saved before.
        """
        self._keep_solutions(assignment.step, episodes)
        self._keep_episodes(assignment, episodes)
        step, last = assignment.step, self.parts.scheduler.is_last_of_stage(assignment.step)
        every = self.config.evaluation.every
        scores = None
        if self._evaluator is not None and (last or (every is not None and step % every == 0)):
            scores = self._evaluate(self._evaluator, step)
            row["held_out"] = scores.values
            title = f"after stage {assignment.stage}" if last and self.config.staged else f"after step {step}"
            self.display.scores(title, scores.values, self._shown)
        if last:
            stage = {"stage": assignment.stage, "step": step, "held_out": scores.values if scores else {}}
            self._stages.append(stage | {"seconds": self.clock.since(self._stage_began)})
            self._stage_began = dict(self.clock.seconds)
            self._stage_ends.add(f"step_{step:06d}")
            self._record.add_samples(f"stage_{assignment.stage}_step_{step:06d}", episodes[:_SAMPLES])
        self._record.add(row)
        if last or scores is not None:
            self._curves.draw(self._record.rows())
        diverged = self._divergence.found(row)
        # Weights that make updates fail may be broken: those before them must not be pruned for them.
        broken = any(
            row.get(role, {}).get("skipped_updates") or row.get(role, {}).get("reloaded")
            for role in self.config.policies
        )
        if (
            last
            or scores is not None
            or diverged
            or (step % self.config.checkpoint.every == 0 and not broken)
        ):
            self._save(step, row, scores)
        if diverged:
            raise SessionError(
                f"stopped after step {step}: {diverged}; it is saved in {self._store.latest()}. Continue with --resume "
                "and another setting (such as a lower --learning-rate), or with --resume-from an earlier checkpoint"
            )

    def _keep_solutions(self, step: int, episodes: Sequence[Episode]) -> None:
        if self._solutions is None:
            return
        for episode in episodes:
            for attempt in episode.trajectories:
                if attempt.components.get("solved"):
                    self._solutions.add(episode.problem_id, attempt.artifact, pass_rate=1.0, step=step)

    def _keep_episodes(self, assignment: Assignment, episodes: Sequence[Episode]) -> None:
        rows = episode_rows(assignment.step, assignment.stage, assignment.phase, episodes, self.config.seats)
        if told := self._record.add_episodes(rows):
            self.display.say(told)

    def _save(self, step: int, row: Mapping[str, Any], scores: Scores | None) -> None:
        self.clock.lap("records")
        self.display.phase(f"step {step}: checkpoint")
        is_best = scores is not None and (self._best is None or scores.combined > self._best["score"])
        if is_best and scores is not None:
            self._best = {"score": scores.combined, "step": step}
        state = {
            "step": step,
            "time": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
            "row": row,
            "versions": {role: learner.version for role, learner in self.parts.learners.items()},
            "curriculum": self.parts.scheduler.state_dict(),
            "advantages": {role: estimator.state_dict() for role, estimator in self.advantages.items()},
            "seconds": dict(self.clock.seconds),
            "stage_began": self._stage_began,
            "divergence": self._divergence.state_dict(),
            "before": self._before,
            "best": self._best,
            "stages": self._stages,
            "stage_ends": sorted(self._stage_ends),
            "config": self.config.model_dump(mode="json"),
            "versions_of_packages": versions(),
        }
        with ExitStack() as stack:
            policies = {
                role: stack.enter_context(learner.save()) for role, learner in self.parts.learners.items()
            }
            checkpoint = self._store.save(step, policies, self._tokenizers, state)
        if is_best:
            self._store.mark_best(checkpoint)
        self._store.prune(self._stage_ends)
        self.clock.lap("checkpoint")

    def _evaluate(self, evaluator: Evaluator, step: int) -> Scores:
        self.clock.lap("records")
        self.display.phase(f"step {step}: evaluation" if step else "evaluation before the first step")
        played = [self.parts.rollouts.play(r).episodes for r in evaluator.requests(self._bank)]
        scores = self.parts.wait(evaluator.scores(played, self._bank))
        self._record.add_tasks(step, scores.tasks)
        alarm = GapAlarm(self.config.evaluation.gap_alarm)
        if message := alarm.message(scores.values.get("proxy_gold_gap")):
            self.display.say(message)
        self.clock.lap("evaluation")
        return scores

    # ------------------------------------------------------------------ the end
    def finish(self) -> None:
        """Results, learning curves, the table."""
        before = self._before
        after = self._stages[-1]["held_out"] if self._stages else before
        self._results = {
            "held_out": {"before": before, "after": after},
            "stages": self._stages,
            "best": self._best,
            "config": self.config.model_dump(mode="json"),
            "versions": versions(),
        }
        self.clock.lap("records")
        path = self._record.finish(self._results | {"wall_time_s": self._wall_time()})
        self._curves.draw(self._record.rows())
        if before and after:  # evaluation was on at both ends
            self.display.summary(before, after, self._shown)
        if self._best is not None:
            self.display.say(f"best checkpoint: {self._store.root / 'best'}")
        else:
            self.display.say(f"latest checkpoint: {self._store.latest()}")
        self.display.say(f"results: {path}")
        self.display.phase("stopping")

    def account(self) -> None:
        """After the parts have stopped: the seconds that this took, too, and all of them in one line."""
        self.clock.lap("shutdown")
        seconds = self._wall_time()
        self._record.finish(self._results | {"wall_time_s": seconds})
        self.display.say("seconds: " + ", ".join(f"{part} {s:.0f}" for part, s in seconds.items()))

    def _wall_time(self) -> dict[str, float]:
        """Seconds by part and in all; those of the earlier halves of a resumed run are among them."""
        return dict.fromkeys(_SECONDS, 0.0) | self.clock.seconds | {"total": self.clock.total}


def _solutions(config: Config, start: Start, state: Mapping[str, Any] | None) -> SolutionDatabase | None:
    if not isinstance(config.game, CodeGolfRules):
        return None
    solutions = SolutionDatabase(start.run_directory / "solutions.sqlite")
    solutions.forget_after(state["step"] if state else 0)
    return solutions


def _bank_beside(checkpoint: Path | None) -> Path:
    assert checkpoint is not None
    bank = checkpoint.parent.parent / "bank.json"
    if not bank.is_file():
        raise SessionError(
            f"{checkpoint}: its run's bank.json is missing at {bank}: give a checkpoint inside its run's directory, "
            "or --no-evaluation.enabled if it began without evaluation"
        )
    return bank
