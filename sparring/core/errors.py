"""Errors that a user can act on, which end a command with one line. A bug in Sparring itself ends it with a traceback."""

import sys
from typing import NoReturn


class SparringError(Exception):
    """An error that the user can act on. The message says what is wrong, where, and how to fix it."""


class RunFailed(SparringError):
    """A part of a run in progress failed. The checkpoints are complete, and the run can be resumed."""


class OutOfMemory(RunFailed):
    """Memory ran out although the run had already reduced its memory use as far as it could. If it is resumed unchanged, it
    will fail again."""


class WorkerOutOfMemory(Exception):
    """One of several workers that share a model ran out of memory. All of them are replaced."""

    def __init__(self, reason: str, policy: str = "", most_tokens: int | None = None) -> None:
        """most_tokens: maximum number of tokens of the policy's micro-batches from now on; None: as before."""
        super().__init__(reason, policy, most_tokens)
        self.reason, self.policy, self.most_tokens = reason, policy, most_tokens

    def __str__(self) -> str:
        return self.reason


def exit_with(error: Exception) -> NoReturn:
    """Prints the error and its notes in one line and ends the command with exit status 2."""
    said = f"{error.filename}: {error.strerror}" if isinstance(error, OSError) and error.filename else error
    print("error: " + "; ".join([str(said), *getattr(error, "__notes__", ())]), file=sys.stderr)
    raise SystemExit(2) from error


def exit_interrupted(interrupt: KeyboardInterrupt) -> NoReturn:
    """Ends the command after Ctrl-C: prints one line and exits with the status that shells give to SIGINT (130)."""
    print(str(interrupt) or "interrupted", file=sys.stderr)
    raise SystemExit(130) from None
