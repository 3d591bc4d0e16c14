"""The languages of programs under test. A language is data: the name of its source file, and the commands that build
and run a program."""

import os
from dataclasses import dataclass, field, fields
from pathlib import Path

from sandbox_workers import harness
from sparring.core.errors import SparringError

Q_INSIDE = "/opt/q/q"
Q_VARIABLES = (
    "Q_BIN (the q executable), QHOME (the directory of q.k), QLIC (the directory of the licence file)"
)
PACKAGES_VARIABLE, PACKAGES_INSIDE = "SANDBOX_PACKAGES", "/opt/packages"
"""Environment variable that names a directory of Python packages for programs and tests, and the path of that directory
in the sandbox."""


class UnknownLanguage(SparringError, ValueError):
    """Raised if a language does not exist or cannot run here. The message says what is missing."""


_THREADS = 40
"""Processes that a program may have, threads included. A default thread pool of Python has up to 32."""
_STACKS_MB = 32 * 64
"""Address space for the stacks of a pool's threads, MiB."""
_NODE = ("node", "--max-old-space-size={heap_mb}")
_GCC = ("gcc", "-O1", "-std=gnu17", "-o", "main")
_BUILD_TESTED = f"{' '.join(_GCC)} run.c -Wl,--wrap=main -lm && rm main.c run.c"


@dataclass(frozen=True, kw_only=True, slots=True)
class ProgramWithTest:
    """How a program runs if the code of a test follows it; see `harness`."""

    files: dict[str, str]
    run: tuple[str, ...]
    build: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class Language:
    """How programs of a language run in the directory of their job."""

    name: str
    source: str
    """File name of the program."""
    run: tuple[str, ...]
    """Command that runs the program. {heap_mb} stands for three quarters of `Limits.memory_mb`."""
    build: tuple[str, ...] = ()
    """Command that builds the program. It runs once per program, with five times the time limits of a test."""
    tested: ProgramWithTest | None = None
    """How the program runs with a test's code. If None, the code is appended to the program."""
    extra_memory_mb: int = 0
    """Address space beyond `Limits.memory_mb` that the interpreter or its threads reserve, MiB."""
    resident_mb: int = 0
    """Part of `extra_memory_mb` that may be resident, MiB."""
    build_memory_mb: int = 512
    processes: int = 1
    """Smallest effective value of `Limits.processes`; the threads of the interpreter count, too."""
    environment: dict[str, str] = field(default_factory=dict)
    mounts: tuple[tuple[str, str], ...] = ()
    """(path on the host, path in the sandbox), read-only, for what the image does not contain."""

    def message(self) -> dict:
        """Returns what the runner needs to know about the language. Each job carries it, so the runner has no copy of
        its own."""
        told = {name: getattr(self, name) for name in _TOLD}
        if self.tested is not None:
            told["tested"] = {name: getattr(self.tested, name) for name in ProgramWithTest.__slots__}
        return told

    def commands(self) -> set[str]:
        """Returns the commands that must exist in the sandbox."""
        return {
            command[0] for command in (self.build, self.run) if command and not command[0].startswith("./")
        }


_TOLD = tuple(part.name for part in fields(Language) if part.name not in ("name", "mounts"))


def _q() -> Language:
    """Returns the language q. kdb+/q is proprietary, so the user's own installation is mounted, from the paths that
    environment variables name."""
    names = {"Q_BIN": Q_INSIDE, "QHOME": "/opt/q/home", "QLIC": "/opt/q/licence"}
    mounts = tuple((os.environ[name], inside) for name, inside in names.items() if os.environ.get(name))
    return Language(
        name="q",
        source="main.q",
        run=(Q_INSIDE, "main.q", "-q"),
        extra_memory_mb=1024,
        resident_mb=1024,
        processes=8,
        environment={name: inside for name, inside in names.items() if name != "Q_BIN"},
        mounts=mounts,
    )


_OURS = (
    Language(
        name="python",
        source="main.py",
        run=("python3", "main.py"),
        tested=ProgramWithTest(files=harness.PYTHON, run=("python3", "run.py")),
        environment={"PYTHONINTMAXSTRDIGITS": "0"},  # contests ask for numbers of any length
        extra_memory_mb=_STACKS_MB,
        processes=_THREADS,
    ),
    Language(
        name="javascript",
        source="main.js",
        run=(*_NODE, "main.js"),
        tested=ProgramWithTest(files=harness.JAVASCRIPT, run=(*_NODE, "run.js")),
        extra_memory_mb=2048,  # reserved for compiled code, stacks of threads and the heap
        resident_mb=80,
        processes=16,
        environment={"OPENSSL_CONF": "/dev/null"},  # node ends if it may not read the system's
    ),
    Language(
        name="lua",
        source="main.lua",
        run=("lua5.4", "main.lua"),
        tested=ProgramWithTest(files=harness.LUA, run=("lua5.4", "run.lua")),
    ),
    Language(
        name="bash",
        source="main.sh",
        run=("bash", "main.sh"),
        tested=ProgramWithTest(files=harness.BASH, run=("bash", "run.sh")),
        processes=16,
    ),
    Language(
        name="c",
        source="main.c",
        build=(*_GCC, "main.c", "-lm"),
        run=("./main",),
        tested=ProgramWithTest(files=harness.C, build=("sh", "-c", _BUILD_TESTED), run=("./main",)),
        extra_memory_mb=_STACKS_MB,
        processes=_THREADS,
    ),
)


def languages() -> dict[str, Language]:
    """Returns all known languages by name. Whether their commands exist depends on the sandbox."""
    return {language.name: language for language in (*_OURS, _q())}


def language_of(name: str) -> Language:
    """Returns the language of this name.

    Raises:
        UnknownLanguage: there is none.
    """
    known = languages()
    if name not in known:
        raise UnknownLanguage(f"no language {name!a}; known: {', '.join(known)}")
    return known[name]


def require_commands(name: str, found: set[str]) -> None:
    """Checks that all commands of the language are among those found in the sandbox.

    Raises:
        UnknownLanguage: a command is missing.
    """
    missing = language_of(name).commands() - found
    if not missing:
        return
    if name == "q":
        raise UnknownLanguage(
            f"q is not part of Sparring: set {Q_VARIABLES}, then start again; it runs in containers and namespaces only"
        )
    raise UnknownLanguage(
        f"{name} cannot run: the sandbox has no {', '.join(sorted(missing))}: install it on this machine, or judge by "
        "Docker (make engine), whose image has it"
    )


def all_commands() -> list[str]:
    return sorted({command for language in languages().values() for command in language.commands()})


def packages() -> str | None:
    """Returns the directory on this host from which programs import in addition to the standard library, or None.

    Raises:
        UnknownLanguage: the directory does not exist.
    """
    directory = os.environ.get(PACKAGES_VARIABLE)
    if not directory:
        return None
    if not Path(directory).is_dir():
        raise UnknownLanguage(
            f"{PACKAGES_VARIABLE}={directory}: no directory; make it by pip install --target {directory}"
        )
    return os.path.abspath(directory)


def mounts() -> list[tuple[str, str]]:
    """Returns the mounts of all languages and of the packages, as (path on the host, path in the sandbox).

    Raises:
        UnknownLanguage: a path that is named does not exist.
    """
    wanted = [mount for language in languages().values() for mount in language.mounts]
    for host, _ in wanted:
        if not Path(host).exists():
            raise UnknownLanguage(f"{host} does not exist; q needs {Q_VARIABLES}")
    directory = packages()
    return [*wanted, (directory, PACKAGES_INSIDE)] if directory else wanted
