"""Joint checkpoints: both policies and the curriculum at one step, in one directory that appears complete or not at
all.

    checkpoints/step_000012/generator/      Hugging Face format, or PEFT's, with tokenizer, and learner_state/
                            discriminator/  the same
                            state.json      curriculum, counters, score
                            manifest.json   every file with its size and sha256
    checkpoints/best -> step_000012

A checkpoint is written to a temporary directory beside its final path and then renamed. If the process is killed at any
time, the earlier checkpoints stay complete.
"""

import errno
import hashlib
import json
import logging
import os
import shutil
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from sparring.core.errors import SparringError

RUN_STATE = "state.json"
"""File with the run's state in a checkpoint, beside the policies' directories."""
STATE = "learner_state"
"""Directory of optimizer, critic and counters, in each policy's directory."""
ADAPTER = "adapter_config.json"
"""File that a policy's directory contains instead of config.json if it contains a LoRA adapter."""
RETRY_PAUSES_S = (1.0, 4.0)
log = logging.getLogger(__name__)
_HASH_LIMIT = 256 << 20
"""Size in bytes above which only a file's size is checked: hashing tens of GB would take longer than the step."""


class CheckpointError(SparringError):
    """A checkpoint cannot be written or read. The message says what to do."""


class CheckpointStore:
    def __init__(self, root: Path, keep: int) -> None:
        self.root, self._keep = root, keep

    def save(
        self, step: int, policies: Mapping[str, Path], tokenizers: Mapping[str, Any], state: Mapping[str, Any]
    ) -> Path:
        """Copies the policies' directories (by hard link if possible) and writes the state. A failed write is tried
        again after each of RETRY_PAUSES_S. Raises CheckpointError; earlier checkpoints stay as they are."""
        target = self.root / f"step_{step:06d}"
        for pause_s in (*RETRY_PAUSES_S, None):
            try:
                self._check_space(policies)
                self._write(target, policies, tokenizers, state)
                return target
            except Exception as error:
                # copytree wraps OSErrors and the tokenizers library raises other errors: only the message is reliable
                full = os.strerror(errno.ENOSPC) in str(error)
                if not full and not isinstance(error, OSError):
                    raise
                if pause_s is not None:
                    log.warning("%s: %s; trying again in %g s", target, error, pause_s)
                    time.sleep(pause_s)
                    continue
                reason, hint = (
                    (os.strerror(errno.ENOSPC), "free some space") if full else (error, "see the error")
                )
                raise CheckpointError(
                    f"{target}: could not write the checkpoint of step {step} ({reason}); {hint} and "
                    f"continue with --resume; the checkpoints before it are untouched"
                ) from error
        raise AssertionError("the last attempt returns or raises")

    def _check_space(self, policies: Mapping[str, Path]) -> None:
        """Raises OSError (ENOSPC), before anything is written, if the files that cannot be linked will not fit."""
        self.root.mkdir(parents=True, exist_ok=True)
        device = self.root.stat().st_dev
        files = [f for source in policies.values() for f in source.rglob("*") if f.is_file()]
        needed = sum(f.stat().st_size for f in files if f.stat().st_dev != device)
        if needed > shutil.disk_usage(self.root).free:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(self.root))

    def _write(
        self,
        target: Path,
        policies: Mapping[str, Path],
        tokenizers: Mapping[str, Any],
        state: Mapping[str, Any],
    ) -> None:
        draft = self.root / f".draft_{target.name}"
        try:
            shutil.rmtree(draft, ignore_errors=True)
            for name, source in policies.items():
                shutil.copytree(source, draft / name, copy_function=_link_or_copy)
                tokenizers[name].save_pretrained(draft / name)
            _write_json(draft / RUN_STATE, state)
            _write_json(draft / "manifest.json", _manifest(draft))
            self._remove(target)
            os.replace(draft, target)
        except Exception:
            shutil.rmtree(draft, ignore_errors=True)
            raise

    def mark_best(self, checkpoint: Path) -> None:
        link, draft = self.root / "best", self.root / ".best"
        draft.unlink(missing_ok=True)
        draft.symlink_to(checkpoint.name)
        os.replace(draft, link)

    def prune(self, protected: set[str]) -> None:
        """Deletes all checkpoints but the last `keep`, the best one and the protected names. Also deletes what a killed
        process left behind."""
        for left in self.root.glob(".*_step_*"):
            shutil.rmtree(left)
        best = self.root / "best"
        keep = protected | ({os.readlink(best)} if best.is_symlink() else set())
        for old in self._complete()[: -self._keep]:
            if old.name not in keep:
                self._remove(old)

    def _remove(self, checkpoint: Path) -> None:
        """Deletes a checkpoint. For other processes it disappears at once."""
        if checkpoint.exists():
            gone = self.root / f".gone_{checkpoint.name}"
            shutil.rmtree(gone, ignore_errors=True)
            os.replace(checkpoint, gone)
            shutil.rmtree(gone)

    def latest(self) -> Path | None:
        complete = self._complete()
        return complete[-1] if complete else None

    def newest_with(self, policy: str, version: int) -> Path | None:
        """Returns the latest checkpoint whose weights of the policy have this version or an older one, or None."""
        for checkpoint in reversed(self._complete()):
            try:
                state = json.loads((checkpoint / RUN_STATE).read_text("utf-8"))
            except FileNotFoundError:  # it was removed meanwhile, since it is old
                continue
            if state["versions"][policy] <= version:
                return checkpoint
        return None

    def _complete(self) -> list[Path]:
        return sorted(p for p in self.root.glob("step_*") if p.is_dir())


