"""Every program that solved something, in one SQLite file, best programs first; a run keeps its own.

A program is added in one transaction, so that a killed process leaves what it had added; any number of processes may
read and write at once (write-ahead log: on a local disk, not on a network file system).
"""

import ast
import hashlib
import sqlite3
import time
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

from core.source import parse

_SCHEMA = """
CREATE TABLE IF NOT EXISTS solutions (
    id INTEGER PRIMARY KEY,
    problem_id TEXT NOT NULL,
    implementation BLOB NOT NULL,  -- see implementation()
    program TEXT NOT NULL,
    pass_rate REAL NOT NULL,
    bytes INTEGER NOT NULL,        -- of the program in UTF-8
    step INTEGER NOT NULL,
    found_at REAL NOT NULL,        -- seconds since 1970
    UNIQUE (problem_id, implementation, step)  -- an earlier text is kept: a run may be resumed from before the later one
);
CREATE INDEX IF NOT EXISTS ranking ON solutions (problem_id, pass_rate DESC, bytes, id);
"""
_FIELDS = "problem_id, program, pass_rate, bytes, step, found_at"
_WAIT_S = 30.0
"""How long to wait for another process's write."""


@dataclass(frozen=True, slots=True)
class Solution:
    problem_id: str
    program: str
    pass_rate: float
    bytes: int
    """Of the program in UTF-8."""
    step: int
    """Of the run that found it."""
    found_at: float
    """Seconds since 1970."""


class SolutionDatabase:
    """Close it, or use it as a context manager. For the thread that opened it.

    Example:
        with SolutionDatabase(directory / "solutions.sqlite") as solutions:
            solutions.add("task001", "p=lambda g:g[::-1]", pass_rate=1.0, step=12)
            shortest = solutions.best("task001")[0].program
    """

    def __init__(self, path: str | Path) -> None:
        """Opens the file, or makes it with its directory. Raises ValueError if it is no such database."""
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        try:
            self._connection = sqlite3.connect(path, timeout=_WAIT_S, isolation_level=None)
            self._prepare()
        except sqlite3.Error as error:
            raise ValueError(f"{path}: no database of solutions ({error}); name another file") from None

    def _prepare(self) -> None:
        """While another process does the same to a new file, SQLite refuses at once instead of waiting."""
        until = time.monotonic() + _WAIT_S
        while True:
            try:
                self._connection.execute("PRAGMA journal_mode=WAL")
                self._connection.execute("PRAGMA synchronous=NORMAL")
                self._connection.executescript(_SCHEMA)
                return
            except sqlite3.OperationalError as error:
                if "locked" not in str(error) or time.monotonic() > until:
                    raise
                time.sleep(0.02)

    def add(
        self, problem_id: str, program: str, *, pass_rate: float, step: int, found_at: float | None = None
    ) -> bool:
        """True if this is a new implementation, or ranks above the text that was kept of it; False changes nothing.

        found_at: seconds since 1970; None: now.
        """
        size, of = len(program.encode()), implementation(program)
        added = self._connection.execute(
            f"INSERT INTO solutions ({_FIELDS}, implementation) SELECT ?, ?, ?, ?, ?, ?, ? WHERE NOT EXISTS "
            "(SELECT 1 FROM solutions WHERE problem_id = ? AND implementation = ? AND (pass_rate, -bytes) >= (?, ?)) "
            "ON CONFLICT (problem_id, implementation, step) DO UPDATE SET program = excluded.program, "
            "pass_rate = excluded.pass_rate, bytes = excluded.bytes, found_at = excluded.found_at",
            (
                *(problem_id, program, pass_rate, size, step),
                time.time() if found_at is None else found_at,
                *(of, problem_id, of, pass_rate, -size),
            ),
        )
        return added.rowcount > 0

    def best(self, problem_id: str, count: int = 1) -> list[Solution]:
        """The first `count` of a problem, an implementation once: by pass rate, then bytes, then age."""
        ranked = (
            f"SELECT {_FIELDS} FROM solutions AS one WHERE problem_id = ? AND NOT EXISTS (SELECT 1 FROM solutions AS better "
            "WHERE better.problem_id = one.problem_id AND better.implementation = one.implementation "
            "AND (better.pass_rate, -better.bytes) > (one.pass_rate, -one.bytes)) "
            "ORDER BY pass_rate DESC, bytes, id LIMIT ?"
        )
        return [Solution(*row) for row in self._connection.execute(ranked, (problem_id, count))]

    def forget_after(self, step: int) -> None:
        """For a run that goes on from an earlier step: what it found later, it will find again."""
        self._connection.execute("DELETE FROM solutions WHERE step > ?", (step,))

    def close(self) -> None:
        """Idempotent."""
        self._connection.close()

    def __enter__(self) -> "SolutionDatabase":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()


def implementation(program: str) -> bytes:
    """What two texts of one program share: a hash of the syntax tree, thus without comments and layout. Of a text
    that is not Python, or too long to be read, a hash of the text."""
    try:
        essence = ast.dump(parse(program))  # deeper than parsing
    except (SyntaxError, MemoryError, RecursionError):
        essence = program.strip()
    return hashlib.sha256(essence.encode("utf-8", "surrogatepass")).digest()
