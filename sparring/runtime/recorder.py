"""Writes the files of a run: config, rows, episodes, samples, curves, checkpoints, results."""

import copy
import time
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack
from functools import partial
from pathlib import Path
from typing import Any

from configs.schema import Config
from learners.checkpoints import CheckpointStore
from learners.mirror import Mirror
from sparring.core.episode import Episode
from sparring.core.evaluation import Scores
from sparring.curriculum.curriculum import Assignment
from sparring.runtime.parts import LearnerHandle, Start, Stateful
from sparring.runtime.plan import SAVE_S, saving
from sparring.runtime.start import FRESH, STARTED_FROM
from sparring.tracking.clock import Clock
from sparring.tracking.plots import plot_learning_curves
from sparring.tracking.progress import Display
from sparring.tracking.run_log import harmless
from sparring.tracking.run_record import RunRecord, versions

_SECONDS = (
    "startup", "rollout", "sandbox", "learn", "publish", "evaluation", "checkpoint", "records",
)  # fmt: skip
"""Parts of a run's time that are always in its results."""
SAMPLES = 3
"""Number of episodes that are written out per stage."""
CURVES = "learning_curves.png"


class Recorder:
    def __init__(
        self,
        config: Config,
        start: Start,
        tokenizers: Mapping[str, Any],
        shown: Sequence[str],
        show: Display,
        clock: Clock,
    ) -> None:
        """shown: names of the held-out scores that are displayed."""
        self._config, self._start, self._tokenizers = config, start, tokenizers
        self._shown, self._show, self._clock = shown, show, clock
        directory = start.run_directory
        self._record = RunRecord(directory)
        self._saving = saving(config, start)
        self._saved = clock.last
        """Time at which the last checkpoint was started."""
        self._store = CheckpointStore(directory / "checkpoints", self._saving.keep)
        self._last_intact = ""
        """Name of the last checkpoint of a step without failed updates; it is kept, whatever is saved after it."""
        self._writer = ThreadPoolExecutor(1, "checkpoints")
        self._writing: Future[None] | None = None
        mirror = config.checkpoint.mirror
        self._mirror = Mirror(mirror, directory.name) if mirror else None
        self._draw_curves = harmless(
            CURVES,
            partial(plot_learning_curves, path=directory / CURVES, shown=shown, players=tuple(config.seats)),
        )
        self._before: dict[str, float] = {}
        self._stages: list[dict[str, Any]] = []
        self._stage_began: dict[str, float] = {}
        """Seconds per part on the clock when the stage began."""
        self._best: dict[str, Any] | None = None
        self._results: dict[str, Any] = {}

    def state_dict(self) -> dict[str, Any]:
        """Returns the state as plain JSON."""
        began = self._stage_began
        return {
            "before": self._before,
            "stages": self._stages,
            "stage_began": began,
            "best": self._best,
            "last_intact": self._last_intact,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self._before, self._stages = state["before"], list(state["stages"])
        self._stage_began = state["stage_began"]
        self._last_intact = state["last_intact"]
        best = state["best"]
        same = best is not None and best["by"] == self._config.evaluation.best_by
        self._best = (
            best if same and self._start.continues else None
        )  # the best of another run, or by another score, does not count

    def open(self) -> None:
        """Writes the config. If the run is resumed, removes what came after its checkpoint."""
        start, config = self._start, self._config.model_dump(mode="json")
        if start.continues and start.state is not None:
            self._record.continue_from(start.state["step"], config)
        else:
            self._record.start(config)
            if start.checkpoint is not None:
                note = f"{start.checkpoint}" if start.state is not None else f"{start.checkpoint}\n{FRESH}"
                (start.run_directory / STARTED_FROM).write_text(note, "utf-8")
        self._clock.lap("records")

    def categories(self, held_out: Mapping[str, Sequence[str]], trained: Iterable[str]) -> None:
        """Writes the problems' categories (see RunRecord)."""
        self._record.write_categories(held_out, trained)

    def first_scores(self, scores: Scores) -> None:
        """Records the scores of the policies before they learn."""
        self._before = scores.values
        self._record.add_evaluation(0, scores)
        self._record.add({"step": 0, "held_out": scores.values})

    def step(
        self,
        assignment: Assignment,
        row: Mapping[str, Any],
        episodes: Sequence[Episode],
        scores: Scores | None,
        last_of_stage: bool,
    ) -> None:
        step, stage = assignment.step, assignment.stage
        if told := self._record.add_episodes(episode.rows for episode in episodes):
            self._show.say(told)
        if scores is not None:
            self._record.add_evaluation(step, scores)
        if last_of_stage:
            held_out = scores.values if scores is not None else {}
            seconds = self._clock.since(self._stage_began)
            self._stages.append({"stage": stage, "step": step, "held_out": held_out, "seconds": seconds})
            self._stage_began = dict(self._clock.seconds)
            self._record.add_samples(f"stage_{stage}_step_{step:06d}", episodes[:SAMPLES])
        self._record.add(row)
        if last_of_stage or scores is not None:
            self._draw_curves(self._record.rows())
        self._clock.lap("records")

    def save_is_due(self, step: int, row: Mapping[str, Any]) -> bool:
        """Returns whether a checkpoint is due. None is due after a step with failed updates."""
        every = self._saving.every
        due = self._clock.last - self._saved >= SAVE_S if every is None else step % every == 0
        return due and not self._failed(row)

    def _failed(self, row: Mapping[str, Any]) -> bool:
        """Returns whether updates of the step failed, after which the weights may be broken."""
        learned = [row[role] for role in self._config.policies if role in row]
        return any(of.get("skipped_updates") or of.get("reloaded") for of in learned)

    def save(
        self,
        step: int,
        row: Mapping[str, Any],
        scores: Scores | None,
        learners: Mapping[str, LearnerHandle],
        parts: Mapping[str, Stateful],
    ) -> None:
        """Starts a checkpoint: the learners, and the state of the parts, as they are now. It is written while the run
        goes on. Waits for the checkpoint before, and raises any error that occurred while it was written."""
        self._show.phase(f"step {step}: checkpoint")
        self.wait()
        is_best = False
        combined = scores.combined if scores is not None else None
        if combined is not None and (self._best is None or combined > self._best["score"]):
            best_by = self._config.evaluation.best_by
            self._best, is_best = {"score": combined, "step": step, "by": best_by}, True
        if not self._failed(row):
            self._last_intact = f"step_{step:06d}"
        state = {
            "step": step,
            "time": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
            "row": row,
            "versions": {role: learner.version for role, learner in learners.items()},
            "parts": {name: copy.deepcopy(part.state_dict()) for name, part in parts.items()},
            "config": self._config.model_dump(mode="json"),
            "versions_of_packages": versions(),
        }
        begun = {role: learner.save() for role, learner in learners.items()}
        kept = {f"step_{stage['step']:06d}" for stage in self._stages if self._saving.stages}
        self._writing = self._writer.submit(self._write, begun, state, is_best, kept | {self._last_intact})
        self._clock.lap("checkpoint")
        self._saved = self._clock.last

    def _write(
        self,
        begun: Mapping[str, AbstractContextManager[Path]],
        state: Mapping[str, Any],
        is_best: bool,
        kept: set[str],
    ) -> None:
        """Writes a checkpoint. begun: the learners' saves. kept: names of checkpoints that are kept however old they are."""
        step = state["step"]
        with ExitStack() as stack:
            policies = {role: stack.enter_context(save) for role, save in begun.items()}
            checkpoint = self._store.save(step, policies, self._tokenizers, state)
        if is_best:
            self._store.mark_best(checkpoint)
        self._store.prune(kept)
        if self._mirror is not None:
            try:
                self._mirror.send(checkpoint)
                self._mirror.match(self._store.root)
            except OSError as error:
                here = f"the checkpoint is in {checkpoint} only"
                self._show.say(f"step {step}: not mirrored: {error}; {here}, until the next is sent")

    def wait(self) -> None:
        """Waits until the current checkpoint is written. Raises any error that occurred meanwhile."""
        writing, self._writing = self._writing, None
        if writing is not None:
            writing.result()
            self._clock.lap("checkpoint")

    def close(self) -> None:
        """Finishes a checkpoint that was started; also called if the run ends with an error."""
        try:
            self.wait()
        except Exception as error:
            self._show.say(f"the checkpoint that was being written is lost: {error}")
        self._writer.shutdown()

    @property
    def latest(self) -> str:
        """Returns the path of the newest checkpoint."""
        self.wait()
        return str(self._store.latest())

    def finish(self) -> None:
        """Writes the results and the learning curves, and prints the table. Raises any error from the last
        checkpoint."""
        self.wait()
        after = self._stages[-1]["held_out"] if self._stages else self._before
        self._results = {
            "held_out": {"before": self._before, "after": after},
            "stages": self._stages,
            "best": self._best,
            "config": self._config.model_dump(mode="json"),
            "versions": versions(),
        }
        self._draw_curves(self._record.rows())
        path = self._write_results()
        if self._before and after:  # evaluation was on at both ends
            self._show.summary(self._before, after, self._shown)
        best = f"best checkpoint: {self._store.root / 'best'}"
        self._show.say(best if self._best is not None else f"latest checkpoint: {self.latest}")
        self._show.say(f"results: {path}")
        self._show.phase("stopping")

    def account(self) -> None:
        """Adds the seconds of the shutdown to the results, and prints all seconds in one line. To be called after the
        parts have stopped."""
        self._clock.lap("shutdown")
        self._write_results()
        seconds = self._wall_time()
        self._show.say("seconds: " + ", ".join(f"{part} {s:.0f}" for part, s in seconds.items()))

    def _write_results(self) -> Path:
        return self._record.finish(self._results | {"wall_time_s": self._wall_time()})

    def _wall_time(self) -> dict[str, float]:
        """Returns the seconds by part and in total. The time before a resumption is included."""
        return dict.fromkeys(_SECONDS, 0.0) | self._clock.seconds | {"total": self._clock.total}