def read_checkpoint(path: Path) -> dict[str, Any]:
    """Returns the checkpoint's state after checking that every file is as the manifest says. Raises CheckpointError."""
    if not path.is_dir():
        raise CheckpointError(f"{path}: no such checkpoint directory; {_siblings(path)}")
    try:
        manifest = json.loads((path / "manifest.json").read_text("utf-8"))
        state = json.loads((path / RUN_STATE).read_text("utf-8"))
    except (OSError, ValueError) as error:
        raise CheckpointError(f"{path}: not a complete checkpoint ({error}); {_siblings(path)}") from error
    for name, expected in manifest.items():
        file = path / name
        if not file.is_file():
            raise CheckpointError(f"{path}: {name} is missing; {_siblings(path)}")
        if file.stat().st_size != expected["bytes"]:
            raise CheckpointError(
                f"{path}: {name} is truncated ({file.stat().st_size} of {expected['bytes']} bytes); {_siblings(path)}"
            )
        if expected["sha256"] and _sha256(file) != expected["sha256"]:
            raise CheckpointError(f"{path}: {name} is corrupted (sha256 differs); {_siblings(path)}")
    if "parts" not in state or any(path.glob(f"*/{STATE}.pt")):
        raise _of_an_older_version(path)
    return state


def _of_an_older_version(checkpoint: Path) -> CheckpointError:
    return CheckpointError(
        f"{checkpoint}: written by an older version, which this one cannot continue; start a new run"
    )


def base_of(model: str | Path) -> str | None:
    """Returns the directory or hub id of the base model of a directory's adapter; None if the directory contains no
    adapter."""
    try:
        return json.loads((Path(model) / ADAPTER).read_text("utf-8"))["base_model_name_or_path"]
    except (FileNotFoundError, NotADirectoryError):
        return None


def check_fits(checkpoint: Path, model: Path, saved: Mapping[str, Any], now: Mapping[str, Any]) -> None:
    """Raises CheckpointError if a policy's checkpoint has other tensors than this run trains.

    Args:
        model: The run's model. Its config is compared only if it is a directory.
        saved, now: The policy's learner settings in the checkpoint and in this run.
    """
    for key in ("estimator.kind", "estimator.critic", "lora"):
        section, _, name = key.partition(".")
        try:
            theirs, ours = (of[section].get(name) if name else of[section] for of in (saved, now))
        except (KeyError, AttributeError):
            raise _of_an_older_version(checkpoint) from None
        if theirs != ours:
            flag = f" (--{checkpoint.name}.learner.{key} {theirs})" if name else ""
            raise CheckpointError(
                f"{checkpoint}: saved with {key} {theirs}, this run uses {ours}: resume with the same {key}{flag} or "
                "start a new run"
            )
    base = base_of(checkpoint)
    if (base is None) == bool(now.get("lora")):
        raise _of_an_older_version(checkpoint)
    place = checkpoint if base is None else Path(base)
    if not model.is_dir() or not place.is_dir():
        return
    try:
        ours, theirs = (json.loads((p / "config.json").read_text("utf-8")) for p in (model, place))
    except OSError as error:
        raise CheckpointError(f"{checkpoint}: no readable config.json ({error})") from error
    for key in ("model_type", "hidden_size", "num_hidden_layers", "num_attention_heads", "vocab_size"):
        if ours.get(key) != theirs.get(key):
            raise CheckpointError(
                f"{checkpoint}: {key} is {theirs.get(key)}, but this run's model ({model}) has {ours.get(key)}: "
                "give the model that the checkpoint was trained from, or another checkpoint"
            )


def _siblings(path: Path) -> str:
    others = sorted(p.name for p in path.parent.glob("step_*") if p.name != path.name)
    return f"others there: {', '.join(others[-3:])}" if others else "no other checkpoint lies beside it"


def _manifest(directory: Path) -> dict[str, dict[str, Any]]:
    files = sorted(p for p in directory.rglob("*") if p.is_file())
    return {
        str(file.relative_to(directory)): {
            "bytes": (size := file.stat().st_size),
            "sha256": _sha256(file) if size <= _HASH_LIMIT else None,
        }
        for file in files
    }


def _sha256(file: Path) -> str:
    with file.open("rb") as handle:
        return hashlib.file_digest(handle, "sha256").hexdigest()


def _link_or_copy(source: str, target: str) -> str:
    try:
        os.link(source, target)
    except OSError as error:
        if error.errno == errno.ENOSPC:
            raise
        shutil.copy2(source, target)  # another file system, or one without links
    return target


def _write_json(path: Path, value: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", encoding="utf-8") as handle:
        json.dump(value, handle, indent=1)
        handle.flush()
        os.fsync(handle.fileno())
