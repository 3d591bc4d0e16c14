"""One run, from its command line to its files: sets it up, and evaluates, saves and reports while it goes on."""

import errno
import fcntl
import gc
import shlex
import sys
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from configs.layers import leaves
from configs.load import Run
from configs.schema import Config
from configs.sections import ProblemSettings
from learners.advantages.grpo import has_signal
from learners.batching import Credit
from sparring.core.episode import Episode
from sparring.core.errors import OutOfMemory, RunFailed, SparringError
from sparring.core.evaluation import Scores
from sparring.core.interfaces import Branching
from sparring.core.play import PlayRequest, PlayResult
from sparring.core.problem import Problem
from sparring.core.weights import Weights
from sparring.curriculum.curriculum import Assignment
from sparring.problems.packages import missing_packages
from sparring.problems.references import judge_references, validate_references
from sparring.runtime.build import credit_of, fitting
from sparring.runtime.evaluations import Evaluations
from sparring.runtime.opponents import PastOpponents
from sparring.runtime.parts import Parts, Start, Stateful
from sparring.runtime.plan import make_plan
from sparring.runtime.problem_sets import load_splits, without_failing
from sparring.runtime.recorder import CURVES, SAMPLES, Recorder
from sparring.runtime.start import load_tokenizers, resolve
from sparring.tracking.clock import Clock
from sparring.tracking.divergence import Divergence
from sparring.tracking.figures import figures, mbpp_figures, reward_figures
from sparring.tracking.progress import Display, display, say
from sparring.tracking.run_log import LOG, harmless, run_log
from sparring.tracking.run_record import cpu_model, readable, versions
from sparring.tracking.solutions import SolutionDatabase
from sparring.tracking.step_time import StepTime
from sparring.tracking.trace import Trace
from sparring.tracking.writers import TrackedRun, Writers, open_writers

_UNWRITABLE = (errno.ENOSPC, errno.EDQUOT, errno.EROFS)


@contextmanager
def open_session(run: Run, recipe: str) -> Iterator["Session"]:
    """Sets everything up, yields the session, and shuts everything down. Raises SparringError."""
    clock = Clock()
    with run_log() as log, display() as show, _writable(run.output_dir), ExitStack() as tracked:
        # a step's episodes are many objects without cycles: garbage collection took much of the time to receive them
        tracked.callback(gc.set_threshold, *gc.get_threshold())
        gc.set_threshold(100_000)
        train, held_out = load_splits(run.to_config())  # first: an error in a file must not wait for torch
        config, start = resolve(run, recipe)
        tracked.enter_context(_told_how_to_go_on(start))
        tracked.enter_context(_alone_at(start.run_directory / LOG))
        log.open(start.run_directory)
        plan = make_plan(config, start, train, held_out)
        if plan.obstacles:
            raise SparringError("; ".join(plan.obstacles))
        for warning in plan.warnings:
            say(warning)
        if config.tracking.trace:
            clock.listener = harmless("trace.json", Trace(start.run_directory / "trace.json").add)
        clock.lap("startup")
        tokenizers = load_tokenizers(start.models)
        train, held_out = fitting(config, train, held_out, tokenizers)
        writers = tracked.enter_context(open_writers(config.tracking.to, _tracked_run(config, start)))
        show.phase("starting the sandbox and the engines")
        with _parts(config, start, train) as parts:
            parts.rollouts.on_progress = show.play
            # toy problems are checked by the project's tests, and their tests are data
            if "problems" in config.game.uses and not config.problems.are_examples:
                show.phase("judging the problems' references")
                train, held_out = _judged(config.problems, parts, train, held_out)
            weights = {}
            if start.checkpoint is not None:
                weights = {role: learner.current_weights() for role, learner in parts.learners.items()}
            evaluations = Evaluations(config, start, held_out, parts, weights, show, clock)
            session = Session(
                config=config,
                start=start,
                parts=parts,
                weights=weights,
                problems={p.id: p for p in train},
                display=show,
                clock=clock,
                credit={role: credit_of(config, role) for role in config.policies},
                divergence=Divergence(config.stop, config.policies, tuple(config.seats)),
                step_time=StepTime(config.sandbox.slots),
                evaluations=evaluations,
                recorder=Recorder(config, start, tokenizers, evaluations.shown, show, clock),
                memory=ShownPrograms(config, start),
                opponents=PastOpponents(config, start, parts),
                writers=writers,
            )
            if start.state is not None:
                for name, part in session.stateful.items():
                    if (
                        name != "opponents" or name in start.state["parts"]
                    ):  # past opponents may be switched on by --resume
                        part.load_state_dict(start.state["parts"][name])
            show.begin(parts.scheduler.total_steps, start.state["step"] if start.state else 0)
            try:
                yield session
            finally:
                session.recorder.close()
        session.recorder.account()
        writers.image(session.parts.scheduler.total_steps, "learning_curves", start.run_directory / CURVES)


