"""What goes wrong between a program and its test, and whose doing it is."""

from .framing import FrameTooLarge

MAX_TEXT = 2000
"""Characters of an exception's text that cross the socket."""
MAX_ERROR = 500
"""Characters of an error text in a verdict."""


class ProgramGone(BaseException):
    """The program's process ended. A BaseException, and sticky: a test's `except Exception` cannot hide
    it."""


class ProgramLied(BaseException):
    """The program's process sent what the protocol does not know."""


class ValueTooLarge(BaseException):
    """A value does not fit a frame."""


Fatal = (ProgramGone, ProgramLied, ValueTooLarge)


def of_reading(error: Exception) -> BaseException:
    """What it means that a message of the program's could not be read."""
    if isinstance(error, EOFError | ConnectionError):
        return ProgramGone("the program's process ended")
    if isinstance(error, FrameTooLarge | MemoryError):
        return ValueTooLarge(str(error))
    return ProgramLied(type(error).__name__)


def describe(error: BaseException) -> str:
    """str(error) where that works: it is the program's code. Encodable: lone surrogates are replaced."""
    try:
        return str(error)[:MAX_TEXT].encode("utf-8", "replace").decode()
    except BaseException:
        return ""
