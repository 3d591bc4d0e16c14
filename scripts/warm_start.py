"""Warm start: short supervised training before the game, so that play has something to improve.

Two uses:
  * the embedded models: built, trained on rendered demonstrations with systematic misconceptions, and cached by
    the hash of everything that goes in. `make run` does this by itself the first time.
  * python -m scripts.warm_start --model PATH_OR_HUB_ID --problems-file problems.json --role generator --output DIR
    trains any Hugging Face causal LM on five-stage traces (or test suites) rendered from your problems'
    reference solutions.
"""

import hashlib
import json
import multiprocessing
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from random import Random
from typing import Any, ClassVar, Literal

from pydantic import Field
from pydantic_settings import BaseSettings, CliApp, SettingsConfigDict
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from configs.schema import Config, WarmStartSettings
from core.problem import Problem
from core.seeding import derive_seed
from games.multistage import MultistageRules
from games.prompts import END, MARKER_TOKENS, PAD, format_for
from games.stages import REASONING_STAGES
from problems.embedded import grammar, sampling, traces
from problems.embedded.generate import embedded_problems, embedded_specs
from problems.loader import ProblemFileError, load_problems
from problems.traces import render_suite, render_trace

ROLES = ("generator", "discriminator")
_ROOT = Path(__file__).resolve().parent.parent
_SOURCES = (
    "problems/embedded", "learners/embedded_model.py", "learners/supervised.py", "games/prompts.py",
    "games/stages.py", "core/seeding.py", "scripts/warm_start.py",
)  # fmt: skip


def cache_directory() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "sparring" / "warm_start"


def ensure_embedded(config: Config) -> dict[str, Path]:
    """Directories of the warm-started embedded models by role, made where they are not cached."""
    settings, tests = config.warm_start, config.game.max_tests
    targets = {role: cache_directory() / f"{role}-{_key(settings, tests, role)}" for role in ROLES}
    missing = [role for role in ROLES if not targets[role].is_dir()]
    if missing:
        _make_embedded({role: targets[role] for role in missing}, settings, tests)
    return targets


def _key(settings: WarmStartSettings, tests: int, role: str) -> str:
    """Hash of everything that decides the weights."""
    import tokenizers
    import torch
    import transformers

    sha = hashlib.sha256()
    for name in _SOURCES:
        path = _ROOT / name
        for file in sorted(path.rglob("*.py")) if path.is_dir() else [path]:
            sha.update(file.read_bytes())
    others = {r: n for r, n in settings.model_dump().items() if not r.startswith(_other(role))}
    versions = [m.__version__.split("+")[0] for m in (torch, transformers, tokenizers)]
    sha.update(json.dumps([others, tests, role, versions], sort_keys=True).encode())
    return sha.hexdigest()[:16]


def _other(role: str) -> str:
    return ROLES[1 - ROLES.index(role)]


def _make_embedded(targets: dict[str, Path], settings: WarmStartSettings, tests: int) -> None:
    """One process per role, one thread each: the result does not depend on how many cores there are."""
    steps = {"generator": settings.generator_steps, "discriminator": settings.discriminator_steps}
    context = multiprocessing.get_context("spawn")
    print("first run: warming up the embedded models on demonstrations (kept in the cache)", flush=True)
    with context.Manager() as manager, ProcessPoolExecutor(len(targets), mp_context=context) as pool:
        done = manager.dict(dict.fromkeys(targets, 0))
        futures = {
            role: pool.submit(_train_embedded, role, settings, tests, target, done)
            for role, target in targets.items()
        }
        with _progress() as progress:
            bars = {role: progress.add_task(f"warm start {role}", total=steps[role]) for role in targets}
            while any(not f.done() for f in futures.values()):
                for role, bar in bars.items():
                    progress.update(bar, completed=done[role])
                time.sleep(0.3)
            for role, bar in bars.items():
                progress.update(bar, completed=done[role])
        for future in futures.values():
            future.result()


def _progress() -> Progress:
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        transient=False,
    )


def _train_embedded(role: str, settings: WarmStartSettings, tests: int, target: Path, done: Any) -> None:
    """Build, train and save one embedded model (in a process of its own)."""
    import torch
    from transformers.utils import logging as transformers_logging

    from learners.embedded_model import build_model, build_tokenizer
    from learners.supervised import train_supervised

    torch.set_num_threads(1)
    transformers_logging.disable_progress_bar()
    tokenizer = build_tokenizer(_corpus(), MARKER_TOKENS, PAD, END)
    model = build_model(tokenizer, seed=derive_seed("model", role, settings.seed))
    draw = _embedded_demonstrations(role, settings, tests, format_for(tokenizer, "input_only"))

    parent = os.getppid()

    def report(step: int, loss: float) -> None:
        if step % 10 == 0:
            if os.getppid() != parent:  # whoever wanted this was killed
                os._exit(1)
            done[role] = step

    steps = settings.generator_steps if role == "generator" else settings.discriminator_steps
    train_supervised(
        model,
        draw,
        steps=steps,
        batch_size=settings.batch_size,
        learning_rate=settings.learning_rate,
        on_step=report,
    )
    done[role] = steps
    _save(model, tokenizer, target)


