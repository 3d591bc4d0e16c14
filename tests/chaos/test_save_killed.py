"""kill -9 in every phase of a checkpoint: the newest whole one continues to the bit."""

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from torch.distributed.checkpoint import HuggingFaceStorageWriter

from learners import checkpoints, files
from learners.checkpoints import CheckpointStore, read_checkpoint
from learners.learner import Learner
from learners.settings import LearnerSettings
from learners.state import begin_save, load_learner, save_learner
from sparring.core.batch import Batch
from tests.learning import Tokenizer, one_torch_thread, random_samples, save_tiny_model

SETTINGS = LearnerSettings.model_validate({"estimator": {"kind": "gae"}, "minibatch_samples": 6})
PHASES: dict[str, tuple[Any, str, int, int]] = {
    "nothing of it is there": (files, "save_file", 1, 2),
    "a part of the model": (files, "save_file", 2, 2),
    "the model": (HuggingFaceStorageWriter, "write_data", 1, 2),
    "the moments, not known to be whole": (HuggingFaceStorageWriter, "finish", 1, 2),
    "a link": (checkpoints, "_link_or_copy", 2, 2),
    "all files but the state": (checkpoints, "_write_json", 1, 2),
    "all files but the manifest": (checkpoints, "_write_json", 2, 2),
    "all files without its name": (checkpoints.os, "replace", 1, 2),
    "the checkpoint": (CheckpointStore, "mark_best", 1, 3),
    "the checkpoint, best": (CheckpointStore, "prune", 1, 3),
    "an old one half deleted": (checkpoints.os, "unlink", 4, 3),
}
"""Where it is killed: before this call of this function; and the newest step that is whole then."""


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    with one_torch_thread():
        yield


def batch(step: int) -> Batch:
    samples = random_samples(step, 12, advantages=False)
    return Batch(step=step, samples=samples, temperature=1.0, seed=step)


def learner(model: Path, start: Path | None = None) -> Learner:
    made = Learner(SETTINGS, 1e-2, start or model, model, seed=3)
    if start is not None:
        load_learner(made, start)
    return made


def put(store: CheckpointStore, saved: Path, step: int) -> None:
    state = {"step": step, "parts": {}, "versions": {"generator": step}}
    store.mark_best(store.save(step, {"generator": saved}, {"generator": Tokenizer()}, state))
    store.prune(set())


def killed_at(owner: Any, name: str, call: int) -> None:
    """This process, before that call."""
    calls, real = [0], getattr(owner, name)

    def counted(*arguments: Any, **named: Any) -> Any:
        calls[0] += 1
        if calls[0] == call:
            os.kill(os.getpid(), signal.SIGKILL)
        return real(*arguments, **named)

    setattr(owner, name, counted)


QUICK = ("the moments, not known to be whole", "all files without its name", "an old one half deleted")


@pytest.mark.parametrize(
    "phase", [pytest.param(p, marks=[] if p in QUICK else pytest.mark.slow) for p in PHASES]
)
def test_killed_when_there_is(phase: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "FILE_BYTES", 10_000)  # several files
    owner, name, call, newest = PHASES[phase]
    model, store = save_tiny_model(tmp_path / "model"), CheckpointStore(tmp_path / "checkpoints", keep=2)
    trained, digests = learner(model), {}
    for step in (1, 2):
        trained.step(batch(step))
        digests[step] = trained.export().digest
        save_learner(trained, tmp_path / str(step))
        put(store, tmp_path / str(step), step)
    child = os.fork()
    if child == 0:
        try:
            trained.step(batch(3))
            killed_at(owner, name, call)
            wait = begin_save(trained, tmp_path / "3")
            trained.step(batch(4))
            wait()
            put(store, tmp_path / "3", 3)
        finally:
            os._exit(7)
    _, status = os.waitpid(child, 0)
    assert os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL, status
    for step in (3, 4):
        trained.step(batch(step))
        digests[step] = trained.export().digest

    for found in store.root.glob("step_*"):
        read_checkpoint(found)
    latest = store.latest()
    assert latest is not None and latest.name == f"step_00000{newest}"
    resumed = learner(model, latest / "generator")
    assert resumed.export().digest == digests[newest]
    for step in range(newest + 1, 5):
        resumed.step(batch(step))
        save_learner(resumed, tmp_path / "again")
        put(store, tmp_path / "again", step)
    assert resumed.export().digest == digests[4]
    assert {p.name for p in store.root.iterdir()} == {"step_000003", "step_000004", "best"}