def show_plan(run: Run, recipe: str) -> None:
    """Prints what would run. Raises SparringError with the reasons if the run cannot start."""
    train, held_out = load_splits(run.to_config())
    config, start = resolve(run, recipe)
    plan = make_plan(config, start, train, held_out, here=run.plan_for is None)
    for line in (*plan.lines, *plan.warnings):
        say(line)
    fitting(config, train, held_out, load_tokenizers(start.models))
    if plan.obstacles:
        raise SparringError("; ".join(plan.obstacles))


@contextmanager
def _writable(output: Path) -> Iterator[None]:
    """Raises SparringError if a file of the run cannot be written because the disk is full or read-only."""
    try:
        yield
    except OSError as error:
        if error.errno not in _UNWRITABLE:
            raise
        raise SparringError(
            f"{error.filename or output}: {error.strerror}; make room and continue with --resume"
        ) from error


def _judged(
    problems: ProblemSettings, parts: Parts, train: list[Problem], held_out: list[Problem]
) -> tuple[list[Problem], list[Problem]]:
    """Returns the problems whose references pass their own tests. Raises ProblemFileError if a reference fails and
    failing_references is refuse, or if no problem is left."""
    if missing := parts.wait(missing_packages([*train, *held_out], parts.sandbox)):
        say(missing)
    if problems.failing_references == "refuse":
        train = parts.wait(validate_references(train, parts.sandbox, problems.file))
        return train, parts.wait(validate_references(held_out, parts.sandbox, problems.held_out_from))
    train, failing = parts.wait(judge_references(train, parts.sandbox))
    held_out, also_failing = parts.wait(judge_references(held_out, parts.sandbox))
    failing |= also_failing
    parts.scheduler.leave_out(set(failing))
    return without_failing(train, failing), without_failing(held_out, failing)


def _tracked_run(config: Config, start: Start) -> TrackedRun:
    tracking = config.tracking
    return TrackedRun(
        directory=start.run_directory,
        name=tracking.name or start.run_directory.name,
        project=tracking.project,
        webhook=tracking.webhook,
        settings=dict(leaves(config.model_dump(mode="json"))),
        environment=versions() | {"cpu": cpu_model(), "command": shlex.join(sys.argv)},
        done=start.state["step"] if start.state is not None else -1,
    )


def _parts(config: Config, start: Start, train: list[Problem]) -> AbstractContextManager[Parts]:
    if config.local:
        from sparring.runtime.local import local_parts as all_parts
    else:
        from sparring.runtime.cluster import cluster_parts as all_parts
    return all_parts(config, train, start)


