"""What goes wrong between a program and its test, and whose doing it is."""

from .framing import FrameTooLarge

FROM_PROGRAM = "_from_program"
MAX_TEXT = 2000
"""Characters of an exception's text that cross the socket."""


class ProgramGone(BaseException):
    """The program's process ended. A BaseException, and sticky: a test's `except Exception` cannot hide
    it."""


class ProgramLied(BaseException):
    """The program's process sent what the protocol does not know."""


class ValueTooLarge(BaseException):
    """A value does not fit a frame."""


Fatal = (ProgramGone, ProgramLied, ValueTooLarge)


class NotServed(TypeError):
    """What program and test would need one interpreter for; the text names it."""


class StackEnded(NotServed):
    """The stack ended while a message was written: its value is nested too deeply, or questions are."""


class Refused(AttributeError):
    """What a program may not ask of a test's object is not there."""


def of_reading(error: Exception) -> BaseException:
    """What it means that a message of the program's could not be read."""
    if isinstance(error, EOFError | ConnectionError):
        return ProgramGone("the program's process ended")
    if isinstance(error, FrameTooLarge | MemoryError):
        return ValueTooLarge(str(error))
    return ProgramLied(type(error).__name__)


def mark_from_program(error: BaseException) -> BaseException:
    """The error, marked as the program's own."""
    error.__dict__[FROM_PROGRAM] = True
    return error


def is_from_program(error: BaseException) -> bool:
    return FROM_PROGRAM in error.__dict__


def not_plain() -> BaseException:
    """An object of the program's where its own methods would decide."""
    return mark_from_program(TypeError("the program returned an object that is not a plain value"))


def describe(error: BaseException) -> str:
    """str(error) where that works: it is the program's code. Encodable: lone surrogates are replaced."""
    try:
        return str(error)[:MAX_TEXT].encode("utf-8", "replace").decode()
    except BaseException:
        return ""
