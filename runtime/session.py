"""A run from its command line to its files: where it starts, what it evaluates, saves and reports."""

import errno
import os
import shutil
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml

from actors.episodes import PlayRequest
from configs.load import Run, latest_run
from configs.schema import EMBEDDED, Config
from core.episode import Episode
from core.interfaces import SandboxFailure
from core.problem import Problem
from core.weights import PublishError
from curriculum.curriculum import Assignment
from evaluation.evaluator import Bank, Evaluator, Scores, load_bank, save_bank
from learners.checkpoints import CheckpointError, CheckpointStore, check_architecture, read_checkpoint
from problems.loader import ProblemFileError, validate_references
from runtime.build import ROLES, check_context_lengths, load_splits
from runtime.parts import Parts, Start
from sandbox_workers.jobs import SandboxUnavailable
from tracking.progress import Display, display
from tracking.run_record import RunRecord, versions

_PROCESS_START = time.perf_counter()
_STARTED_FROM = "started_from.txt"
_OURS = (SandboxFailure, PublishError, CheckpointError, SandboxUnavailable, ProblemFileError)
_SAMPLES = 3
"""Episodes written out per stage."""
_UNWRITABLE = (errno.ENOSPC, errno.EDQUOT, errno.EROFS)


class SessionError(RuntimeError):
    """The run cannot start or go on; the message says what, where, and how to mend it."""


@contextmanager
def open_session(run: Run, recipe: str) -> Iterator["Session"]:
    """Set everything up, and take it down again. Raises SessionError."""
    try:
        config, start, state = _resolve(run, recipe)
        with _parts(config, start) as (parts, train, held_out):
            held_out_file = config.problems.held_out_file or config.problems.file
            parts.wait(validate_references(train, parts.sandbox, config.problems.file))
            parts.wait(validate_references(held_out, parts.sandbox, held_out_file))
            if state is not None:
                try:
                    parts.scheduler.load_state_dict(state["curriculum"])
                except ValueError as error:  # the schedule is shorter than what is done already
                    raise SessionError(f"{start.checkpoint}: {error}") from error
            done = state["step"] if state else 0
            with display(parts.scheduler.total_steps, done) as show:
                yield Session(config, start, parts, train, held_out, show, state)
    except (CheckpointError, ProblemFileError, SandboxUnavailable) as error:
        raise SessionError(str(error)) from error
    except OSError as error:
        if error.errno not in _UNWRITABLE:
            raise
        raise SessionError(
            f"{error.filename or run.output_dir}: {error.strerror}; make room and continue with --resume"
        ) from error


def _resolve(run: Run, recipe: str) -> tuple[Config, Start, dict[str, Any] | None]:
    """(config, start, checkpoint's state). A resumed run keeps its directory and its saved config."""
    config = run.to_config()
    if not run.resume:
        name = run.run_name or f"{recipe}-{time.strftime('%Y%m%d-%H%M%S')}"
        directory = config.output_dir.resolve() / name
        if (directory / "metrics.jsonl").exists():
            raise SessionError(
                f"{directory}: holds a run already; give another --run-name, or continue with --resume"
            )
        _check_writable(directory)
        checkpoint = run.resume_from.resolve() if run.resume_from else None
    else:
        directory = latest_run(config.output_dir, run.run_name)
        checkpoint = CheckpointStore(directory / "checkpoints", 1).latest() or _first_checkpoint(directory)
        saved = yaml.safe_load((directory / "config.yaml").read_text())
        changed = _differences(saved, config.model_dump(mode="json"))
        if changed:
            print(f"resuming with other settings than the run began with: {', '.join(changed)}", flush=True)
    state = read_checkpoint(checkpoint) if checkpoint else None
    began = time.perf_counter()
    models = _models(config)
    warm_start_s = time.perf_counter() - began
    if checkpoint:
        for role in ROLES:
            if Path(models[role]).is_dir():
                check_architecture(checkpoint / role, Path(models[role]))
            if state is not None:
                _check_estimator(config, state, role, checkpoint)
    found = {role: state["versions"][role] if state else 0 for role in ROLES}
    start = Start(
        run_directory=directory,
        models=models,
        checkpoint=checkpoint,
        versions=found,
        warm_start_s=warm_start_s,
    )
    return config, start, state


