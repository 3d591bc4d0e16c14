"""Learners on Ray Train whose worker is killed -9, whose batches are bad, whose disk is full."""

import contextlib
import errno
import json
import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import pytest
import ray
import torch
from ray._private.state import actors as known_actors
from ray.exceptions import RayError
from safetensors.torch import load_file

from learners import checkpoints, train_loop
from learners.checkpoints import CheckpointError, CheckpointStore, read_checkpoint
from learners.files import save_tensors
from learners.mailbox import LearnerFailed
from learners.schedule import Constant
from learners.settings import LearnerSettings, LoraSettings
from learners.train_loop import RayLearner, TrainRun
from learners.train_spec import LearnerSpec
from sparring.core.arrays import sealed
from sparring.core.batch import (
    Batch,
    BatchSpec,
    CompletionSpan,
    Sample,
    SampleSpec,
    TokenSelection,
    Transcript,
)
from sparring.core.weights import Weights, WeightUpdate, digest_of, joined
from sparring.runtime.cluster import for_the_user
from tests.learning import VOCABULARY, Tokenizer, one_torch_thread, save_tiny_model
from tests.ray_clusters import own_ray

PATIENCE_S = 180
"""For a worker to come back, or for a failure to be told: far above what either takes."""


@pytest.fixture(scope="module")
def cluster() -> Iterator[None]:
    """A Ray of this module's own."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAY_TRAIN_HEALTH_CHECK_INTERVAL_S", "0.5")
        with own_ray(logging_level="ERROR"):
            yield


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(save_tiny_model(tmp_path_factory.mktemp("tiny")))


@pytest.fixture
def spec(model: str) -> LearnerSpec:
    return LearnerSpec(
        settings=LearnerSettings(
            estimator={"kind": "grpo"}, threads=1, cpus=0.5, schedule=Constant(warmup_updates=0)
        ),
        learning_rate=1e-2,
        model_path=model,
        reference_path=model,
        state_path=None,
        device="cpu",
        seed=3,
    )


def batch(step: int, count: int = 12, length: int = 12, logprob: float = -3.5) -> Batch:
    rng = Random(step)
    samples = []
    for _ in range(count):
        tokens = tuple(rng.randrange(VOCABULARY) for _ in range(2 + length))
        sampled = (False, False, *[True] * length)
        samples.append(
            Sample(
                tokens=tokens,
                sampled=sampled,
                trained=sampled,
                logprobs=(0.0, 0.0, *[logprob] * length),
                reward=1.0,
                advantage=rng.gauss(0, 1),
            )
        )
    return Batch(step=step, samples=tuple(samples), temperature=1.0, seed=step)


def sent(batch: Batch) -> BatchSpec:
    """As the driver sends it, where the transcripts are in Ray's store."""
    transcripts = [
        Transcript(tokens=s.tokens, logprobs=s.logprobs, turns=(CompletionSpan(0, 2, len(s.tokens), False),))
        for s in batch.samples
    ]
    place = ray.put(sealed(transcripts))
    specs = (
        SampleSpec(place, i, s.player, s.reward, s.advantage, TokenSelection())
        for i, s in enumerate(batch.samples)
    )
    return BatchSpec(step=batch.step, samples=tuple(specs), temperature=batch.temperature, seed=batch.seed)


def slow_batch(step: int) -> Batch:
    """Seconds of work, so that a kill finds the worker in it."""
    return batch(step, count=384, length=256)


def within(seconds: float, work: Callable[[], Any]) -> Any:
    """work()'s result or exception, as the driver's user is told of it; fails the test where it hangs."""
    outcome: list[tuple[str, Any]] = []

    def run() -> None:
        try:
            outcome.append(("result", work()))
        except BaseException as error:
            outcome.append(("error", for_the_user(error) if isinstance(error, RayError) else error))

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(seconds)
    assert outcome, f"hangs for more than {seconds} s"
    kind, value = outcome[0]
    if kind == "error":
        raise value
    return value


@contextlib.contextmanager
def running(storage: Path, **specs: LearnerSpec) -> Iterator[TrainRun]:
    run = TrainRun(specs, dict.fromkeys(specs, 0), storage)
    try:
        yield run
    finally:
        within(PATIENCE_S, run.stop)
        assert not run._thread.is_alive(), "the Ray Train run goes on"
        ray.kill(run.mailbox)


@contextlib.contextmanager
def learning(spec: LearnerSpec, storage: Path) -> Iterator[RayLearner]:
    with running(storage, generator=spec) as run:
        yield run.learners["generator"]


def save(learner: RayLearner) -> Path:
    with learner.save() as directory:
        return directory


