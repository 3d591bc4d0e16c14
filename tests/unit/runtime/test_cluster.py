"""What a user is told of what happened in an actor, and how a run ends; Ray is not started."""

import threading
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from ray.exceptions import ActorDiedError, RayTaskError

from configs.load import load_run
from configs.schema import Config
from learners import train_loop
from learners.train_loop import TrainRun
from sandbox_workers.nothing import NoSandbox
from sparring.core.errors import RunFailed
from sparring.core.weights import PublishError
from sparring.runtime import cluster
from sparring.runtime.cluster import for_the_user
from sparring.runtime.placement import Node, engine_name, parts_of, place
from tests.unit.runtime.makers import start_at

REMOTE = "ray::RolloutActor.publish()\n  File 'x.py', line 1\nPublishError: engine and learner differ"


def test_an_error_of_ours_is_itself_without_the_remote_traceback() -> None:
    ours = PublishError("engine and learner differ")
    wrapped = RayTaskError("publish", REMOTE, ours).as_instanceof_cause()
    assert isinstance(wrapped, PublishError) and "File" in str(wrapped)
    assert for_the_user(wrapped) is ours


REMOTE_KEY_ERROR = RayTaskError("play", "ray::play()\n  File 'x.py'\nKeyError: 'a'", KeyError("a"))


@pytest.mark.parametrize(
    ("error", "said"),
    [(REMOTE_KEY_ERROR.as_instanceof_cause(), "KeyError: 'a'"), (ActorDiedError(), "ActorDiedError: ")],
)
def test_any_other_error_is_one_line_with_its_kind(error: Any, said: str) -> None:
    told = for_the_user(error)
    assert isinstance(told, RunFailed) and str(told).startswith(said) and "\n" not in str(told)


class Scripted:
    """The parts of a run, none of which is real but `_parts` itself."""

    def __init__(self, directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.ended: list[str] = []
        self.fails: str | None = None
        """The part that fails when it is ended."""
        learners = iter(["first learner", "second learner"])
        pool = self._part("pool", client=NoSandbox().client, description="")
        monkeypatch.setattr(cluster, "_pool", lambda *_: pool)
        monkeypatch.setattr(cluster, "start_rollouts", lambda *_: self._part("rollouts"))
        monkeypatch.setattr(cluster, "learner_specs", lambda config, _: dict.fromkeys(config.policies))
        monkeypatch.setattr(cluster, "begin_learning", lambda *_: self._part(next(learners)))
        monkeypatch.setattr(cluster, "RayScheduler", lambda **_: None)
        monkeypatch.setattr(cluster.ray, "get_runtime_context", lambda: SimpleNamespace(gcs_address=""))
        config = load_run(["--config", "debug"])[0].to_config()
        loop: Any = SimpleNamespace(run=None)
        self.open = contextmanager(lambda: cluster._parts(config, [], start_at(directory), [], loop))

    def _part(self, name: str, **more: Any) -> SimpleNamespace:
        def end() -> None:
            self.ended.append(name)
            if name == self.fails:
                raise RunFailed(f"{name} does not end")

        return SimpleNamespace(
            stop=end, close=end, shutdown=end, wait_ready=lambda: None, learners={}, **more
        )


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Scripted:
    return Scripted(tmp_path, monkeypatch)


def test_what_an_unfinished_session_left_of_ray_train_is_gone_before_the_next_one_learns(
    run: Scripted, tmp_path: Path
) -> None:
    left = tmp_path / "ray_train" / "generator_1234"
    left.mkdir(parents=True)
    with run.open():
        assert not left.exists()


def test_every_part_is_ended_even_if_one_of_them_fails_to_end(run: Scripted) -> None:
    run.fails = "second learner"
    with pytest.raises(RunFailed, match="does not end"), run.open():
        pass
    assert sorted(run.ended) == ["first learner", "pool", "rollouts", "second learner"]


def test_a_learner_whose_mailbox_is_lost_can_be_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    def lost(*_: object, **__: object) -> None:
        raise ActorDiedError()

    run = TrainRun.__new__(TrainRun)  # without a Ray Train run
    run.mailbox = SimpleNamespace(stop=SimpleNamespace(remote=lambda: None))
    run._thread = threading.Thread(target=lambda: None)
    run._thread.start()
    monkeypatch.setattr(train_loop.ray, "get", lost)
    run.stop()
    assert not run._thread.is_alive()


def test_engines_start_where_they_were_placed_even_if_a_model_has_two_names(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The plan knows the models by the names that the config gives, and both name one directory."""
    policy = {"learner": {"lora": {"rank": 4}}, "engine": {"kind": "vllm", "adapter": True, "count": 1}}
    config = Config.model_validate(
        {"generator": {"model": "./models/a", **policy}, "discriminator": {"model": "models/a", **policy}}
    )
    places = place(parts_of(config), [Node(name="", address="", gpus=0, cpus=8)])
    started = SimpleNamespace(remote=lambda build, name: name)
    monkeypatch.setattr(cluster.EngineActor, "options", lambda **_: started)
    monkeypatch.setattr(cluster, "RemotePolicy", lambda role, engine: engine)
    monkeypatch.setattr(cluster, "RayRollouts", lambda build, own, device, engines, sleeps: engines)
    models = dict.fromkeys(config.policies, "/models/a")
    engines = cluster.start_rollouts(config, models, NoSandbox().client, places)
    assert engines == {role: [engine_name([role])] for role in config.policies}
