"""Finds the embedded models, or trains them on demonstrations, so that play has something to improve.

The models of the recipe `embedded`, in both sizes, are part of the repository (WARM_STARTS); others are cached. Both
are identified by `identity`: if anything changes in the demonstrations or the training, the models are made anew.
"""

import hashlib
import inspect
import json
import multiprocessing
import os
import re
import shutil
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ProcessPoolExecutor
from importlib.metadata import version
from itertools import islice
from pathlib import Path
from random import Random
from typing import Any

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from sparring.core.seeding import derive_seed
from sparring.embedded.catalogue import lesson_for
from sparring.embedded.lessons import Demonstration
from sparring.embedded.settings import WarmStartSettings
from sparring.games.prompts import END, MARKER_TOKENS, PAD, format_for
from sparring.games.rules import Rules

WARM_STARTS = Path(__file__).parent / "warm_start"
"""For each size of the recipe, a directory per policy and made_from.json: {"recipe", "models": {policy: identity},
...}."""
SHIPPED = WARM_STARTS / "embedded"
"""The models that `embedded` stands for if no recipe says otherwise."""
_TEXTS, _DEMONSTRATIONS = 256, 64
"""Number of texts and of demonstrations that enter `identity`. If a change does not show in these, the cache still
notices it, since its key covers the sources of this package as well; for the shipped models a test does."""


def find_embedded(role: str, rules: Rules, settings: WarmStartSettings) -> Path:
    """Returns the directory of a policy's embedded model: the shipped model if it matches the settings, otherwise a
    directory of the cache, which may not exist yet. Raises ProblemFileError."""
    known = identity(role, rules, settings)
    for made_from in WARM_STARTS.glob("*/made_from.json"):
        if json.loads(made_from.read_text("utf-8"))["models"].get(role) == known:
            return made_from.parent / role
    versions = [version(name).split("+")[0] for name in ("torch", "transformers", "tokenizers")]
    wing = [source.read_text("utf-8") for source in sorted(Path(__file__).parent.glob("*.py"))]
    key = hashlib.sha256(json.dumps([known, versions, wing]).encode()).hexdigest()[:16]
    return cache_directory() / f"{rules.kind}-{role}-{key}"


def cache_directory() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "sparring" / "warm_start"


def ensure_embedded(roles: Iterable[str], rules: Rules, settings: WarmStartSettings) -> dict[str, Path]:
    """Returns the directories of these policies' embedded models. Missing models are made."""
    targets = {role: find_embedded(role, rules, settings) for role in roles}
    make_missing(targets, rules, settings)
    return targets


def make_missing(targets: Mapping[str, Path], rules: Rules, settings: WarmStartSettings) -> None:
    """Trains the models whose directories are missing. Each policy has a process with one thread, so the result does
    not depend on the number of cores."""
    missing = {role: target for role, target in targets.items() if not target.is_dir()}
    if not missing:
        return
    context = multiprocessing.get_context("spawn")
    print("warming up the embedded models on demonstrations: some minutes, once", flush=True)
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
        bars = {role: progress.add_task(f"warm start {role}", total=settings.steps(role)) for role in missing}
        while not all(future.done() for future in futures):
            time.sleep(0.3)
            for role, bar in bars.items():
                progress.update(bar, completed=done[role])
        for future in futures:
            future.result()


def identity(role: str, rules: Rules, settings: WarmStartSettings) -> str:
    """Returns a hash of what determines the weights, apart from floating-point arithmetic: the settings, the vocabulary
    of a tokenizer trained on the first texts, the first demonstrations in these tokens, and the sources of the model
    and its training, without their imports."""
    from sparring.embedded import model, supervised

    tokenizer, draw = _lesson(role, rules, settings, texts=_TEXTS)
    shown = [draw() for _ in range(_DEMONSTRATIONS)]
    content = {
        "settings": settings.of(role),
        "vocabulary": tokenizer.get_vocab(),
        "demonstrations": [[d.tokens, d.learned] for d in shown],
        "sources": [
            re.sub(r"^(from|import) .*\n", "", inspect.getsource(module), flags=re.MULTILINE)
            for module in (model, supervised)
        ],
    }
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def _lesson(
    role: str, rules: Rules, settings: WarmStartSettings, texts: int | None = None
) -> tuple[Any, Callable[[], Demonstration]]:
    """Returns (tokenizer, function that draws the next demonstration). texts: number of texts that the tokenizer is
    trained on; None: all."""
    from sparring.embedded.model import build_tokenizer

    lesson = lesson_for(rules, role, settings)
    tokenizer = build_tokenizer(islice(lesson.texts, texts), MARKER_TOKENS, PAD, END)
    style, rng = (
        format_for(tokenizer),
        Random(derive_seed("demonstrations", role, settings.seed)),
    )
    return tokenizer, lambda: lesson.draw(style, rng)


def _teach(role: str, rules: Rules, settings: WarmStartSettings, target: Path, done: Any) -> None:
    """Builds, trains and saves one embedded model (in a process of its own)."""
    import torch
    from transformers.utils import logging as transformers_logging

    from sparring.embedded.model import build_model
    from sparring.embedded.supervised import train_supervised

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
