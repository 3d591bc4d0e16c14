"""The run's log: what was shown, warnings, how it ended; and never a reason to stop."""

import logging
from pathlib import Path

import pytest

from sparring.tracking.progress import say
from sparring.tracking.run_log import harmless, run_log


def lines(directory: Path) -> list[str]:
    """Without their times."""
    return [line[20:] for line in (directory / "run.log").read_text().splitlines()]


def test_what_is_said_before_there_is_a_directory_comes_first(tmp_path: Path, capsys) -> None:
    with run_log() as log:
        say("one CPU")
        log.open(tmp_path / "runs" / "a")
        say("run: a")
    say("nobody listens any more")
    assert lines(tmp_path / "runs" / "a") == ["one CPU", "run: a", "finished"]
    assert capsys.readouterr().out == "one CPU\nrun: a\nnobody listens any more\n"


def test_a_run_that_goes_on_goes_on_in_its_log(tmp_path: Path) -> None:
    for text in ("first half", "second half"):
        with run_log() as log:
            log.open(tmp_path)
            say(text)
    assert lines(tmp_path) == ["first half", "finished", "second half", "finished"]


def test_warnings_of_the_parts_are_noted_and_nothing_less(tmp_path: Path) -> None:
    part = logging.getLogger("learners.learner")
    with run_log() as log:
        log.open(tmp_path)
        part.setLevel(logging.INFO)
        part.info("all is well")
        part.warning("out of memory, microbatch_tokens now %d", 512)
    part.setLevel(logging.NOTSET)
    assert lines(tmp_path)[:-1] == ["WARNING learners.learner: out of memory, microbatch_tokens now 512"]


def test_an_error_that_ends_the_run_is_noted_with_its_cause(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError), run_log() as log:
        log.open(tmp_path)
        try:
            raise KeyError("weights")
        except KeyError as error:
            raise RuntimeError("the engine is gone") from error
    text = (tmp_path / "run.log").read_text()
    assert "ended by an error" in text
    assert text.index("KeyError: 'weights'") < text.index("RuntimeError: the engine is gone")


def test_what_only_watches_ends_no_run_and_is_said_once(tmp_path: Path, caplog) -> None:
    told: list[int] = []

    def watch(step: int) -> None:
        told.append(step)
        if step > 1:
            raise OSError("no such directory")

    guarded = harmless("metrics", watch)
    for step in (1, 2, 3):
        guarded(step)
    assert told == [1, 2, 3]
    assert caplog.messages == ["metrics: OSError: no such directory; the run goes on without"]


@pytest.mark.parametrize(
    ("ending", "said"),
    [(KeyboardInterrupt(), "interrupted"), (SystemExit(15), "ended by an error")],
    ids=["an interruption is no error", "as Ray's handler of SIGTERM does"],
)
def test_how_a_process_ended_is_noted(tmp_path: Path, ending: BaseException, said: str) -> None:
    with pytest.raises(type(ending)), run_log() as log:
        log.open(tmp_path)
        raise ending
    assert lines(tmp_path)[0] == said
    assert ("Traceback" in (tmp_path / "run.log").read_text()) == isinstance(ending, SystemExit)


def test_a_refused_run_leaves_another_runs_log_alone(tmp_path: Path) -> None:
    with pytest.raises(ValueError), run_log():
        raise ValueError("this directory holds a run already")
    assert not list(tmp_path.iterdir())


def test_a_log_that_cannot_be_written_stops_nothing(tmp_path: Path) -> None:
    full, locked = tmp_path / "full", tmp_path / "locked"
    full.mkdir()
    (full / "run.log").symlink_to("/dev/full")
    (locked / "run.log").mkdir(parents=True)
    for directory in (full, locked):
        with run_log() as log:
            say("early")
            log.open(directory)
            say("late")


def test_nobody_listens_to_a_run_that_has_ended() -> None:
    before = list(logging.getLogger().handlers)
    with run_log():
        assert len(logging.getLogger().handlers) > len(before)
    assert logging.getLogger().handlers == before
