"""All that a run leaves behind: config, rows, episodes, samples, curves, checkpoints, results."""

import copy
import time
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack
from functools import partial
from pathlib import Path
from typing import Any

from configs.schema import Config
from core.episode import Episode
from core.evaluation import Scores
from curriculum.curriculum import Assignment
from learners.checkpoints import CheckpointStore
from learners.mirror import Mirror
from runtime.parts import LearnerHandle, Start, Stateful
from runtime.plan import SAVE_S, saving
from runtime.start import STARTED_FROM
from tracking.clock import Clock
from tracking.plots import plot_learning_curves
from tracking.progress import Display
from tracking.run_log import harmless
from tracking.run_record import RunRecord, versions

_SECONDS = (
    "warm_start", "startup", "rollout", "sandbox", "learn", "publish", "evaluation", "checkpoint", "records",
)  # fmt: skip
"""Parts of a run's time that its results always name."""
SAMPLES = 3
"""Episodes written out per stage."""
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
        """shown: the held-out scores that people are shown."""
        self._config, self._start, self._tokenizers = config, start, tokenizers
        self._shown, self._show, self._clock = shown, show, clock
        directory = start.run_directory
        self._record = RunRecord(directory)
        self._saving = saving(config, start)
        self._saved = clock.last
        """When the last checkpoint was begun."""
        self._store = CheckpointStore(directory / "checkpoints", self._saving.keep)
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
        """What the clock showed."""
        self._best: dict[str, Any] | None = None
        self._results: dict[str, Any] = {}

    def state_dict(self) -> dict[str, Any]:
        """Plain JSON."""
        began = self._stage_began
        return {"before": self._before, "stages": self._stages, "stage_began": began, "best": self._best}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self._before, self._stages = state["before"], list(state["stages"])
        self._stage_began = state["stage_began"]
        best = state["best"]
        same = best is not None and best["by"] == self._config.evaluation.best_by
        self._best = (
            best if same and self._start.continues else None
        )  # not another run's, nor of another score

    def open(self) -> None:
        """Write the config; of a run that goes on, forget what came after its checkpoint."""
        start, config = self._start, self._config.model_dump(mode="json")
        if start.continues and start.state is not None:
            self._record.continue_from(start.state["step"], config)
        else:
            self._record.start(config)
            if start.checkpoint is not None:
                (start.run_directory / STARTED_FROM).write_text(str(start.checkpoint))
        self._clock.lap("records")

    def categories(self, held_out: Mapping[str, Sequence[str]], trained: Iterable[str]) -> None:
        """Of the problems: see RunRecord."""
        self._record.write_categories(held_out, trained)

    def first_scores(self, scores: Scores) -> None:
        """Of the players before they learn."""
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
        """Weights that make updates fail may be broken: those before them must not be pruned for them."""
        learned = [row[role] for role in self._config.policies if role in row]
        broken = any(of.get("skipped_updates") or of.get("reloaded") for of in learned)
        every = self._saving.every
        due = self._clock.last - self._saved >= SAVE_S if every is None else step % every == 0
        return due and not broken

    def save(
        self,
        step: int,
        row: Mapping[str, Any],
        scores: Scores | None,
        learners: Mapping[str, LearnerHandle],
        parts: Mapping[str, Stateful],
    ) -> None:
        """A checkpoint: the learners, and the state of the parts, as they are now. It is written while the run goes on;
        the one before it is waited for. Raises what went wrong with that."""
        self._show.phase(f"step {step}: checkpoint")
        self.wait()
        is_best = False
        if scores is not None and (self._best is None or scores.combined > self._best["score"]):
            best_by = self._config.evaluation.best_by
            self._best, is_best = {"score": scores.combined, "step": step, "by": best_by}, True
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
        stages = {f"step_{stage['step']:06d}" for stage in self._stages if self._saving.stages}
        self._writing = self._writer.submit(self._write, begun, state, is_best, stages)
        self._clock.lap("checkpoint")
        self._saved = self._clock.last

    def _write(
        self,
        begun: Mapping[str, AbstractContextManager[Path]],
        state: Mapping[str, Any],
        is_best: bool,
        stages: set[str],
    ) -> None:
        """begun: the learners' saves. stages: checkpoints that are kept."""
        step = state["step"]
        with ExitStack() as stack:
            policies = {role: stack.enter_context(save) for role, save in begun.items()}
            checkpoint = self._store.save(step, policies, self._tokenizers, state)
        if is_best:
            self._store.mark_best(checkpoint)
        self._store.prune(stages)
        if self._mirror is not None:
            try:
                self._mirror.send(checkpoint)
                self._mirror.match(self._store.root)
            except OSError as error:
                here = f"the checkpoint is in {checkpoint} only"
                self._show.say(f"step {step}: not mirrored: {error}; {here}, until the next is sent")

    def wait(self) -> None:
        """Until the checkpoint that is being written is there. Raises what went wrong with it."""
        writing, self._writing = self._writing, None
        if writing is not None:
            writing.result()
            self._clock.lap("checkpoint")

    def close(self) -> None:
        """Where a run ends by an error, too: a checkpoint that was begun is finished."""
        try:
            self.wait()
        except Exception as error:
            self._show.say(f"the checkpoint that was being written is lost: {error}")
        self._writer.shutdown()

    @property
    def latest(self) -> str:
        """The newest checkpoint."""
        self.wait()
        return str(self._store.latest())

    def finish(self) -> None:
        """Results, learning curves, the table. Raises what went wrong with the last checkpoint."""
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
        """After the parts have stopped: the seconds that this took, too, and all of them in one line."""
        self._clock.lap("shutdown")
        self._write_results()
        seconds = self._wall_time()
        self._show.say("seconds: " + ", ".join(f"{part} {s:.0f}" for part, s in seconds.items()))

    def _write_results(self) -> Path:
        return self._record.finish(self._results | {"wall_time_s": self._wall_time()})

    def _wall_time(self) -> dict[str, float]:
        """Seconds by part and in all; those of the earlier halves of a resumed run are among them."""
        return dict.fromkeys(_SECONDS, 0.0) | self._clock.seconds | {"total": self._clock.total}
