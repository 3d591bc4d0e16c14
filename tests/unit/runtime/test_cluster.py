"""What a user is told of what happened in an actor; Ray is not started."""

from ray.exceptions import ActorDiedError, RayTaskError

from sparring.core.errors import RunFailed
from sparring.core.weights import PublishError
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
