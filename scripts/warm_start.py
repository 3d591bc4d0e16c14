"""Warm start: short supervised training before the game, so that play has something to improve.

Two uses:
  * the embedded models: built, trained on rendered demonstrations with systematic misconceptions, and cached by
    the hash of everything that goes in. A run does this by itself where its recipe needs others than the shipped ones.
  * python -m scripts.warm_start shipped
    makes those of the default recipe again, which are in the repository (SHIPPED): the same bits on the same kind of
    machine.
"""

import argparse
import hashlib
import json
import multiprocessing
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from importlib.metadata import version
from pathlib import Path
from random import Random
from typing import Any

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from configs.load import load_run
from configs.schema import Config
from core.seeding import derive_seed
from games.prompts import END, MARKER_TOKENS, PAD, format_for
from games.stages import REASONING_STAGES
from tracking.run_record import cpu_model, versions

_ROOT = Path(__file__).resolve().parent.parent
SHIPPED = _ROOT / "embedded" / "warm_start"
"""A directory per policy of the default recipe, and made_from.json."""
_MADE_FROM = "made_from.json"
_SOURCES = (
    "embedded/model.py", "embedded/supervised.py", "games/prompts.py", "games/stages.py",
    "core/seeding.py", "scripts/warm_start.py", "embedded/lessons.py",
)  # fmt: skip
_GRAMMAR = tuple(f"embedded/{name}.py" for name in ("problems", "grammar", "sampling", "misconceptions"))
_SOURCES_OF_GAME = {
    "multistage": (*_GRAMMAR, "embedded/traces.py"),
    "code_execution": (*_GRAMMAR, "embedded/code_execution.py"),
    "unit_tests": (*_GRAMMAR, "embedded/lua.py"),
    "output_prediction": ("embedded/prediction.py",),
    "code_golf": (
        "problems/grids.py",
        "embedded/grid_families.py",
        "embedded/grid_tasks.py",
    ),
    "tictactoe": ("games/boards.py",),
    "kuhn": ("games/boards.py", "games/kuhn.py"),
}


def cache_directory() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "sparring" / "warm_start"


def find_embedded(config: Config, role: str) -> Path:
    """Directory of a policy's warm-started embedded model: the shipped one where it is what the config asks for, else
    one of the cache, which may have to be made."""
    return _shipped(config, role) or cache_directory() / _key(config, role)


def ensure_embedded(config: Config, roles: Sequence[str]) -> dict[str, Path]:
    """Directories of these policies' embedded models, made where they are not there."""
    targets = {role: find_embedded(config, role) for role in roles}
    missing = {role: target for role, target in targets.items() if not target.is_dir()}
    if missing:
        make_embedded(config, missing)
    return targets


def _asked(config: Config, role: str) -> dict[str, Any]:
    """What a config says of an embedded model."""
    other = "discriminator" if role == "generator" else "generator"
    settings = {k: v for k, v in config.warm_start.model_dump().items() if not k.startswith(other)}
    told = getattr(config.game, "max_tests", None) if config.staged else dict(config.seats)
    stages = [stage.name for stage in REASONING_STAGES]  # each has a token of its own
    return {"game": config.game.kind, "role": role, "told": told, "stages": stages, "settings": settings}


def _shipped(config: Config, role: str) -> Path | None:
    try:
        made_from = json.loads((SHIPPED / _MADE_FROM).read_text())
    except OSError:  # a copy of the sources alone
        return None
    return SHIPPED / role if made_from["models"].get(role, {}).get("asked") == _asked(config, role) else None


def _key(config: Config, role: str) -> str:
    """Name in the cache, with a hash of everything that decides the weights."""
    kind = config.game.kind
    sha = hashlib.sha256()
    for name in (*_SOURCES, *_SOURCES_OF_GAME[kind]):
        sha.update((_ROOT / name).read_bytes())
    versions = [version(name).split("+")[0] for name in ("torch", "transformers", "tokenizers")]
    sha.update(json.dumps([_asked(config, role), versions], sort_keys=True).encode())
    return f"{kind}-{role}-{sha.hexdigest()[:16]}"


def fingerprint(config: Config, role: str, demonstrations: int = 64) -> str:
    """Hash of what an embedded model is made from: what is asked for, its tokenizer, the first demonstrations as it
    reads them, and the sources of the model and of how it learns. Takes some seconds."""
    _, tokenizer, draw = _student(config, role)
    shown = [draw() for _ in range(demonstrations)]
    sha = hashlib.sha256()
    sha.update(json.dumps(_asked(config, role), sort_keys=True).encode())
    sha.update(tokenizer.backend_tokenizer.to_str().encode())
    sha.update(json.dumps([[d.tokens, d.learned] for d in shown]).encode())
    for name in ("embedded/model.py", "embedded/supervised.py"):
        sha.update((_ROOT / name).read_bytes())
    return sha.hexdigest()