def _corpus(count: int = 1500) -> Iterator[str]:
    """Text that the tokenizer is trained on: descriptions, traces, tests of random problems."""
    rng = Random(derive_seed("tokenizer corpus"))
    for _ in range(count):
        spec = sampling.random_spec(rng)
        yield grammar.describe(spec)
        yield from traces.clean_trace(spec)
        for make in (sampling.bland_input, sampling.edge_input):
            argument = make(spec, rng)
            (value,) = sampling.run_reference(spec, [argument])
            yield f"assert f({argument!r}) == {value!r}\n"
            yield f"f({argument!r})\n"


def _embedded_demonstrations(
    role: str, settings: WarmStartSettings, tests: int, style: Any
) -> Callable[[], Any]:
    """Endless demonstrations on the training problems, in an order fixed by role and seed."""
    rng = Random(derive_seed("demonstrations", role, settings.seed))
    pairs = list(zip(embedded_problems("train"), embedded_specs("train"), strict=True))
    mix = traces.SuiteMix(weak=settings.weak_suites, invalid=settings.invalid_suites)

    def draw() -> Any:
        problem, spec = rng.choice(pairs)
        if role == "generator":
            return solve_demonstration(
                style, problem, traces.flawed_trace(spec, rng, settings.misconceptions)
            )
        suite = traces.discriminator_suite(spec, rng, tests=tests, mix=mix)
        return attack_demonstration(style, problem, suite, tests)

    return draw


def solve_demonstration(style: Any, problem: Problem, stages: tuple[str, ...]) -> Any:
    """Five-stage trace as one sequence; the model learns what it would have to say itself."""
    from learners.supervised import Demonstration

    tokens: list[int] = style.generator_prompt(problem)
    learned = [False] * len(tokens)
    for stage, text in zip(REASONING_STAGES, stages, strict=True):
        if stage.number > 1:
            tokens = style.next_stage(tokens, stage.number)
            learned += [False] * (len(tokens) - len(learned))
        completion = style.completion(text, stage.number)
        tokens = [*tokens, *completion]
        learned += [True] * len(completion)
    return Demonstration(tokens, learned)


def attack_demonstration(style: Any, problem: Problem, suite: str, tests: int) -> Any:
    from learners.supervised import Demonstration

    prompt = style.discriminator_prompt(problem, tests)
    completion = style.completion(suite, 0)
    return Demonstration([*prompt, *completion], [False] * len(prompt) + [True] * len(completion))


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


class WarmStart(BaseSettings):
    """Train any Hugging Face causal LM on demonstrations rendered from a problems file."""

    model: str
    """Hub id or local path."""
    problems_file: Path
    role: Literal["generator", "discriminator"]
    output: Path
    """Directory for the trained model; give it to driver.py as --generator-model or --discriminator-model."""
    steps: int = Field(default=200, ge=1)
    batch_size: int = Field(default=8, ge=1)
    learning_rate: float = Field(default=2e-5, gt=0)
    test_format: Literal["strict", "relabel", "input_only"] = "strict"
    max_tests: int = Field(MultistageRules().max_tests, ge=1)
    device: Literal["cpu", "cuda"] = "cpu"
    seed: int = 1

    model_config: ClassVar[SettingsConfigDict] = SettingsConfigDict(
        cli_prog_name="python -m scripts.warm_start", cli_kebab_case=True, use_attribute_docstrings=True
    )

    def cli_cmd(self) -> None:
        warm_start(self)


def warm_start(settings: WarmStart) -> float:
    """Returns the final loss. Raises ProblemFileError, OSError (no such model)."""
    from transformers import AutoTokenizer

    from learners.models import load_model
    from learners.supervised import train_supervised

    if settings.output.exists():
        raise ValueError(f"--output {settings.output}: is there already; give a new directory")
    problems = load_problems(settings.problems_file)
    tokenizer = AutoTokenizer.from_pretrained(settings.model)
    model = load_model(settings.model, settings.device)
    style = format_for(tokenizer, settings.test_format)
    rng = Random(settings.seed)

    def draw() -> Any:
        problem = rng.choice(problems)
        if settings.role == "generator":
            return solve_demonstration(style, problem, render_trace(problem))
        only_inputs = settings.test_format == "input_only"
        suite = render_suite(problem, max_tests=settings.max_tests, input_only=only_inputs)
        return attack_demonstration(style, problem, suite, settings.max_tests)

    with _progress() as progress:
        bar = progress.add_task(f"warm start {settings.role}", total=settings.steps)
        loss = train_supervised(
            model,
            draw,
            steps=settings.steps,
            batch_size=settings.batch_size,
            learning_rate=settings.learning_rate,
            on_step=lambda step, _: progress.update(bar, completed=step),
        )
    _save(model, tokenizer, settings.output)
    print(f"loss {loss:.3f}; saved to {settings.output}")
    return loss


def main() -> None:
    try:
        CliApp.run(WarmStart)
    except (ProblemFileError, OSError, ValueError) as error:
        print(f"error: {error}", file=sys.stderr)
        raise SystemExit(2) from error


if __name__ == "__main__":
    main()
