"""A SQLite database of all programs that solved a problem, ranked best first. Each run has its own file.

Each program is added in one transaction, so that the programs added by a killed process remain. Any number of processes may
read and write at the same time (by a write-ahead log, which needs a local disk, not a network file system).
"""

import ast
import hashlib
import sqlite3
import time
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

from sparring.core.source import parse

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
"""Maximum time to wait for another process's write."""


@dataclass(frozen=True, slots=True)
class Solution:
    problem_id: str
    program: str
    pass_rate: float
    bytes: int
    """Length of the program in UTF-8, in bytes."""
    step: int
    """Training step of the run in which the program was found."""
    found_at: float
    """Seconds since 1970."""


class SolutionDatabase:
    """The database. It must be closed or used as a context manager, and used only in the thread that opened it.

    Example:
        with SolutionDatabase(directory / "solutions.sqlite") as solutions:
            solutions.add("task001", "p=lambda g:g[::-1]", pass_rate=1.0, step=12)
            shortest = solutions.best("task001")[0].program
    """

    def __init__(self, path: str | Path) -> None:
        """Opens the file, or creates it with its directory. Raises ValueError if the file is not a database of solutions."""
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        try:
            self._connection = sqlite3.connect(path, timeout=_WAIT_S, isolation_level=None)
            self._prepare()
        except sqlite3.Error as error:
            raise ValueError(f"{path}: no database of solutions ({error}); name another file") from None

    def _prepare(self) -> None:
        """Creates the tables, with retries: while another process creates them in a new file, SQLite fails at once instead
        of waiting."""
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
        """Adds a program if its implementation is new, or if it ranks above all stored texts of the same implementation.

        Args:
            found_at: seconds since 1970. Default: now.

        Returns:
            Whether the program was added.
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
        """Returns the `count` best solutions of a problem, one per implementation, by pass rate, then bytes, then age."""
        ranked = (
            f"SELECT {_FIELDS} FROM solutions AS one WHERE problem_id = ? AND NOT EXISTS (SELECT 1 FROM solutions AS better "
            "WHERE better.problem_id = one.problem_id AND better.implementation = one.implementation "
            "AND (better.pass_rate, -better.bytes) > (one.pass_rate, -one.bytes)) "
            "ORDER BY pass_rate DESC, bytes, id LIMIT ?"
        )
        return [Solution(*row) for row in self._connection.execute(ranked, (problem_id, count))]

    def forget_after(self, step: int) -> None:
        """Removes the programs found after a step, for a run that is resumed from that step and will find them again."""
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
    """Returns a hash that all texts of one implementation share: a hash of the syntax tree, so that comments and layout do
    not matter. If the text cannot be parsed, a hash of the text."""
    try:
        essence = ast.dump(parse(program))  # recurses deeper than parsing
    except (SyntaxError, MemoryError, RecursionError):
        essence = program.strip()
    return hashlib.sha256(essence.encode("utf-8", "surrogatepass")).digest()
