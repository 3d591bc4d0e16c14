"""Honest jobs that are not judged right, and why: what a test cannot do here. A job that passes after all is welcome."""

_DECIDES = "a method of the program's own object or subclass would decide a comparison with the test's values"
_TEST_IS_APART = "the test's module, library, files and clock are not the program's: they are two processes"
_DERIVES = "a class of the test derives from one of the program's"
_THREADS = "a program answers one question at a time, and a test hears it only while it asks or sleeps"

NOT_SERVED = {
    "arguments_in_place: the same object comes back": "a tuple comes back as an equal one",
    "arguments_in_place: array changed in place": "arrays are copies",
    "errors: the program catches the test's raise of its own error": _DERIVES,
    "iterables_and_callbacks: adds a repr to the test's class": "the inside of the test's class is not shown",
    "modules: functions that see a name that the test rebinds": _TEST_IS_APART,
    "modules: method patched by mock": "what mock puts back is its own stand-in",
    "modules: the test defines what the program calls": _TEST_IS_APART,
    "modules: the test replaces a function of the program": _TEST_IS_APART,
    "modules: type hints of a test's class are resolved": "the inside of the test's class is not shown",
    "objects: fraction of one's own": _DECIDES,
    "objects: slices": _DECIDES,
    "objects: equality with other types": _DECIDES,
    "objects: names and docs": "a class's annotations are not told",
    "objects: subclass made by the test": _DERIVES,
    "objects: template method and mixin of the test": _DERIVES,
    "objects: abstract class made concrete by the test": _DERIVES,
    "objects: the test's coroutines are awaited by the program": "the test's loop is not the program's",
    "objects: pickled and restored by the test": "a pickle of the program's names its code",
    "one_process: temporary file of the test": _TEST_IS_APART,
    "one_process: file that the program writes and the test reads": _TEST_IS_APART,
    "one_process: open patched": _TEST_IS_APART,
    "one_process: environment of the test": _TEST_IS_APART,
    "one_process: clock patched": _TEST_IS_APART,
    "one_process: sleep patched": _TEST_IS_APART,
    "one_process: random numbers seeded by the test": _TEST_IS_APART,
    "one_process: recursion limit raised by the test": _TEST_IS_APART,
    "one_process: warnings recorded": _TEST_IS_APART,
    "one_process: log records captured": _TEST_IS_APART,
    "one_process: decimal context of the test": _TEST_IS_APART,
    "one_process: library function patched": _TEST_IS_APART,
    "one_process: frames of the caller": _TEST_IS_APART,
    "one_process: signal while the program works": _TEST_IS_APART,
    "sizes_and_threads: blocking queue between threads of the test": _THREADS,
    "sizes_and_threads: timer that calls the test": _THREADS,
    "sizes_and_threads: print in order, by the test's threads": _THREADS,
    "sizes_and_threads: processes of the program": "multiprocessing wants a writable /dev/shm",
    "sizes_and_threads: file under /tmp": "only the working directory can be written",
    "class: made by the test: IntFlag": _DECIDES,
} | {
    f"class: {way}: {kind}": why
    for way in ("result", "there and back", "attribute and constant", "made by the test")
    for kind, why in (
        ("subclass of dict", _DECIDES),
        ("subclass of OrderedDict", _DECIDES),
        ("subclass of int", _DECIDES),
        ("class equal to numbers", _DECIDES),
        ("metaclass", "a metaclass's own methods are not asked"),
    )
}