def ship(directory: Path = SHIPPED) -> None:
    """Make the default recipe's models again."""
    config = load_run([])[0].to_config()
    directory.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=directory.parent) as drafts:
        make_embedded(config, {role: Path(drafts) / role for role in config.policies})
        for role in config.policies:
            shutil.rmtree(directory / role, ignore_errors=True)
            (Path(drafts) / role).rename(directory / role)
    models = {r: {"asked": _asked(config, r), "fingerprint": fingerprint(config, r)} for r in config.policies}
    made_on = {"cpu": cpu_model(), "versions": versions()}
    (directory / _MADE_FROM).write_text(json.dumps({"models": models, "made_on": made_on}, indent=1) + "\n")
    print(f"made in {directory}")


def make_embedded(config: Config, targets: Mapping[str, Path]) -> None:
    """One process per role, one thread each: the result does not depend on how many cores there are."""
    context = multiprocessing.get_context("spawn")
    print("warming up the embedded models on demonstrations: some minutes, once", flush=True)
    with context.Manager() as manager, ProcessPoolExecutor(len(targets), mp_context=context) as pool:
        done = manager.dict(dict.fromkeys(targets, 0))
        futures = [
            pool.submit(_train_embedded, config, role, target, done) for role, target in targets.items()
        ]
        with _progress() as progress:
            bars = {
                role: progress.add_task(f"warm start {role}", total=_steps(config, role)) for role in targets
            }
            while any(not f.done() for f in futures):
                for role, bar in bars.items():
                    progress.update(bar, completed=done[role])
                time.sleep(0.3)
            for role, bar in bars.items():
                progress.update(bar, completed=done[role])
        for future in futures:
            future.result()


def _steps(config: Config, role: str) -> int:
    settings = config.warm_start
    return settings.generator_steps if role == "generator" else settings.discriminator_steps


def _progress() -> Progress:
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        transient=False,
    )


def _student(config: Config, role: str) -> tuple[Any, Any, Callable[[], Any]]:
    """(model, tokenizer, what draws its next demonstration) of an embedded model that has learned nothing yet."""
    from embedded.lessons import lesson_of
    from embedded.model import build_model, build_tokenizer

    seed, lesson = config.warm_start.seed, lesson_of(config, role)
    tokenizer = build_tokenizer(lesson.texts, MARKER_TOKENS, PAD, END)
    model = build_model(tokenizer, seed=derive_seed("model", role, seed))
    style, rng = format_for(tokenizer, "input_only"), Random(derive_seed("demonstrations", role, seed))
    return model, tokenizer, lambda: lesson.draw(style, rng)


def _train_embedded(config: Config, role: str, target: Path, done: Any) -> None:
    """Build, train and save one embedded model (in a process of its own)."""
    import torch
    from transformers.utils import logging as transformers_logging

    from embedded.supervised import train_supervised

    torch.set_num_threads(1)
    transformers_logging.disable_progress_bar()
    settings = config.warm_start
    model, tokenizer, draw = _student(config, role)
    parent = os.getppid()

    def report(step: int, loss: float) -> None:
        if step % 10 == 0:
            if os.getppid() != parent:  # whoever wanted this was killed
                os._exit(1)
            done[role] = step

    train_supervised(
        model,
        draw,
        steps=_steps(config, role),
        batch_size=settings.batch_size,
        learning_rate=settings.learning_rate,
        on_step=report,
    )
    done[role] = _steps(config, role)
    _save(model, tokenizer, target)


def _save(model: Any, tokenizer: Any, target: Path) -> None:
    """Write beside the target and rename: a directory that is there is complete."""
    target.parent.mkdir(parents=True, exist_ok=True)
    draft = Path(tempfile.mkdtemp(prefix=".draft-", dir=target.parent))
    model.save_pretrained(draft)
    tokenizer.save_pretrained(draft)
    try:
        draft.rename(target)
    except OSError:  # another process was quicker; its result is the same
        if not target.is_dir():
            raise
        shutil.rmtree(draft)


def main() -> None:
    parser = argparse.ArgumentParser(description="Make the embedded models that are in the repository again.")
    parser.add_argument("models", choices=["shipped"])
    parser.parse_args()
    ship()


if __name__ == "__main__":
    main()
