"""The errors between a program and its test, by the side that caused them."""

from .framing import FrameTooLarge

MAX_TEXT = 2000
"""Largest number of characters of an exception's text that are sent."""
MAX_ERROR = 500
"""Largest number of characters of an error text in a verdict."""


class NotData(ValueError):
    """Raised if the test is a code test. The message names what makes it one."""


class ProgramGone(BaseException):
    """Raised if the program's process has ended. It is a BaseException, and is raised again at each later request: a
    test's `except Exception` cannot hide it."""


class ProgramLied(BaseException):
    """Raised if the program's process sent a message that the protocol does not know."""


class ValueTooLarge(BaseException):
    """Raised if a value does not fit a frame."""


Fatal = (ProgramGone, ProgramLied, ValueTooLarge)


def of_reading(error: Exception) -> BaseException:
    """Returns the error to raise if a message of the program could not be read."""
    if isinstance(error, EOFError | ConnectionError):
        return ProgramGone("the program's process ended")
    if isinstance(error, FrameTooLarge | MemoryError):
        return ValueTooLarge(str(error))
    return ProgramLied(type(error).__name__)


def describe(error: BaseException) -> str:
    """Returns str(error), or an empty string if that fails, because it runs the program's code. Lone surrogates are
    replaced, so that the text can be encoded."""
    try:
        return str(error)[:MAX_TEXT].encode("utf-8", "replace").decode()
    except BaseException:
        return ""
