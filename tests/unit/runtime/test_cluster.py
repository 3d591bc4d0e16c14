"""What a user is told of what happened in an actor; Ray is not started."""

from typing import Any

import pytest
from ray.exceptions import ActorDiedError, RayTaskError

from configs.schema import Config
from sparring.core.errors import RunFailed, SparringError
from sparring.core.weights import PublishError
from sparring.runtime import cluster
from sparring.runtime.cluster import for_the_user

REMOTE = "ray::RolloutActor.publish()\n  File 'x.py', line 1\nPublishError: engine and learner differ"


def test_an_error_of_ours_is_itself_without_the_remote_traceback() -> None:
    ours = PublishError("engine and learner differ")
    wrapped = RayTaskError("publish", REMOTE, ours).as_instanceof_cause()
    assert isinstance(wrapped, PublishError) and "File" in str(wrapped)
    assert for_the_user(wrapped) is ours


def test_any_other_error_is_one_line_with_its_kind() -> None:
    wrapped = RayTaskError(
        "play", "ray::play()\n  File 'x.py'\nKeyError: 'a'", KeyError("a")
    ).as_instanceof_cause()
    for error, said in (
        (wrapped, "KeyError: 'a'"),
        (ActorDiedError(), "ActorDiedError: "),
    ):
        told = for_the_user(error)
        assert isinstance(told, RunFailed) and str(told).startswith(said) and "\n" not in str(told)


@pytest.mark.parametrize("late", [0, 2, 3])
def test_a_machine_too_busy_for_rays_half_minute_has_it_three_times(
    monkeypatch: pytest.MonkeyPatch, late: int
) -> None:
    asked, ended = [], []

    def init(**options: Any) -> None:
        asked.append(options["address"])
        if len(asked) <= late:
            raise Exception("The current node timed out during startup. This could happen because")

    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    monkeypatch.setattr(cluster, "_store_bytes", lambda config: 1)
    monkeypatch.setattr(cluster.ray, "init", init)
    monkeypatch.setattr(cluster.ray, "shutdown", lambda: ended.append(len(asked)))
    if late == 3:
        with pytest.raises(
            SparringError, match="Ray does not start on this machine: The current node timed out"
        ):
            cluster.connect(Config())
    else:
        cluster.connect(Config())
    assert len(asked) == min(late + 1, 3) and len(ended) == late