def version_in(saved: Path) -> int:
    return json.loads((saved / "learner_state" / "state.json").read_text())["version"]


def arrived(weights: Weights) -> WeightUpdate:
    """The update with its tensors, which are what its digest says."""
    update = ray.get(weights.update)
    update = joined(update, ray.get(list(update.parts)))
    assert digest_of(update.tensors) == update.digest and update.tensors
    return update


def worker_of(but: int = 0) -> int:
    """Process id of the worker at work, once it is another one than `but`."""
    end = time.monotonic() + PATIENCE_S
    while time.monotonic() < end:
        for actor in known_actors().values():
            is_worker = "TrainWorker" in actor["ActorClassName"] and actor["State"] == "ALIVE"
            if is_worker and actor["Pid"] not in (0, but):
                return actor["Pid"]
        time.sleep(0.05)
    raise AssertionError("no worker comes")


@pytest.mark.slow
def test_a_killed_worker_costs_time_and_nothing_else(
    cluster: None, spec: LearnerSpec, tmp_path: Path
) -> None:
    """Killed before any checkpoint, while it learns, and while it is asked to save: the weights are those of a
    learner that nobody killed. One kill more than is allowed, and everybody is told. They travel in the engine's half precision."""
    spec = replace(spec, engine_dtype="bfloat16")
    batches = [batch(1), batch(2), slow_batch(3), batch(4)]
    with one_torch_thread():
        unkilled, expected = spec.build(), []
        for each in batches:
            unkilled.step(each)
            expected.append(unkilled.export(dtype="bfloat16").digest)

    published: list[Weights] = []
    with learning(spec, tmp_path) as learner:

        def step(number: int) -> int:
            _, weights = within(PATIENCE_S, lambda: learner.begin(sent(batches[number - 1]))())
            published.append(weights)
            update = arrived(weights)
            assert update.version == learner.version == number
            return update.digest

        assert step(1) == expected[0]
        first = worker_of()
        os.kill(first, signal.SIGKILL)  # between two batches, nothing saved yet
        assert step(2) == expected[1]
        assert arrived(published[0]).digest == expected[0], "what it published is gone with it"
        second = worker_of(but=first)
        saved = within(PATIENCE_S, lambda: save(learner))
        assert version_in(saved) == 2

        killer = threading.Timer(0.5, os.kill, (second, signal.SIGKILL))
        killer.start()
        assert step(3) == expected[2]  # during one
        third = worker_of(but=second)

        os.kill(third, signal.SIGKILL)  # before a checkpoint that is wanted
        saved = within(PATIENCE_S, lambda: save(learner))
        assert version_in(saved) == 3
        assert step(4) == expected[3]
        fourth = worker_of(but=third)
        assert len({first, second, third, fourth}) == 4

        os.kill(fourth, signal.SIGKILL)  # once too often
        for work in (lambda: learner.begin(sent(batch(5)))(), lambda: save(learner), learner.current_weights):
            with pytest.raises(LearnerFailed) as failure:
                within(PATIENCE_S, work)
            assert str(failure.value).startswith("learner generator: ")
            assert "Traceback" not in str(failure.value) and len(str(failure.value).splitlines()) == 1


@pytest.mark.slow
def test_a_worker_killed_over_a_save_saves_what_was_asked_for(
    cluster: None, spec: LearnerSpec, tmp_path: Path
) -> None:
    """The next batch is there already: who comes after it saves first, and learns then."""
    with one_torch_thread():
        unkilled = spec.build()
        expected = [(unkilled.step(batch(step)), unkilled.export().digest)[1] for step in (1, 2)]
    with learning(spec, tmp_path) as learner:
        within(PATIENCE_S, lambda: learner.begin(sent(batch(1)))())
        first = worker_of()
        os.kill(first, signal.SIGSTOP)
        saving = learner.save()
        ray.get(learner._mailbox.put_batch.remote("generator", 2, [ray.put(sent(batch(2)))]))
        os.kill(first, signal.SIGKILL)
        _, weights = within(PATIENCE_S, lambda: learner.begin(sent(batch(2)))())
        assert arrived(weights).digest == expected[1]
        with saving as saved:
            assert version_in(saved) == 1
            resumed = replace(spec, model_path=str(saved), state_path=str(saved)).build()
        assert resumed.export().digest == expected[0]


