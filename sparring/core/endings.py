"""Describes in one line why a process of a run ended, from Ray's error and without Ray's advice.

Ray is not imported: the functions read the errors' attributes and text (Ray 2.60; tests/chaos/test_killed_for_memory.py).
Ray can neither distinguish a signal from a crash nor name the sender of a signal.
"""

import re

_WRAPPED = ("controller_failure", "health_check_failure", "_base_exc", "cause")
"""Attributes in which the errors of Ray and Ray Train hold the error that caused them."""
_NODE = re.compile(r"killed due to the node running low on memory.*? was (\S+?) ?used / (\S+?) ?limit")
_KILLED = re.compile(
    r"^Selected to kill: .*?task name=(\S+?)\.\w*,.*?actual memory used=(\S+?),", re.MULTILINE
)
_USER = re.compile(r"^\d+\t([\d.]+)\t(ray::.+)$", re.MULTILINE)
_GONE = re.compile(r"\tpid: (\d+)\n(?:.*\n)*?\tip: (\S+)\n.*its worker process has died", re.MULTILINE)
_ENDED = "ended without a word: killed by a signal, by the kernel for memory (`dmesg` tells), or crashed"
_LACKS = ("can't allocate memory", "ALLOC_FAILED", "out of memory")
_COLOUR = re.compile(r"\x1b\[\d*m")


def causes(error: BaseException) -> list[BaseException]:
    """Returns the errors that caused this one, without Ray's wrappers: one per failed worker, or the error itself."""
    if failures := getattr(error, "worker_failures", None):
        return [cause for failure in failures.values() for cause in causes(failure)]
    for name in _WRAPPED:
        if isinstance(inner := getattr(error, name, None), BaseException):
            return causes(inner)
    return [error]


def killed_for_memory(error: BaseException) -> bool:
    """Returns whether Ray's memory monitor ended one of the processes in the error."""
    return any(_NODE.search(str(cause)) for cause in causes(error))


def memory_message(error: BaseException) -> str | None:
    """Returns the first line of an error that reports a lack of memory, else None. On a CPU torch raises a plain RuntimeError,
    and so do CUDA's libraries if the GPU is shared."""
    said = str(error)
    is_named = isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError"  # torch's
    if is_named or (isinstance(error, RuntimeError) and any(words in said for words in _LACKS)):
        return (said.splitlines() or [type(error).__name__])[0]
    return None


def in_words(error: BaseException) -> str:
    """Returns a one-line description of the error, which names each distinct cause once."""
    return "; ".join(dict.fromkeys(map(_in_words, causes(error))))


def end_in_words(detail: str) -> str:
    """Returns a one-line description of a process's end, from what Ray has noted about it."""
    return _killed_in_words(detail) or f"its process {_ENDED}"


def _in_words(cause: BaseException) -> str:
    text = _COLOUR.sub("", str(cause)).strip()
    if killed := _killed_in_words(text):
        return killed
    if gone := _GONE.search(text):
        pid, address = gone.groups()
        return f"{type(cause).__name__}: process {pid} on {address} {_ENDED}"
    return f"{type(cause).__name__}: {_last_words(text)}"


def _killed_in_words(text: str) -> str | None:
    """Returns None if Ray's memory monitor did not end the process."""
    if not (node := _NODE.search(text)):
        return None
    killed = " and ".join(f"{name} with {used}" for name, used in _KILLED.findall(text))
    used, limit = node.groups()
    most = ", ".join(f"{name} {gigabytes}GB" for gigabytes, name in _USER.findall(text)[:3])
    return f"OutOfMemoryError: Ray killed {killed}, since {used} of the node's {limit} were in use (most: {most})"


def _last_words(text: str) -> str:
    """Returns the first line of a message, or the exception at the end if the message is a traceback."""
    lines = text.splitlines() or [""]
    frames = [number for number, line in enumerate(lines) if line.startswith("  ")]
    return lines[frames[-1] + 1 if frames and frames[-1] + 1 < len(lines) else 0]
