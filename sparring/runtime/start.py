"""Determines what a run starts from: its directory, config, models and checkpoint. Each is checked before anything
loads."""

import json
import os
import time
from collections.abc import Mapping
from functools import cache, partial
from pathlib import Path
from typing import Any

import yaml
from pydantic import ValidationError

from configs.load import Run, latest_run
from configs.schema import Config
from configs.sections import AUTO
from learners.checkpoints import CheckpointStore, base_of, check_fits, read_checkpoint
from learners.mirror import fetch
from sparring.core.errors import SparringError
from sparring.core.project_files import is_example
from sparring.games.prompts import ChatFormat, format_for
from sparring.runtime.architectures import check_generates_text
from sparring.runtime.gguf import converted, source_of
from sparring.runtime.hardware import Hardware, choices, detect, offline_by, said, settled, ways_out
from sparring.runtime.machines import machine_named
from sparring.runtime.parts import Start
from sparring.tracking.progress import say

STARTED_FROM = "started_from.txt"
"""File in the directory of a run that was started from another run's checkpoint (--resume-from). It names that
checkpoint; a second line FRESH is there only with --fresh."""
FRESH = "weights only"


def resolve(run: Run, recipe: str) -> tuple[Config, Start]:
    """Returns the config and the starting point of a run. A resumed run keeps its directory and its saved config."""
    config = run.to_config()
    there = None if run.plan_for is None else machine_named(run.plan_for)
    if (
        config.model_cache is not None
    ):  # before anything imports the hub's library; child processes inherit it
        os.environ["HF_HUB_CACHE"] = str(config.model_cache.resolve())
    models = starting_models(config)
    asked, hardware = config, there or _hardware(config)
    config = fit(config, hardware)
    models |= {role: config.policy(role).model for role in models if models[role] == AUTO}
    fresh = run.fresh
    if not run.resume:
        name = run.run_name or f"{recipe}-{time.strftime('%Y%m%d-%H%M%S')}"
        directory = config.output_dir.resolve() / name
        if (directory / "metrics.jsonl").exists():
            raise SparringError(
                f"{directory}: holds a run already; give another --run-name, or continue with --resume"
            )
        _check_writable(directory)
        checkpoint = _checkpoint(run.resume_from, config.output_dir)
    else:
        directory = latest_run(config.output_dir, run.run_name)
        checkpoint = CheckpointStore(directory / "checkpoints", 1).latest()
        if checkpoint is None:
            checkpoint, fresh = _first_checkpoint(directory)
        saved = yaml.safe_load((directory / "config.yaml").read_text("utf-8"))
        changed = _differences(saved, config.model_dump(mode="json"))
        _check_opponents(directory, saved, config)
        if changed:
            say(f"resuming with other settings than the run began with: {', '.join(changed)}")
    state = read_checkpoint(checkpoint) if checkpoint else None
    if checkpoint and state:
        if missing := [role for role in config.policies if role not in state["versions"]]:
            raise SparringError(
                f"{checkpoint}: a checkpoint of {', '.join(state['versions'])} alone; game {config.game.kind} needs a "
                f"{' and a '.join(missing)} too: give its models instead (--generator-model {checkpoint}/generator)"
            )
        for role in config.policies:
            now = config.policy(role).learner.model_dump(mode="json")
            check_fits(checkpoint / role, Path(models[role]), state["config"][role]["learner"], now)
    if fresh:
        state = None
    found = {role: state["versions"][role] if state else 0 for role in config.policies}
    return config, Start(
        run_directory=directory,
        models=models,
        checkpoint=checkpoint,
        versions=found,
        state=state,
        gpu_bytes=hardware.gpu_bytes,
        nodes=hardware.nodes,
        host_bytes=hardware.host_bytes,
        ways_out=partial(ways_out, asked, hardware),
    )


def _check_opponents(directory: Path, saved: Mapping[str, Any], config: Config) -> None:
    """Raises SparringError if the engines' settings have changed so that they cannot load the past opponents that are
    stored."""
    for role in config.policies:
        if any(directory.glob(f"opponents/{role}-*.npz")):
            was, now = saved[role]["engine"], config.policy(role).engine.model_dump(mode="json")
            for key in ("dtype", "adapter"):
                if (was.get(key) or False) != (now.get(key) or False):
                    raise SparringError(
                        f"{role}.engine.{key} {was.get(key)} -> {now.get(key)}: past opponents in {directory / 'opponents'} "
                        f"were stored with the old value; keep that, or start a new run from a checkpoint "
                        "(--resume-from)"
                    )


def _checkpoint(given: str | Path | None, output_dir: Path) -> Path | None:
    """Returns a checkpoint's directory; fetches it if it is in a mirror. Raises CheckpointError."""
    if isinstance(given, str):
        return fetch(given, output_dir.resolve() / "fetched")
    return given.resolve() if given else None


