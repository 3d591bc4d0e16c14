"""What a user can act on, as against what is wrong with the program, which is a traceback."""

import sys
from typing import NoReturn


class SparringError(Exception):
    """The message says what is wrong, where, and how to mend it. A command's `main` ends with it."""


class RunFailed(SparringError):
    """A part of a run that was under way has failed; the checkpoints are whole, and the run can be resumed."""


class OutOfMemory(RunFailed):
    """Memory ran out, after all that the run could give up for it was given up: resumed as it is, it would end so again."""


def exit_with(error: Exception) -> NoReturn:
    """End the command: one line with the error and its notes, and exit status 2."""
    said = f"{error.filename}: {error.strerror}" if isinstance(error, OSError) and error.filename else error
    print("error: " + "; ".join([str(said), *getattr(error, "__notes__", ())]), file=sys.stderr)
    raise SystemExit(2) from error


def exit_interrupted(interrupt: KeyboardInterrupt) -> NoReturn:
    """End the command that Ctrl-C has ended: one line, and the exit status that shells give to SIGINT."""
    print(str(interrupt) or "interrupted", file=sys.stderr)
    raise SystemExit(130) from None