def _first_checkpoint(directory: Path) -> Path | None:
    """The checkpoint that a run began from (--resume-from), for one that was killed before it saved its own."""
    note = directory / _STARTED_FROM
    return Path(note.read_text()) if note.is_file() else None


def _check_writable(directory: Path) -> None:
    """Raises SessionError where the run's directory could not be made: before models are loaded, not after."""
    there = next(p for p in (directory, *directory.parents) if p.exists())
    if not there.is_dir() or not os.access(there, os.W_OK | os.X_OK):
        reason = "cannot be written to" if there.is_dir() else "is not a directory"
        raise SessionError(f"{there}: {reason}; give another --output-dir than {directory.parent}")


def _check_estimator(config: Config, state: Mapping[str, Any], role: str, checkpoint: Path) -> None:
    was, now = state["config"][role]["learner"]["estimator"], config.policy(role).learner.estimator
    if was != now:
        raise SessionError(
            f"{checkpoint / role}: saved with estimator {was}, this run uses {now}: resume with the same estimator "
            f"(--{role}.learner.estimator {was}) or start a new run"
        )


def _differences(saved: Mapping[str, Any], now: Mapping[str, Any], prefix: str = "") -> list[str]:
    out = []
    for key in sorted(saved.keys() | now.keys()):
        a, b = saved.get(key), now.get(key)
        if isinstance(a, Mapping) and isinstance(b, Mapping):
            out += _differences(a, b, f"{prefix}{key}.")
        elif a != b and key not in ("run_name", "output_dir"):
            out.append(f"{prefix}{key} {a} -> {b}")
    return out


def _models(config: Config) -> dict[str, str]:
    """Directory or hub id of each policy's warm start. Raises SessionError for a path that is not there."""
    from scripts.warm_start import ensure_embedded

    embedded = (
        ensure_embedded(config) if EMBEDDED in (config.generator.model, config.discriminator.model) else {}
    )
    models = {}
    for role in ROLES:
        name = config.policy(role).model
        path = Path(name).expanduser()
        if name == EMBEDDED:
            models[role] = str(embedded[role])
        elif path.is_dir():
            models[role] = str(path.resolve())
        elif path.is_absolute() or name.startswith((".", "~")) or name.count("/") != 1:
            raise SessionError(
                f"{role}.model {name}: no such directory (and a hub id has the form owner/name)"
            )
        else:
            models[role] = name
    return models


def _tokenizers(models: Mapping[str, str]) -> dict[str, Any]:
    from transformers import AutoConfig, AutoTokenizer

    found = {}
    for role, model in models.items():
        try:
            AutoConfig.from_pretrained(model)
            _check_weights(Path(model))
            found[role] = AutoTokenizer.from_pretrained(model)
            # transformers makes an empty tokenizer where the files of a known class are missing
            if not found[role].encode("def f(x): return 1", add_special_tokens=False):
                raise ValueError("its tokenizer knows no text: tokenizer.json is missing")
        except (OSError, ValueError) as error:
            reason = str(error).strip().splitlines()[0]
            raise SessionError(
                f"{role}.model {model}: cannot be loaded ({reason}); give a directory in Hugging Face format, a hub "
                "id that this machine can download, or 'embedded'"
            ) from error
    return found


def _check_weights(model: Path) -> None:
    """Raises ValueError where a model directory has no weights, or a file that was cut off."""
    from safetensors import SafetensorError, safe_open

    if not model.is_dir():
        return
    if not any(any(model.glob(pattern)) for pattern in ("*.safetensors", "pytorch_model*.bin")):
        raise ValueError("no *.safetensors in it")
    for file in model.glob("*.safetensors"):
        try:
            with safe_open(file, "pt"):
                pass
        except SafetensorError as error:
            raise ValueError(f"{file.name} is damaged: {error}") from error