def fit(config: Config, hardware: Hardware) -> Config:
    """Chooses the settings that the config leaves open to suit the hardware, and prints the hardware and the choices.
    Raises SparringError if the config does not suit the hardware."""
    say(hardware.describe())
    if config.device == "cuda" and not hardware.gpus and (config.local or not os.environ.get("RAY_ADDRESS")):
        raise SparringError(f"device cuda: torch finds no GPU on {hardware.name}; use --device cpu, or auto")
    device = hardware.device if config.device == "auto" else config.device
    uses_vllm = any(config.policy(role).engine.kind == "vllm" for role in config.policies)
    if device == "cuda" and hardware.vllm_for_cpu and uses_vllm:
        raise SparringError(
            "device cuda: the installed vLLM is its CPU build; install the CUDA builds (LOCK=gpu make run), use --device cpu, "
            "or --generator.engine.kind transformers --discriminator.engine.kind transformers"
        )
    if device == "cuda" and hardware.gpus and hardware.capability < hardware.least_capability:
        has, needs = (".".join(map(str, pair)) for pair in (hardware.capability, hardware.least_capability))
        raise SparringError(
            f"{hardware.gpu}: has compute capability {has}, and torch has no kernels below {needs}: use a newer "
            "GPU, install a torch built for this one, or give --device cpu"
        )
    try:
        chosen = choices(config, hardware)
        if chosen:
            say(f"chosen: {said(config, chosen)}")
        return settled(config, chosen)
    except ValidationError as error:  # a setting that is given does not go with the hardware
        reasons = "; ".join(e["msg"].removeprefix("Value error, ") for e in error.errors())
        raise SparringError(f"on {hardware.name} (device {hardware.device}): {reasons}") from error


def _hardware(config: Config) -> Hardware:
    if config.local or not os.environ.get("RAY_ADDRESS"):
        return detect()
    from sparring.runtime.cluster import detect_on_cluster

    return detect_on_cluster(config)


def _first_checkpoint(directory: Path) -> tuple[Path | None, bool]:
    """Returns (the checkpoint that a run started from, whether only its weights were taken), for a run that was killed
    before it saved a checkpoint of its first steps. (None, False) if it started from none."""
    note = directory / STARTED_FROM
    if not note.is_file():
        return None, False
    checkpoint, *more = note.read_text("utf-8").splitlines()
    return Path(checkpoint), more == [FRESH]


def _check_writable(directory: Path) -> None:
    """Raises SparringError if the run's directory cannot be made. To be called before models are loaded."""
    there = next(p for p in (directory, *directory.parents) if p.exists())
    if not there.is_dir() or not os.access(there, os.W_OK | os.X_OK):
        reason = "cannot be written to" if there.is_dir() else "is not a directory"
        raise SparringError(f"{there}: {reason}; give another --output-dir than {directory.parent}")


def _differences(saved: Mapping[str, Any], now: Mapping[str, Any], prefix: str = "") -> list[str]:
    out = []
    for key in sorted(saved.keys() | now.keys()):
        a, b = saved.get(key), now.get(key)
        if isinstance(a, Mapping) and isinstance(b, Mapping):
            out += _differences(a, b, f"{prefix}{key}.")
        elif a != b and key not in ("run_name", "output_dir"):
            out.append(f"{prefix}{key} {a} -> {b}")
    return out


def starting_models(config: Config) -> dict[str, str]:
    """Returns the initial model of each policy: directory or hub id. AUTO is resolved by `fit`.

    Raises SparringError for a path that does not exist.
    """
    models = {}
    for role in config.policies:
        name = config.policy(role).model
        if base := base_of(source_of(name)):
            raise SparringError(
                f"{role}.model {name}: holds an adapter for {base}, which is no model to start from: go on with its run "
                f"(--resume-from), or merge it (python -m sparring export RUN --policy {Path(name).name} --to DIR) and give DIR"
            )
        if name == AUTO:
            _ask_the_hub()
            models[role] = name
        else:
            models[role] = find_model(name, f"{role}.model")
    return models


def find_model(name: str, key: str) -> str:
    """Returns a model's directory or hub id. A GGUF file is converted. Raises SparringError, which names the key, if
    the path does not exist or the file cannot be converted."""
    name = source_of(name)
    path = Path(name).expanduser()
    if path.is_dir():
        return str(path.resolve())
    if path.suffix == ".gguf" and path.is_file():
        return str(converted(path, key))
    file = path.suffix in (".pt", ".pth", ".bin", ".ckpt", ".json", ".safetensors", ".gguf")
    if path.is_absolute() or name.startswith((".", "~")) or name.count("/") != 1 or file:
        raise SparringError(f"{key} {name}: no such directory (and a hub id has the form owner/name)")
    _ask_the_hub()
    return name


