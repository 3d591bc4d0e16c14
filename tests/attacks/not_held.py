"""Attacks that a test of code does not hold: it shares the interpreter of the program. An earlier design held them, in which the two
were processes that passed objects to each other; docs/sandbox.md says why it was given up.
"""

_LOOKS = "what the test hands over leads to the test's own names and frames"
_DECIDES = "an object, a class or a module of the program's answers what the test asks of it"
_CHANGES = "the program changes the test's objects, files or modules"

NOT_HELD = {
    "globals of a callback": _LOOKS,
    "frame of a generator": _LOOKS,
    "eval behind functools.partial": _LOOKS,
    "class that claims to be a view": _DECIDES,
    "special method called by its name": _DECIDES,
    "class by assignment": _DECIDES,
    "metaclass that recognizes everything": _DECIDES,
    "abstract class registered": _DECIDES,
    "names by a module's __getattr__": _DECIDES,
    "test that skips itself by what it was given": _DECIDES,
    "modules replaced": _CHANGES,
    "command that the test is made to start": _CHANGES,
    "assertion replaced on the test's case": _CHANGES,
    "change the argument, then call back, before it is compared": _CHANGES,
    "calls back until the test's stack ends": "whose frame is the last one is chance, and with it who is blamed",
}
"""Name of the attack: how the program gets through."""