@contextmanager
def _parts(config: Config, start: Start) -> Iterator[tuple[Parts, list[Problem], list[Problem]]]:
    try:
        train, held_out = load_splits(config)
        check_context_lengths(config, train + held_out, _tokenizers(start.models))
    except ValueError as error:
        raise SessionError(str(error)) from error
    if config.local:
        from runtime.local import local_parts

        with local_parts(config, train, start) as parts:
            yield parts, train, held_out
        return
    from ray.exceptions import RayError

    from learners.train_loop import LearnerFailed
    from runtime.cluster import ClusterTooSmall, cluster_parts

    try:
        with cluster_parts(config, train, start) as parts:
            yield parts, train, held_out
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
        state: Mapping[str, Any] | None,
    ) -> None:
        self.config, self.parts, self.display = config, parts, show
        self._start, self._state = start, state
        self._train = {p.id: p for p in train}
        self._record = RunRecord(start.run_directory)
        self._store = CheckpointStore(start.run_directory / "checkpoints", config.checkpoint.keep)
        self._evaluator = Evaluator(
            held_out[: config.evaluation.problems],
            parts.sandbox,
            config.game.sandbox_limits,
            config.evaluation.suites,
            config.evaluation.bank_programs,
        )
        self._tokenizers = _tokenizers(start.models)
        self._bank: Bank = {}
        self._seconds: dict[str, float] = defaultdict(float, state["seconds"] if state else {})
        self._stage_seconds: dict[str, float] = defaultdict(float, state["stage_seconds"] if state else {})
        self._seconds["warm_start"] += start.warm_start_s
        self._earlier = self._seconds.pop("total", 0.0)
        self._before: Scores | None = Scores(**state["before"]) if state else None
        own = start.checkpoint is not None and start.checkpoint.parent.parent == start.run_directory
        self._best = state["best"] if state and own else None  # not another run's
        self._stages: list[dict[str, Any]] = list(state["stages"]) if state else []
        self._stage_ends: set[str] = set(state["stage_ends"]) if state else set()

    # ------------------------------------------------------------------ the start
    def evaluate_start(self) -> None:
        """Write the config, make (or read again) the bank, and score the players before they learn."""
        say, directory = self.display.say, self._start.run_directory
        say(f"run: {directory}")
        say(self.parts.describe)
        bank_file = directory / "bank.json"
        if self._state is not None:
            step = self._state["step"]
            say(
                f"resuming after step {step} of {self.parts.scheduler.total_steps} ({self._start.checkpoint})"
            )
            if bank_file.is_file():
                self._record.continue_from(step, self.config.model_dump(mode="json"))
            else:  # --resume-from another run: its bank comes along, so that the scores can be compared
                self._record.start(self.config.model_dump(mode="json"))
                (directory / _STARTED_FROM).write_text(str(self._start.checkpoint))
                shutil.copy(_bank_beside(self._start.checkpoint), bank_file)
            self._bank = load_bank(bank_file)
            return
        self._record.start(self.config.model_dump(mode="json"))
        episodes = self.parts.rollouts.play(self._evaluator.make_bank_request()).episodes
        self._bank = self.parts.wait(self._evaluator.bank_of(episodes))
        save_bank(bank_file, self._bank)
        self._before = self._evaluate()
        self._record.add({"step": 0, "held_out": self._before.as_dict()})
        self.display.scores("before", self._before.as_dict())

    def play_request(self, assignment: Assignment) -> PlayRequest:
        temperature = self.config.temperature
        return PlayRequest(
            address=("step", assignment.step),
            problems=tuple(self._train[i] for i in assignment.problem_ids),
            attempts=assignment.attempts,
            temperatures=dict.fromkeys(ROLES, temperature),
            memory=assignment.memory,
        )

    # ------------------------------------------------------------------ after each step
    def finish_step(self, assignment: Assignment, row: dict[str, Any], episodes: Sequence[Episode]) -> None:
        """Log the step; at the end of a stage evaluate it; save a checkpoint where one is due."""
        step, last = assignment.step, self.parts.scheduler.is_last_of_stage(assignment.step)
        for name, seconds in row["seconds"].items():
            if name != "total":
                self._seconds[name] += seconds
            self._stage_seconds[name] += seconds
        scores = None
        if last:
            scores = self._evaluate()
            row["held_out"] = scores.as_dict()
            stage = {"stage": assignment.stage, "step": step, "held_out": scores.as_dict()}
            self._stages.append(stage | {"seconds": dict(self._stage_seconds)})
            self._stage_seconds.clear()
            self._record.add_samples(f"stage_{assignment.stage}_step_{step:06d}", episodes[:_SAMPLES])
            self.display.scores(f"after stage {assignment.stage}", scores.as_dict())
        self._record.add(row)
        if last or step % self.config.checkpoint.every == 0:
            self._save(step, row, scores)

    def _save(self, step: int, row: Mapping[str, Any], scores: Scores | None) -> None:
        started = time.perf_counter()
        is_best = scores is not None and (self._best is None or scores.combined > self._best["score"])
        if is_best and scores is not None:
            self._best = {"score": scores.combined, "step": step}
        if scores is not None:
            self._stage_ends.add(f"step_{step:06d}")
        state = {
            "step": step,
            "time": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
            "row": row,
            "versions": {role: learner.version for role, learner in self.parts.learners.items()},
            "curriculum": self.parts.scheduler.state_dict(),
            "seconds": self._wall_time(),
            "stage_seconds": dict(self._stage_seconds),
            "before": self._before.as_dict() if self._before else None,
            "best": self._best,
            "stages": self._stages,
            "stage_ends": sorted(self._stage_ends),
            "config": self.config.model_dump(mode="json"),
            "versions_of_packages": versions(),
        }
        learners = self.parts.learners
        with learners["generator"].save() as generator, learners["discriminator"].save() as discriminator:
            policies = {"generator": generator, "discriminator": discriminator}
            checkpoint = self._store.save(step, policies, self._tokenizers, state)
        if is_best:
            self._store.mark_best(checkpoint)
        self._store.prune(self._stage_ends)
        self._seconds["checkpoint"] += time.perf_counter() - started

    def _evaluate(self) -> Scores:
        started = time.perf_counter()
        episodes = self.parts.rollouts.play(self._evaluator.request()).episodes
        scores = self.parts.wait(self._evaluator.scores(episodes, self._bank))
        self._seconds["evaluation"] += time.perf_counter() - started
        return scores

    # ------------------------------------------------------------------ the end
    def finish(self) -> None:
        """Results, learning curves, the table."""
        from tracking.plots import plot_learning_curves

        rows = self._record.rows()
        before = self._before.as_dict() if self._before else {}
        after = self._stages[-1]["held_out"] if self._stages else before
        results = {
            "held_out": {"before": before, "after": after},
            "stages": self._stages,
            "best": self._best,
            "wall_time_s": self._wall_time(),
            "config": self.config.model_dump(mode="json"),
            "versions": versions(),
        }
        path = self._record.finish(results)
        plot_learning_curves(rows, path.parent / "learning_curves.png")
        self.display.summary(before, after)
        self.display.say(f"best checkpoint: {self._store.root / 'best'}")
        self.display.say(f"results: {path}")

    def _wall_time(self) -> dict[str, float]:
        """Seconds by part; the total counts earlier halves of a resumed run too."""
        return {**self._seconds, "total": self._earlier + time.perf_counter() - _PROCESS_START}


def _bank_beside(checkpoint: Path | None) -> Path:
    assert checkpoint is not None
    bank = checkpoint.parent.parent / "bank.json"
    if not bank.is_file():
        raise SessionError(
            f"{checkpoint}: its run's bank.json is missing at {bank}: give a checkpoint inside its run's directory"
        )
    return bank