@cache
def _ask_the_hub() -> None:
    """Checks once whether the hub answers, and else switches to offline mode. The hub's library would try six times for
    each file, which takes half a minute for each model."""
    if offline_by():
        return
    import httpx2  # the HTTP client of huggingface_hub
    from huggingface_hub import constants, get_session

    try:
        get_session().head(constants.ENDPOINT, timeout=10)
    except httpx2.TransportError as error:
        say(
            f"{constants.ENDPOINT} does not answer ({error}): HF_HUB_OFFLINE is set, models come from the cache"
        )
        os.environ["HF_HUB_OFFLINE"] = "1"  # child processes inherit it
        constants.HF_HUB_OFFLINE = True


def load_tokenizers(models: Mapping[str, str]) -> dict[str, Any]:
    """Returns each policy's tokenizer, by role. Raises SparringError."""
    return {role: load_tokenizer(m, f"{role}.model") for role, m in models.items()}


def end_token_ids(model: str) -> tuple[int, ...]:
    """Returns the tokens that end an answer, by the model's generation config: many models list several there, and
    their tokenizer names only one."""
    from transformers import GenerationConfig

    try:
        ends = GenerationConfig.from_pretrained(base_of(model) or model).eos_token_id
    except OSError:  # the model has none
        ends = None
    return (ends,) if isinstance(ends, int) else tuple(ends or ())


def open_tokenizer(model: str) -> Any:
    """Loads a tokenizer. Raises OSError or ValueError if it cannot be read."""
    from transformers import AutoTokenizer

    tokenizer: Any = AutoTokenizer.from_pretrained(model, trust_remote_code=False)
    for name in tokenizer.SPECIAL_TOKENS_ATTRIBUTES:
        if (
            getattr(tokenizer, name, None) == ""
        ):  # some published tokenizers have empty special tokens, which count as missing
            setattr(tokenizer, name, None)
    return tokenizer


def load_tokenizer(model: str, key: str) -> Any:
    """Checks a model and loads its tokenizer. Raises SparringError, which names the key, if it is no model, or an
    incomplete one."""
    from transformers import AutoConfig

    base = base_of(model) or model
    try:
        check_generates_text(AutoConfig.from_pretrained(base, trust_remote_code=False))
        for place in dict.fromkeys((model, base)):
            _check_weights(Path(place))
        tokenizer = open_tokenizer(model)
        # transformers makes an empty tokenizer if the files of a known class are missing
        if not tokenizer.encode("def f(x): return 1", add_special_tokens=False):
            raise ValueError("its tokenizer gives no tokens for a text: tokenizer.json is missing")
    except Exception as error:  # the library raises many kinds of errors for a faulty config
        reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
        if "trust_remote_code" in str(error):
            reason = "it brings code of its own, which is never run here"
        said = f"cannot be loaded ({reason})"
        if not Path(model).is_dir():
            said = f"no directory {model}; tried as a hub id, it {said}"
        raise SparringError(f"{key} {model}: {said}; {_remedy(model)}") from error
    if is_example(model) and isinstance(format_for(tokenizer), ChatFormat):
        raise SparringError(
            f"{key} {model}: this toy model lacks a stage of sparring/core/stages.py: make it again: python -m lab.examples"
        )
    return tokenizer


def _remedy(model: str) -> str:
    """Returns what to do about a model that cannot be loaded."""
    offline = offline_by()
    if Path(model).is_dir() or offline is None:
        return (
            "give a directory in Hugging Face format, or a hub id that this machine can download. Without a "
            "network: download it elsewhere, copy its directory here and give that, or set HF_HOME to a cache that "
            "holds it and HF_HUB_OFFLINE=1"
        )
    return (
        f"{offline} is set, so nothing is downloaded: give a directory with a copy of it, set HF_HOME to a cache that "
        f"holds it, or connect this machine to a network and unset {offline}"
    )


def _check_weights(model: Path) -> None:
    """Raises ValueError if a model directory has no weights, or lacks a file, or has a damaged one."""
    from safetensors import SafetensorError, safe_open

    if not model.is_dir():
        return
    if not any(any(model.glob(pattern)) for pattern in ("*.safetensors", "pytorch_model*.bin")):
        raise ValueError("no *.safetensors in it")
    index = model / "model.safetensors.index.json"
    named = set(json.loads(index.read_text("utf-8"))["weight_map"].values()) if index.is_file() else set()
    if missing := sorted(name for name in named if not (model / name).is_file()):
        raise ValueError(f"{missing[0]}, which {index.name} names, is not in it")
    for file in model.glob("*.safetensors"):
        try:
            with safe_open(file, "pt"):
                pass
        except SafetensorError as error:
            raise ValueError(f"{file.name} is damaged: {error}") from error