@contextmanager
def _alone_at(file: Path) -> Iterator[None]:
    """Holds a lock on the run's log file, which the system releases when the process ends. Raises SparringError if
    another driver holds the lock. Some file systems have no locks; nothing is checked there."""
    with ExitStack() as held:
        try:
            file.parent.mkdir(parents=True, exist_ok=True)
            fcntl.flock(held.enter_context(file.open("a", encoding="utf-8")), fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise SparringError(
                f"{file.parent}: another driver is at this run; wait for it or end it, or give another --run-name"
            ) from None
        except OSError:
            pass
        yield


@contextmanager
def _told_how_to_go_on(start: Start) -> Iterator[None]:
    """Adds to an error how the run can be continued. A run without a config.yaml cannot be resumed: --resume would take
    another run."""

    def how() -> str:
        if not (start.run_directory / "config.yaml").is_file():
            return "run the command again: it ended before the first step, so there is nothing to resume"
        run = start.run_directory
        return f"continue with --resume --run-name {run.name} --output-dir {run.parent}"

    try:
        yield
    except KeyboardInterrupt:
        raise KeyboardInterrupt(f"interrupted; {how()}") from None
    except OutOfMemory as error:
        error.add_note(
            f"the run is in {start.run_directory}; with the same settings it would run out of memory again: change them, "
            f"then {how()}"
        )
        raise
    except RunFailed as error:
        error.add_note(f"the run is in {start.run_directory}; {how()}")
        raise


@dataclass(frozen=True, kw_only=True)
class Session:
    """A run that is under way: its parts, and what happens between them."""

    config: Config
    start: Start
    parts: Parts
    weights: dict[str, Weights]
    """The newest weights of each policy, with which it plays. Policies that have not learned in a new run have none."""
    problems: Mapping[str, Problem]
    """Training problems by id."""
    display: Display
    clock: Clock
    credit: Mapping[str, Credit]
    """Credit assignment by policy."""
    divergence: Divergence
    step_time: StepTime
    evaluations: Evaluations
    recorder: Recorder
    memory: "ShownPrograms"
    opponents: PastOpponents
    writers: Writers
    begun: deque[tuple[Assignment, Callable[[], PlayResult]]] = field(default_factory=deque, init=False)
    """Steps that are being played, or have been played but not learned from; the next one to learn from is first."""

    @property
    def stateful(self) -> Mapping[str, Stateful]:
        """Returns the parts whose state a checkpoint holds besides the learners."""
        return {
            "curriculum": self.parts.scheduler,
            "clock": self.clock,
            "divergence": self.divergence,
            "recorder": self.recorder,
            **({"opponents": self.opponents} if self.opponents.on else {}),
        } | {f"{role}.credit": credit for role, credit in self.credit.items()}

    def evaluate_start(self) -> None:
        """Writes the config, generates or reads the baseline programs, and scores the policies before they learn."""
        self.clock.lap("startup")
        self.display.say(f"run: {self.start.run_directory}")
        self.display.say(self.parts.describe)
        for where in self.writers.where:
            self.display.say(f"tracking: {where}")
        if self.start.state is not None:
            done, total = self.start.state["step"], self.parts.scheduler.total_steps
            self.display.say(f"resuming after step {done} of {total} ({self.start.checkpoint})")
        self.recorder.open()
        trained = (tag for problem in self.problems.values() for tag in problem.tags)
        self.recorder.categories(self.evaluations.categories, trained)
        self.evaluations.prepare()
        if self.start.state is None and (scores := self._evaluated(step=0)) is not None:
            self.recorder.first_scores(scores)
            self.writers.metrics(0, self._held_out(scores))
            self.display.scores("before", scores.values, self.evaluations.shown)

    def steps(self) -> Iterator[tuple[Assignment, Callable[[], PlayResult]]]:
        """Yields each step with a function that waits for its episodes. Up to rollout.max_policy_lag further steps are
        started at the same time, so the weights that play a step are at most that many updates behind those that learn
        from it."""
        while True:
            self._begin_steps()
            if not self.begun:
                return
            self.display.phase(f"step {self.begun[0][0].step}: rollout")
            yield self.begun.popleft()

    def _begin_steps(self) -> None:
        while len(self.begun) <= self.config.rollout.max_policy_lag:
            assignment = self.parts.scheduler.next(ahead=len(self.begun))
            if assignment is None:
                return
            if not self.begun and self.config.local:  # with local a step is played at once
                self.display.phase(f"step {assignment.step}: rollout")
            playing = self.parts.rollouts.begin(self.play_request(assignment))
            self.begun.append((assignment, partial(self._played, assignment, playing)))

    def _played(self, assignment: Assignment, playing: Callable[[], PlayResult]) -> PlayResult:
        """Waits for the episodes of a step. Plays spare problems as well, one for each problem whose groups all have
        zero variance."""
        result = playing()
        if not assignment.spare:
            return result
        learning = [player for role in assignment.learning for player in self.config.players_of(role)]
        flat = sum(
            not any(
                has_signal([t.reward or 0.0 for t in group])
                for player in learning
                for group in e.groups(player)
            )
            for e in result.episodes
        )
        if not (spare := assignment.spare[:flat]):
            return result
        more = self.parts.rollouts.begin(self.play_request(replace(assignment, problem_ids=spare)))()
        return PlayResult(
            episodes=result.episodes + more.episodes,
            sandbox=more.sandbox,
            played_again=result.played_again + more.played_again,
            replaced=len(spare),
            usage=result.usage + more.usage,
            spans=result.spans + more.spans,
            receipts={
                policy: [*receipts, *more.receipts.get(policy, ())]
                for policy, receipts in result.receipts.items()
            },
        )

    def play_request(self, assignment: Assignment) -> PlayRequest:
        config = self.config
        return PlayRequest(
            address=("step", assignment.step),
            problems=tuple(self.problems[i] for i in assignment.problem_ids),
            attempts={player: assignment.attempts[policy] for player, policy in config.seats.items()},
            temperatures=dict.fromkeys(config.seats, config.temperature),
            weights=self.weights | self.opponents.weights(assignment),
            memory=self.memory.of(assignment),
            past=assignment.past,
            branching=self._branching(assignment),
            recorded={"step": assignment.step, "stage": assignment.stage, "phase": str(assignment.phase)},
        )

    def _branching(self, assignment: Assignment) -> dict[str, Branching]:
        credit = self.config.credit
        if credit.kind != "tree" or "generator" not in assignment.learning:
            return {}
        branches, continuations = credit.branches, credit.continuations
        if assignment.stage == self.config.game.stage_numbers[-1]:  # no stage follows that could differ
            branches, continuations = credit.size, 1
        return {
            "generator": Branching(stage=assignment.stage, branches=branches, continuations=continuations)
        }

    def finish_step(self, assignment: Assignment, row: dict[str, Any], episodes: Sequence[Episode]) -> None:
        """Evaluates at the end of a stage and whenever that is due, logs the step, and saves a checkpoint if one is
        due.

        Raises:
            SparringError: the run has diverged (stop.*); a checkpoint was saved before
        """
        step, last = assignment.step, self.parts.scheduler.is_last_of_stage(assignment.step)
        if told := self.step_time.add(row["seconds"]):
            self.display.say(told)
        row |= self.opponents.played(assignment, episodes)
        self.memory.keep(step, episodes)
        scores = self._evaluated(step, last)
        if scores is not None:
            row["held_out"] = scores.values
            title = f"after stage {assignment.stage}" if last and self.config.staged else f"after step {step}"
            self.display.scores(title, scores.values, self.evaluations.shown)
        self.recorder.step(assignment, row, episodes, scores, last)
        self._track(step, row, episodes, scores, last)
        self.parts.watch(row, episodes)
        diverged = self.divergence.found(row)
        if last or scores is not None or diverged or self.recorder.save_is_due(step, row):
            self.recorder.save(step, row, scores, self.parts.learners, self.stateful)
        if diverged:
            raise SparringError(
                f"stopped after step {step}: {diverged}; the step is saved in {self.recorder.latest}. "
                "Continue with --resume "
                "and another setting (such as a lower --learning-rate), or with --resume-from an earlier checkpoint"
            )

    def _evaluated(self, step: int, last_of_stage: bool = False) -> Scores | None:
        """Evaluates the newest weights if an evaluation is due, and returns the scores, or None. The next steps are
        played at the same time, except in one process, or if past opponents may play in them, whose weights the same
        engines would need."""
        waiting = self.evaluations.begin(step, last_of_stage)
        if waiting is None:
            return None
        if not (self.config.local or self.opponents.on):
            self._begin_steps()
        return waiting()

    def _track(
        self,
        step: int,
        row: Mapping[str, Any],
        episodes: Sequence[Episode],
        scores: Scores | None,
        last_of_stage: bool,
    ) -> None:
        """Passes the step's figures to the writers."""
        (player, *_) = self.config.players_of("generator")
        told = figures({key: value for key, value in row.items() if key != "held_out"})
        told |= reward_figures(player, episodes) | (self._held_out(scores) if scores is not None else {})
        self.writers.metrics(step, told)
        if last_of_stage:
            self.writers.text(step, "samples", readable(episodes[:SAMPLES]))
        self.clock.lap("records")

    def _held_out(self, scores: Scores) -> dict[str, float]:
        problems = self.config.problems
        told = figures({"held_out": scores.values})
        if (getattr(problems.held_out, "format", None) or problems.format) == "mbpp":
            told |= mbpp_figures(scores)
        return told


class ShownPrograms:
    """Earlier programs that are passed to the game with a problem (PlayRequest.memory): the curriculum's remembered
    programs or, if the game uses solutions, the best ones of this run's database."""

    def __init__(self, config: Config, start: Start) -> None:
        self._solutions: SolutionDatabase | None = None
        if "solutions" in config.game.uses:
            self._solutions = SolutionDatabase(start.run_directory / "solutions.sqlite")
            self._solutions.forget_after(start.state["step"] if start.state else 0)

    def of(self, assignment: Assignment) -> Mapping[str, tuple[str, ...]]:
        """Returns the programs by problem id."""
        if self._solutions is None:
            return assignment.memory
        return {i: tuple(s.program for s in self._solutions.best(i)) for i in assignment.problem_ids}

    def keep(self, step: int, episodes: Sequence[Episode]) -> None:
        if self._solutions is None:
            return
        for episode in episodes:
            for attempt in episode.trajectories:
                if attempt.components.get("solved"):
                    self._solutions.add(episode.problem_id, attempt.artifact, pass_rate=1.0, step=step)
