"""Trains toy models on demonstrations, so that play has something to improve, and caches them."""

import hashlib
import json
import multiprocessing
import os
import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ProcessPoolExecutor
from importlib.metadata import version
from itertools import islice
from pathlib import Path
from random import Random
from typing import Any

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from lab.catalogue import lesson_for
from lab.lessons import Demonstration
from lab.settings import WarmUp
from sparring.core.project_files import EXAMPLES
from sparring.core.seeding import derive_seed
from sparring.games.prompts import END, MARKER_TOKENS, PAD, format_for
from sparring.games.rules import Rules
from sparring.runtime.gguf import cache_directory, save_model

_TEXTS, _DEMONSTRATIONS = 256, 64
"""Number of texts and of demonstrations that enter `identity`. The cache's key covers the sources of this package as well."""


def cached_model(role: str, rules: Rules, settings: WarmUp) -> Path:
    """Returns the cache's directory for a policy's toy model, which may not exist yet. Raises ProblemFileError."""
    known = identity(role, rules, settings)
    versions = [version(name).split("+")[0] for name in ("torch", "transformers", "tokenizers")]
    sources = [source.read_text("utf-8") for source in sorted(Path(__file__).parent.glob("*.py"))]
    key = hashlib.sha256(json.dumps([known, versions, sources]).encode()).hexdigest()[:16]
    return cache_directory("toys") / f"{rules.kind}-{role}-{key}"


def ensure_models(roles: Iterable[str], rules: Rules, settings: WarmUp) -> dict[str, Path]:
    """Returns the directories of these policies' toy models: in EXAMPLES if it holds them, else in the cache. Missing models
    are made."""
    targets = {role: _shipped(role, rules, settings) or cached_model(role, rules, settings) for role in roles}
    make_missing(targets, rules, settings)
    return targets


def _shipped(role: str, rules: Rules, settings: WarmUp) -> Path | None:
    known = identity(role, rules, settings)
    made = ((file.parent, json.loads(file.read_text("utf-8"))) for file in EXAMPLES.glob("*/made_from.json"))
    return next((directory / role for directory, of in made if of["models"].get(role) == known), None)


def make_missing(targets: Mapping[str, Path], rules: Rules, settings: WarmUp) -> None:
    """Trains the models whose directories are missing. Each policy has a process with one thread, so the result does
    not depend on the number of cores."""
    missing = {role: target for role, target in targets.items() if not target.is_dir()}
    if not missing:
        return
    context = multiprocessing.get_context("spawn")
    print("training the toy models on demonstrations: some minutes, once", flush=True)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with (
        context.Manager() as manager,
        ProcessPoolExecutor(len(missing), mp_context=context) as pool,
        Progress(*columns) as progress,
    ):
        done = manager.dict(dict.fromkeys(missing, 0))
        futures = [
            pool.submit(_teach, role, rules, settings, target, done) for role, target in missing.items()
        ]
        bars = {
            role: progress.add_task(f"warm-up of the {role}", total=settings.steps(role)) for role in missing
        }
        while not all(future.done() for future in futures):
            time.sleep(0.3)
            for role, bar in bars.items():
                progress.update(bar, completed=done[role])
        for future in futures:
            future.result()


def identity(role: str, rules: Rules, settings: WarmUp) -> str:
    """Returns a hash of what determines the weights, apart from the training's code and floating-point arithmetic: the
    settings, the vocabulary of a tokenizer trained on the first texts, and the first demonstrations in these tokens."""
    tokenizer, draw = _lesson(role, rules, settings, texts=_TEXTS)
    shown = [draw() for _ in range(_DEMONSTRATIONS)]
    content = {
        "settings": settings.of(role),
        "vocabulary": tokenizer.get_vocab(),
        "demonstrations": [[d.tokens, d.learned] for d in shown],
    }
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def _lesson(
    role: str, rules: Rules, settings: WarmUp, texts: int | None = None
) -> tuple[Any, Callable[[], Demonstration]]:
    """Returns (tokenizer, function that draws the next demonstration). texts: number of texts that the tokenizer is
    trained on; None: all."""
    from lab.model import build_tokenizer

    lesson = lesson_for(rules, role, settings)
    tokenizer = build_tokenizer(islice(lesson.texts, texts), MARKER_TOKENS, PAD, END)
    style, rng = (
        format_for(tokenizer),
        Random(derive_seed("demonstrations", role, settings.seed)),
    )
    return tokenizer, lambda: lesson.draw(style, rng)


def _teach(role: str, rules: Rules, settings: WarmUp, target: Path, done: Any) -> None:
    """Builds, trains and saves one toy model. It runs in a separate process."""
    import torch
    from transformers.utils import logging as transformers_logging

    from lab.model import build_model
    from lab.supervised import train_supervised

    torch.set_num_threads(1)
    transformers_logging.disable_progress_bar()
    tokenizer, draw = _lesson(role, rules, settings)
    model = build_model(tokenizer, seed=derive_seed("model", role, settings.seed))
    parent = os.getppid()

    def report(step: int, loss: float) -> None:
        if os.getppid() != parent:  # the parent process was killed
            os._exit(1)
        if step % 10 == 0 or step == settings.steps(role):
            done[role] = step

    train_supervised(
        model,
        draw,
        steps=settings.steps(role),
        batch_size=settings.batch_size,
        learning_rate=settings.learning_rate,
        on_step=report,
    )
    save_model(model, tokenizer, target)
