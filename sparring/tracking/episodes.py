"""Writes episodes.jsonl: one row per attempt for training. The rollout actors make the rows (actors/rows.py).

Held-out attempts are not written there.
"""

from collections.abc import Iterable
from pathlib import Path

from sparring.tracking.rows import keep_steps

FILE_BYTES = 64 << 20
OLDER_FILES = 4


class EpisodeLog:
    """Writes the newest rows to episodes.jsonl. Older rows are in episodes.1.jsonl, episodes.2.jsonl …"""

    def __init__(self, directory: Path, file_bytes: int = FILE_BYTES) -> None:
        """file_bytes: size at which a new file is begun."""
        self._directory, self._file_bytes = directory, file_bytes
        self._said = False

    def clear(self) -> None:
        for file in episode_files(self._directory):
            file.unlink()

    def forget_after(self, step: int) -> None:
        for file in episode_files(self._directory):
            keep_steps(file, step)

    def add(self, lines: Iterable[bytes]) -> str | None:
        """Appends rows. Returns a message for the user when a new file is begun for the first time, else None."""
        file = self._directory / "episodes.jsonl"
        with file.open("ab") as handle:
            handle.writelines(lines)
            full = handle.tell() >= self._file_bytes
        if not full:
            return None
        for number in range(OLDER_FILES, 0, -1):
            newer = self._file(number - 1)
            if newer.exists():
                newer.replace(self._file(number))
        if self._said:
            return None
        self._said = True
        return (
            f"{file} reached {self._file_bytes >> 20} MiB, so a new file is begun; the last {OLDER_FILES} are kept "
            "(episodes.1.jsonl is the newest of them), and older rows are deleted"
        )

    def _file(self, number: int) -> Path:
        return self._directory / (f"episodes.{number}.jsonl" if number else "episodes.jsonl")


def episode_files(directory: Path) -> list[Path]:
    """Returns the existing files, the one with the oldest rows first."""
    older = [directory / f"episodes.{number}.jsonl" for number in range(OLDER_FILES, 0, -1)]
    return [file for file in (*older, directory / "episodes.jsonl") if file.is_file()]