@pytest.mark.nightly  # what unit tests of faults and of the loop show, with a Ray Train run around it
def test_a_loss_that_is_not_finite_ends_the_learner(cluster: None, spec: LearnerSpec, tmp_path: Path) -> None:
    with learning(spec, tmp_path) as learner:
        within(PATIENCE_S, lambda: learner.begin(sent(batch(1)))())
        for step in (2, 3, 4):  # skipped, each at half the learning rate of the one before
            metrics, _ = within(PATIENCE_S, lambda: learner.begin(sent(batch(step, logprob=float("nan"))))())  # noqa: B023
            assert metrics["skipped_updates"] == 1
        with pytest.raises(LearnerFailed, match=r"the loss of batch 5 is nan.* lower the learning rate"):
            within(PATIENCE_S, lambda: learner.begin(sent(batch(5, logprob=float("nan"))))())
        assert not ray.get(learner._mailbox.take_losses.remote()), "other workers would end in the same way"


# ---------------------------------------------------------------------- a full disk
@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 1 MiB."""
    place = tmp_path / "disk"
    place.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(place)]
    if os.geteuid() != 0 or subprocess.run(command, capture_output=True, check=False).returncode != 0:
        pytest.skip("only root can mount a small file system")
    yield place
    subprocess.run(["umount", "-l", str(place)], check=True)


def test_a_full_disk_leaves_the_checkpoint_before(
    small_disk: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def policies(size: int) -> dict[str, Path]:
        found = {}
        for role in ("generator", "discriminator"):
            found[role] = tmp_path / f"{role}-{size}"
            found[role].mkdir()
            (found[role] / "model.safetensors").write_bytes(os.urandom(size))
        return found

    monkeypatch.setattr(checkpoints, "RETRY_PAUSES_S", ())
    store = CheckpointStore(small_disk / "checkpoints", keep=2)
    tokenizers = {"generator": Tokenizer(), "discriminator": Tokenizer()}
    store.save(1, policies(100_000), tokenizers, {"step": 1, "parts": {}})
    with pytest.raises(CheckpointError) as failure:
        store.save(2, policies(600_000), tokenizers, {"step": 2, "parts": {}})
    message = str(failure.value)
    assert "step_000002" in message and "No space left on device" in message and "--resume" in message
    assert store.latest() == small_disk / "checkpoints" / "step_000001"
    assert read_checkpoint(store.latest())["step"] == 1
    assert [p.name for p in store.root.iterdir()] == ["step_000001"], "what was half written is gone"
    store.save(2, policies(150_000), tokenizers, {"step": 2, "parts": {}})  # once there is room
    assert read_checkpoint(store.latest())["step"] == 2


def test_weights_for_which_there_is_no_room_name_the_file(small_disk: Path) -> None:
    with pytest.raises(OSError, match="No space left on device") as failure:
        save_tensors({"weight": torch.zeros(1 << 20)}, small_disk / "model.safetensors")
    assert failure.value.errno == errno.ENOSPC
    assert failure.value.filename == str(small_disk / "model.safetensors")


@pytest.mark.nightly  # what the test above shows, with a Ray Train run around it
def test_a_full_disk_under_ray_train_is_told(cluster: None, spec: LearnerSpec, small_disk: Path) -> None:
    with learning(spec, small_disk / "ray_train") as learner:
        within(PATIENCE_S, lambda: learner.begin(sent(batch(1)))())
        saved = within(PATIENCE_S, lambda: save(learner))
        whole = {p.name: p.read_bytes() for p in saved.iterdir() if p.is_file()}
        within(PATIENCE_S, lambda: learner.begin(sent(batch(2)))())
        filler = small_disk / "filler"
        with contextlib.suppress(OSError), filler.open("wb") as handle:
            while True:
                handle.write(b"x" * 4096)
                handle.flush()
        with pytest.raises(LearnerFailed) as failure:
            within(PATIENCE_S, lambda: save(learner))
        assert "No space left on device" in str(failure.value)
        assert {p.name: p.read_bytes() for p in saved.iterdir() if p.is_file()} == whole


# ---------------------------------------------------------------------- several workers, several policies
@pytest.mark.nightly  # forty seconds: the first test's kill, with two workers and adapters
def test_two_workers_train_two_adapters_on_one_backbone_and_survive_a_kill(
    cluster: None, spec: LearnerSpec, tmp_path: Path
) -> None:
    """The weights are those of learners that are alone, in one process each, and that nobody kills."""
    settings = spec.settings.model_copy(update={"lora": LoraSettings(rank=4), "workers": 2})
    specs = {role: replace(spec, settings=settings) for role in ("generator", "discriminator")}
    alone = {role: each.build(role) for role, each in specs.items()}
    with running(tmp_path, **specs) as run:

        def step(role: str, number: int) -> None:
            _, weights = within(PATIENCE_S, lambda: run.learners[role].begin(sent(batch(number)))())
            alone[role].step(batch(number))
            expected, found = alone[role].export(), arrived(weights)
            assert found.version == number
            for name, tensor in expected.tensors.items():
                assert abs(found.tensors[name] - tensor).max() < 1e-3, name  # Adam's steps are 1e-2

        step("generator", 1)
        step("discriminator", 1)
        saved = within(PATIENCE_S, lambda: save(run.learners["generator"]))
        other = within(PATIENCE_S, lambda: save(run.learners["discriminator"]))
        assert (saved.name, other.name, saved.parent) == ("generator", "discriminator", other.parent)
        step("generator", 2)
        first = worker_of()
        os.kill(first, signal.SIGKILL)
        step("discriminator", 2)
        step("generator", 3)
        assert worker_of(but=first) != first


def no_room_for_more_than(sequences: int) -> Any:
    """Returns the workers' loop, in which the second worker has no room for micro-batches of more sequences."""

    def loop(config: dict[str, Any]) -> None:
        import torch
        from torch import distributed

        from learners import train_loop
        from learners.objective import Objective

        whole = Objective.part

        def part(objective: Any, micro: Any, **options: Any) -> Any:
            if distributed.get_rank() == 1 and len(micro.indices) > sequences:
                raise torch.OutOfMemoryError("scripted")
            return whole(objective, micro, **options)

        Objective.part = part
        train_loop._train_loop(config)

    return loop


