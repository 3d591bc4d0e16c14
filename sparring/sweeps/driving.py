"""Runs driver.py in a separate process, and reads the rows that it writes meanwhile."""

import ctypes
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from sparring.core.errors import RunFailed
from sparring.tracking.rows import read_rows

_ROOT = Path(__file__).resolve().parents[2]
_LOOK_EVERY_S = 0.2
_TO_END_S = 30.0
_PR_SET_PDEATHSIG = 1
_KEPT = ("RAY_ADDRESS", "RAY_TMPDIR")
"""Ray's variables that the user sets. A worker of Ray has others, which would make its child process a part of the
worker."""
_libc = ctypes.CDLL(None)


class DriverProcess:
    """A process of driver.py. It ends when the process that started it ends, however that happens."""

    def __init__(
        self,
        run: Path,
        arguments: Sequence[str],
        log: Path,
        directory: str = "",
        omp_threads: str | None = None,
    ) -> None:
        """A run that exists already is resumed.

        Args:
            arguments: arguments of driver.py
            directory: working directory, if this machine has it. Default: the repository
            omp_threads: value of OMP_NUM_THREADS, which Ray sets to 1 in its workers. Default: unset
        """
        self._run, self._log = run, log
        resume = ["--resume"] if (run / "config.yaml").is_file() else []
        environment = {k: v for k, v in os.environ.items() if not k.startswith("RAY_") or k in _KEPT}
        environment.pop("OMP_NUM_THREADS", None)
        if omp_threads is not None:
            environment["OMP_NUM_THREADS"] = omp_threads
        self._log_begins = log.stat().st_size if log.is_file() else 0
        with log.open("a", encoding="utf-8") as out:
            self._process = subprocess.Popen(
                [sys.executable, str(_ROOT / "driver.py"), *arguments, *resume],
                cwd=directory if os.path.isdir(directory) else _ROOT,
                env=environment | {"PYTHONUNBUFFERED": "1"},
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                start_new_session=True,  # a Ctrl-C is for the sweep, which ends its runs itself
                preexec_fn=lambda: _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM),
            )

    def rows(self, after: int = 0) -> Iterator[dict[str, Any]]:
        """Yields the rows of later steps, as they are written, until the run ends. Raises RunFailed if the run
        fails."""
        file, seen = self._run / "metrics.jsonl", 0
        while True:
            ended = self._process.poll() is not None
            size = file.stat().st_size if file.is_file() else 0
            if size != seen:  # the file is long, and is looked at five times a second
                seen = size
                for row in read_rows(file):
                    if row["step"] > after:
                        after = row["step"]
                        yield row
            if ended:
                break
            time.sleep(_LOOK_EVERY_S)
        if self._process.returncode:
            raise RunFailed(self._reason())

    def checkpoint(self, step: int) -> Path:
        """Returns the checkpoint of a step whose row exists: it is saved a moment later. Raises RunFailed if the run
        ends before that."""
        path = self._run / "checkpoints" / f"step_{step:06d}"
        while not path.is_dir():
            if self._process.poll() is not None and not path.is_dir():
                raise RunFailed(f"ended without the checkpoint {path}")
            time.sleep(_LOOK_EVERY_S)
        return path

    def stop(self) -> None:
        if self._process.poll() is not None:
            return
        self._process.terminate()
        try:
            self._process.wait(_TO_END_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def _reason(self) -> str:
        code = self._process.returncode
        if code < 0:
            return f"killed by {signal.Signals(-code).name} (see {self._log})"
        with self._log.open("rb") as log:
            log.seek(self._log_begins)  # earlier tries have written before
            text = log.read().decode(errors="replace")
        lines = [line for line in text.splitlines() if line.strip()]
        said = [line.removeprefix("error: ") for line in lines if line.startswith("error: ")]
        return (said or lines or [f"exit status {code}"])[-1].strip()
