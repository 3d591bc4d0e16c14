"""Copies of a run's checkpoints in an object store: MIRROR/RUN/step_000012, in the file systems of pyarrow (s3:// with
any S3-compatible server, gs://, file://).

The manifest is the file of a checkpoint that is written last and deleted first: a directory without a manifest is no
checkpoint.
"""

import logging
import re
import shutil
import tempfile
import time
from pathlib import Path
from typing import Any

from learners.checkpoints import RETRY_PAUSES_S, CheckpointError
from sparring.core.settings import refuse_password

_MANIFEST = "manifest.json"
_TO_START = ("config.yaml", "bank.json")
"""Files of the run's directory that are needed to start from a checkpoint."""
_OF_THE_RUN = (*_TO_START, "metrics.jsonl")
"""Files of the run's directory that are copied with its checkpoints. metrics.jsonl is never fetched back, since a
fetched checkpoint is no run of this machine."""
_STEP = re.compile(r"step_\d+")
log = logging.getLogger(__name__)


class Mirror:
    """The copies of one run's checkpoints."""

    def __init__(self, uri: str, run: str) -> None:
        """Opens the object store. Raises CheckpointError."""
        self._uri, self._files, place = uri, *_open(uri)
        self._place = f"{place}/{run}"

    def check(self, begins: bool) -> None:
        """Checks that the mirror can be written to, and that it holds no checkpoints of another run if this run only
        begins. Raises CheckpointError."""
        probe = f"{self._place}/.writable"
        try:
            if begins and _steps(self._files, self._place):
                name = self._place.rpartition("/")[2]
                raise CheckpointError(
                    f"checkpoint.mirror {self._uri}: holds checkpoints of a run {name}, which this one would replace; "
                    "give another --run-name, or delete them"
                )
            new = not _exists(self._files, self._place)
            self._files.create_dir(self._place)
            with self._files.open_output_stream(probe) as stream:
                stream.write(b"\n")
            self._files.delete_file(probe)
            if new:  # --plan leaves nothing behind
                self._files.delete_dir(self._place)
        except OSError as error:
            raise CheckpointError(f"checkpoint.mirror {self._uri}: {_reason(error)}; {_HINT}") from error

    def send(self, checkpoint: Path) -> None:
        """Copies a checkpoint to the mirror. A failed copy is tried again after each of RETRY_PAUSES_S. Raises OSError."""
        for pause_s in (*RETRY_PAUSES_S, None):
            try:
                return self._send(checkpoint)
            except OSError as error:
                if pause_s is None:
                    raise
                log.warning("%s: %s; trying again in %g s", self._uri, _reason(error), pause_s)
                time.sleep(pause_s)

    def _send(self, checkpoint: Path) -> None:
        from pyarrow.fs import LocalFileSystem, copy_files

        def copy(part: Path, target: str) -> None:
            copy_files(
                str(part), target, source_filesystem=LocalFileSystem(), destination_filesystem=self._files
            )

        target = f"{self._place}/{checkpoint.name}"
        self._delete(target)  # left by an earlier try, or by the run before it was resumed
        self._files.create_dir(target)
        for name in _OF_THE_RUN:
            if (file := checkpoint.parent.parent / name).is_file():
                copy(file, f"{self._place}/{name}")
        for part in sorted(checkpoint.iterdir(), key=lambda p: p.name == _MANIFEST):
            if part.is_dir():
                self._files.create_dir(f"{target}/{part.name}")
            copy(part, f"{target}/{part.name}")

    def match(self, checkpoints: Path) -> None:
        """Copies the steps of this directory that the mirror lacks, and deletes all others from the mirror. This
        includes what an earlier failure left undone. Raises OSError."""
        here = {path.name: path for path in sorted(checkpoints.glob("step_*"))}
        for name, checkpoint in here.items():
            if not _exists(self._files, f"{self._place}/{name}/{_MANIFEST}"):
                self.send(checkpoint)
        for there in _steps(self._files, self._place):
            if there.rpartition("/")[2] not in here:
                self._delete(there)

    def _delete(self, checkpoint: str) -> None:
        if _exists(self._files, f"{checkpoint}/{_MANIFEST}"):
            self._files.delete_file(f"{checkpoint}/{_MANIFEST}")
        if _exists(self._files, checkpoint):
            self._files.delete_dir(checkpoint)


def fetch(uri: str, into: Path) -> Path:
    """Fetches the checkpoint that uri names, or the newest one of the run that it names, and returns its path,
    into/RUN/checkpoints/step_000012. Runs that begin from it at the same time, such as those of a sweep, find it
    complete.

    Raises CheckpointError.
    """
    from pyarrow.fs import LocalFileSystem, copy_files

    files, place = _open(uri)
    try:
        if not _exists(files, f"{place}/{_MANIFEST}"):
            whole = [step for step in _steps(files, place) if _exists(files, f"{step}/{_MANIFEST}")]
            if not whole:
                raise CheckpointError(f"{uri}: neither a whole checkpoint nor a run that has one; {_HINT}")
            place = whole[-1]
        run, _, step = place.rpartition("/")
        directory = into / run.rpartition("/")[2]
        target = directory / "checkpoints" / step
        with files.open_input_stream(f"{place}/{_MANIFEST}") as stream:
            manifest = stream.readall()

        def there() -> bool:
            return (target / _MANIFEST).is_file() and (target / _MANIFEST).read_bytes() == manifest

        if there():
            return target
        target.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=directory, prefix=".fetching-") as draft:
            part = Path(draft, step)
            part.mkdir()
            here = LocalFileSystem()
            copy_files(place, str(part), source_filesystem=files, destination_filesystem=here)
            for name in _TO_START:
                if _exists(files, f"{run}/{name}"):
                    file = Path(draft, name)
                    copy_files(
                        f"{run}/{name}", str(file), source_filesystem=files, destination_filesystem=here
                    )
                    file.replace(directory / name)
            try:
                part.rename(target)
            except OSError:  # the directory exists
                if not there():
                    shutil.rmtree(target)
                    part.rename(target)
    except OSError as error:
        raise CheckpointError(f"{uri}: {_reason(error)}; {_HINT}") from error
    return target


_HINT = (
    "the address has the form s3://BUCKET/PREFIX (of another server than Amazon's: "
    "s3://BUCKET/PREFIX?scheme=http&endpoint_override=HOST:PORT), with credentials as in AWS_ACCESS_KEY_ID and "
    "AWS_SECRET_ACCESS_KEY"
)


def _open(uri: str) -> tuple[Any, str]:
    """Returns (file system, path). Raises CheckpointError."""
    from pyarrow.fs import FileSystem

    try:
        refuse_password("mirror", uri, "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY")
    except ValueError as error:
        raise CheckpointError(str(error)) from None

    try:
        files, place = FileSystem.from_uri(uri)
    except (OSError, ValueError) as error:  # pyarrow raises both
        raise CheckpointError(f"{uri}: {_reason(error)}; {_HINT}") from error
    return files, place.rstrip("/")


def _steps(files: Any, run: str) -> list[str]:
    """Returns the paths of a run's checkpoints, complete or not, from the oldest to the newest."""
    from pyarrow.fs import FileSelector

    found = files.get_file_info(FileSelector(run, allow_not_found=True))
    return sorted(f.path for f in found if _STEP.fullmatch(f.base_name))


def _exists(files: Any, path: str) -> bool:
    from pyarrow.fs import FileType

    return files.get_file_info(path).type != FileType.NotFound


def _reason(error: Exception) -> str:
    return str(error).strip().splitlines()[0]
