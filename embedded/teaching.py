"""The embedded models: found where they are, else taught on demonstrations, so that play has something to improve.

Those of the recipe `embedded`, in both sizes, are in the repository (WARM_STARTS), others in a cache. Both go by `identity`: where anything
changes that they are taught, or how, they are others, and are made anew.
"""

import hashlib
import inspect
import json
import multiprocessing
import os
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

from core.seeding import derive_seed
from embedded.catalogue import lesson_for
from embedded.lessons import Demonstration
from embedded.settings import WarmStartSettings
from games.prompts import END, MARKER_TOKENS, PAD, format_for
from games.rules import Rules

WARM_STARTS = Path(__file__).parent / "warm_start"
"""Of each size of the recipe a directory per policy, and made_from.json: {"recipe", "models": {policy: identity}, ...}."""
SHIPPED = WARM_STARTS / "embedded"
"""What `embedded` means where no recipe says more."""
_TEXTS, _DEMONSTRATIONS = 256, 64
"""Of a lesson, as many tell it from another. A change that they do not show is seen by the cache, which goes by the wing's
sources as well, and for the shipped models by a test."""


def find_embedded(role: str, rules: Rules, settings: WarmStartSettings) -> Path:
    """Directory of a policy's embedded model: the shipped one where it is what is asked for, else one of the cache,
    which may have to be made. Raises ProblemFileError."""
    known = identity(role, rules, settings)
    for made_from in WARM_STARTS.glob("*/made_from.json"):
        if json.loads(made_from.read_text())["models"].get(role) == known:
            return made_from.parent / role
    versions = [version(name).split("+")[0] for name in ("torch", "transformers", "tokenizers")]
    wing = [source.read_text() for source in sorted(Path(__file__).parent.glob("*.py"))]
    key = hashlib.sha256(json.dumps([known, versions, wing]).encode()).hexdigest()[:16]
    return cache_directory() / f"{rules.kind}-{role}-{key}"


def cache_directory() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "sparring" / "warm_start"


def ensure_embedded(roles: Iterable[str], rules: Rules, settings: WarmStartSettings) -> dict[str, Path]:
    """Directories of these policies' embedded models, made where they are not there."""
    targets = {role: find_embedded(role, rules, settings) for role in roles}
    make_missing(targets, rules, settings)
    return targets


def make_missing(targets: Mapping[str, Path], rules: Rules, settings: WarmStartSettings) -> None:
    """Teach those models whose directories are not there. One process per role, one thread each: the result does not
    depend on how many cores there are."""
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
    """Hash of what decides the weights, but for the arithmetic: the settings, the vocabulary that the lesson's first
    texts give, its first demonstrations in these tokens, and the sources of the model and of its training."""
    from embedded import model, supervised

    tokenizer, draw = _lesson(role, rules, settings, texts=_TEXTS)
    shown = [draw() for _ in range(_DEMONSTRATIONS)]
    content = {
        "settings": settings.of(role),
        "vocabulary": tokenizer.get_vocab(),
        "demonstrations": [[d.tokens, d.learned] for d in shown],
        "sources": [inspect.getsource(module) for module in (model, supervised)],
    }
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def _lesson(
    role: str, rules: Rules, settings: WarmStartSettings, texts: int | None = None
) -> tuple[Any, Callable[[], Demonstration]]:
    """(tokenizer, what draws the next demonstration). texts: how many the tokenizer is trained on; None: all."""
    from embedded.model import build_tokenizer

    lesson = lesson_for(rules, role, settings)
    tokenizer = build_tokenizer(islice(lesson.texts, texts), MARKER_TOKENS, PAD, END)
    style, rng = (
        format_for(tokenizer),
        Random(derive_seed("demonstrations", role, settings.seed)),
    )
    return tokenizer, lambda: lesson.draw(style, rng)


def _teach(role: str, rules: Rules, settings: WarmStartSettings, target: Path, done: Any) -> None:
    """Build, train and save one embedded model (in a process of its own)."""
    import torch
    from transformers.utils import logging as transformers_logging

    from embedded.model import build_model
    from embedded.supervised import train_supervised

    torch.set_num_threads(1)
    transformers_logging.disable_progress_bar()
    tokenizer, draw = _lesson(role, rules, settings)
    model = build_model(tokenizer, seed=derive_seed("model", role, settings.seed))
    parent = os.getppid()

    def report(step: int, loss: float) -> None:
        if os.getppid() != parent:  # whoever wanted this was killed
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
    """Write beside the target and rename: a directory that is there is complete."""
    target.parent.mkdir(parents=True, exist_ok=True)
    draft = Path(tempfile.mkdtemp(prefix=".draft-", dir=target.parent))
    try:
        model.save_pretrained(draft)
        tokenizer.save_pretrained(draft)
        draft.rename(target)
    except OSError:  # another process was quicker, and its result is the same
        if not target.is_dir():
            raise
    finally:
        shutil.rmtree(draft, ignore_errors=True)
