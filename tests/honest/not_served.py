"""Honest jobs that are not judged right, and why: what a test cannot do here. A job that passes after all is welcome."""

_COPIES = "the test is data, and the program works on a copy of the list until the comparison is over"
_OWN_NAMES = "the test is data, and its names are not the program's"
_BASE = "a result of a subclass is its base's value to a test that is data"

NOT_SERVED = {
    "sizes_and_threads: processes of the program": "multiprocessing wants a writable /dev/shm",
    "sizes_and_threads: file under /tmp": "only the working directory can be written",
}

NOT_SERVED_ALONE = {
    "arguments_in_place: changed in one statement with the comparison": _COPIES,
    "modules: functions that see a name that the test rebinds": _OWN_NAMES,
    "modules: the test defines what the program calls": _OWN_NAMES,
    "modules: the test replaces a function of the program": _OWN_NAMES,
    "one_process: frames of the caller": "the test is data: its functions have no frames",
    "class: result: subclass of OrderedDict": _BASE,
    "class: attribute and constant: subclass of OrderedDict": _BASE,
} | dict.fromkeys(
    (
        "objects: unhashable by its equality",
        "objects: set of operators",
        *(
            f"class: {way}: {kind}"
            for way in ("result", "attribute and constant", "made by the test")
            for kind in ("subclass of deque", "class equal to numbers")
        ),
        "class: made by the test: subclass of float",
    ),
    "a method of the program's own class would decide against the test's values, and no reference says that it may",
)
"""Of programs that are judged without a reference: these, too."""
