"""Writes run.log: all lines that a run has shown, the warnings logged in this process, and how the run ended, with times.

The logs of Ray actors are not included; Ray keeps them. Their errors are included in the exceptions that they raise.
"""

import logging
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import ParamSpec, TextIO

LOG = "run.log"
FINISHED, INTERRUPTED, FAILED = "finished", "interrupted", "ended by an error"
"""The last line of a run's log, without its time: one of these, depending on how the run ended. The log of a run that
was killed has none of them."""
P = ParamSpec("P")
shown = logging.getLogger("shown")
"""Logger of all lines that are shown to the user."""
shown.setLevel(logging.INFO)
shown.propagate = False


class RunLog(logging.Handler):
    """Keeps lines in memory until the run has a directory, then writes them to the log file. Errors of writing are ignored,
    since the next write of metrics will raise them."""

    def __init__(self) -> None:
        super().__init__(logging.INFO)
        self._file: TextIO | None = None
        self._early: list[str] = []

    def open(self, directory: Path) -> None:
        """Opens the run's log; an existing file is continued."""
        with suppress(OSError):
            directory.mkdir(parents=True, exist_ok=True)
            self._file = (directory / LOG).open("a", encoding="utf-8", errors="backslashreplace")
            for line in self._early:
                self._write(line)
        self._early.clear()

    def emit(self, record: logging.LogRecord) -> None:
        text = record.getMessage()
        if record.name != shown.name:
            if record.levelno < logging.WARNING:
                return
            text = f"{record.levelname} {record.name}: {text}"
        if record.exc_info:
            text += "\n" + "".join(traceback.format_exception(*record.exc_info)).rstrip()
        self.add(text)

    def add(self, text: str) -> None:
        line = f"{time.strftime('%Y-%m-%d %H:%M:%S')} {text}\n"
        if self._file is None:
            self._early.append(line)
        else:
            with suppress(OSError):
                self._write(line)

    def _write(self, line: str) -> None:
        assert self._file is not None
        self._file.write(line)
        self._file.flush()

    def close(self) -> None:
        if self._file is not None:
            with suppress(OSError):
                self._file.close()
        super().close()


def harmless(what: str, tell: Callable[P, None]) -> Callable[P, None]:
    """Wraps a function that only observes a run: an error in it does not end the run, and is logged once, as a warning.

    Args:
        what: name of the function's purpose in the warning.
    """
    said = False

    def told(*args: P.args, **kwargs: P.kwargs) -> None:
        nonlocal said
        try:
            tell(*args, **kwargs)
        except Exception as error:
            if not said:
                logging.getLogger(__name__).warning(
                    "%s: %s: %s; the run goes on without", what, type(error).__name__, error
                )
            said = True

    return told


@contextmanager
def run_log() -> Iterator[RunLog]:
    """Logs until the context ends, and then logs how the run ended. Warnings still go to stderr as well."""
    log, root = RunLog(), logging.getLogger()
    listeners: list[tuple[logging.Logger, logging.Handler]] = [(shown, log), (root, log)]
    if logging.lastResort is not None and not root.handlers:
        listeners.append((root, logging.lastResort))
    for logger, handler in listeners:
        logger.addHandler(handler)
    try:
        yield log
    except KeyboardInterrupt:
        log.add(INTERRUPTED)
        raise
    except BaseException:  # includes SystemExit, which Ray raises on SIGTERM
        log.add(f"{FAILED}\n{traceback.format_exc().rstrip()}")
        raise
    else:
        log.add(FINISHED)
    finally:
        for logger, handler in listeners:
            logger.removeHandler(handler)
        log.close()