@pytest.mark.slow
def test_if_one_of_two_workers_that_share_a_model_runs_out_of_memory_both_begin_anew(
    cluster: None,
    spec: LearnerSpec,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    changes = {"workers": 2, "sharding": "fsdp", "microbatch_tokens": 64}
    settings = spec.settings.model_copy(update=changes)
    monkeypatch.setattr(train_loop, "_train_loop", no_room_for_more_than(2))
    with one_torch_thread():
        alone = spec.build()
        for step in (1, 2):
            alone.step(batch(step))
    with learning(replace(spec, settings=settings), tmp_path) as learner:
        for step in (1, 2):
            _, weights = within(PATIENCE_S, lambda: learner.begin(sent(batch(step)))())  # noqa: B023
        found = arrived(weights).tensors  # while the mailbox, which owns them, is there
    expected = alone.export().tensors
    assert all(abs(found[name] - tensor).max() < 1e-3 for name, tensor in expected.items())
    (told,) = [record.getMessage() for record in caplog.records if record.name == "learners.train_loop"]
    assert "WorkerOutOfMemory: scripted" in told and "micro-batches are halved" in told


@pytest.mark.slow  # nodes that come and go are for clusters
def test_fewer_workers_than_wanted_are_enough(cluster: None, spec: LearnerSpec, tmp_path: Path) -> None:
    """There is room for one of two: an elastic run goes on with it."""
    settings = spec.settings.model_copy(update={"workers": 2, "min_workers": 1, "cpus": 1.5})
    alone = spec.build()
    alone.step(batch(1))
    with learning(replace(spec, settings=settings), tmp_path) as learner:
        _, weights = within(PATIENCE_S, lambda: learner.begin(sent(batch(1)))())
        assert arrived(weights).digest == alone.export().digest


@pytest.mark.nightly  # test_parallel_learner and unit tests show it, too
def test_updates_that_stay_broken_go_back_to_a_checkpoint(
    cluster: None, spec: LearnerSpec, tmp_path: Path
) -> None:
    """Both of two workers, to the same one."""
    root = tmp_path / "checkpoints"
    settings = spec.settings.model_copy(update={"workers": 2})
    with learning(replace(spec, settings=settings, checkpoints=str(root)), tmp_path / "ray") as learner:
        within(PATIENCE_S, lambda: learner.begin(sent(batch(1)))())
        saved = within(PATIENCE_S, lambda: save(learner))
        state = {"versions": {"generator": 1}}
        CheckpointStore(root, keep=2).save(1, {"generator": saved}, {"generator": Tokenizer()}, state)
        for step in (2, 3, 4):
            within(PATIENCE_S, lambda: learner.begin(sent(batch(step, logprob=float("nan"))))())  # noqa: B023
        metrics, weights = within(PATIENCE_S, lambda: learner.begin(sent(batch(5, logprob=float("nan"))))())
        assert metrics["reloaded"] == 1 and learner.version == 5
        expected, found = load_file(saved / "model.safetensors"), arrived(weights).tensors
        assert all((found[name] == tensor.numpy()).all() for name, tensor in expected.items())
        metrics, _ = within(PATIENCE_S, lambda: learner.begin(sent(batch(6)))())
        assert metrics["skipped_updates"] == 0 and metrics["learning_rate"] == pytest.approx(1e-2 / 8)
