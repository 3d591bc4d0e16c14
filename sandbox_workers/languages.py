"""The languages of programs under test. A language is data: what its source is called, what builds and runs it."""

import os
from dataclasses import dataclass, field, fields
from pathlib import Path

from core.errors import SparringError
from sandbox_workers import harness

Q_INSIDE = "/opt/q/q"
Q_VARIABLES = (
    "Q_BIN (the q executable), QHOME (the directory of q.k), QLIC (the directory of the licence file)"
)
PACKAGES_VARIABLE, PACKAGES_INSIDE = "SANDBOX_PACKAGES", "/opt/packages"
"""Names a directory of Python packages for programs and tests, and where the sandbox has it."""


class UnknownLanguage(SparringError, ValueError):
    """No such language, or it cannot be run here; the text says what is missing."""


_THREADS = 40
"""Python's default pool has up to 32."""
_STACKS_MB = 32 * 64
"""Address space for the stacks of a pool's threads."""
_NODE = ("node", "--max-old-space-size={heap_mb}")
_GCC = ("gcc", "-O1", "-std=gnu17", "-o", "main")
_BUILD_TESTED = f"{' '.join(_GCC)} run.c -Wl,--wrap=main -lm && rm main.c run.c"


@dataclass(frozen=True, kw_only=True, slots=True)
class Tested:
    """How a program runs with a test's code after it; see `harness`."""

    files: dict[str, str]
    run: tuple[str, ...]
    build: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class Language:
    """How programs of a language run, in their job's directory."""

    name: str
    source: str
    """File name of the program."""
    run: tuple[str, ...]
    """{heap_mb} stands for three quarters of `Limits.memory_mb`."""
    build: tuple[str, ...] = ()
    """Run once per program, with five times a test's limits."""
    tested: Tested | None = None
    """None: a test's code is appended to the program."""
    extra_memory_mb: int = 0
    """Address space beyond `Limits.memory_mb`, for what the interpreter or its threads reserve, MiB."""
    resident_mb: int = 0
    """How much of it may be resident, MiB."""
    build_memory_mb: int = 512
    processes: int = 1
    """Least `Limits.processes`: threads of the interpreter count."""
    environment: dict[str, str] = field(default_factory=dict)
    mounts: tuple[tuple[str, str], ...] = ()
    """(path on the host, path in the sandbox), read-only: what the image does not hold."""

    def message(self) -> dict:
        """What the runner needs of it. Nothing is copied: each job says it."""
        told = {name: getattr(self, name) for name in _TOLD}
        if self.tested is not None:
            told["tested"] = {name: getattr(self.tested, name) for name in Tested.__slots__}
        return told

    def commands(self) -> set[str]:
        """Programs that must exist in the sandbox."""
        return {
            command[0] for command in (self.build, self.run) if command and not command[0].startswith("./")
        }


_TOLD = tuple(part.name for part in fields(Language) if part.name not in ("name", "mounts"))


def _q() -> Language:
    """kdb+/q is proprietary: the user's own installation is mounted, as the environment names it."""
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
        tested=Tested(files=harness.PYTHON, run=("python3", "run.py")),
        environment={"PYTHONINTMAXSTRDIGITS": "0"},  # contests ask for numbers of any length
        extra_memory_mb=_STACKS_MB,
        processes=_THREADS,
    ),
    Language(
        name="javascript",
        source="main.js",
        run=(*_NODE, "main.js"),
        tested=Tested(files=harness.JAVASCRIPT, run=(*_NODE, "run.js")),
        extra_memory_mb=2048,  # reserved for compiled code, stacks of threads and the heap
        resident_mb=80,
        processes=16,
        environment={"OPENSSL_CONF": "/dev/null"},  # node ends where it may not read the system's
    ),
    Language(
        name="lua",
        source="main.lua",
        run=("lua5.4", "main.lua"),
        tested=Tested(files=harness.LUA, run=("lua5.4", "run.lua")),
    ),
    Language(
        name="bash",
        source="main.sh",
        run=("bash", "main.sh"),
        tested=Tested(files=harness.BASH, run=("bash", "run.sh")),
        processes=16,
    ),
    Language(
        name="c",
        source="main.c",
        build=(*_GCC, "main.c", "-lm"),
        run=("./main",),
        tested=Tested(files=harness.C, build=("sh", "-c", _BUILD_TESTED), run=("./main",)),
        extra_memory_mb=_STACKS_MB,
        processes=_THREADS,
    ),
)


def languages() -> dict[str, Language]:
    """All that are known, by name; whether their commands exist is the sandbox's to say."""
    return {language.name: language for language in (*_OURS, _q())}


def language_of(name: str) -> Language:
    """Raise UnknownLanguage where there is none of this name."""
    known = languages()
    if name not in known:
        raise UnknownLanguage(f"no language {name!r}; known: {', '.join(known)}")
    return known[name]


def require_commands(name: str, found: set[str]) -> None:
    """Raise UnknownLanguage where a command of the language is not among those found in the sandbox."""
    missing = language_of(name).commands() - found
    if not missing:
        return
    if name == "q":
        raise UnknownLanguage(f"q is not part of Sparring: set {Q_VARIABLES}, then start again")
    raise UnknownLanguage(
        f"{name} cannot run: the sandbox has no {', '.join(sorted(missing))}: install it on this machine, or judge by "
        "Docker (make engine), whose image has it"
    )


def all_commands() -> list[str]:
    return sorted({command for language in languages().values() for command in language.commands()})


def packages() -> str | None:
    """The directory on this host that programs import from, besides the standard library.

    Raises:
        UnknownLanguage: it does not exist.
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
    """Of all languages, and of the packages.

    Raises:
        UnknownLanguage: a path that is named does not exist.
    """
    wanted = [mount for language in languages().values() for mount in language.mounts]
    for host, _ in wanted:
        if not Path(host).exists():
            raise UnknownLanguage(f"{host} does not exist; q needs {Q_VARIABLES}")
    directory = packages()
    return [*wanted, (directory, PACKAGES_INSIDE)] if directory else wanted
